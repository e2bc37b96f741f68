"""Check what a run needs of this machine: packages, the engine's library, GPUs and folders."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import tempfile
from collections.abc import Collection
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.engines.engine_log import output_to
from localjudge.system import requirements
from localjudge.system.durable import free_space, unwritable
from localjudge.system.quantities import memory_size
from localjudge.system.requirements import install_command

LEAST_DISK = 200 * 10**6
"""Free bytes that a run should have when it starts."""

_SMI_SECONDS = 30.0


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
    named = ", ".join(f"{name} {version}" for name, version in found.items())
    return [*([ok("packages", named)] if found else []), *faults]


def _namesake() -> str | None:
    """Return the version of the distribution `localjudge`, if any: its files may have replaced ours."""
    try:
        return metadata.version("localjudge")
    except metadata.PackageNotFoundError:
        return None


def engine_library(engine: str, why: str) -> Check:
    """Check that vLLM, if it is the engine, can be imported and finds a device."""
    if engine != "vllm":
        return ok("engine", f"{engine}, {why}")
    if find_spec("vllm") is None:
        fix = f"{install_command('vllm')}, or give --engine transformers"
        return wrong("engine", "vLLM is not installed", fix)
    with output_to(Path(os.devnull)):
        import vllm
        from vllm import LLM  # noqa: F401 (what a run imports)
        from vllm.platforms import current_platform

        device = current_platform.device_type
    if not device:
        said = f"vLLM {vllm.__version__} finds no device of the kind that it was built for"
        return wrong("engine", said, "repair the driver, or give --engine transformers")
    return ok("engine", f"vllm {vllm.__version__} on {device}, {why}")


def gpus(engine: str) -> Check:
    """Check that torch can use the GPUs of the machine, if the engine needs one.

    CUDA needs a driver of the same major version or a later one. A driver with an older minor version lacks
    only the newer features. (https://docs.nvidia.com/deploy/cuda-compatibility)
    """
    import torch

    if torch.cuda.is_available():
        cards = [
            (torch.cuda.get_device_name(rank), *torch.cuda.mem_get_info(rank))
            for rank in range(torch.cuda.device_count())
        ]
        said = ", ".join(
            f"{name} {memory_size(free)} of {memory_size(all_)} free" for name, free, all_ in cards
        )
        if engine == "vllm" and any(free < all_ * 0.9 for _, free, all_ in cards):
            fix = "stop other programs on the GPU, or give score a smaller --gpu-memory-utilization"
            return note("gpus", f"{said}; vLLM takes 90 % of a GPU by default", fix)
        return ok("gpus", said)
    named, cuda = _driver()
    built_for, hidden = torch.version.cuda, os.environ.get("CUDA_VISIBLE_DEVICES")
    if not named:
        said, fix = "no GPU", "give --engine transformers, or use a machine with a GPU"
    elif cuda and built_for and int(cuda.partition(".")[0]) < int(built_for.partition(".")[0]):
        said = f"{named}: the driver runs CUDA up to {cuda}, torch is built for {built_for}"
        return wrong(
            "gpus", said, f"install a driver for CUDA {built_for} or later, or a torch built for {cuda}"
        )
    elif hidden is not None:
        said, fix = f"{named}, hidden by CUDA_VISIBLE_DEVICES={hidden!r}", "unset CUDA_VISIBLE_DEVICES"
    elif built_for is None:
        said, fix = f"{named}, but this torch is built for CPUs", install_command("vllm")
    else:
        return wrong("gpus", f"{named}, but torch cannot use it", "check nvidia-smi, and load the driver again")
    if engine == "vllm" and not _vllm_runs_on_cpus():
        return wrong("gpus", f"{said}, but vLLM needs one", fix)
    return note("gpus", said, fix) if named else ok("gpus", "none; the model runs on the CPU")


def _vllm_runs_on_cpus() -> bool:
    if find_spec("vllm") is None:
        return False
    with output_to(Path(os.devnull)):
        from vllm.platforms import current_platform
    return bool(current_platform.is_cpu())


def _driver() -> tuple[str, str | None]:
    """Return the GPUs that nvidia-smi reports, and the newest CUDA version that their driver can run."""
    query = ("--query-gpu=name,memory.total", "--format=csv,noheader")
    cards = csv.reader(_nvidia_smi(*query).splitlines(), skipinitialspace=True)
    cuda = re.search(r"CUDA(?: UMD)? Version:\s*(\d+\.\d+)", _nvidia_smi())
    return ", ".join(" ".join(card) for card in cards), cuda and cuda[1]


def _nvidia_smi(*options: str) -> str:
    """Return the output of nvidia-smi; nothing if there is no such program or no driver."""
    command = ["nvidia-smi", *options]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=_SMI_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def run_folder(folder: Path, least: int = LEAST_DISK) -> Check:
    """Check that a run directory can be written."""
    if fault := unwritable(folder, least):
        return wrong("out", f"{folder}: {fault}", "free space or change the permissions, or give another --out")
    return ok("out", f"{folder}: {free_space(folder)}")


def temporary_folder(least: int = LEAST_DISK) -> Check:
    """Check the folder for temporary files, which vLLM, Ray and torch use."""
    fix = "set TMPDIR to a writable folder with free space"
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return wrong("temporary", "no folder for temporary files is writable", fix)
    if fault := unwritable(folder, least):
        return wrong("temporary", f"{folder}: {fault}", fix)
    return ok("temporary", f"{folder}: {free_space(folder)}")
