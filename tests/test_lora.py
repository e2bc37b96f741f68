"""Tests of LoRA adapters: what they change, what a run records of them, and which are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli, random_model, read_lines, write_rows
from lora_files import write_adapter
from safetensors.torch import load_file, save_file

from localjudge import Judge, Judgement, ModelError
from localjudge.airgap.pack import _sources
from localjudge.models.adapter import Adapter
from localjudge.models.capacity import PlannedModel
from localjudge.models.model import Model
from localjudge.records import Outcome

FLOAT32 = {"dtype": "float32"}
ROWS = [
    {"id": f"r{n}", "instruction": "Is it so?", "reference": "Yes.", "candidate": "No, " * n} for n in range(3)
]


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("lora") / "adapter", model)


def judged(model: Path, adapter: Path | None = None) -> list[Outcome]:
    judge = Judge(
        model,
        adapter=None if adapter is None else str(adapter),
        engine="transformers",
        engine_args=FLOAT32,
        max_rationale_tokens=12,
    )
    found = sorted(judge.score(ROWS), key=lambda outcome: outcome.id)
    assert all(isinstance(outcome, Judgement) for outcome in found)
    return [each.model_copy(update={"key": ""}) for each in found]


def merged(model: Path, adapter: Path, folder: Path, scale: float) -> Path:
    """The model with the adapter's updates added to its weights."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights, own = load_file(model / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for name in own:
        if name.endswith(".lora_A.weight"):
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            update = own[name.replace("lora_A", "lora_B")].double() @ own[name].double()
            weights[f"{module}.weight"] = (weights[f"{module}.weight"].double() + scale * update).float()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("stabilized", [False, True])
