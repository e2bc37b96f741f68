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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "requirements.txt"
"""The wheels of the pack with their digests, as pip reads them."""
INSTALLER = "install.py"
"""The file of the pack that installs them."""
BILL = "sbom.cdx.json"
"""What the pack brings, with licences."""
SUMS = "SHA256SUMS"
"""The digests of all files of the pack."""
SIGNATURE = "SHA256SUMS.sig"
"""The signature of `SHA256SUMS`; only a signed pack has it."""
RECIPES = ("Containerfile", "apptainer.def", "slurm-array.sh", "kubernetes-job.yaml")
_CHECKED = (MANIFEST, "unpack.py", "README.txt", BILL) + RECIPES
"""The files beside the parts that are checked against the signed digests."""
_BESIDE = _CHECKED + (SUMS, SIGNATURE)
"""All files beside the parts."""
_BLOCK = 1 << 20
_LINE_EVERY = 10.0
"""Seconds between two lines about a step."""


class PackError(Exception):
    """A problem that the user can fix; the message says what and where, one line each."""


def say(text: str, stream: Any = None) -> None:
    """Print a line on stderr without control characters, because names come from outside."""
    characters: list[str] = []
    for character in text:
        if character.isprintable() or character == "\n":
            characters.append(character)
        else:
            characters.append(f"\\u{ord(character):04x}")
    line = "".join(characters).encode("utf-8", "replace").decode()
    print(line, file=sys.stderr if stream is None else stream, flush=True)


class _ByteCount:
    """The progress of a step on stderr: how many of its bytes are done, and how long the rest takes."""

    def __init__(self, text: str, total: int) -> None:
        self._text = text
        self._total = total
        self._done = 0
        self._begin = time.monotonic()
        self._shown_at = self._begin

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._shown_at < _LINE_EVERY:
            return
        self._shown_at = now
        seconds_a_byte = (now - self._begin) / max(self._done, 1)
        minutes, seconds = divmod(round(seconds_a_byte * max(self._total - self._done, 0)), 60)
        megabytes = f"{self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB"
        say(f"{self._text}: {megabytes}, remaining {minutes}:{seconds:02}")


def digest_of(file: Path, read: _ByteCount | None = None) -> str:
    """Return the SHA-256 of a file in hex; count its bytes."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        if read is not None:
            read.add(stream.tell())
    return digest.hexdigest()


def seal(manifest: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of all fields of a manifest except this digest."""
    sealed = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


def is_safe(name: str) -> bool:
    """Return whether a relative path is plain and stays within its folder, on any system."""
    path = PurePosixPath(name)
    if name != str(path) or name == "." or re.search(r"[\\:\0]", name):
        return False
    return not path.is_absolute() and ".." not in path.parts


