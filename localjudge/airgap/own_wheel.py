"""The wheel of the running localjudge: built from its checkout, or rebuilt from its installed files."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from localjudge.airgap.wheels import Say, run_pip, wheel_metadata
from localjudge.errors import UsageError
from localjudge.system.requirements import SELF

_INSTALLER_FILES = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
"""Files that an installer adds; no wheel has them."""


def own_wheel(folder: Path, pip_args: Sequence[str], say: Say) -> Path:
    """Write the running localjudge as a wheel into the folder.

    pip builds a checkout. An installation from a wheel is turned back into that wheel, file by file from its
    `RECORD`, so that no index is needed and no other version can replace it.
    """
    checkout = Path(__file__).parents[2]
    if not _is_own_project(checkout / "pyproject.toml"):
        return installed_wheel(SELF, folder)
    arguments = ["wheel", "--no-deps", f"--wheel-dir={folder}"]
    arguments += pip_args
    arguments.append(str(checkout))
    run_pip(arguments, say)
    return next(folder.glob("*.whl"))


def _is_own_project(file: Path) -> bool:
    """Return whether a file is the `pyproject.toml` of localjudge."""
    if not file.is_file():
        return False
    name: str = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]
    return name == SELF


@dataclass(frozen=True, slots=True)
class _RecordLine:
    """A line of the `RECORD` of a wheel: a file of it, its digest, and its size in bytes."""

    path: str
    digest: str
    size: str


def installed_wheel(name: str, folder: Path) -> Path:
    """Return the wheel from which a distribution was installed, rebuilt from its files.

    Raises:
        UsageError: it was not installed from a wheel, or one of its files has changed.
    """
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        raise UsageError(f"{name} is neither a checkout nor installed here: install it with pip") from None
    stem = f"{name.replace('-', '_')}-{installed.version}"
    tag = _wheel_tag(installed)
    if tag is None or not installed.files:
        raise UsageError(f"{name} was not installed from a wheel: install it with pip")
    lines: list[_RecordLine] = []
    file = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(file, "w", compression=zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(installed.files, key=str):
            if not _is_of_wheel(path):
                continue
            content = path.read_binary()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            if path.hash is None or path.hash.value != digest:
                raise UsageError(f"{path.locate()}: was changed after it was installed; install {name} again")
            wheel.writestr(_zip_entry(str(path)), content)
            lines.append(_RecordLine(str(path), f"sha256={digest}", size=str(len(content))))
        record = f"{stem}.dist-info/RECORD"
        lines.append(_RecordLine(record, digest="", size=""))  # the record has no digest of itself
        wheel.writestr(_zip_entry(record), _record_text(lines))
    return file


def _wheel_tag(installed: Distribution) -> str | None:
    """Return the tag of the wheel from which a distribution was installed; None if there is not exactly one."""
    text = installed.read_text("WHEEL")
    if text is None:
        return None
    tags = BytesParser().parsebytes(text.encode()).get_all("Tag", [])
    return tags[0] if len(tags) == 1 else None


def _is_of_wheel(path: PackagePath) -> bool:
    """Return whether an installed file was in the wheel: pip creates programs and compiled files again."""
    if path.parts[0] == ".." or "__pycache__" in path.parts:
        return False
    return not path.parts[0].endswith(".dist-info") or path.name not in _INSTALLER_FILES


def _record_text(lines: Iterable[_RecordLine]) -> str:
    """Return the text of a `RECORD`, in CSV."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    for line in lines:
        writer.writerow([line.path, line.digest, line.size])
    return table.getvalue()


def _zip_entry(name: str) -> zipfile.ZipInfo:
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
    wheel_extras = wheel_metadata(wheel).get_all("Provides-Extra", [])
    for extra in extras:
        if extra not in wheel_extras:
            names = ", ".join(wheel_extras) or "none"
            raise UsageError(f"--extra {extra}: the extras are {names}")
