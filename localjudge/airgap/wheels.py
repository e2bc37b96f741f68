"""Collect the wheels of an installation: localjudge's own wheel, and those that pip finds for it.

pip resolves, downloads and builds with the user's configuration. This module gives it the target machine.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.utils import parse_wheel_filename

from localjudge.errors import LocalJudgeError, UsageError
from localjudge.system.requirements import SELF

Say = Callable[[str], None]
_LAST_LINES = 8
# The names that glibc 2.5, 2.12 and 2.17 had before PEP 600.
_OLD_NAMES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
# Files that an installer adds; no wheel has them.
_INSTALLERS_OWN = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")


@dataclass(frozen=True, slots=True)
class Target:
    """The target machine of the wheels: its Python, such as 3.11, its platform tags, and pip's options."""

    python: str
    platforms: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        return not self.options

    @classmethod
    def from_options(cls, python: str | None = None, platforms: Sequence[str] = ()) -> Target:
        """Return this machine as the target, or another one, for which only existing wheels can be used."""
        here = "{}.{}".format(*sys.version_info[:2])
        if python is not None and not re.fullmatch(r"3\.\d+", python):
            raise UsageError(f"--python {python}: write it like 3.11")
        if python is not None and int(python[2:]) < 11:
            raise UsageError(f"--python {python}: localjudge needs 3.11 or later")
        tags = [tag for name in platforms for tag in _with_older(name)]
        named = tuple(tags) or (sysconfig.get_platform(),)
        if python in (None, here) and not tags:
            return cls(here, named)
        options = ["--only-binary=:all:", f"--python-version={python or here}", "--implementation=cp"]
        return cls(python or here, named, (*options, *(f"--platform={tag}" for tag in tags)))


def _with_older(platform: str) -> list[str]:
    """Return a glibc platform and those of older glibc, whose wheels it also runs (PEP 600); others alone."""
    if not (match := re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)):
        return [platform]
    minor, machine = int(match[1]), match[2]
    tags = []
    for older in range(minor, 4, -1):
        tags.append(f"manylinux_2_{older}_{machine}")
        if older in _OLD_NAMES:
            tags.append(f"{_OLD_NAMES[older]}_{machine}")
    return tags


def own_wheel(folder: Path, pip_args: Sequence[str], say: Say) -> Path:
    """Write the running localjudge as a wheel into the folder.

    pip builds a checkout. An installation from a wheel is turned back into that wheel, file by file from its
    `RECORD`, so that no index is needed and no other version can replace it.
    """
    checkout = Path(__file__).parents[2]
    project = checkout / "pyproject.toml"
    if project.is_file() and tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"] == SELF:
        run_pip(["wheel", "--no-deps", f"--wheel-dir={folder}", *pip_args, str(checkout)], say)
        return next(folder.glob("*.whl"))
    return installed_wheel(SELF, folder)


def installed_wheel(name: str, folder: Path) -> Path:
    """Return the wheel from which a distribution was installed, rebuilt from its files.

    Raises:
        UsageError: it was not installed from a wheel, or one of its files has changed.
    """
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise UsageError(f"{name} is neither a checkout nor installed here: install it with pip") from None
    tags = BytesParser().parsebytes((found.read_text("WHEEL") or "").encode()).get_all("Tag") or []
    if not found.files or len(tags) != 1:
        raise UsageError(f"{name} was not installed from a wheel: install it with pip")
    stem = f"{name.replace('-', '_')}-{found.version}"
    record = f"{stem}.dist-info/RECORD"
    lines: list[tuple[str, str, str]] = []
    file = folder / f"{stem}-{tags[0]}.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(found.files, key=str):
            added = path.parts[0].endswith(".dist-info") and path.name in _INSTALLERS_OWN
            if added or path.parts[0] == ".." or "__pycache__" in path.parts:
                continue  # pip creates programs and compiled files again
            content = path.read_binary()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            if path.hash is None or path.hash.value != digest:
                raise UsageError(f"{path.locate()}: was changed after it was installed; install {name} again")
            wheel.writestr(_zipped(str(path)), content)
            lines.append((str(path), f"sha256={digest}", str(len(content))))
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([*lines, (record, "", "")])
        wheel.writestr(_zipped(record), table.getvalue())
    return file


def _zipped(name: str) -> zipfile.ZipInfo:
    """Return a zip entry without a time, so that the same files give the same wheel."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def check_extras(wheel: Path, extras: Iterable[str]) -> None:
    """Check that a wheel has these extras.

    Raises:
        UsageError: the wheel has no such extra.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        known = BytesParser().parsebytes(archive.read(name)).get_all("Provides-Extra") or []
    for extra in extras:
        if extra not in known:
            raise UsageError(f"--extra {extra}: the extras are {', '.join(known) or 'none'}")


def gather_wheels(requirement: str, target: Target, folder: Path, pip_args: Sequence[str], say: Say) -> None:
    """Collect all wheels of a requirement, and pip's own wheel, in the folder.

    Raises:
        LocalJudgeError: pip failed; the message has its last lines.
    """
    if target.is_here:
        command = ["wheel", f"--wheel-dir={folder}"]
    else:
        command = ["download", f"--dest={folder}", *target.options]
    # pip's own wheel: many Python installations cannot install pip into a virtual environment.
    run_pip([*command, *pip_args, requirement, "pip"], say)


def locked(wheels: Iterable[Path]) -> str:
    """Return a requirements file for pip: a line for each wheel, with its version and SHA-256."""
    lines = []
    for wheel in wheels:
        name, version, *_ = parse_wheel_filename(wheel.name)
        with wheel.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return "".join(sorted(lines))


def run_pip(arguments: Sequence[str], say: Say) -> None:
    """Run pip of this Python with the user's configuration.

    Raises:
        LocalJudgeError: pip failed; the message has its last lines.
    """
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--progress-bar=off"]
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        for line in pip.stdout or ():
            last.append(line.rstrip())
            if line.lstrip().startswith(("Downloading", "Building wheel for")):
                say(f"pip: {line.strip()}")
    if pip.returncode:
        said = [line for line in last if line.startswith("ERROR")] or [line for line in last if line][-1:]
        raise LocalJudgeError(f"pip {arguments[0]} failed: {' / '.join(said[-3:]) or 'without output'}")
