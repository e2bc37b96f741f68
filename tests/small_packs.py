"""Small packs and wheels, made by hand, pairs of keys, and the unpacker as a program."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from localjudge.airgap import install, unpack
from localjudge.airgap.pack_files import write_beside
from localjudge.airgap.pack_manifest import PackManifest
from localjudge.airgap.pack_parts import write_parts

HERE = "{}.{}".format(*sys.version_info[:2])
FILES = {
    "wheels/a.whl": b"a" * 2500,
    "wheels/b.whl": bytes(range(256)) * 20,
    "rows/r.jsonl": b"",
    "models/m/c": b"{}",
}


def packed(tmp_path: Path, content: dict[str, bytes], part_size: int = 4096, **changed: Any) -> Path:
    """Write a pack of these files into an otherwise empty folder."""
    folder = tmp_path / "pack"
    if any(name.startswith("wheels/pip-") for name in content):  # it can be installed
        content = content | {unpack.INSTALLER: Path(install.__file__).read_bytes()}
    sources = {name: tmp_path / "sources" / hashlib.sha256(name.encode()).hexdigest() for name in content}
    for name, data in content.items():
        sources[name].parent.mkdir(exist_ok=True)
        sources[name].write_bytes(data)
    parts, entries = write_parts(sources, folder, part_size)
    stated = {"version": "0.1", "extras": (), "python": HERE, "platforms": ("any",), "files": entries} | changed
    write_beside(PackManifest(parts=tuple(parts), **stated).sealed(), folder)
    return folder


def unpacker(script: Path, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the unpacker as a script, with only Python's standard library."""
    command = [sys.executable, "-I", "-S", str(script), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=script.parent.parent, **options)


def refused(done: subprocess.CompletedProcess[str], tmp_path: Path) -> list[str]:
    """Return the error message of the unpacker, and assert that it left no files."""
    assert (done.returncode, done.stdout) == (2, "")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(("out", "localjudge"))]
    lines = [line for line in done.stderr.splitlines() if line.startswith("unpack.py: ")]
    assert "Traceback" not in done.stderr
    return [line.removeprefix("unpack.py: ").replace(f"{tmp_path}/", "") for line in lines]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def parts_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("localjudge.tar.*"))


def tiny_wheel(folder: Path, name: str, *requires: str, module: str = "", script: str = "") -> Path:
    """Write a wheel with one module."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-0.1.0.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0", *requires]
    files = {
        f"{name}.py": module,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": script,
    }
    digests = {file: hashlib.sha256(content.encode()).digest() for file, content in files.items()}
    coded = {file: base64.urlsafe_b64encode(digest).decode().rstrip("=") for file, digest in digests.items()}
    record = [f"{file},sha256={coded[file]},{len(content)}" for file, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    wheel = folder / f"{name}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return wheel


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Return a private and a public key of the curve P-256."""
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    for command in (
        f"openssl ecparam -name prime256v1 -genkey -noout -out '{private}'",
        f"openssl ec -in '{private}' -pubout -out '{public}'",
    ):
        subprocess.run(command, shell=True, check=True, capture_output=True)
    return private, public
