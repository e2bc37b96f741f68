"""The package as a stranger meets it: light to import, with the names that it says it has."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import localjudge

HEAVY = {
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "pydantic",
    "rich",
    "typer",
    "outlines_core",
    "pyarrow",
    "scipy",
    "sklearn",
    "vllm",
}


def python(*args: str) -> str:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import localjudge", set()),
        ("import localjudge.errors, localjudge.__main__", {"typer", "rich"}),
        ("from localjudge import Rubric, Row, read_rows", {"pydantic"}),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, allowed: set[str]) -> None:
    loaded = json.loads(python("-c", f"{statement}\nimport sys, json; print(json.dumps(list(sys.modules)))"))
    assert HEAVY & set(loaded) <= allowed


def test_the_public_names_are_these() -> None:
    assert localjudge.__all__ == dir(localjudge) == [
        "EngineError", "Failure", "Judge", "Judgement", "LocalJudgeError", "ModelError", "Row", "Rubric",
        "RubricError", "UsageError", "read_rows",
    ]  # fmt: skip
    for name in localjudge.__all__:
        assert getattr(localjudge, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Jury'"):
        localjudge.Jury  # noqa: B018


def test_every_error_is_of_one_tree_and_knows_its_exit_code() -> None:
    from localjudge import errors

    known = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    tree = [each for each in known if issubclass(each, localjudge.LocalJudgeError)]
    assert tree == known
    assert {each.__name__: each.exit_code for each in tree if each.exit_code != 2} == {
        "LocalJudgeError": 1, "EngineError": 1, "RunBrokenError": 1,
    }  # fmt: skip


def test_the_module_runs_as_a_program() -> None:
    assert "score" in python("-m", "localjudge", "--help")
