"""Commands whose file operations fail: what they say is true, and the same command continues.

A sample of the points of `fault_campaign.py`, which runs all of them by hand.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fault_campaign import Campaign, Point, campaign_in, described
from fault_commands import COMMANDS, FaultedCommand, with_old
from file_faults import FAULTS, built_library, compiler, counting, failing, logged_operations, preloading

SAMPLE = 8
"""Number of points of each command."""
SEED = 60
NO_COMPILER = "no C compiler: install gcc"
WRITER = """
import os, sys
try:
    with open("out/scratch", "wb", buffering=0) as stream:
        os.write(stream.fileno(), b"12345678")
        os.fsync(stream.fileno())
    os.rename("out/scratch", "out/result")
except OSError as error:
    sys.exit(f"failed: {error.errno}")
"""
CARELESS = """
from pathlib import Path
Path("out/table").write_text("a new table")
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library, or skip the test where it cannot be compiled."""
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    return built_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    with campaign_in(tmp_path_factory.mktemp("faults").resolve(), workers=1) as campaign:
        yield campaign


@pytest.mark.parametrize("command", COMMANDS)
def test_after_a_fault_the_same_command_ends_as_if_there_had_been_none_or_its_message_is_true(
    campaign: Campaign, command: str
) -> None:
    results = campaign.results(campaign.sample(command, SAMPLE, SEED))
    broken = [described(result) for result in results if result.broken]
    assert not broken, "run them again: python tests/fault_campaign.py …\n" + "\n".join(broken)


def test_a_stop_after_a_pack_is_whole_says_that_it_is(campaign: Campaign) -> None:
    """The last operations remove what was left beside the pack."""
    points = [point for point in campaign.points("pack") if point.fault == "Ctrl-C"]
    results = list(campaign.results(points[-10:]))
    assert len(results) == 10
    broken = [described(result) for result in results if result.broken]
    assert not broken, "\n".join(broken)


def written(library: Path, folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script that writes `out/scratch` and renames it to `out/result`."""
    (folder / "out").mkdir()
    return subprocess.run(
        [sys.executable, "-I", "-c", WRITER], cwd=folder, env=preloading(library) | variables,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_operations_below_the_folder_are_counted_and_nothing_else_is_changed(
    library: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert written(library, tmp_path, counting(tmp_path / "out", log)).returncode == 0
    out = tmp_path / "out"
    names = [operation.split() for operation in logged_operations(log)]
    assert names == [
        ["open64", f"{out}/scratch"], ["write", f"{out}/scratch"], ["fsync", f"{out}/scratch"],
        ["close", f"{out}/scratch"], ["rename", f"{out}/result"],
    ]  # fmt: skip
    assert (out / "result").read_bytes() == b"12345678"


@pytest.mark.parametrize(
    ("fault", "at", "code", "left"),
    [
        ("kill", 2, -signal.SIGKILL, {"scratch": b""}),
        ("kill", 5, -signal.SIGKILL, {"scratch": b"12345678"}),
        ("torn write", 2, -signal.SIGKILL, {"scratch": b"1234"}),
        ("torn write", 5, -signal.SIGKILL, {"result": b"12345678"}),
        ("EIO", 2, errno.EIO, {"scratch": b""}),
        ("EIO", 4, errno.EIO, {"scratch": b"12345678"}),
        ("ENOSPC", 1, errno.ENOSPC, {}),
        ("ENOSPC stays", 2, errno.ENOSPC, {"scratch": b"1234"}),
        ("EDQUOT stays", 3, errno.EDQUOT, {"scratch": b"12345678"}),
        ("EROFS stays", 5, errno.EROFS, {"scratch": b"12345678"}),
        ("SIGTERM", 5, -signal.SIGTERM, {"result": b"12345678"}),
        ("Ctrl-C", 5, -signal.SIGINT, {"result": b"12345678"}),
    ],
)
def test_a_fault_comes_at_its_operation(
    library: Path, tmp_path: Path, fault: str, at: int, code: int, left: Mapping[str, bytes]
) -> None:
    ended = written(library, tmp_path, failing(tmp_path / "out", FAULTS[fault], at))
    if code > 0:
        assert (ended.returncode, ended.stderr) == (1, f"failed: {code}\n")
    else:
        assert ended.returncode == code
    found = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    if fault == "SIGTERM":  # it comes before the operation, which a process that ends at once does not reach
        left = {"scratch": b"12345678"}
    assert found == left


@pytest.mark.parametrize(
    ("fault", "broken"), [("torn write", "table is neither"), ("EIO", "Traceback"), ("kill", "")]
)
def test_a_program_that_writes_over_its_result_in_place_is_found(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, broken: str
) -> None:
    script = tmp_path / "careless.py"
    script.write_text(CARELESS)
    careless = FaultedCommand((), with_old("table"), program=(str(script),))
    monkeypatch.setitem(COMMANDS, "careless", careless)
    result = campaign.result(Point("careless", fault, 2))
    assert result.operation == f"write {os.path.join('out', 'table')}"
    assert result.broken
    assert broken in "".join(result.broken) + result.starts[0].said
