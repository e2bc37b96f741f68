"""Tests of models of many types: a row gets what it gets alone, whether or not its type shares batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from test_generation import (
    ENGINE_ARGS,
    assert_as_a_pass_for_each_token,
    counted_passes,
    prompts_of,
    save_model,
)

from localjudge import Judge, ModelError
from localjudge.engines.transformers import batched_types
from localjudge.models import refused_types

WINDOW = 16
GPT_NEO = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": WINDOW}
CAPPED = {"attn_logit_softcapping": 2.0, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": WINDOW}
# Each has something that a batch, or the attention of PyTorch, could leave out.
SHARING: dict[str, dict[str, Any]] = {
    "gemma2": CAPPED,
    "vaultgemma": CAPPED,
    "mistral": {"sliding_window": WINDOW, "num_key_value_heads": 1},
}
ALONE: dict[str, dict[str, Any]] = {
    "bart": {"d_model": 32, "decoder_layers": 2, "decoder_ffn_dim": 64, "decoder_attention_heads": 2},
    "gpt_neo": GPT_NEO,
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "lru_width": 32,
        "attention_window_size": WINDOW,
        "num_key_value_heads": 1,
        "head_dim": 16,
    },
    "rwkv": {"attention_hidden_size": 32},
}
BIDIRECTIONAL = {"use_bidirectional_attention": True, "head_dim": 16, "num_key_value_heads": 1}
ALONE["bart"] |= {"is_encoder_decoder": False, "is_decoder": True}


@pytest.mark.parametrize("architecture", [*SHARING, *ALONE])
def test_a_row_gets_in_any_batch_what_a_pass_over_it_alone_gives(tmp_path: Path, architecture: str) -> None:
    model = save_model(tmp_path, architecture, {**SHARING, **ALONE}[architecture])
    judge = Judge(model, max_rationale_tokens=5, temperature=1.0, engine_args=ENGINE_ARGS)
    with counted_passes(judge) as shapes:
        assert_as_a_pass_for_each_token(judge, prompts_of(judge))
    assert max(rows for rows, *_ in shapes) == (1 if architecture in ALONE else 4)


def test_a_model_that_is_judged_row_by_row_says_so(tmp_path: Path, cli: Cli) -> None:
    model = save_model(tmp_path, "gpt_neo", GPT_NEO)
    said = "model type gpt_neo: judged row by row; slower"
    assert Judge(model, engine_args=ENGINE_ARGS).engine.info.headline.endswith(f" · {said}")
    found = cli("doctor", "--model", model, "--engine", "transformers")
    assert f"{said}\n" in found.out
    assert "row by row" not in cli("doctor", "--engine", "transformers").out


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("bert", {}),
        ("gemma3_text", BIDIRECTIONAL),
        ("roberta", {"is_decoder": True}),
        ("bart", ALONE["bart"] | {"is_encoder_decoder": True}),
    ],
)
def test_a_model_that_is_no_causal_language_model_is_refused(
    tmp_path: Path, architecture: str, settings: dict[str, Any]
) -> None:
    model = save_model(tmp_path, architecture, settings)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(ModelError, match=f"of type {architecture}, which"):
        Judge(model, engine_args=ENGINE_ARGS)


@pytest.mark.parametrize("attention", ["eager", "flash_attention_2", "flex_attention"])
def test_the_files_of_a_model_choose_neither_attention_nor_cache(tmp_path: Path, attention: str) -> None:
    model = save_model(tmp_path, "llama", {})
    own, cache = model / "config.json", {"cache_implementation": "static", "use_cache": False}
    own.write_text(json.dumps(json.loads(own.read_text()) | cache | {"attn_implementation": attention}))
    (model / "generation_config.json").write_text(json.dumps(cache))
    judge = Judge(model, max_rationale_tokens=5, engine_args=ENGINE_ARGS)
    with counted_passes(judge) as shapes:
        found = assert_as_a_pass_for_each_token(judge, prompts_of(judge))
    assert len(shapes) < len(found[0].tokens), "the path for all keys and values"


def test_types_are_listed_once_in_order() -> None:
    listed, changed = batched_types._BATCHED.split(), list(refused_types._WRITES_OTHERWISE_TYPES)
    assert listed == sorted({*listed})
    assert changed == sorted({*changed} - {*listed})
    assert {*SHARING} <= {*listed}
