"""Install the wheels of a pack into a virtual environment, without an index and by their digests.

A pack carries this file among its files, and `unpack.py` runs it when all of them are checked. It needs only
Python's standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any


def install(
    manifest: dict[str, Any],
    folder: Path,
    environment: Path,
    say: Callable[[str], None],
    need: Callable[[int, Path], None],
    error: type[Exception],
) -> str:
    """Create a virtual environment, if there is none, install the wheels into it, and say what comes next.

    Args:
        manifest: the manifest of the pack.
        folder: the unpacked pack.
        environment: the folder of the environment.
        say: prints a line.
        need: refuses a folder without room for so many bytes.
        error: the exception for a problem that the user can fix.
    """
    try:
        import venv
    except ImportError:
        raise error("this Python has no module venv: install python3-venv, or use --no-install") from None
    new = not environment.exists() or not any(environment.iterdir())
    if not new and not (environment / "pyvenv.cfg").is_file():
        raise error(f"{environment}: is not a virtual environment; give another folder with --venv")
    names = [entry["name"] for entry in manifest["files"]]
    files = [folder / name for name in sorted(names) if name.startswith("wheels/")]  # none that somebody added
    if new:
        size = sum(each.file_size for file in files for each in zipfile.ZipFile(file).infolist())
        need(size, environment.parent)
    pip = next(file for file in files if file.name.startswith("pip-")) / "pip"
    pin = f"{manifest['name']}=={manifest['version']}"
    wanted = f"{manifest['name']}[{','.join(manifest['extras'])}]=={manifest['version']}"
    say(f"installing {wanted} into {environment}")
    # Even in isolated mode, pip reads the machine's configuration, which may name an index; so disable it.
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    settings["PIP_CONFIG_FILE"] = os.devnull
    command = [str(environment / "bin" / "python"), "-I", str(pip), "install", "--isolated", "--no-index"]
    command += ["--only-binary=:all:", "--find-links", str(folder / "wheels")]
    half = environment / ".unpacking"  # exists while pip runs
    environment.mkdir(parents=True, exist_ok=True)
    try:
        half.touch(exist_ok=False)
    except FileExistsError:
        raise error(f"{environment}: another unpack.py is running; if it was killed, remove this") from None
    try:
        if new:
            venv.EnvBuilder(symlinks=True).create(environment)
        # pip refuses a wheel with another digest, and one that the lock does not name.
        half.write_text((folder / "requirements.txt").read_text().replace(f"{pin} ", f"{wanted} ", 1))
        command += ["--require-hashes", "--requirement", str(half)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=settings)
        if done.returncode:
            lines = [f"pip: {line}" for line in done.stderr.splitlines() if line.startswith("ERROR")]
            made = f"Python {manifest['python']} on {' '.join(manifest['platforms'])}"
            raise error("\n".join([*lines[-3:], f"pip failed; the pack was made for {made}"]))
    except BaseException:
        if new:
            shutil.rmtree(environment, ignore_errors=True)
        raise
    finally:
        half.unlink(missing_ok=True)
    models = sorted({"/".join(name.split("/")[:2]) for name in names if name.startswith("models/")})
    following = [f". {environment / 'bin' / 'activate'}", "localjudge doctor"]
    following += ["localjudge score examples --out first-run"]
    rows = " ".join(quote(str(folder / name)) for name in sorted(names) if name.startswith("rows/")) or "ROWS"
    following += [f"localjudge score {rows} --out RUN --model {folder / model}" for model in models]
    return "\n  ".join(["installed; next:", *following])
