#!/usr/bin/env python3
"""Check, unpack and install a pack of `localjudge pack`, on a machine with only Python and no network.

    python3 unpack.py [FOLDER ...] [--key PEM] [--to DIR] [--venv DIR | --no-install]

With --key, the public key of the pack's signer, nothing is unpacked unless the signature is right; the program
openssl checks it.
The parts may have any names and be in any of the folders (default: the folder of this file). They are
identified by their digests in `manifest.json`. Together they are one plain tar file. The folder of a pack must
have no other files. Exit codes: 0 done, 1 the disk failed, 2 something is damaged, missing or wrong, 130 or 143
stopped by a signal.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 -- the offline machine may have any Python
    sys.stderr.write("unpack.py: needs Python 3.11 or later; this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(2)
if __name__ == "__main__" and not sys.flags.safe_path:
    # In the folder of this file, a module would run before the signature is checked. For the same reason,
    # nothing is imported above, not even __future__.
    del sys.path[0]

import argparse
import fcntl
import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Set
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "requirements.txt"
"""The wheels of the pack with their digests, as pip reads them."""
INSTALLER = "install.py"
"""The file of the pack that installs them."""
BILL, SUMS, SIGNATURE = "sbom.cdx.json", "SHA256SUMS", "SHA256SUMS.sig"
RECIPES = ("Containerfile", "apptainer.def", "slurm-array.sh", "kubernetes-job.yaml")
_CHECKED = (MANIFEST, "unpack.py", "README.txt", BILL, *RECIPES)
_BESIDE = (*_CHECKED, SUMS, SIGNATURE)
_BLOCK = 1 << 20
_LINE_EVERY = 10.0
"""Seconds between two lines about a step."""


class PackError(Exception):
    """A problem that the user can fix; the message says what and where, one line each."""


def say(text: str, stream: Any = None) -> None:
    """Print a line on stderr without control characters, because names come from outside."""
    shown = "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
    print(shown.encode("utf-8", "replace").decode(), file=stream or sys.stderr, flush=True)


class _ByteCount:
    """The progress of a step on stderr: how many of its bytes are done, and how long the rest takes."""

    def __init__(self, text: str, total: int) -> None:
        self._text, self._total, self._done = text, total, 0
        self._begin = self._shown_at = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._shown_at >= _LINE_EVERY:
            self._shown_at = now
            left = round((now - self._begin) * max(self._total - self._done, 0) / max(self._done, 1))
            shown = f"{self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB"
            say(f"{self._text}: {shown}, remaining {left // 60}:{left % 60:02}")


def digest_of(file: Path, read: _ByteCount | None = None) -> str:
    """Return the SHA-256 of a file in hex; count its bytes."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        if read:
            read.add(stream.tell())
    return digest.hexdigest()


