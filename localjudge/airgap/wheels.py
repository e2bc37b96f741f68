"""The wheels of an installation, which pip finds.

pip resolves, downloads and builds with the user's configuration. This module gives it the target machine.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from packaging.utils import parse_wheel_filename

from localjudge.airgap.target_machine import Target
from localjudge.errors import LocalJudgeError

Say = Callable[[str], None]
_LAST_LINES = 8
"""How many of pip's last lines are searched for the reason why it failed."""
_MOST_ERRORS = 3
"""How many of its errors a message has."""


def gather_wheels(requirement: str, target: Target, folder: Path, pip_args: Sequence[str], say: Say) -> None:
    """Collect all wheels of a requirement, and pip's own wheel, in the folder.

    Raises:
        LocalJudgeError: pip failed; the message has its last lines.
    """
    if target.is_here:
        arguments = ["wheel", f"--wheel-dir={folder}"]
    else:
        arguments = ["download", f"--dest={folder}"]
        arguments += target.options
    arguments += pip_args
    # pip's own wheel: many Python installations cannot install pip into a virtual environment.
    arguments += [requirement, "pip"]
    run_pip(arguments, say)


def run_pip(arguments: Sequence[str], say: Say) -> None:
    """Run pip of this Python with the user's configuration.

    Raises:
        LocalJudgeError: pip failed; the message has its last lines.
    """
    command = [sys.executable, "-m", "pip"]
    command += arguments
    command += ["--disable-pip-version-check", "--progress-bar=off"]
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last_lines.append(line.rstrip())
            if line.lstrip().startswith(("Downloading", "Building wheel for")):
                say(f"pip: {line.strip()}")
    if pip.returncode != 0:
        raise LocalJudgeError(f"pip {arguments[0]} failed: {_reason_of_failure(last_lines)}")


def _reason_of_failure(lines: Iterable[str]) -> str:
    """Return the last errors among pip's last lines, or the last line."""
    errors = [line for line in lines if line.startswith("ERROR")]
    if errors:
        return " / ".join(errors[-_MOST_ERRORS:])
    texts = [line for line in lines if line]
    return texts[-1] if texts else "without output"


def locked(wheels: Iterable[Path]) -> str:
    """Return a requirements file for pip: a line for each wheel, with its version and SHA-256."""
    lines: list[str] = []
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        with wheel.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return "".join(sorted(lines))


def wheel_metadata(wheel: Path) -> Message:
    """Return what a wheel says of itself: the headers of its `METADATA`."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"[^/]+\.dist-info/METADATA", name):
                return BytesParser().parsebytes(archive.read(name))
    raise LocalJudgeError(f"{wheel}: is no wheel, because it has no METADATA")
