"""Check GPUs and their driver, CPUs and memory."""

from __future__ import annotations

import csv
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.system.quantities import GIB, memory_size
from localjudge.system.requirements import install_command

LEAST_MEMORY = GIB
"""Bytes that Python, torch and the smallest model need to start."""

_SMI_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs as reported by the driver and by torch.

    Attributes:
        driver: the driver's version; None without a driver.
        driver_cuda: the newest CUDA version that the driver can run.
        named: the GPUs that the driver reports.
        built_for: the CUDA version that torch was built for; None if torch was not built for CUDA.
        usable: the GPUs that torch can use: name, free memory and total memory in bytes.
        hidden: the value of CUDA_VISIBLE_DEVICES; None if it is not set.
    """

    driver: str | None = None
    driver_cuda: str | None = None
    named: tuple[str, ...] = ()
    built_for: str | None = None
    usable: tuple[tuple[str, int, int], ...] = ()
    hidden: str | None = None


def gpus(engine: str) -> Check:
    return judge_gpus(_driver() if find_spec("torch") is None else _with_torch(_driver()), engine)


def judge_gpus(found: Gpus, engine: str) -> Check:
    """Return what the GPUs mean for an engine.

    CUDA needs a driver of the same major version or a later one. A driver with an older minor version lacks
    only the newer features. (https://docs.nvidia.com/deploy/cuda-compatibility)
    """
    named = ", ".join(found.named)
    if found.driver_cuda and found.built_for and _major(found.driver_cuda) < _major(found.built_for):
        return wrong(
            "gpus",
            f"{named}: the driver {found.driver} runs CUDA up to {found.driver_cuda}, torch is built for "
            f"{found.built_for}",
            f"install a driver for CUDA {found.built_for} or later, or a torch built for {found.driver_cuda}",
        )
    if found.usable:
        cards = ", ".join(
            f"{name} {memory_size(free)} of {memory_size(all_)} free" for name, free, all_ in found.usable
        )
        driver = f"; driver {found.driver}, CUDA up to {found.driver_cuda}" if found.driver else ""
        if engine == "vllm" and any(free < all_ * 0.9 for _, free, all_ in found.usable):
            fix = "stop other programs on the GPU, or give score a smaller --gpu-memory-utilization"
            return note("gpus", f"{cards}{driver}; vLLM takes 90 % of a GPU by default", fix)
        return ok("gpus", f"{cards}{driver}")
    if found.named and found.hidden is not None:
        said, fix = f"{named}, hidden by CUDA_VISIBLE_DEVICES={found.hidden!r}", "unset CUDA_VISIBLE_DEVICES"
    elif found.named and found.built_for is None:
        said, fix = f"{named}, but this torch is built for CPUs", install_command("vllm")
    elif found.named:
        said, fix = f"{named}, but torch cannot use it", "check nvidia-smi, and load the driver again"
        return wrong("gpus", said, fix)
    else:
        said, fix = "no GPU", "give --engine transformers, or use a machine with a GPU"
    if engine == "vllm" and not _vllm_runs_on_cpus():
        return wrong("gpus", f"{said}, but vLLM needs one", fix)
    return note("gpus", said, fix) if found.named else ok("gpus", "none; the model runs on the CPU")


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _vllm_runs_on_cpus() -> bool:
    if find_spec("vllm") is None:
        return False
    from localjudge.engines.engine_log import output_to

    with output_to(Path(os.devnull)):
        from vllm.platforms import current_platform
    return bool(current_platform.is_cpu())


def _driver() -> Gpus:
    """Return what nvidia-smi reports; an empty `Gpus` without nvidia-smi or a driver."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if (smi := shutil.which("nvidia-smi")) is None:
        return Gpus(hidden=hidden)
    query = "--query-gpu=driver_version,name,memory.total"
    rows = list(csv.reader(_say(smi, query, "--format=csv,noheader").splitlines(), skipinitialspace=True))
    cuda = re.search(r"CUDA(?: UMD)? Version:\s*(\d+\.\d+)", _say(smi))
    return Gpus(
        driver=rows[0][0] if rows else None,
        driver_cuda=cuda[1] if cuda else None,
        named=tuple(f"{name} {memory}" for _, name, memory in rows),
        hidden=hidden,
    )


def _say(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _with_torch(found: Gpus) -> Gpus:
    import torch

    usable = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    free = tuple((torch.cuda.get_device_name(rank), *torch.cuda.mem_get_info(rank)) for rank in usable)
    return replace(found, built_for=torch.version.cuda, usable=free)


def cpus() -> Check:
    there = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    threads = os.environ.get("OMP_NUM_THREADS")
    limit = f", OMP_NUM_THREADS={threads}" if threads else ""
    return ok("cpus", f"{usable} of {there} usable{limit}")


def memory(least: int = LEAST_MEMORY) -> Check:
    """Check the memory that is free on the machine and within the limits of this process."""
    left = min(_limits())
    said = f"{memory_size(left)} free"
    if left < least:
        fix = "stop other programs, or raise the limit of the job, container or shell (ulimit -v)"
        return wrong("memory", f"{said}; a run needs at least {memory_size(least)}", fix)
    return ok("memory", said)


def _limits() -> Iterator[int]:
    """Yield the free bytes under each limit that applies."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = _content("/proc/meminfo")
    if available := re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE):
        yield int(available[1]) * 1024
    group = Path("/sys/fs/cgroup") / _content("/proc/self/cgroup").strip().rpartition(":")[2].lstrip("/")
    for folder in (group, Path("/sys/fs/cgroup")):
        most, now = _content(folder / "memory.max").strip(), _content(folder / "memory.current").strip()
        if most.isdigit() and now.isdigit():
            stat = re.search(r"^inactive_file (\d+)", _content(folder / "memory.stat"), re.MULTILINE)
            yield int(most) - int(now) + (int(stat[1]) if stat else 0)  # the kernel can free the pages of files
    most_addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most_addresses != resource.RLIM_INFINITY:
        size = _content("/proc/self/statm").split()
        yield most_addresses - (int(size[0]) * os.sysconf("SC_PAGE_SIZE") if size else 0)


def _content(file: str | Path) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
