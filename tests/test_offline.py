"""Tests of offline operation: nothing is downloaded or reported unless a flag allows it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from preloaded import Preloaded

from localjudge.system.machine import SWITCHES

# Runs the program; any connection except to a local socket in the file system ends it. Binding to ("::1", 0) is
# how urllib3 finds out at its import whether the machine has IPv6; nothing is sent.
WATCHED = """
import sys
def watch(event, arguments):
    if event == "socket.bind" and arguments[1] == ("::1", 0):
        return
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto") or (
        event in ("socket.connect", "socket.bind") and not isinstance(arguments[1], (str, bytes))
    ):
        print("WENT OUT", event, arguments, file=sys.stderr, flush=True)
        sys.exit(99)
sys.addaudithook(watch)
from localjudge.cli import main
main()
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def localjudge(
    *arguments: object, watched: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    program = ("-c", WATCHED) if watched else ("-m", "localjudge")
    return subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_a_whole_run_goes_nowhere(tmp_path: Path, model: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    end = localjudge("score", rows, "--model", model, "--out", tmp_path / "run", "--max-rationale-tokens", 5)
    assert end.returncode == 0, end.stderr
    assert len((tmp_path / "run" / "judgements.jsonl").read_text().splitlines()) == 3


@pytest.mark.slow
def test_a_model_is_verified_without_a_connection(tmp_path: Path, model: Path, preloaded: Preloaded) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    command = [*preloaded.script(tmp_path / "watched.py"), "models", "verify", str(model), "--no-manifest"]
    end = subprocess.run(command, capture_output=True, text=True)
    assert end.returncode == 0, end.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["score", "prompt", "audit"])
def test_a_model_that_is_not_here_is_one_line_and_no_connection(tmp_path: Path, command: str) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    more = ("--tokens",) if command == "prompt" else ("--out", tmp_path / "run")
    end = localjudge(command, rows, *more, "--model", "some/judge", HF_HOME=str(tmp_path / "hub"))
    assert end.returncode == 2
    (line,) = (line for line in end.stderr.splitlines() if line.startswith("localjudge:"))
    assert f"not in the local cache {tmp_path / 'hub' / 'hub'}" in line
    assert "hf download some/judge" in line
    assert "--allow-download" in line


def test_the_users_own_switches_stay_as_they_are(tmp_path: Path) -> None:
    told = (
        "import os; from localjudge.cli.options import settle_environment as settle; settle(); "
        "print(os.environ['HF_HUB_OFFLINE'], os.environ['VLLM_NO_USAGE_STATS'], os.environ['DO_NOT_TRACK'])"
    )
    end = subprocess.run(
        [sys.executable, "-c", told],
        env={**os.environ, "HF_HUB_OFFLINE": "0", "DO_NOT_TRACK": "0"},
        capture_output=True,
        text=True,
    )
    assert end.stdout.split() == ["0", "1", "0"]


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in an environment without the switches of the network."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=without_switches() | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def without_switches() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SWITCHES}


@pytest.mark.slow
def test_the_library_sets_the_switches_of_the_network_where_a_judge_is_made_and_nothing_else(
    tmp_path: Path, model: Path, preloaded: Preloaded
) -> None:
    import_alone = "import os; before = dict(os.environ); import localjudge, torch, transformers\n"
    code = f"""
theirs = dict(os.environ)
from localjudge import Judge, Row
assert dict(os.environ) == theirs
row = Row.from_response(instruction="Q", candidate="C", reference="R")
found = list(Judge({str(model)!r}, max_rationale_tokens=5).score([row]))
assert len(found) == 1 and found[0].status == "judged"
print(sorted(name for name in os.environ if os.environ[name] != theirs.get(name)))
"""
    end = python(import_alone + code)
    assert end.stdout == f"{sorted(SWITCHES)}\n", end.stderr
    (tmp_path / "script.py").write_text(import_alone + code)
    kept = subprocess.run(
        preloaded.script(tmp_path / "script.py"), env=without_switches() | {"DO_NOT_TRACK": "0"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert kept.stdout == f"{sorted(SWITCHES.keys() - {'DO_NOT_TRACK'})}\n", kept.stderr


def test_a_judge_keeps_a_hub_library_offline_that_was_imported_before_it(
    model: Path, hub: tuple[str, list[str]]
) -> None:
    address, asked = hub
    code = f"""
import huggingface_hub
{"{}"}
try:
    print(huggingface_hub.HfApi().model_info("some/judge").id)
except huggingface_hub.errors.OfflineModeIsEnabled:
    print("offline")
"""
    without = python(code.format("pass"), HF_ENDPOINT=address)
    assert without.stdout == "some/judge\n", without.stderr
    asked.clear()
    judge = f"from localjudge import Judge; Judge({str(model)!r})"
    assert python(code.format(judge), HF_ENDPOINT=address).stdout == "offline\n"
    assert asked == []
    assert python(code.format(judge), HF_ENDPOINT=address, HF_HUB_OFFLINE="0").stdout == "some/judge\n"


def test_a_judge_may_be_downloaded_after_another_was_made_and_the_rest_stays_offline(
    tmp_path: Path, model: Path, hub: tuple[str, list[str]]
) -> None:
    code = f"""
import huggingface_hub
from localjudge import Judge
Judge({str(model)!r})
print(Judge("some/judge", allow_download=True).model.path.name)
print(huggingface_hub.constants.HF_HUB_OFFLINE)
"""
    end = python(code, HF_ENDPOINT=hub[0], HF_HOME=str(tmp_path / "hub"))
    assert end.stdout == f"{COMMIT}\nTrue\n", end.stderr


class Hub(BaseHTTPRequestHandler):
    """A model hub with one model, `some/judge`."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        self.asked.append(path)
        names = sorted(file.name for file in self.folder.iterdir())
        if path == "/api/models/some/judge/revision/main" or path == "/api/models/some/judge":
            about = {"id": "some/judge", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            self.answer(json.dumps(about).encode(), {"Content-Type": "application/json"})
        elif path.startswith("/api/models/some/judge/tree/"):
            tree = [self.entry(self.folder / name) for name in names]
            self.answer(json.dumps(tree).encode(), {"Content-Type": "application/json"})
        elif path.startswith("/some/judge/resolve/") and (name := path.split("/")[-1]) in names:
            content = (self.folder / name).read_bytes()
            etag = hashlib.sha1(content).hexdigest()
            self.answer(content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
        else:
            self.send_error(404)

    def entry(self, file: Path) -> Mapping[str, object]:
        oid = hashlib.sha1(file.read_bytes()).hexdigest()
        return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": oid}

    def answer(self, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, model: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a hub on this machine, and the requests that it receives."""
    folder = tmp_path / "on the hub"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    (folder / "modeling.py").write_text("raise SystemExit('this ran')")
    asked: list[str] = []
    handler = type("Hub", (Hub,), {"folder": folder, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_a_download_is_asked_for_by_name_and_leaves_programs_and_pickles_behind(
    tmp_path: Path, hub: tuple[str, list[str]]
) -> None:
    address, asked = hub
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    home = tmp_path / "hub"
    command = ("score", rows, "--model", "some/judge", "--max-rationale-tokens", 5)
    place: dict[str, Any] = {"HF_HOME": str(home), "HF_ENDPOINT": address}
    refused = localjudge(*command, "--out", tmp_path / "run", **place)
    assert refused.returncode == 2
    assert asked == []
    fetched = localjudge(*command, "--out", tmp_path / "run", "--allow-download", watched=False, **place)
    assert fetched.returncode == 0, fetched.stderr
    assert asked
    kept = {file.name for file in home.rglob("*") if file.is_file()}
    assert "model.safetensors" in {path.name for path in home.rglob("*.safetensors")}
    assert kept.isdisjoint({"pytorch_model.bin", "modeling.py"})
    assert not any(path.endswith(("pytorch_model.bin", "modeling.py")) for path in asked)
    # The model is now on this machine: the same command needs no network.
    asked.clear()
    again = localjudge(*command, "--out", tmp_path / "again", **place)
    assert again.returncode == 0, again.stderr
    assert asked == []


def test_a_download_that_fails_is_one_line(tmp_path: Path, hub: tuple[str, list[str]]) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    command = ("score", rows, "--out", tmp_path / "run", "--model", "some/other", "--allow-download")
    end = localjudge(*command, watched=False, HF_HOME=str(tmp_path / "hub"), HF_ENDPOINT=hub[0])
    assert end.returncode == 2
    assert [line for line in end.stderr.splitlines() if "it cannot be downloaded" in line]