def test_an_adapter_judges_as_the_model_it_is_merged_into_and_not_as_its_base(
    model: Path, tmp_path: Path, stabilized: bool
) -> None:
    adapter = write_adapter(tmp_path / "adapter", model, use_rslora=stabilized)
    whole = merged(model, adapter, tmp_path / "merged", 8 / (math.sqrt(4) if stabilized else 4))
    ours, theirs = judged(model, adapter), judged(whole)
    assert [(each.texts, each.scores) for each in ours] == [(each.texts, each.scores) for each in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        for aspect, probabilities in mine.probabilities.items():
            assert probabilities == pytest.approx(other.probabilities[aspect], abs=1e-4)
    assert ours != judged(model)


def test_a_run_is_of_one_adapter_and_continues_with_no_other(
    cli: Cli, model: Path, adapter: Path, tmp_path: Path
) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl", 3), tmp_path / "run"
    other = write_adapter(tmp_path / "other", model, seed=1)
    limit = ("--max-rationale-tokens", 8)
    start = ("score", rows, "--out", out, "--model", model, "--engine", "transformers", *limit)
    assert cli(*start, "--adapter", adapter, "--limit", 2).code == 0
    recorded = json.loads((out / "run.json").read_text())
    found = Adapter.find(adapter)
    assert recorded["settings"]["adapter"] == found.digest
    assert recorded["model"]["adapter"] == {
        "name": str(adapter), "path": str(adapter), "base": "some/one", "rank": 4, "files": found.files,
    }  # fmt: skip
    assert recorded["settings"]["model"] == Model.find(model).digest
    for given, now in ((("--adapter", other), f"{other} ("), ((), "none")):
        end = cli(*start, *given)
        assert end.code == 2
        assert f"differs in adapter: {adapter} ({found.digest[:8]}) there, {now}" in end.err.splitlines()[-1]
    assert cli(*start, "--adapter", adapter).code == 0
    assert len(list(read_lines(out))) == 3
    assert cli("audit", "--check", "repeat", out, "--sample", 2).code == 0


def test_a_run_without_an_adapter_does_not_continue_with_one(
    cli: Cli, model: Path, adapter: Path, tmp_path: Path
) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl", 2), tmp_path / "run"
    limit = ("--max-rationale-tokens", 8)
    start = ("score", rows, "--out", out, "--model", model, "--engine", "transformers", *limit)
    assert cli(*start, "--limit", 1).code == 0
    assert "adapter" not in json.loads((out / "run.json").read_text())["settings"]
    end = cli(*start, "--adapter", adapter)
    assert (end.code, f"adapter: none there, {adapter} (" in end.err) == (2, True)


def test_the_digest_is_that_of_the_two_files_that_decide_the_answers(model: Path, tmp_path: Path) -> None:
    found = write_adapter(tmp_path / "adapter", model)
    digest = Adapter.find(found).digest
    (found / "README.md").write_text("other words")
    (found / "chat_template.jinja").write_text("another template")
    assert Adapter.find(found).digest == digest
    judge = Judge(Model.find(model, adapter=found), engine="transformers")
    assert (judge.config.adapter, judge.known_settings["adapter"]) == (str(found), digest)
    assert Adapter.find(write_adapter(tmp_path / "scaled", model, lora_alpha=9)).digest != digest
    assert Adapter.find(write_adapter(tmp_path / "other", model, seed=1)).digest != digest


def test_an_adapter_of_another_model_is_refused_in_one_line(
    cli: Cli, model: Path, adapter: Path, tmp_path: Path
) -> None:
    deeper = Model.find().path  # the bundled model
    for base, said in ((deeper, "and the model has "), (model, "")):
        end = cli("models", "verify", base, "--adapter", adapter, "--no-manifest")
        assert end.code == (2 if said else 0), end.out
        assert said in end.out
    end = cli(
        "score", "examples", "--out", tmp_path / "run", "--model", deeper, "--adapter", adapter,
        "--engine", "transformers",
    )  # fmt: skip
    assert (end.code, "does not belong to the model" in end.err.splitlines()[-1]) == (2, True), end.err
    assert "it was trained for some/one" in end.err.splitlines()[-1]


def test_an_adapter_of_another_model_of_the_hub_is_refused_though_its_shapes_fit(
    model: Path, adapter: Path
) -> None:
    from localjudge.models.tensor_check import check_adapter

    for name, fits in (("some/one", True), ("some/other", False), (str(model), True)):
        found = Model(name, model, Adapter.find(adapter))
        if fits:
            assert "all fit" in str(check_adapter(found))
        else:
            with pytest.raises(ModelError, match="was trained for some/one; give that model"):
                check_adapter(found)


def no_configuration(folder: Path) -> None:
    (folder / "adapter_config.json").unlink()


def broken_configuration(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{")


def pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def cut_short(folder: Path) -> None:
    with (folder / "adapter_model.safetensors").open("r+b") as stream:
        stream.truncate(stream.seek(0, 2) - 8)


def one_matrix(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors.pop(next(name for name in tensors if "lora_B" in name))
    save_file(tensors, file)


def whole_weights(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    save_file(load_file(file) | {"base_model.model.lm_head.weight": torch.zeros(2, 2)}, file)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (no_configuration, "has no adapter_config.json"),
        (broken_configuration, "adapter_config.json: not JSON"),
        (pickled, "only pickled weights"),
        (cut_short, "adapter_model.safetensors: damaged or cut short"),
        (one_matrix, "not of rank 4"),
        (whole_weights, "base_model.model.lm_head.weight, which is not supported"),
    ],
)
def test_a_damaged_adapter_is_refused_in_one_line(
    cli: Cli, model: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    adapter = write_adapter(tmp_path / "adapter", model)
    damage(adapter)
    end = cli("score", "examples", "--out", tmp_path / "run", "--model", model, "--adapter", adapter)
    assert (end.code, end.err.count("\n"), said in end.err) == (2, 1, True), end.err
    assert end.err.startswith(f"localjudge: adapter {adapter}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peft_type", "ADALORA"), ("task_type", "SEQ_CLS"), ("r", 0), ("r", "4"), ("lora_alpha", None),
        ("lora_alpha", 10**400), ("lora_alpha", float("inf")),
        ("bias", "all"), ("init_lora_weights", "pissa"), ("use_dora", True), ("modules_to_save", ["lm_head"]),
        ("rank_pattern", {"q_proj": 8}), ("alpha_pattern", {"q_proj": 8}), ("fan_in_fan_out", True),
        ("megatron_config", {"a": 1}), ("layer_replication", [[0, 1]]), ("of_tomorrow", "yes"),
    ],
)  # fmt: skip
def test_an_adapter_with_more_than_both_engines_compute_is_refused_by_the_name_of_its_setting(
    model: Path, tmp_path: Path, name: str, value: Any
) -> None:
    with pytest.raises(ModelError, match=f"adapter_config.json: {name}"):
        Adapter.find(write_adapter(tmp_path / "adapter", model, **{name: value}))


def test_a_plan_and_a_pack_have_the_adapter(cli: Cli, model: Path, adapter: Path) -> None:
    alone = PlannedModel.find(str(model))
    found = alone.with_adapter(Adapter.find(adapter))
    matrices = load_file(adapter / "adapter_model.safetensors").values()
    assert found.weights == alone.weights + sum(matrix.nbytes for matrix in matrices)
    end = cli("models", "plan", model, "--adapter", adapter)
    assert f"with {adapter}: LoRA of rank 4 on 3 modules, trained for some/one" in end.out
    assert f"--model {model} --adapter {adapter} --tensor-parallel-size 1" in end.out
    assert [*_sources([], [str(adapter)], [])] == [
        "adapters/adapter/adapter_config.json", "adapters/adapter/adapter_model.safetensors",
    ]  # fmt: skip
    assert cli("doctor", "--model", model, "--adapter", adapter.parent).code == 1


def test_an_adapter_in_the_directory_of_a_model_is_named_by_its_own_flag(model: Path, tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model")
    write_adapter(folder, model)
    with pytest.raises(ModelError, match="and this with `adapter`"):
        Model.find(folder)