def seal(manifest: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of all fields of a manifest except this digest."""
    other = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(other, sort_keys=True).encode()).hexdigest()


def is_safe(name: str) -> bool:
    """Return whether a relative path is plain and stays within its folder, on any system."""
    path = PurePosixPath(name)
    plain = name == str(path) and not re.search(r"[\\:\0]", name)
    return plain and name != "." and not path.is_absolute() and ".." not in path.parts


def read_pack_manifest(folders: list[Path]) -> dict[str, Any]:
    files = [folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()]
    if not files:
        raise PackError(f"no {MANIFEST} in {', '.join(map(str, folders))}: copy it here, or give its folder")
    texts = {file.read_bytes(): file for file in files}
    if len(texts) > 1:
        raise PackError(f"{' and '.join(map(str, texts.values()))} differ: give the folders of one pack")
    try:
        manifest: dict[str, Any] = json.loads(next(iter(texts)))
        entries = [*manifest["parts"], *manifest["files"]]
        names = [manifest[name] for name in ("name", "version", "python")]
        names += [*manifest["extras"], *manifest["platforms"], *(entry["name"] for entry in entries)]
        right = manifest["format"] == FORMAT and manifest["sha256"] == seal(manifest)
        right = right and all(type(text) is str for text in [*names, *(entry["sha256"] for entry in entries)])
        right = right and all(type(entry["size"]) is int and entry["size"] >= 0 for entry in entries)
        # Name and version form the name of a folder.
        right = right and re.fullmatch(r"[\w.+!-]+", manifest["name"] + manifest["version"]) is not None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        right = False
    if not right:
        raise PackError(f"{files[0]}: is damaged, or not the manifest of a pack; copy it again")
    if unsafe := [entry["name"] for entry in manifest["files"] if not is_safe(entry["name"])]:
        raise PackError(f"{files[0]}: {unsafe[0]} would be written outside of the folder; nothing was unpacked")
    return manifest


def check_signature(folders: list[Path], key: Path | None) -> None:
    """Check the signature of the checksums, and against these every file of the pack except the parts.

    The manifest, which is one of these files, has the digests of the parts.

    Raises:
        PackError: the pack is not signed by this key, a file differs, or there is no program to check it.
    """
    signature, sums = (
        next((folder / name for folder in folders if (folder / name).is_file()), None)
        for name in (SIGNATURE, SUMS)
    )
    if key is None:
        if signature:
            say("signed, but the signature was not checked: give --key with the public key of the signer")
        return
    if not signature or not sums:
        missing = SUMS if signature else SIGNATURE
        raise PackError(
            f"no {missing} in {', '.join(map(str, folders))}: the pack is unsigned, or its copy is incomplete"
        )
    if not key.is_file():
        raise PackError(f"--key {key}: no such file; give the public key of the signer")
    if (openssl := shutil.which("openssl")) is None:
        raise PackError(
            f"--key needs the program openssl, which is not here: check {SIGNATURE} on another machine"
        )
    command = [openssl, "dgst", "-sha256", "-verify", str(key), "-signature", str(signature), str(sums)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode or done.stdout.strip() != "Verified OK":
        said = [*done.stdout.splitlines(), *done.stderr.splitlines(), "no reason given"][0]
        raise PackError(f"{signature}: was not made by the key {key} for {sums}: {said}; nothing was unpacked")
    right = [line.split("  ", 1) for line in sums.read_text().splitlines()]
    files = [folder / name for folder in folders for name in _CHECKED if (folder / name).is_file()]
    if wrong := [file for file in files if [digest_of(file), file.name] not in right]:
        raise PackError(
            "\n".join(f"{file}: differs from the signed {SUMS}; nothing was unpacked" for file in wrong)
        )
    say(f"signed by {key}")


def find_parts(manifest: dict[str, Any], folders: list[Path]) -> list[Path]:
    """Return the file of each part, in the order of the parts.

    Raises:
        PackError: parts are damaged or missing, or the folder of the manifest has other files. The message has
            one line for each.
    """
    parts = manifest["parts"]
    sizes, digests = ({part[key] for part in parts} for key in ("size", "sha256"))
    found: dict[str, Path] = {}
    others: list[Path] = []
    files = [file for folder in folders for file in sorted(folder.iterdir()) if file.is_file()]
    read = _ByteCount("checking", sum(file.stat().st_size for file in files))
    for file in files:
        if file.name not in _BESIDE and not file.name.startswith("."):
            digest = digest_of(file, read) if file.stat().st_size in sizes else ""
            if digest in digests:
                found.setdefault(digest, file)
            else:
                others.append(file)
    lines, lacking = [], [part for part in parts if part["sha256"] not in found]
    for part in lacking:
        copies = [file for file in others if file.name == part["name"]]
        others = [file for file in others if file not in copies]
        lines += [f"{file}: is damaged" for file in copies] or [f"{part['name']}: is missing"]
    lines += [f"{file}: is not part of this pack, or is damaged" for file in others]
    if lacking:
        end = f"{len(lacking)} of {len(parts)} parts cannot be used: copy them again; nothing was unpacked"
        raise PackError("\n".join([*lines, end]))
    names = {part["name"] for part in parts}  # a damaged copy does no harm
    if any(file.name not in names and (file.parent / MANIFEST).is_file() for file in others):
        end = "the folder of a pack must have no other file: remove it; nothing was unpacked"
        raise PackError("\n".join([*lines, end]))
    for line in lines:
        say(f"{line}; ignored")
    return [found[part["sha256"]] for part in parts]


class _Joined:
    """The concatenated bytes of several files."""

    def __init__(self, files: list[Path]) -> None:
        self._streams = (file.open("rb") for file in files)
        self._stream: Any = None

    def read(self, size: int) -> bytes:
        while stream := self._stream or next(self._streams, None):
            self._stream = stream
            if block := stream.read(size):
                return bytes(block)
            self.close()
        return b""

    def close(self) -> None:
        self._stream = self._stream and self._stream.close()


def extract(parts: list[Path], manifest: dict[str, Any], folder: Path) -> None:
    """Write the files of the manifest, each once and with its size; read each again to check its digest.

    Sparse files are refused, because they could be larger than the parts.
    """
    sizes = {entry["name"]: entry["size"] for entry in manifest["files"]}
    stream: Any = _Joined(parts)
    count = _ByteCount("unpacking", sum(sizes.values()))
    with closing(stream), tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            if member.name not in sizes or not member.isreg() or member.issparse():
                raise PackError(f"{member.name}: is in the parts, but not in the manifest; nothing was kept")
            if member.size != (size := sizes.pop(member.name)):
                raise PackError(
                    f"{member.name}: has {member.size} bytes in the parts, but {size} in the manifest; "
                    "nothing was kept"
                )
            (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
            source: Any = archive.extractfile(member)
            with (folder / member.name).open("xb") as target:
                while block := source.read(_BLOCK):
                    target.write(block)
                    count.add(len(block))
    if wrong := differing(manifest, folder):
        raise PackError("\n".join(f"{name}: differs from the manifest after writing" for name in wrong))


def differing(manifest: dict[str, Any], folder: Path) -> list[str]:
    """Return the names of files that are missing or differ from the manifest."""
    right = {entry["name"]: entry["sha256"] for entry in manifest["files"]}
    there = {name: folder / name for name in right if (folder / name).is_file()}
    read = _ByteCount("reading again", sum(file.stat().st_size for file in there.values()))
    whole = {name for name, file in there.items() if digest_of(file, read) == right[name]}
    return sorted(right.keys() - whole)


def _need(size: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < size:
        raise PackError(
            f"{folder}: not enough disk space: {size / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
        )


def unpack(manifest: dict[str, Any], folders: list[Path], to: Path) -> None:
    """Unpack into the folder `to`, completely or not at all: it is renamed when everything is checked."""
    if (to / MANIFEST).is_file():
        if read_pack_manifest([to])["sha256"] != manifest["sha256"]:
            raise PackError(f"{to}: holds another pack; give another folder with --to")
        if wrong := [f"{to / name}: is missing or was changed" for name in differing(manifest, to)]:
            raise PackError("\n".join([*wrong, f"{to}: remove it, or give another folder with --to"]))
        say(f"{to}: is unpacked already, and complete")
        return
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise PackError(f"{to}: holds something else; give another folder with --to")
    say(f"checking {len(manifest['parts'])} parts")
    parts = find_parts(manifest, folders)
    scratch = to.with_name(f"{to.name}.partial")
    names = {entry["name"] for entry in manifest["files"]}
    with _own_folder(scratch, names | {MANIFEST}):
        _need(sum(entry["size"] for entry in manifest["files"]), to.parent)
        say(f"unpacking {len(names)} files into {to}")
        try:
            extract(parts, manifest, scratch)
        except tarfile.TarError as error:
            raise PackError(f"the parts do not form a readable archive: {error}") from None
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        scratch.replace(to)


@contextmanager
def _own_folder(folder: Path, names: Set[str]) -> Iterator[None]:
    """Make an empty folder that no other unpack.py uses; remove it at the end, if it was not renamed.

    A lock, which ends with its process, tells the folder of a running unpack.py from what a killed one left.
    The files in it are removed if all of them have these names.
    """
    try:
        folder.mkdir(parents=True)
        is_new = True
    except FileExistsError:
        is_new = False
    with ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _in_use(folder) from None
        except OSError:
            raise PackError(f"{folder}: is not a folder; remove it, or give another one with --to") from None
        stack.callback(os.close, descriptor)
        _lock(descriptor, folder, is_new=is_new)
        if not is_new:
            _remove_leftover(folder, names)
        try:
            yield
        finally:
            if _is_at(descriptor, folder):
                shutil.rmtree(folder, ignore_errors=True)


def _lock(descriptor: int, folder: Path, *, is_new: bool) -> None:
    """Lock an open folder for this process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder) from None
    except OSError:  # a file system without locks of folders
        if not is_new:
            said = f"{folder}: another unpack.py is running; if it was killed, remove this"
            raise PackError(said) from None
    if not _is_at(descriptor, folder):  # it was removed or renamed before this process had the lock
        raise _in_use(folder)


