"""Tests of manipulated files: each is refused with one line."""

from __future__ import annotations

import json
import os
import string
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from localjudge import Judge, Row
from localjudge.constraint.vocabulary import read_vocabulary
from localjudge.errors import ModelError, UsageError
from localjudge.models.digests import decisive_digest, read_digests
from localjudge.models.model import Model
from localjudge.models.weights import INDEX, read_header, read_index
from localjudge.prompts.encoder import PromptEncoder
from localjudge.rows.inputs import find_inputs, read_rows
from localjudge.runs.reader import read_notices
from localjudge.runs.row_source import RowSource
from localjudge.studies.calibration import Calibration


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path, short_rubric: Path) -> Path:
    """Return a run of a model with random weights, next to its rows."""
    folder = tmp_path_factory.mktemp("made")
    rows = write_rows(folder / "rows.jsonl", 6)
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=2)
    from localjudge.runs.run_directory import RunDirectory
    from localjudge.runs.run_plan import RunPlan

    with (
        RunDirectory(folder / "run") as run,
        RunPlan(judge, read_rows([str(rows)]), scratch=folder / "run") as plan,
    ):
        run.begin(judge, plan, RowSource(inputs=[str(rows)]))
        run.score()
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """Return a copy of this run, for the test to change."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in (made / "run").glob("*.json*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def edit_line(run: Path, **changed: Any) -> None:
    file = run / "judgements.jsonl"
    first, *rest = file.read_text().splitlines(keepends=True)
    file.write_text("".join([json.dumps(json.loads(first) | changed) + "\n", *rest]))


def edit_manifest(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((run / "run.json").read_text())
    change(manifest)
    (run / "run.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"wit_expected": float("nan")}, "jsonl:1: not a line of a run, or damaged"),
        ({"wit_expected": float("inf")}, "jsonl:1: not a line of a run, or damaged"),
        ({"wit": True}, "jsonl:1: wit is not one of its values (1 to 3)"),
        ({"wit_probabilities": [0.5, None, 0.5]}, "jsonl:1: not a line of a run, or damaged"),
        ({"rationale": None}, "jsonl:1: not a line of a run, or damaged"),
        ({"candidate_cut": "x"}, "jsonl:1: not a line of a run, or damaged"),
        ({"group": 1}, "jsonl:1: not a line of a run, or damaged"),
        ({"row": None}, "jsonl:1: not a line of a run, or damaged"),
        ({"wit": 99}, "jsonl:1: wit is not one of its values (1 to 3)"),
        ({"wit": -1}, "jsonl:1: wit is not one of its values (1 to 3)"),
        ({"wit_expected": 1e308}, "jsonl:1: wit_expected is beyond its values (1 to 3)"),
        ({"wit_probabilities": [0.5, 0.5]}, "wit_probabilities are not 3 probabilities whose sum is 1"),
        ({"wit_probabilities": [7, 0, -6]}, "wit_probabilities are not 3 probabilities whose sum is 1"),
        ({"wit_probabilities": [0.5, 0.5, 0.5]}, "wit_probabilities are not 3 probabilities whose sum is 1"),
        ({"key": "0" * 32}, "jsonl:1: not made with the settings in run.json"),
        ({"digest": "no digest"}, "jsonl:1: not made with the settings in run.json"),
    ],
)
def test_no_mean_is_taken_over_a_score_that_no_judge_can_have_given(
    cli: Cli, run: Path, changed: dict[str, Any], words: str
) -> None:
    assert cli("show", run).code == 0
    edit_line(run, **changed)
    for command in ("show", "rank"):
        end = cli(command, run)
        assert (end.code, end.out, words in end.err) == (2, "", True)


def test_lines_of_a_dry_run_are_not_taken_for_those_of_a_model(
    cli: Cli, run: Path, made: Path, model: Path, short_rubric: Path, tmp_path: Path
) -> None:
    judge = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 2]
    assert cli("score", made / "rows.jsonl", "--out", tmp_path / "dry", *judge, "--engine", "dry-run").code == 0
    with (run / "judgements.jsonl").open("a") as stream:
        stream.write((tmp_path / "dry" / "judgements.jsonl").read_text())
    end = cli("rank", run)
    assert (end.code, "judgements.jsonl:7: not made with the settings in run.json" in end.err) == (2, True)

    edit_manifest(tmp_path / "dry", lambda manifest: manifest["settings"].update(engine="transformers"))
    end = cli("rank", tmp_path / "dry")
    assert (end.code, "judgements.jsonl:1: not made with the settings in run.json" in end.err) == (2, True)


def test_another_scale_than_the_judged_one_is_refused(cli: Cli, run: Path) -> None:
    edit_manifest(run, lambda manifest: manifest["rubric"]["aspects"][0]["scale"].update(highest=10))
    end = cli("show", run)
    assert (end.code, "its rubric does not match the digest in its settings" in end.err) == (2, True)


def test_a_run_that_has_lost_lines_is_complete_no_more(cli: Cli, run: Path) -> None:
    assert not read_notices(run)
    file = run / "judgements.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    end = cli("show", run)
    assert (end.code, "incomplete: 2 of 6 rows" in end.out) == (0, True)


@pytest.mark.parametrize("name", ["run.json", "judgements.jsonl"])
def test_a_pipe_in_a_run_is_not_waited_for(cli: Cli, run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    end = cli("show", run)
    assert (end.code, f"{name}: is not a file" in end.err) == (2, True)


@pytest.mark.parametrize("file", ["run.json", "summary.json"])
def test_json_that_is_nested_without_end_is_one_line(cli: Cli, run: Path, file: str) -> None:
    (run / file).write_text("[" * 100_000)
    end = cli("show", run)
    assert (end.code, "Traceback" in end.err) == (2 if file == "run.json" else 0, False)


@pytest.mark.parametrize(
    "part",
    [
        {"started": None},
        {"max_row_bytes": "x"},
        {"max_row_bytes": -1},
        {"engine": "vllm"},
        {"config": {"engine": "fast"}},
        {"note": "of another program"},
    ],
)
def test_a_manifest_with_parts_of_other_types_is_none(cli: Cli, run: Path, part: dict[str, Any]) -> None:
    edit_manifest(run, lambda manifest: manifest["starts"][-1].update(part))
    end = cli("show", run, "--id", "r1")
    assert (end.code, "not a manifest of run format 11, or damaged" in end.err) == (2, True)


def test_a_manifest_cannot_have_the_program_wait_for_a_pipe_or_search_the_disk(
    cli: Cli, run: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    names = [str(tmp_path / "pipe.jsonl"), str(tmp_path / "**" / "*.jsonl")]
    edit_manifest(run, lambda manifest: manifest["starts"][-1].update(inputs=names))
    end = cli("show", run, "--id", "r1")
    assert (end.code, end.err.count("No such file, or none that can be read twice")) == (0, 2)


def test_rows_of_a_named_pipe_are_read_from_its_first_byte(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    row = json.dumps({"instruction": "a", "reference": "b", "candidate": "c"}) + "\n"
    writer = threading.Thread(target=pipe.write_text, args=(row * 3,), daemon=True)
    writer.start()
    assert [type(each) for each in read_rows(find_inputs([str(pipe)]))] == [Row] * 3


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet"])
def test_a_dry_run_that_was_exported_stays_one(
    cli: Cli, run: Path, made: Path, model: Path, short_rubric: Path, tmp_path: Path, to: str
) -> None:
    judge = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 2]
    dry, file = tmp_path / "dry", tmp_path / f"dry.{to}"
    assert cli("score", made / "rows.jsonl", "--out", dry, *judge, "--engine", "dry-run").code == 0
    assert cli("export", dry, "--to", to, "--out", file, "--with-texts").code == 0
    scale = ["--scale", "1-3", "--aspect", "tact", "--aspect", "wit"]
    end = cli("import", file, "--out", tmp_path / "again", *scale)
    assert (end.code, "dry run: no model was asked" in end.out + end.err) == (0, True)
    assert cli("rank", tmp_path / "again").code == 2
    assert "dry run: no model was asked" in cli("show", tmp_path / "again").out
    end = cli("agree", run, "--labels", file)
    assert (end.code, "scores of a dry run mean nothing and cannot be labels" in end.err) == (2, True)


@pytest.mark.parametrize(
    ("label", "words"), [("true", "'True', which is not a number"), ("1e400", "a label is a number of at most")]
)
def test_what_is_no_number_is_no_label(cli: Cli, run: Path, tmp_path: Path, label: str, words: str) -> None:
    (tmp_path / "labels.jsonl").write_text(f'{{"id": "r0", "wit": {label}}}\n')
    end = cli("agree", run, "--labels", tmp_path / "labels.jsonl")
    assert (end.code, words in end.err) == (2, True)
    end = cli("agree", run, "--labels", "-")
    assert (end.code, "must be a file, because it is read twice" in end.err) == (2, True)


@pytest.mark.parametrize(
    ("x", "y"),
    [([], []), ([1, 2], [1]), ([2, 1], [1, 2]), ([1, 2], [2, 1]), ([1, 1], [1, 2]), ([1], [float("nan")])],
)
def test_a_calibration_is_a_map_that_rises(tmp_path: Path, x: list[float], y: list[float]) -> None:
    gain = {"value": 1.0, "low": 0.5, "high": 2.0}
    numbers = {"rows": 9, "instructions": 9, "folds": 5, "mse_as_judged": 1.0, "mse_calibrated": 0.5}
    numbers["mse_constant"] = 1.0
    document: dict[str, Any] = {
        "judge": {"rubric": "", "model": ""}, "model": "m", "of": "expected", "rows": [],
        "aspects": {"wit": {"x": [1, 2], "y": [1, 2], "gain": gain, "over_constant": gain, **numbers}},
    }  # fmt: skip
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(document))
    assert Calibration.load(file).aspects["wit"].has_gain
    document["aspects"]["wit"] |= {"x": x, "y": y}
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"not a calibration: aspects\.wit"):
        Calibration.load(file)


def test_no_export_takes_the_place_of_a_run_or_of_its_rows(
    cli: Cli, made: Path, run: Path, tmp_path: Path
) -> None:
    kept = (run / "judgements.jsonl").read_bytes()
    for name in {"set-aside.jsonl"} | {file.name for file in run.glob("[!.]*")}:
        end = cli("export", run, "--to", "csv", "--out", run / name)
        assert (end.code, "is a file of a run" in end.err) == (2, True), name
    rows = made / "rows.jsonl"
    judged = rows.read_bytes()
    end = cli("export", run, "--to", "jsonl", "--out", rows)
    assert (end.code, "is an input of this run" in end.err) == (2, True)
    assert ((run / "judgements.jsonl").read_bytes(), rows.read_bytes()) == (kept, judged)


@pytest.mark.parametrize("text", ["prompt = 'x'", "name = " + "[" * 100_000])
def test_a_rubric_of_odd_parts_is_one_line(tmp_path: Path, cli: Cli, text: str) -> None:
    (tmp_path / "odd.toml").write_text(text)
    end = cli("score", "examples", "--out", tmp_path / "run", "--rubric", tmp_path / "odd.toml", "--guard")
    assert (end.code, end.err.count("\n"), "rubric" in end.err) == (2, 1, True)


def test_a_number_that_python_cannot_write_fails_its_own_row(model: Path, short_rubric: Path) -> None:
    texts = {"instruction": "a", "reference": "b", "candidate": "c"}
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=2)
    found = list(judge.score([{"id": 10**5000, **texts}, {"id": "whole", **texts}]))
    assert {outcome.id: outcome.status for outcome in found} == {"row 1": "failed", "whole": "judged"}


@pytest.mark.parametrize("content", ["[" * 100_000, "{STAMP: 5}", "[]", "nothing"])
def test_a_damaged_memory_of_digests_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("LOCALJUDGE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    os.utime(folder / "config.json", (1, 1))
    monkeypatch.setattr("localjudge.models.digests._SETTLED", 0)
    true = read_digests(folder)
    (memory,) = (tmp_path / "cache" / "digests").iterdir()
    stamp = next(iter(json.loads(memory.read_text())))
    memory.write_text(content.replace("STAMP", json.dumps(stamp)))
    assert read_digests(folder) == true


def test_weights_decide_a_models_digest_whatever_their_name() -> None:
    for name in ("readme.safetensors", "NOTICE-1.safetensors", "license.json"):
        assert decisive_digest({name: "1"}) != decisive_digest({name: "2"})
    assert decisive_digest({"LICENSE.txt": "1"}) == decisive_digest({"LICENSE.txt": "2"})


@pytest.mark.parametrize("shard", [".hidden.safetensors", "weights.bin", "weights"])
def test_an_index_names_no_file_outside_of_the_models_digest(tmp_path: Path, shard: str) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(ModelError, match="weights must be safetensors files that are not hidden"):
        read_index(tmp_path)


@pytest.mark.parametrize("shape", [[10**4000] * 2000, [2**63], [-1], [0.5]])
def test_a_header_with_an_impossible_shape_is_refused(tmp_path: Path, shape: list[float]) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"0000")
    with pytest.raises(ModelError, match="damaged or cut short"):
        read_header(file)


def test_a_model_that_one_engine_reads_otherwise_than_another_is_refused(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    with pytest.raises(ModelError, match=r"has a LoRA adapter \(adapter_config.json\)"):
        Model.find(folder)
    (folder / "adapter_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": "other.safetensors"}))
    with pytest.raises(ModelError, match=r"config\.json names a weights file"):
        Model.find(folder).configuration  # noqa: B018


def test_a_vocabulary_beyond_all_bounds_is_one_line(model: Path) -> None:
    with pytest.raises(ModelError, match="no model has more than"):
        read_vocabulary(Model.find(model).tokenizer, 10**11, [])


def test_a_character_that_a_tokenizer_has_no_token_for_fails_its_own_row_only() -> None:
    pieces = [(letter, -1.0) for letter in string.printable]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.Unigram(pieces)))
    encoder = PromptEncoder(tokenizer)
    assert encoder.encode("known")
    with pytest.raises(ValueError, match=r"the tokenizer cannot encode the text: .*unknown token"):
        encoder.encode("\u00e9")
