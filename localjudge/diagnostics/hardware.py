"""GPUs and their driver, CPUs and memory."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.checks import Check, note, ok, wrong
from localjudge.system.requirements import install_command

LEAST_MEMORY = 2**30
"""Bytes below which Python, torch and the smallest model do not start."""

_SMI_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the driver and torch each say of the GPUs.

    Attributes:
        driver: the driver's version; None where there is none.
        driver_cuda: the newest CUDA that it can run.
        named: what the driver says is there.
        built_for: the CUDA that torch was built for; None for one built for something else.
        usable: the names of those that torch can use, with the bytes of their memory, free and in all.
        hidden: what CUDA_VISIBLE_DEVICES says, where it is set.
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
    """What this means for an engine.

    CUDA runs under a driver of the same major version or a later one; within one, an older driver lacks only
    what is new. (https://docs.nvidia.com/deploy/cuda-compatibility)
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
            f"{name} {free / 2**30:.0f} of {all_ / 2**30:.0f} GiB free" for name, free, all_ in found.usable
        )
        driver = f"; driver {found.driver}, CUDA up to {found.driver_cuda}" if found.driver else ""
        if engine == "vllm" and any(free < all_ * 0.9 for _, free, all_ in found.usable):
            mend = "end what else runs there, or give score a smaller --gpu-memory-utilization"
            return note("gpus", f"{cards}{driver}; vLLM takes nine tenths of a GPU", mend)
        return ok("gpus", f"{cards}{driver}")
    if found.named and found.hidden is not None:
        said, mend = f"{named}, hidden by CUDA_VISIBLE_DEVICES={found.hidden!r}", "unset CUDA_VISIBLE_DEVICES"
    elif found.named and found.built_for is None:
        said, mend = f"{named}, but this torch is built for CPUs", install_command("vllm")
    elif found.named:
        said, mend = f"{named}, but torch cannot use it", "see what nvidia-smi says, and load the driver again"
        return wrong("gpus", said, mend)
    else:
        said, mend = "no GPU", "give --engine transformers, or run this where there is a GPU"
    if engine == "vllm" and not _vllm_runs_on_cpus():
        return wrong("gpus", f"{said}, and vLLM needs one", mend)
    return note("gpus", said, mend) if found.named else ok("gpus", "none, so the model runs on CPUs")


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _vllm_runs_on_cpus() -> bool:
    if find_spec("vllm") is None:
        return False
    from localjudge.engines.output import output_to

    with output_to(Path(os.devnull)):
        from vllm.platforms import current_platform
    return bool(current_platform.is_cpu())


def _driver() -> Gpus:
    """What nvidia-smi says; nothing where it is not there or there is no driver."""
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
    return Gpus(
        found.driver,
        found.driver_cuda,
        found.named,
        torch.version.cuda,
        tuple((torch.cuda.get_device_name(rank), *torch.cuda.mem_get_info(rank)) for rank in usable),
        found.hidden,
    )


def cpus() -> Check:
    there = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    threads = os.environ.get("OMP_NUM_THREADS")
    told = f", OMP_NUM_THREADS={threads}" if threads else ""
    return ok("cpus", f"{usable} of {there} may be used{told}")


def memory(least: int = LEAST_MEMORY) -> Check:
    """Bytes of memory that are left, by the machine and by the limits that are set for this process."""
    left = min(_limits())
    said = f"{left / 2**30:.1f} GiB free"
    if left < least:
        mend = "end what else runs here, or lift the limit of the job, container or shell (ulimit -v)"
        return wrong("memory", f"{said}, and a run takes {least / 2**30:.1f} GiB or more", mend)
    return ok("memory", said)


def _limits() -> Iterator[int]:
    """What is left by each bound there is."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = _content("/proc/meminfo")
    if available := re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE):
        yield int(available[1]) * 1024
    group = Path("/sys/fs/cgroup") / _content("/proc/self/cgroup").strip().rpartition(":")[2].lstrip("/")
    for folder in (group, Path("/sys/fs/cgroup")):
        most, now = _content(folder / "memory.max").strip(), _content(folder / "memory.current").strip()
        if most.isdigit() and now.isdigit():
            stat = re.search(r"^inactive_file (\d+)", _content(folder / "memory.stat"), re.MULTILINE)
            yield int(most) - int(now) + (int(stat[1]) if stat else 0)  # pages of files are given back
    if find_spec("resource"):
        import resource

        most_addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most_addresses != resource.RLIM_INFINITY:
            size = _content("/proc/self/statm").split()
            yield most_addresses - (int(size[0]) * os.sysconf("SC_PAGE_SIZE") if size else 0)


def _content(file: str | Path) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""
