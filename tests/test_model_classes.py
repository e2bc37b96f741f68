"""Tests of models that also take images, which judge without the encoder of images, and of refused types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli, random_model, row_lines, write_rows
from safetensors.torch import load_file, save_file
from small_vision_models import save_vision_model
from test_batched_types import WINDOW
from test_generation import (
    ENGINE_ARGS,
    assert_as_a_pass_for_each_token,
    completions,
    counted_passes,
    prompts_of,
    save_model,
)

from localjudge import Judge
from localjudge.engines.transformers import transformers_engine
from localjudge.engines.transformers.batched_types import judged_alone
from localjudge.models.model import Model
from localjudge.models.model_class import ModelClass

TYPES = (
    "gemma3",
    "glm46v",
    "kimi_k25",
    "llava",
    "minimax_m3_vl",
    "mistral3",
    "qwen2_5_vl",
    "qwen3_vl",
    "step3p7",
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
REFUSED: dict[str, dict[str, Any]] = {
    "an encoder with a decoder": {"model_type": "bart", "is_encoder_decoder": True},
    "an encoder of texts": {"model_type": "bert", "is_decoder": False},
    "positions of its own": {"model_type": "roberta", "is_decoder": True},
    "the actions of a robot": {"model_type": "pi0"},
    "the text of an image": {"model_type": "got_ocr2"},
    "only about an image": {"model_type": "blip-2"},
    "blocks of tokens": {"model_type": "diffusion_gemma"},
    "no class": {"model_type": "voxtral", "text_config": LLAMA},
    "no text part": {"model_type": "vit"},
}


@pytest.fixture(scope="module", params=TYPES)
def vision_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = random_model(tmp_path_factory.mktemp(request.param))
    return save_vision_model(folder, request.param)


@pytest.fixture(scope="module")
def qwen3_vl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(random_model(tmp_path_factory.mktemp("qwen3_vl")), "qwen3_vl")


@pytest.mark.slow
def test_a_row_gets_in_any_batch_what_the_whole_model_gives_for_it_alone(vision_model: Path) -> None:
    judge = Judge(vision_model, max_rationale_tokens=5, temperature=1.0, engine_args=ENGINE_ARGS)
    prompts = prompts_of(judge)
    with counted_passes(judge) as shapes:
        found = assert_as_a_pass_for_each_token(judge, prompts)
    assert max(rows for rows, *_ in shapes) == 4
    again = completions(judge, prompts[::-1])  # in other batches, after those before
    for tag, answer in found.items():
        assert again[tag].tokens == answer.tokens
        assert again[tag].probabilities == pytest.approx(answer.probabilities, abs=1e-4)


@pytest.mark.slow
def test_a_type_that_is_not_listed_is_judged_row_by_row(
    qwen3_vl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_engine, "judged_alone", lambda _: judged_alone("a newer type"))
    judge = Judge(qwen3_vl, max_rationale_tokens=5, temperature=1.0, engine_args=ENGINE_ARGS)
    assert judge.engine.info.headline.endswith("judged row by row; slower")
    with counted_passes(judge) as shapes:
        assert_as_a_pass_for_each_token(judge, prompts_of(judge))
    assert max(rows for rows, *_ in shapes) == 1


@pytest.mark.slow
def test_the_commands_judge_and_verify_a_model_that_also_takes_images(
    vision_model: Path, cli: Cli, tmp_path: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    flags = ("--model", vision_model, "--rubric", short_rubric, "--engine", "transformers")
    scored = cli("score", rows, "--out", tmp_path / "run", *flags)
    assert scored.code == 0, scored.err
    assert [line["status"] for line in row_lines(tmp_path / "run")] == ["judged"] * 3
    verified = cli("models", "verify", vision_model, "--no-manifest")
    assert verified.code == 0, verified.out
    architecture = json.loads((vision_model / "config.json").read_text())["architectures"][0]
    assert f"{architecture}: {len(load_file(vision_model / 'model.safetensors'))} tensors" in verified.out
    assert cli("doctor", "--model", vision_model, "--engine", "transformers").code == 0


def test_a_judge_of_texts_has_no_encoder_of_images(vision_model: Path) -> None:
    model = Model.find(vision_model)
    model_class = ModelClass.of(model.configuration)
    assert model_class is not None
    whole = model_class.load(vision_model, attention="eager", with_images=True)
    of_texts = model_class.load(vision_model, attention="eager")
    encoder = whole.get_encoder(modality="image")
    assert encoder is not whole
    left_out = whole.num_parameters() - of_texts.num_parameters()
    assert left_out == encoder.num_parameters() > 0
    engine: Any = Judge(vision_model, engine_args=ENGINE_ARGS).engine
    assert not {type(encoder)} & {type(module) for module in engine._model.modules()}


def test_the_last_layer_of_a_16_bit_model_computes_values_in_float32(vision_model: Path) -> None:
    arguments = ENGINE_ARGS | {"dtype": "bfloat16"}
    judge = Judge(vision_model, max_rationale_tokens=5, engine_args=arguments)
    assert (judge.engine.info.dtype, judge.engine.info.head_dtype) == ("bfloat16", "float32")
    assert len(completions(judge, prompts_of(judge))) == len(prompts_of(judge))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["language_model", "visual"])
@pytest.mark.parametrize("damage", ["missing", "of another shape"])
def test_a_damaged_tensor_of_any_part_is_named(
    qwen3_vl: Path, cli: Cli, tmp_path: Path, part: str, damage: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in qwen3_vl.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(tensors) if f".{part}." in name)
    if damage == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(3, 3)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    scored = cli("score", rows, "--out", tmp_path / "run", "--model", folder, "--engine", "transformers")
    verified = cli("models", "verify", folder)
    assert (scored.code, verified.code) == (2, 2)
    assert name in scored.err.splitlines()[-1]
    assert name in verified.out


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED)
def test_what_score_refuses_verify_and_doctor_refuse_with_the_same_reason(
    cli: Cli, tmp_path: Path, kind: str
) -> None:
    folder = random_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config | REFUSED[kind]))
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    scored = cli("score", rows, "--out", tmp_path / "run", "--model", folder, "--engine", "transformers")
    verified = cli("models", "verify", folder)
    examined = cli("doctor", "--model", folder, "--engine", "transformers")
    assert (scored.code, verified.code, examined.code) == (2, 2, 1)
    line = scored.err.splitlines()[-1].removeprefix(f"localjudge: model {folder}: ")
    reason, _, advice = line.partition("; ")
    assert REFUSED[kind]["model_type"] in reason
    for printed in (verified.out, examined.out):
        assert f"{reason} → {advice}" in " ".join(printed.split())
    assert not (tmp_path / "run" / "judgements.jsonl").exists()


def test_a_configuration_without_a_vocabulary_is_refused(cli: Cli, tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    scored = cli("score", rows, "--out", tmp_path / "run", "--model", folder, "--engine", "transformers")
    assert scored.code == 2
    assert "vit" in scored.err.splitlines()[-1]
    assert cli("models", "verify", folder).code == 2


@pytest.mark.slow
def test_a_library_that_is_missing_is_named_and_nobody_is_sent_to_verify(
    cli: Cli, tmp_path: Path, short_rubric: Path
) -> None:
    """The packed weights of this method need a library that the tests do not install."""
    folder = random_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (folder / "config.json").write_text(json.dumps(config))
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    flags = ("--model", folder, "--rubric", short_rubric, "--engine", "transformers")
    scored = cli("score", rows, "--out", tmp_path / "run", *flags)
    last = scored.err.splitlines()[-1]
    assert scored.code == 2
    assert "accelerate" in last
    assert "verify" not in last


def test_a_window_that_no_layer_has_hides_nothing(tmp_path: Path) -> None:
    model = save_model(tmp_path, "llama", {"sliding_window": WINDOW})
    assert json.loads((model / "config.json").read_text())["sliding_window"] == WINDOW
    judge = Judge(model, max_rationale_tokens=5, temperature=1.0, engine_args=ENGINE_ARGS)
    assert_as_a_pass_for_each_token(judge, prompts_of(judge))
