"""Write a pack: everything that a machine without a network needs, in parts of limited size.

The same files and part size give the same bytes, except the signature, which has a random number in it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from pydantic import ByteSize, TypeAdapter

from localjudge.airgap import unpack
from localjudge.airgap.bill_of_materials import bill_of_materials
from localjudge.airgap.own_wheel import check_extras, own_wheel
from localjudge.airgap.pack_files import write_beside
from localjudge.airgap.pack_manifest import PackManifest
from localjudge.airgap.pack_parts import write_parts
from localjudge.airgap.pack_signature import check_signer, sign_pack
from localjudge.airgap.target_machine import Target
from localjudge.airgap.wheels import Say, gather_wheels, locked
from localjudge.errors import UsageError
from localjudge.models.catalogue import model_path
from localjudge.models.digests import MANIFEST, model_files
from localjudge.models.model import Model
from localjudge.system.durable import StoppedAfterWriting, after_writing, scratch_folder, settle
from localjudge.system.quantities import file_size
from localjudge.system.requirements import SELF
from localjudge.system.steps import Report, no_progress

_SMALLEST = 1024
_MOST_PARTS = 9999


def parse_size(text: str) -> int:
    """Return a size in bytes. K, M and G are powers of 1000; KiB, MiB and GiB are powers of 1024.

    Raises:
        UsageError: it is not a size, or too small for a part.
    """
    try:
        if not re.fullmatch(r"\d*\.?\d+ *[KMG]?(i?B)?", text, re.IGNORECASE):  # ByteSize ignores what follows
            raise ValueError(text)
        size = TypeAdapter(ByteSize).validate_python(text)
    except ValueError:
        raise UsageError(f"--part-size {text}: write it like 60M, 1.5G or 512MiB") from None
    if size < _SMALLEST:
        raise UsageError(f"--part-size {text}: give at least {_SMALLEST} bytes")
    return int(size)


def make_pack(
    out: Path,
    part_size: int,
    *,
    target: Target,
    extras: Iterable[str] = (),
    models: Iterable[str] = (),
    rows: Iterable[Path] = (),
    pip_args: Sequence[str] = (),
    say: Say = print,
    key: Path | None = None,
    report: Report = no_progress,
) -> PackManifest:
    """Collect wheels, models and rows, and write them as a pack into `out`, a new or empty folder.

    With `key`, the file of a private key, sign it, see `sign_pack`.

    Raises:
        UsageError: a requested file is missing, or there is not enough free disk space.
        LocalJudgeError: pip failed, or the pack is written, but cannot be signed with this key.
        StoppedAfterWriting: Ctrl-C after the pack was written.
    """
    if key is not None:
        check_signer(key)
    sources = _sources(models, rows)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out}: exists already; give a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_room(out, sources, part_size=part_size)
    try:
        manifest = _written_pack(
            out,
            part_size,
            target=target,
            extras=set(extras),
            sources=sources,
            pip_args=pip_args,
            say=say,
            report=report,
        )
    except KeyboardInterrupt as stopped:
        if (out / unpack.MANIFEST).exists():  # while what was left beside the pack was removed
            raise StoppedAfterWriting(out, stopped) from None
        raise
    if key is not None:
        with after_writing(out):
            sign_pack(out, key)
    return manifest


def _written_pack(
    out: Path,
    part_size: int,
    *,
    target: Target,
    extras: Set[str],
    sources: Mapping[str, Path],
    pip_args: Sequence[str],
    say: Say,
    report: Report,
) -> PackManifest:
    """Collect the wheels, and write them with the other files as a pack; other arguments as for `make_pack`.

    Args:
        sources: the files of models and rows, by name in the pack.
    """
    with scratch_folder(out) as scratch:
        wheels = _collected_wheels(scratch, target, extras=extras, pip_args=pip_args, say=say)
        lock = scratch / unpack.LOCK
        lock.write_text(locked(wheels.files), encoding="utf-8")
        all_sources = dict(sources)
        for wheel in wheels.files:
            all_sources[f"wheels/{wheel.name}"] = wheel
        all_sources[unpack.LOCK] = lock
        all_sources[unpack.INSTALLER] = Path(unpack.__file__).with_name(unpack.INSTALLER)
        _check_room(out, all_sources, part_size=part_size)
        say(f"writing {len(all_sources)} files, {file_size(_total_size(all_sources))}")
        folder = scratch / "pack"
        parts, files = write_parts(all_sources, folder, part_size, report=report)
        manifest = PackManifest(
            version=wheels.version,
            extras=tuple(sorted(extras)),
            python=target.python,
            platforms=target.platforms,
            parts=tuple(parts),
            files=tuple(files),
        ).sealed()
        (folder / unpack.BILL).write_text(bill_of_materials(manifest, all_sources), encoding="utf-8")
        write_beside(manifest, folder)
        settle(folder, out)
    return manifest


@dataclass(frozen=True, slots=True)
class _CollectedWheels:
    """The wheels of a pack.

    Attributes:
        version: the version of localjudge.
        files: its wheel, and those that it requires.
    """

    version: str
    files: list[Path]


def _collected_wheels(
    scratch: Path, target: Target, *, extras: Set[str], pip_args: Sequence[str], say: Say
) -> _CollectedWheels:
    """Collect localjudge's own wheel and all that it requires with these extras, in folders of `scratch`."""
    own_folder = scratch / "own"
    own_folder.mkdir()
    wheel = own_wheel(own_folder, pip_args, say=say)
    version = wheel.name.split("-")[1]
    check_extras(wheel, sorted(extras))
    brackets = ""  # pip reads no empty ones behind a file's name
    if extras:
        brackets = f"[{','.join(sorted(extras))}]"
    say(f"collecting {SELF}{brackets} {version} for Python {target.python} on {target.platforms[0]}")
    folder = scratch / "wheels"
    gather_wheels(f"{wheel}{brackets}", target, folder=folder, pip_args=pip_args, say=say)
    return _CollectedWheels(version, sorted(folder.iterdir()))


