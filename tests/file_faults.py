"""Faults of file operations: a library that is preloaded (`file_faults.c`), and what it is told to do.

The operations of a process below one folder are counted. At one of them comes a fault: the process is killed, a
write is torn, the operation fails, or a signal arrives.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("file_faults.c")


@dataclass(frozen=True, slots=True)
class Fault:
    """What comes at an operation.

    Attributes:
        kind: as in `file_faults.c`.
        number: of a signal, or of an error; 0 for the others.
    """

    kind: str
    number: int = 0


FAULTS: Mapping[str, Fault] = {
    "kill": Fault("kill"),
    "torn write": Fault("tear"),
    "EIO": Fault("fail", errno.EIO),
    "EIO stays": Fault("stay", errno.EIO),
    "ENOSPC": Fault("fail", errno.ENOSPC),
    "ENOSPC stays": Fault("stay", errno.ENOSPC),
    "EDQUOT stays": Fault("stay", errno.EDQUOT),
    "EROFS stays": Fault("stay", errno.EROFS),
    "SIGTERM": Fault("signal", signal.SIGTERM),
    "Ctrl-C": Fault("signal", signal.SIGINT),
}
"""The faults by name. One that stays also comes at every later operation."""


def compiler() -> str | None:
    """Return the C compiler of this machine; None without one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def built_library(folder: Path) -> Path:
    """Compile the library into a folder, and return it.

    Raises:
        subprocess.CalledProcessError: it cannot be compiled.
        FileNotFoundError: there is no compiler.
    """
    program = compiler()
    if program is None:
        raise FileNotFoundError("no C compiler: install gcc")
    library = folder / "file_faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([program, *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def preloading(library: Path) -> dict[str, str]:
    """Return the environment of a process whose operations the library can reach."""
    return {**os.environ, "LD_PRELOAD": str(library)}


def counting(folder: Path, log: Path) -> dict[str, str]:
    """Return the variables with which the library writes the operations below a folder into a log."""
    return {"FAULT_FOLDER": str(folder), "FAULT_LOG": str(log)}


def failing(folder: Path, fault: Fault, at: int) -> dict[str, str]:
    """Return the variables with which a fault comes at an operation below a folder, counted from 1."""
    return {
        "FAULT_FOLDER": str(folder),
        "FAULT_AT": str(at),
        "FAULT_KIND": fault.kind,
        "FAULT_NUMBER": str(fault.number),
    }


def logged_operations(log: Path) -> list[str]:
    """Return the operations of a log, each as its name and its path."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line.partition(" ")[2] for line in lines]
