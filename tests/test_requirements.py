"""Tests of requirements: missing packages are reported first, with a command that installs only them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Cli, fake_package, write_rows

import localjudge
from localjudge import UsageError
from localjudge.system.requirements import install_command, require

ASKED = (
    'Requires-Dist: no-such-statistics>=1.5; extra == "trust"',
    'Requires-Dist: no-such-numbers>=1.13; extra == "trust"',
    'Requires-Dist: no-such-files>=18; extra == "parquet"',
    'Requires-Dist: no-such-bill>=11; extra == "pack"',
    'Requires-Dist: no-such-engine[fast]==1.*; extra == "cpu"',
    'Requires-Dist: numpy>=1; extra == "cpu"',
)
STATISTICS = '"no-such-statistics>=1.5" "no-such-numbers>=1.13"'


def test_the_command_names_packages_with_the_bounds_of_the_metadata() -> None:
    assert install_command("trust") == 'pip install "scikit-learn>=1.5" "scipy>=1.13"'


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["rank", "no-run"], STATISTICS),
        (["agree", "no-run", "--labels", "labels.parquet"], f'{STATISTICS} "no-such-files>=18"'),
        (["pack", "--out", "pack"], '"no-such-bill>=11"'),
        (["report", "no-run"], STATISTICS),
        (["score", "none.parquet", "--out", "out", "--model", "none", "--engine", "transformers"],
         '"no-such-files>=18" "no-such-engine[fast]==1.*"'),
        (["audit", "none.parquet", "--out", "out", "--model", "none", "--engine", "transformers"],
         f'{STATISTICS} "no-such-files>=18" "no-such-engine[fast]==1.*"'),
    ],
)  # fmt: skip
def test_all_that_a_command_lacks_is_named_in_one_line_before_anything_else(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    installed_as: Path,
    command: list[str],
    missing: str,
) -> None:
    fake_package(installed_as, "localjudge-eval", *ASKED)
    monkeypatch.chdir(tmp_path)
    end = cli(*command)
    assert (end.code, end.out, end.err.count("\n")) == (2, "", 1)
    assert end.err.startswith(f"localjudge: {command[0]}: no-such-")
    assert f": pip install {missing} (without a network: localjudge pack --extra " in end.err
    assert not (tmp_path / "out").exists()


def test_what_is_installed_is_not_asked_for_again(installed_as: Path) -> None:
    fake_package(installed_as, "localjudge-eval", *ASKED)
    fake_package(installed_as, "no-such-numbers", version="2")
    with pytest.raises(
        UsageError,
        match=r'pip install "no-such-sta[^ ]* \(without a network: localjudge pack --extra trust, ',
    ):
        require("rank", "trust")
    fake_package(installed_as, "no-such-statistics", version="2")
    require("rank", "trust")


def test_a_parquet_file_is_asked_for_its_reader_from_python_too(tmp_path: Path, installed_as: Path) -> None:
    fake_package(installed_as, "localjudge-eval", *ASKED)
    rows = write_rows(tmp_path / "rows.parquet", 1)
    with pytest.raises(UsageError, match=r"rows\.parquet: no-such-files is not installed: pip install"):
        list(localjudge.read_rows([str(rows)]))


def test_no_message_tells_to_install_localjudge_from_an_index() -> None:
    for file in Path(localjudge.__file__).parent.rglob("*.py"):
        assert not re.search(r"pip install .?localjudge", file.read_text("utf-8")), file
