"""Tests of the package: fast to import, with exactly its documented names."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

import pytest

import localjudge
from localjudge.config import normalize_engine_args

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
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


@pytest.mark.parametrize(
    "command", ["", "score", "show", "compare", "report", "rank", "label", "serve", "audit"]
)
def test_the_help_loads_nothing_heavy(command: str) -> None:
    arguments = ["localjudge", *command.split(), "--help"]
    program = (
        f"import sys, json\nfrom localjudge.cli import main\nsys.argv = {arguments}\n"
        "try:\n    main()\nexcept SystemExit:\n    print('loaded', json.dumps(list(sys.modules)))"
    )
    said = python("-c", program)
    assert HEAVY & set(json.loads(said.partition("\nloaded ")[2])) == (
        {"typer", "rich"} if command else {"typer"}
    )


def test_the_version_is_that_of_the_installed_package() -> None:
    assert localjudge.__version__ == version("localjudge-eval")
    assert metadata("localjudge-eval")["Name"] == PROJECT["name"], "the name that is free in the index"
    assert python("-m", "localjudge", "--version") == f"localjudge {localjudge.__version__}\n"


def test_a_source_tree_that_was_never_installed_tells_its_version(tmp_path: Path) -> None:
    (tmp_path / "localjudge").symlink_to(Path(localjudge.__file__).parent)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import localjudge;"
        "assert 'importlib.metadata' not in sys.modules; print(localjudge.__version__)"
    )
    assert python("-I", "-S", "-c", program).strip() == localjudge.__version__


def test_the_public_names_are_these() -> None:
    assert localjudge.__all__ == dir(localjudge) == [
        "EngineError",
        "Failure",
        "Judge",
        "JudgeConfig",
        "Judgement",
        "LocalJudgeError",
        "ModelError",
        "RecordedRun",
        "Response",
        "RewardEndpoint",
        "Row",
        "RowSource",
        "Rubric",
        "RubricError",
        "RunObserver",
        "RunResult",
        "SettingError",
        "UsageError",
        "load_run",
        "read_rows",
        "score_run",
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
        "LocalJudgeError": 1, "EngineError": 1, "ServiceBusyError": 1, "RunBrokenError": 1,
    }  # fmt: skip


def test_the_module_runs_as_a_program() -> None:
    assert "score" in python("-m", "localjudge", "--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_rationale_tokens": 0}, "max_rationale_tokens"),
        ({"thinking_budget": -1}, "thinking_budget"),
        ({"on_overflow": "wrap"}, "on_overflow"),
        ({"rubric": "none"}, "rubric"),
        ({"engine": "fast"}, "engine"),
        ({"engine": "dry-run", "engine_args": {"rate": -1}}, "rate=-1"),
        ({"engine": "transformers", "engine_args": {"batch-size": 0}}, "batch_size=0"),
        ({"engine_args": {"device": object()}}, "engine option device"),
    ],
)
def test_a_judge_checks_its_own_arguments_before_it_looks_for_the_model(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(localjudge.UsageError, match=said):
        localjudge.Judge("no-such-model", **arguments)


@pytest.mark.parametrize("name", ["max-model-len", "max_model_len"])
@pytest.mark.parametrize("value", [2000, "2000"])
def test_an_option_of_the_engine_may_be_spelled_and_typed_either_way(
    model: Path, name: str, value: object
) -> None:
    judge = localjudge.Judge(model, engine="dry-run", engine_args={name: value, "tensor-parallel-size": None})
    assert judge.context == 2000
    assert judge.config.engine_args == {"max_model_len": "2000"}


def test_numbers_and_truth_values_reach_the_engine_as_it_reads_them(model: Path) -> None:
    judge = localjudge.Judge(model, engine="transformers", engine_args={"batch-size": 3, "dtype": "float32"})
    assert judge.engine.info.batch_size == 3
    given = {"enforce-eager": True, "gpu-memory-utilization": 0.5, "hf_overrides": {"a": 1}}
    assert normalize_engine_args(given) == {
        "enforce_eager": "true", "gpu_memory_utilization": "0.5", "hf_overrides": '{"a": 1}',
    }  # fmt: skip


def test_statistics_know_arrays_alone_and_matching_knows_no_statistics() -> None:
    imported: dict[str, set[str]] = {}
    for folder in ("statistics", "matching"):
        files = (Path(localjudge.__file__).parent / folder).glob("*.py")
        lines = (line.split() for file in files for line in file.read_text().splitlines())
        imported[folder] = {
            words[1].split(".")[1] for words in lines if words[:1] == ["from"] and "localjudge." in words[1]
        }
    assert imported["statistics"] == {"arrays", "statistics", "system"}
    assert imported["matching"].isdisjoint({"statistics", "studies"})