def read_pack_manifest(folders: list[Path]) -> dict[str, Any]:
    """Return the manifest that the folders of a pack have.

    Raises:
        PackError: there is none, there are several that differ, or it is damaged or unsafe.
    """
    files = [folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()]
    if not files:
        raise PackError(f"no {MANIFEST} in {_in_words(folders)}: copy it here, or give its folder")
    file_of_content = {file.read_bytes(): file for file in files}
    if len(file_of_content) > 1:
        names = " and ".join(str(file) for file in file_of_content.values())
        raise PackError(f"{names} differ: give the folders of one pack")
    [content] = file_of_content
    try:
        manifest: dict[str, Any] = json.loads(content)
        is_whole = _is_manifest(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise PackError(f"{files[0]}: is damaged, or not the manifest of a pack; copy it again")
    for entry in manifest["files"]:
        if not is_safe(entry["name"]):
            reason = f"{entry['name']} would be written outside of the folder; nothing was unpacked"
            raise PackError(f"{files[0]}: {reason}")
    return manifest


def _is_manifest(manifest: dict[str, Any]) -> bool:
    """Return whether the content of a manifest file is whole, and has the fields of a manifest.

    Raises:
        KeyError, TypeError, AttributeError, RecursionError: it is anything else.
    """
    if manifest["format"] != FORMAT or manifest["sha256"] != seal(manifest):
        return False
    texts = [manifest["name"], manifest["version"], manifest["python"]]
    texts += manifest["extras"]
    texts += manifest["platforms"]
    for entry in manifest["parts"] + manifest["files"]:
        texts += [entry["name"], entry["sha256"]]
        if type(entry["size"]) is not int or entry["size"] < 0:
            return False
    if any(type(text) is not str for text in texts):
        return False
    folder_name = manifest["name"] + manifest["version"]
    return re.fullmatch(r"[\w.+!-]+", folder_name) is not None


def _in_words(folders: list[Path]) -> str:
    return ", ".join(str(folder) for folder in folders)


def check_signature(folders: list[Path], key: Path | None) -> None:
    """Check the signature of the checksums, and against these every file of the pack except the parts.

    The manifest, which is one of these files, has the digests of the parts.

    Raises:
        PackError: the pack is not signed by this key, a file differs, or there is no program to check it.
    """
    signature = _first_file(SIGNATURE, folders)
    sums = _first_file(SUMS, folders)
    if key is None:
        if signature is not None:
            say("signed, but the signature was not checked: give --key with the public key of the signer")
        return
    if signature is None or sums is None:
        missing = SIGNATURE if signature is None else SUMS
        raise PackError(
            f"no {missing} in {_in_words(folders)}: the pack is unsigned, or its copy is incomplete"
        )
    if not key.is_file():
        raise PackError(f"--key {key}: no such file; give the public key of the signer")
    _verify(sums, key, signature=signature)
    signed_lines = sums.read_text().splitlines()
    problems: list[str] = []
    for folder in folders:
        for name in _CHECKED:
            file = folder / name
            if file.is_file() and f"{digest_of(file)}  {name}" not in signed_lines:
                problems.append(f"{file}: differs from the signed {SUMS}; nothing was unpacked")
    if problems:
        raise PackError("\n".join(problems))
    say(f"signed by {key}")


def _first_file(name: str, folders: list[Path]) -> Path | None:
    """Return the first file of this name in the folders; None if there is none."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    return None


def _verify(sums: Path, key: Path, *, signature: Path) -> None:
    """Check with openssl that a signature of the checksums was made by the owner of a public key.

    Raises:
        PackError: it was not, or there is no openssl.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        raise PackError(
            f"--key needs the program openssl, which is not here: check {SIGNATURE} on another machine"
        )
    command = [openssl, "dgst", "-sha256", "-verify", str(key), "-signature", str(signature), str(sums)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode == 0 and done.stdout.strip() == "Verified OK":
        return
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    reason = lines[0] if lines else "no reason given"
    raise PackError(f"{signature}: was not made by the key {key} for {sums}: {reason}; nothing was unpacked")


def find_parts(manifest: dict[str, Any], folders: list[Path]) -> list[Path]:
    """Return the file of each part, in the order of the parts.

    Raises:
        PackError: parts are damaged or missing, or the folder of the manifest has other files. The message has
            one line for each.
    """
    parts = manifest["parts"]
    candidates = _candidates_in(folders, manifest)
    unknown = list(candidates.unknown)
    problems: list[str] = []
    missing_parts = [part for part in parts if part["sha256"] not in candidates.file_of_digest]
    for part in missing_parts:
        damaged = [file for file in unknown if file.name == part["name"]]
        if not damaged:
            problems.append(f"{part['name']}: is missing")
        for file in damaged:
            problems.append(f"{file}: is damaged")
            unknown.remove(file)
    for file in unknown:
        problems.append(f"{file}: is not part of this pack, or is damaged")
    if missing_parts:
        problems.append(
            f"{len(missing_parts)} of {len(parts)} parts cannot be used: copy them again; nothing was unpacked"
        )
        raise PackError("\n".join(problems))
    part_names = {part["name"] for part in parts}
    for file in unknown:
        # A damaged copy of a part does no harm.
        if file.name not in part_names and (file.parent / MANIFEST).is_file():
            problems.append("the folder of a pack must have no other file: remove it; nothing was unpacked")
            raise PackError("\n".join(problems))
    for problem in problems:
        say(f"{problem}; ignored")
    return [candidates.file_of_digest[part["sha256"]] for part in parts]


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The files that could be parts.

    Attributes:
        file_of_digest: the first file with the digest of each part.
        unknown: the files that have the digest of no part.
    """

    file_of_digest: dict[str, Path]
    unknown: list[Path]


def _candidates_in(folders: list[Path], manifest: dict[str, Any]) -> _Candidates:
    """Return the files in the folders, except those beside the parts and hidden ones."""
    sizes = {part["size"] for part in manifest["parts"]}
    digests = {part["sha256"] for part in manifest["parts"]}
    files: list[Path] = []
    for folder in folders:
        files += [file for file in sorted(folder.iterdir()) if file.is_file()]
    read = _ByteCount("checking", sum(file.stat().st_size for file in files))
    candidates = _Candidates(file_of_digest={}, unknown=[])
    for file in files:
        if file.name in _BESIDE or file.name.startswith("."):
            continue
        digest = ""
        if file.stat().st_size in sizes:
            digest = digest_of(file, read)
        if digest in digests:
            candidates.file_of_digest.setdefault(digest, file)
        else:
            candidates.unknown.append(file)
    return candidates


class _JoinedFiles:
    """A stream of the concatenated bytes of several files."""

    def __init__(self, files: list[Path]) -> None:
        self._remaining = iter(files)
        self._stream: Any = None

    def read(self, size: int) -> bytes:
        while True:
            if self._stream is None:
                file = next(self._remaining, None)
                if file is None:
                    return b""
                self._stream = file.open("rb")
            block = self._stream.read(size)
            if block:
                return bytes(block)
            self.close()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def extract(parts: list[Path], manifest: dict[str, Any], folder: Path) -> None:
    """Write the files of the manifest, each once and with its size; read each again to check its digest.

    Sparse files are refused, because they could be larger than the parts.
    """
    size_of_name = {entry["name"]: entry["size"] for entry in manifest["files"]}
    count = _ByteCount("unpacking", sum(size_of_name.values()))
    stream: Any = _JoinedFiles(parts)
    with closing(stream), tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            if member.name not in size_of_name or not member.isreg() or member.issparse():
                raise PackError(f"{member.name}: is in the parts, but not in the manifest; nothing was kept")
            size = size_of_name.pop(member.name)
            if member.size != size:
                raise PackError(
                    f"{member.name}: has {member.size} bytes in the parts, but {size} in the manifest; "
                    "nothing was kept"
                )
            _copy(archive.extractfile(member), folder / member.name, count=count)
    problems = [f"{name}: differs from the manifest after writing" for name in differing(manifest, folder)]
    if problems:
        raise PackError("\n".join(problems))


def _copy(source: Any, file: Path, *, count: _ByteCount) -> None:
    """Write a stream into a new file, and count its bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as target:
        while True:
            block = source.read(_BLOCK)
            if not block:
                return
            target.write(block)
            count.add(len(block))


def differing(manifest: dict[str, Any], folder: Path) -> list[str]:
    """Return the names of files that are missing or differ from the manifest, in alphabetical order."""
    digest_of_name = {entry["name"]: entry["sha256"] for entry in manifest["files"]}
    file_of_name = {name: folder / name for name in digest_of_name if (folder / name).is_file()}
    read = _ByteCount("reading again", sum(file.stat().st_size for file in file_of_name.values()))
    names: list[str] = []
    for name, digest in digest_of_name.items():
        if name not in file_of_name or digest_of(file_of_name[name], read) != digest:
            names.append(name)
    return sorted(names)


def _check_space(size: int, folder: Path) -> None:
    """Create a folder, and check that its disk has room for `size` bytes.

    Raises:
        PackError: the disk has less.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < size:
        raise PackError(
            f"{folder}: not enough disk space: {size / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
        )


def _check_unpacked(manifest: dict[str, Any], folder: Path) -> None:
    """Check that a folder in which a pack was unpacked is that of this pack, and complete.

    Raises:
        PackError: it is not.
    """
    if read_pack_manifest([folder])["sha256"] != manifest["sha256"]:
        raise PackError(f"{folder}: holds another pack; give another folder with --to")
    problems = [f"{folder / name}: is missing or was changed" for name in differing(manifest, folder)]
    if problems:
        problems.append(f"{folder}: remove it, or give another folder with --to")
        raise PackError("\n".join(problems))


def unpack(manifest: dict[str, Any], folders: list[Path], to: Path) -> None:
    """Unpack into the folder `to`, completely or not at all: it is renamed when everything is checked."""
    if (to / MANIFEST).is_file():
        _check_unpacked(manifest, to)
        say(f"{to}: is unpacked already, and complete")
        return
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise PackError(f"{to}: holds something else; give another folder with --to")
    say(f"checking {len(manifest['parts'])} parts")
    parts = find_parts(manifest, folders)
    scratch = to.with_name(f"{to.name}.partial")
    names = {entry["name"] for entry in manifest["files"]}
    with _own_folder(scratch, names | {MANIFEST}):
        _check_space(sum(entry["size"] for entry in manifest["files"]), to.parent)
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
            reason = "another unpack.py is running; if it was killed, remove this"
            raise PackError(f"{folder}: {reason}") from None
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


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Check, unpack and install a pack of localjudge.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="folders with the parts")
    parser.add_argument("--key", type=Path, metavar="PEM", help="the signer's public key: check the signature")
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to unpack (default: NAME-VERSION)")
    parser.add_argument("--venv", type=Path, metavar="DIR", help="where to install (default: venv in --to)")
    parser.add_argument("--no-install", action="store_true", help="only check and unpack")
    return parser.parse_args(arguments)


def run(arguments: list[str] | None = None) -> None:
    """Check the pack, unpack it, and install it unless the options say otherwise.

    Raises:
        PackError: something is damaged, missing or wrong.
    """
    options = _options(arguments)
    folders = options.folders
    if not folders:
        folders = [Path(__file__).resolve().parent]
    for folder in folders:
        if not folder.is_dir():
            raise PackError(f"{folder}: no such folder")
    check_signature(folders, options.key)
    manifest = read_pack_manifest(folders)
    say(f"manifest {manifest['sha256']} (compare it with what `pack` printed)")
    this_python = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = manifest["python"]
    if this_python != python and not options.no_install:
        raise PackError(f"this is Python {this_python}, the pack is for {python}: run it with python{python}")
    to = options.to
    if to is None:
        to = Path(f"{manifest['name']}-{manifest['version']}")
    unpack(manifest, folders, to)
    if options.no_install:
        say(f"unpacked into {to}", sys.stdout)
        return
    environment = options.venv
    if environment is None:
        environment = to / "venv"
    # Its digest is in the manifest. It is no import, so that it is never another file of this name.
    install = runpy.run_path(str(to / INSTALLER))["install"]
    next_commands = install(
        manifest, to, environment=environment, say=say, check_space=_check_space, error=PackError
    )
    say(next_commands, sys.stdout)


def main() -> int:
    """Run the program. A mistake or damage ends with a message and an exit code, not with a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run()
    except PackError as error:
        for line in str(error).splitlines():
            say(f"unpack.py: {line}")
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
