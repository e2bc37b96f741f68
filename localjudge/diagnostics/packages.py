"""Check Python and the installed packages against the versions in localjudge's metadata."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.check_results import Check, ok, wrong
from localjudge.system import requirements


def python() -> Check:
    from packaging.specifiers import SpecifierSet

    needed = metadata.metadata(requirements.SELF)["Requires-Python"] or ""
    here = platform.python_version()
    if SpecifierSet(needed).contains(here, prereleases=True):
        return ok("python", f"{here}, {platform.machine()}")
    return wrong(
        "python", f"{here}, but localjudge needs {needed}", f"create a virtual environment with Python {needed}"
    )


def required_packages(extras: Collection[str]) -> list[Check]:
    """Check the packages that localjudge and these extras of it require."""
    found: dict[str, str] = {}
    faults = []
    for requirement in requirements.required(["", *extras], requirements.SELF):
        fix = f"pip install {requirements.quoted(requirement)}"
        version = requirements.installed(requirement.name)
        if version is None:
            faults.append(wrong("packages", f"{requirement.name} is not installed", fix))
        elif not requirement.specifier.contains(version, prereleases=True):
            said = f"{requirement.name} {version}, but localjudge needs {requirement.specifier}"
            faults.append(wrong("packages", said, fix))
        else:
            found[requirement.name] = version
    if (other := _namesake()) is not None:
        said = (
            f"localjudge {other} is installed, another project's package with the module of {requirements.SELF}"
        )
        faults.append(wrong("packages", said, f"pip uninstall localjudge; install {requirements.SELF} again"))
    return [
        *([ok("packages", ", ".join(f"{name} {version}" for name, version in found.items()))] if found else []),
        *faults,
    ]


def _namesake() -> str | None:
    """Return the version of the distribution `localjudge`, if any: its files may have replaced ours."""
    try:
        return metadata.version("localjudge")
    except metadata.PackageNotFoundError:
        return None


def outlines() -> Check:
    """Check that Outlines can build a token table, with a vocabulary of single bytes."""
    from localjudge.constraint.compiler import token_table
    from localjudge.constraint.vocabulary import Vocabulary
    from localjudge.rubrics.rubric import Rubric

    alphabet = Vocabulary({byte: bytes([byte]) for byte in range(256)}, frozenset({256}), 257)
    table = token_table(Rubric.load().answer_layout, alphabet)
    return ok(
        "outlines", f"outlines-core {metadata.version('outlines-core')} builds {len(table.distance)} states"
    )


def torch_build() -> list[Check]:
    """Check that torch can be imported, and report what it was built for."""
    if find_spec("torch") is None:
        return []  # the packages check reports it
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm" if torch.version.hip else "CPUs"
    return [ok("torch", f"{torch.__version__}, built for {built}")]


def vllm_runner(why: str) -> Check:
    """Check that vLLM can be imported; report its platform and the model runner that it would use."""
    if find_spec("vllm") is None:
        return wrong(
            "engine",
            "vLLM is not installed",
            f"{requirements.install_command('vllm')}, or give --engine transformers",
        )
    from localjudge.engines.engine_log import output_to

    with output_to(Path(os.devnull)):
        import vllm
        from vllm import LLM, envs  # noqa: F401 (what a run imports)
        from vllm.platforms import current_platform
        from vllm.triton_utils import HAS_TRITON

        platform_found = current_platform.device_type
        chosen = envs.VLLM_USE_V2_MODEL_RUNNER
    if not platform_found:
        return wrong(
            "engine",
            f"vLLM {vllm.__version__} finds no device of the kind that it was built for",
            "repair the driver, or give --engine transformers",
        )
    runner = "V2" if chosen or (chosen is None and HAS_TRITON) else "V1"
    return ok("engine", f"vllm {vllm.__version__} on {platform_found}, runner {runner}, {why}")
