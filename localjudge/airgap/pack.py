"""Write a pack: everything that a machine without a network needs, in parts of limited size.

The same files and part size give the same bytes, except the signature, which has a random number in it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from pydantic import ByteSize, TypeAdapter

from localjudge.airgap import unpack
from localjudge.airgap.bill_of_materials import bill_of_materials
from localjudge.airgap.pack_files import PackManifest, check_signer, sign_pack, write_beside, write_parts
from localjudge.airgap.wheels import Say, Target, check_extras, gather_wheels, locked, own_wheel
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
    """Return a size in bytes. K, M and G are powers of 1000; KiB, MiB and GiB are powers of 1024."""
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
    _check_room(out, sources, part_size)
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
    sources: dict[str, Path],
    pip_args: Sequence[str],
    say: Say,
    report: Report,
) -> PackManifest:
    """Collect the wheels, and write them with the other files as a pack; other arguments as for `make_pack`.

    Args:
        sources: the files of models and rows, by name in the pack.
    """
    with scratch_folder(out) as scratch:
        (scratch / "own").mkdir()
        own = own_wheel(scratch / "own", pip_args, say)
        version = own.name.split("-")[1]
        chosen = sorted(extras)
        check_extras(own, chosen)
        brackets = f"[{','.join(chosen)}]" if chosen else ""  # pip reads no empty ones behind a file's name
        say(f"collecting {SELF}{brackets} {version} for Python {target.python} on {target.platforms[0]}")
        gather_wheels(f"{own}{brackets}", target, scratch / "wheels", pip_args, say)
        wheels = sorted((scratch / "wheels").iterdir())
        (scratch / unpack.LOCK).write_text(locked(wheels), encoding="utf-8")
        sources |= {f"wheels/{file.name}": file for file in wheels}
        sources[unpack.LOCK] = scratch / unpack.LOCK
        sources[unpack.INSTALLER] = Path(unpack.__file__).with_name(unpack.INSTALLER)
        _check_room(out, sources, part_size)
        say(f"writing {len(sources)} files, {file_size(sum(map(_size, sources.values())))}")
        folder = scratch / "pack"
        parts, files = write_parts(sources, folder, part_size, report)
        manifest = PackManifest(
            version=version,
            extras=tuple(chosen),
            python=target.python,
            platforms=target.platforms,
            parts=tuple(parts),
            files=tuple(files),
        ).sealed()
        (folder / unpack.BILL).write_text(bill_of_materials(manifest, sources), encoding="utf-8")
        write_beside(manifest, folder)
        settle(folder, out)
    return manifest


def _sources(models: Iterable[str], rows: Iterable[Path]) -> dict[str, Path]:
    """Return all files of models and of rows, by name in the pack.

    A model's directory is `models/NAME/…`, without hidden files.
    """
    files: dict[str, Path] = {}

    def add(flag: str, more: Mapping[str, Path]) -> None:
        if more.keys() & files:
            raise UsageError(f"{flag}: a second one of this name; rename it")
        for name, file in more.items():
            if not unpack.is_safe(name):
                raise UsageError(f"{file}: some systems cannot unpack this name; rename it")
        files.update(more)

    for name in models:
        model = Model.find(name)
        folder = f"models/{model.path.name if model_path(name).is_dir() else name.rpartition('/')[2]}/"
        manifest = model.path / MANIFEST
        inside = model_files(model.path) | ({MANIFEST: manifest} if manifest.is_file() else {})
        add(f"--model {name}", {f"{folder}{place}": file for place, file in inside.items()})
    for file in rows:
        if not file.is_file():
            raise UsageError(f"--rows {file}: no such file")
        add(f"--rows {file}", {f"rows/{file.name}": file})
    return files


def _check_room(out: Path, sources: Mapping[str, Path], part_size: int) -> None:
    size = sum(map(_size, sources.values()))
    if size > part_size * _MOST_PARTS:
        least = -(-size // _MOST_PARTS)
        raise UsageError(f"--part-size {part_size}: gives more than {_MOST_PARTS} parts; give at least {least}")
    free = shutil.disk_usage(out.parent).free
    if size > free:
        raise UsageError(
            f"--out {out}: not enough disk space: {file_size(size)} needed, {file_size(free)} free"
        )


def _size(file: Path) -> int:
    return file.stat().st_size
