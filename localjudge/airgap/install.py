"""Install the wheels of a pack into a virtual environment, without an index and by their digests.

A pack carries this file among its files, and `unpack.py` runs it when all of them are checked. It needs only
Python's standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from shlex import quote
from typing import Any

_MOST_ERRORS = 3
"""How many errors of pip a message has."""


def install(
    manifest: dict[str, Any],
    folder: Path,
    *,
    environment: Path,
    say: Callable[[str], None],
    check_space: Callable[[int, Path], None],
    error: type[Exception],
) -> str:
    """Create a virtual environment, if there is none, install the wheels into it, and say what comes next.

    Args:
        manifest: the manifest of the pack.
        folder: the unpacked pack.
        environment: the folder of the environment.
        say: prints a line.
        check_space: raises `error` unless the disk of a folder has room for a number of bytes.
        error: the exception for a problem that the user can fix.
    """
    try:
        import venv
    except ImportError:
        raise error("this Python has no module venv: install python3-venv, or use --no-install") from None
    is_new = not environment.exists() or not any(environment.iterdir())
    if not is_new and not (environment / "pyvenv.cfg").is_file():
        raise error(f"{environment}: is not a virtual environment; give another folder with --venv")
    names = sorted(entry["name"] for entry in manifest["files"])
    wheels = [folder / name for name in names if name.startswith("wheels/")]  # none that somebody added
    if is_new:
        check_space(_unpacked_size(wheels), environment.parent)
    requirements = environment / ".unpacking"  # while it exists, an unpack.py installs there
    command = _pip_command(environment, folder, wheels=wheels, requirements=requirements)
    version = manifest["version"]
    requirement = f"{manifest['name']}[{','.join(manifest['extras'])}]=={version}"
    say(f"installing {requirement} into {environment}")
    environment.mkdir(parents=True, exist_ok=True)
    try:
        requirements.touch(exist_ok=False)
    except FileExistsError:
        raise error(f"{environment}: another unpack.py is running; if it was killed, remove this") from None
    try:
        if is_new:
            venv.EnvBuilder(symlinks=True).create(environment)
        # pip refuses a wheel with another digest, and one that the lock does not name.
        lock = (folder / "requirements.txt").read_text()
        requirements.write_text(lock.replace(f"{manifest['name']}=={version} ", f"{requirement} ", 1))
        done = _run(command)
        if done.returncode != 0:
            raise error(_failure_in_words(done.stderr, manifest))
    except BaseException:
        if is_new:
            shutil.rmtree(environment, ignore_errors=True)
        raise
    finally:
        requirements.unlink(missing_ok=True)
    return _next_commands(environment, folder, names=names)


def _unpacked_size(wheels: Iterable[Path]) -> int:
    """Return the total size, in bytes, of the files in wheels after they are unpacked."""
    size = 0
    for wheel in wheels:
        for entry in zipfile.ZipFile(wheel).infolist():
            size += entry.file_size
    return size


def _pip_command(environment: Path, folder: Path, *, wheels: Iterable[Path], requirements: Path) -> list[str]:
    """Return the command that installs with the pack's own pip, and from the pack alone.

    Args:
        environment: the folder of the environment.
        folder: the unpacked pack.
        wheels: its wheels.
        requirements: the file with what is installed, and its digests.
    """
    pip = next(wheel for wheel in wheels if wheel.name.startswith("pip-"))
    command = [str(environment / "bin" / "python"), "-I", str(pip / "pip"), "install", "--isolated"]
    command += ["--no-index", "--only-binary=:all:", "--find-links", str(folder / "wheels")]
    command += ["--require-hashes", "--requirement", str(requirements)]
    return command


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pip without the settings of the user and the machine."""
    settings: dict[str, str] = {}
    for name, value in os.environ.items():
        if not name.startswith(("PIP_", "PYTHON")):
            settings[name] = value
    # Even in isolated mode, pip reads the machine's configuration, which may name an index; so disable it.
    settings["PIP_CONFIG_FILE"] = os.devnull
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=settings)


def _failure_in_words(stderr: str, manifest: dict[str, Any]) -> str:
    """Return pip's last errors and the platform that the pack was made for, one per line."""
    errors = [f"pip: {line}" for line in stderr.splitlines() if line.startswith("ERROR")]
    lines = errors[-_MOST_ERRORS:]
    platforms = " ".join(manifest["platforms"])
    lines.append(f"pip failed; the pack was made for Python {manifest['python']} on {platforms}")
    return "\n".join(lines)


def _next_commands(environment: Path, folder: Path, *, names: Iterable[str]) -> str:
    """Return the commands that can be run now, one per line.

    Args:
        environment: the folder of the environment.
        folder: the unpacked pack.
        names: the names of its files, in alphabetical order.
    """
    rows: list[str] = []
    models: set[str] = set()
    for name in names:
        if name.startswith("rows/"):
            rows.append(quote(str(folder / name)))
        elif name.startswith("models/"):
            models.add(name.split("/")[1])
    lines = [
        "installed; next:",
        f". {environment / 'bin' / 'activate'}",
        "localjudge doctor",
        "localjudge score examples --out first-run",
    ]
    rows_argument = " ".join(rows) or "ROWS"
    for model in sorted(models):
        lines.append(f"localjudge score {rows_argument} --out RUN --model {folder / 'models' / model}")
    return "\n  ".join(lines)
