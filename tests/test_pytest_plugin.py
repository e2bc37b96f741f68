"""The plugin in the real pytest, which finds it by its entry point."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TESTS = """
PERU = {"id": "peru", "instruction": "The capital of Peru?", "reference": "Lima.", "candidate": "Lima."}
WRONG = {**PERU, "id": "wrong", "candidate": "Cusco banana I it of the."}

def test_good(judged):
    assert judged([PERU, PERU]).mean("helpfulness") == 5

def test_low(judged):
    assert judged([PERU, WRONG, PERU]).mean("helpfulness") > 4.9

def test_unjudged(judged):
    assert judged([PERU, {"id": "torn", "instruction": "A?"}]).mean("helpfulness") > 1

def test_hostile(judged):
    said = "\\x1b]0;owned\\x07\\x1b[2Jclick"
    assert judged({**PERU, "id": said, "candidate": said} for _ in range(2)).mean("helpfulness") >= 6

def test_none(judged):
    assert judged([]).mean("helpfulness") > 1

def test_each(judged):
    assert [each.status for each in judged([PERU, {"id": "torn"}]).outcomes] == ["judged", "failed"]
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_answers.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-rA", "--tb=short", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def test_an_assertion_about_a_mean_passes_or_shows_the_lowest_rows(printed: str) -> None:
    assert "PASSED test_answers.py::test_good" in printed
    said = printed.partition(" test_low ")[2].partition(" test_unjudged ")[0]
    assert " of 3 rows > 4.9" in said
    first, reason = said.partition("lowest rows:")[2].splitlines()[1:3]
    assert " wrong  Cusco banana I it of the." in first, "the lowest row stands first, with its response"
    assert "Cusco" in reason, "and its rationale below"


def test_a_row_that_could_not_be_judged_fails_the_test_and_never_has_a_score(printed: str) -> None:
    assert "1 of 2 rows could not be judged, so helpfulness has no mean:" in printed
    assert "torn  row 2: no candidate: no value at 'candidate'" in printed
    assert "{'id': 'torn', 'instruction': 'A?'}" in printed
    assert "0 of 0 rows could not be judged, so helpfulness has no mean" in printed
    assert "PASSED test_answers.py::test_each" in printed, "a test may look at each outcome"


def test_rows_may_come_from_a_generator_and_nothing_in_them_controls_the_terminal(printed: str) -> None:
    said = printed.partition(" test_hostile ")[2].partition(" test_none ")[0]
    assert " of 2 rows >= 6" in said
    assert "\\u001b]0;owned\\u0007\\u001b[2Jclick" in said
    assert "\x1b" not in printed
    assert "\x07" not in printed


def test_the_model_is_loaded_once_and_a_warning_about_the_judge_stands_at_the_end(printed: str) -> None:
    assert "2 passed" in printed
    assert printed.count("localjudge: These scores come from the small bundled model") == 1