def _sources(models: Iterable[str], rows: Iterable[Path]) -> dict[str, Path]:
    """Return all files of models and of rows, by name in the pack.

    A model's directory is `models/NAME/…`, without hidden files.

    Raises:
        UsageError: a file is missing, two have the same name, or some systems cannot unpack a name.
    """
    sources: dict[str, Path] = {}
    for name in models:
        files = _files_of_model(name)
        _check_names(files, sources, flag=f"--model {name}")
        sources.update(files)
    for file in rows:
        if not file.is_file():
            raise UsageError(f"--rows {file}: no such file")
        files = {f"rows/{file.name}": file}
        _check_names(files, sources, flag=f"--rows {file}")
        sources.update(files)
    return sources


def _files_of_model(name: str) -> dict[str, Path]:
    """Return the files of a model, by name in the pack.

    Args:
        name: the model's directory, or its id in the hub cache.
    """
    model = Model.find(name)
    files = model_files(model.path)
    manifest = model.path / MANIFEST
    if manifest.is_file():
        files[MANIFEST] = manifest
    is_directory = model_path(name).is_dir()
    folder = model.path.name if is_directory else name.rpartition("/")[2]
    return {f"models/{folder}/{path}": file for path, file in files.items()}


def _check_names(files: Mapping[str, Path], sources: Mapping[str, Path], *, flag: str) -> None:
    """Check that files can be added to others under their names in the pack.

    Args:
        files: the files by their names.
        sources: the files already in the pack, by their names in it.
        flag: what asks for the files.

    Raises:
        UsageError: the pack has a file with one of these names already, or a name that some systems cannot
            unpack.
    """
    if files.keys() & sources.keys():
        raise UsageError(f"{flag}: a second one of this name; rename it")
    for name, file in files.items():
        if not unpack.is_safe(name):
            raise UsageError(f"{file}: some systems cannot unpack this name; rename it")


def _check_room(out: Path, sources: Mapping[str, Path], *, part_size: int) -> None:
    """Check that a pack of these files stays below the limit of parts, and fits on the disk.

    Raises:
        UsageError: it does not.
    """
    size = _total_size(sources)
    if size > part_size * _MOST_PARTS:
        smallest = -(-size // _MOST_PARTS)
        raise UsageError(
            f"--part-size {part_size}: gives more than {_MOST_PARTS} parts; give at least {smallest}"
        )
    free = shutil.disk_usage(out.parent).free
    if size > free:
        raise UsageError(
            f"--out {out}: not enough disk space: {file_size(size)} needed, {file_size(free)} free"
        )


def _total_size(sources: Mapping[str, Path]) -> int:
    """Return the total size of files in bytes."""
    return sum(file.stat().st_size for file in sources.values())