def _in_use(folder: Path) -> PackError:
    return PackError(f"{folder}: another unpack.py is running; wait for its end, then start this one again")


def _is_at(descriptor: int, folder: Path) -> bool:
    """Return whether an open folder still has this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(folder))
    except FileNotFoundError:
        return False


def _remove_leftover(folder: Path, names: Set[str]) -> None:
    """Remove what is in a folder, if there are no other files than those with these names."""
    for path in folder.rglob("*"):
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder and path.relative_to(folder).as_posix() not in names:
            raise PackError(f"{path}: is not of this pack; move it away, or give another folder with --to")
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def run(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Check, unpack and install a pack of localjudge.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="folders with the parts")
    parser.add_argument("--key", type=Path, metavar="PEM", help="the signer's public key: check the signature")
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to unpack (default: NAME-VERSION)")
    parser.add_argument("--venv", type=Path, metavar="DIR", help="where to install (default: venv in --to)")
    parser.add_argument("--no-install", action="store_true", help="only check and unpack")
    options = parser.parse_args(arguments)
    folders = options.folders or [Path(__file__).resolve().parent]
    if absent := [folder for folder in folders if not folder.is_dir()]:
        raise PackError(f"{absent[0]}: no such folder")
    check_signature(folders, options.key)
    manifest = read_pack_manifest(folders)
    say(f"manifest {manifest['sha256']} (compare it with what `pack` printed)")
    here, python = "{}.{}".format(*sys.version_info[:2]), manifest["python"]
    if here != python and not options.no_install:
        raise PackError(f"this is Python {here}, the pack is for {python}: run it with python{python}")
    to = options.to or Path(f"{manifest['name']}-{manifest['version']}")
    unpack(manifest, folders, to)
    if options.no_install:
        say(f"unpacked into {to}", sys.stdout)
        return
    environment = options.venv or to / "venv"
    # Its digest is in the manifest. It is no import, so that it is never another file of this name.
    install = runpy.run_path(str(to / INSTALLER))["install"]
    say(install(manifest, to, environment, say, _need, PackError), sys.stdout)


def main() -> int:
    """Run the program. A mistake or damage ends with a message and an exit code, not with a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run()
    except PackError as error:
        say("\n".join(f"unpack.py: {line}" for line in str(error).splitlines()))
        return 2
    except KeyboardInterrupt:
        say("unpack.py: stopped; the same command starts again")
        return 130
    except OSError as error:  # a full disk, or a removed medium
        say(f"unpack.py: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
