"""Build the image of a pack as its Containerfile says, and judge in it, without a container runtime.

    sudo python3 tests/image_build.py PACK

The files of this machine are BASE: each stage is a layer over them, where its steps run without a network. Then
the image judges as under `docker run --network none --read-only --tmpfs /tmp`: as another user, with nothing of
this machine's environment, a read-only model, and two folders that can be written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

MODEL = Path(__file__).parents[1] / "models" / "bundled"
USER = "65533:65533"
"""As `--user` has it: another one than the image's own."""
FIRST = ("score", "examples", "--limit", "3", "--model", "/model", "--out", "runs/first")
REFUSED = {
    "the system can be written": "open('/opt/localjudge/new', 'w')",
    "the model can be written": "open('/model/new', 'w')",
    "there is a network": "import socket; socket.create_connection(('192.0.2.1', 80), 5)",
}
"""Programs that have to fail in the image."""


def instructions(recipe: str) -> list[tuple[str, str]]:
    """Return the instructions of a Containerfile, each with its value in one line."""
    lines = "\n".join(line for line in recipe.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    found = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [(name, value.strip()) for name, value in found]


@dataclass
class Stage:
    """A stage: the root of its files, its environment, and what it runs."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _path_of_base()})
    folder: str = "/"
    entrypoint: tuple[str, ...] = ()

    def run(self, command: list[str], user: str = "0:0") -> subprocess.CompletedProcess[str]:
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        inside = ["chroot", f"--userspec={user}", str(self.root), "env", "--ignore-environment"]
        return subprocess.run(
            [*inside, f"--chdir={self.folder}", *variables, *command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip


def build(recipe: str, context: Path, layers: Path) -> Stage:
    """Execute the instructions, and return the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(Path("/"))
    for name, value in instructions(recipe):
        print(f"{name} {value}", flush=True)
        if name == "FROM":
            stage = Stage(_layer(layers / str(len(stages))))
            stages[value.partition(" AS ")[2]] = stage
        elif name == "COPY":
            source, *patterns = value.split()
            origin = stages[source.removeprefix("--from=")].root if source.startswith("--from=") else context
            *patterns, target = [source, *patterns] if origin == context else patterns
            files = [file for pattern in patterns for file in origin.glob(pattern.lstrip("/"))]
            inside = stage.root / target.lstrip("/")
            (inside if target.endswith("/") else inside.parent).mkdir(parents=True, exist_ok=True)
            _do("cp", "--archive", *files, inside)
        elif name == "ENV":
            for setting in shlex.split(value):
                variable, _, text = setting.partition("=")
                stage.environment[variable] = text.replace("${PATH}", stage.environment["PATH"])
        elif name == "RUN":
            done = stage.run(json.loads(value))
            print(done.stdout + done.stderr, end="", flush=True)
            done.check_returncode()
        elif name == "WORKDIR":
            stage.folder = value
        elif name == "ENTRYPOINT":
            stage.entrypoint = tuple(json.loads(value))
    return stage


def judge(image: Stage, folder: Path) -> None:
    """Judge some examples in the image, and try what must not be possible."""
    for name, inside in (("work", "/work"), ("cache", "/cache")):
        (folder / name).mkdir()
        _do("chown", USER, folder / name)
        _do("mount", "--bind", folder / name, image.root / inside.lstrip("/"))
    (image.root / "model").mkdir()
    _do("mount", "--bind", "--read-only", MODEL, image.root / "model")
    _do("mount", "--options", "remount,ro", image.root)
    _do("mount", "--options", "remount,noexec,nosuid,nodev", image.root / "tmp")  # as --tmpfs is
    done = image.run([*image.entrypoint, *FIRST], USER)
    print(done.stdout + done.stderr, end="", flush=True)
    done.check_returncode()
    assert len((folder / "work/runs/first/judgements.jsonl").read_bytes().splitlines()) == 3
    for wrong, program in REFUSED.items():
        assert image.run(["python3", "-c", program], USER).returncode == 1, wrong
    assert image.run(["python3", "-c", "open('/tmp/new', 'w')"], USER).returncode == 0


def _path_of_base() -> str:
    return f"{Path(sys.executable).resolve().parent}:/usr/local/bin:/usr/bin:/bin"


def _layer(folder: Path) -> Path:
    """Return the root of a new layer over the files of this machine, with an empty `/tmp`."""
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for each in (root, upper, work):
        each.mkdir(parents=True)
    layers = f"lowerdir=/,upperdir={upper},workdir={work}"
    _do("mount", "--types", "overlay", "overlay", "--options", layers, root)
    _do("mount", "--types", "tmpfs", "--options", "mode=1777", "tmpfs", root / "tmp")
    _do("mount", "--types", "tmpfs", "tmpfs", root / "dev")
    (root / "dev/shm").mkdir(mode=0o1777)
    for device in ("null", "zero", "full", "random", "urandom"):
        (root / "dev" / device).touch()
        _do("mount", "--bind", f"/dev/{device}", root / "dev" / device)
    _do("mount", "--types", "proc", "proc", root / "proc")
    return root


def _do(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True)


def main() -> None:
    context = Path(sys.argv[1]).resolve()
    if len(sys.argv) == 2:
        # All mounts, and the absence of a network, belong to the process that this one starts, and end with it.
        # So this process sees an empty folder, and removes nothing else.
        apart = ("unshare", "--mount", "--net", "--propagation", "private")
        with tempfile.TemporaryDirectory() as empty:
            sys.exit(subprocess.run([*apart, sys.executable, *sys.argv, empty]).returncode)
    folder = Path(sys.argv[2])
    _do("mount", "--types", "tmpfs", "tmpfs", folder)  # a layer may not lie on the file system of its base
    image = build((context / "Containerfile").read_text(), context, folder / "layers")
    judge(image, folder)
    print("the image judges")


if __name__ == "__main__":
    os.umask(0o022)
    main()
