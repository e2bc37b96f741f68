"""What the tests on the real vLLM share. Where vLLM is not installed, each module here is skipped.

The folder is not named `vllm`: the tests' folder is on the import path, and would then look like vLLM.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from localjudge import Rubric
from localjudge.constraint.compiler import token_table
from localjudge.engines.engine_options import VllmOptions
from localjudge.engines.protocol import Decoding
from localjudge.models.model import Model

if TYPE_CHECKING:
    from localjudge.engines.vllm.vllm_engine import VllmEngine

if find_spec("vllm"):
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    with warnings.catch_warnings():  # warnings are errors in our tests, and vLLM's imports warn
        warnings.simplefilter("ignore")
        import vllm

        _ = vllm.LLM

NEAR = 6
"""Tokens of rationale in the answers to most tests: their limit is always near."""


@pytest.fixture(scope="session", autouse=True)
def imports_stay_frozen() -> Iterator[None]:
    from vllm_on_a_cpu import frozen_imports

    with frozen_imports():
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of random weights, loud enough to have opinions, with the bundled model's tokenizer."""
    folder = tmp_path_factory.mktemp("random")
    bundled = Model.find()
    bundled.tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=bundled.config.vocab_size,
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=4096,
            bos_token_id=None,
            eos_token_id=bundled.tokenizer.eos_token_id,
        )
    )
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    network.save_pretrained(folder)
    return Model.find(folder)


@pytest.fixture(scope="session")
def rubric() -> Rubric:
    return Rubric.load()


@pytest.fixture(scope="session")
def decoding(model: Model, rubric: Rubric) -> Decoding:
    """Greedy, with little room."""
    table = token_table(rubric.answer_layout, model.vocabulary, model.prompts.spell)
    return Decoding(table, NEAR, closing_margin=2)


@pytest.fixture(scope="session")
def close_values(model: Model, decoding: Decoding, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The same model, whose logits of all values are so close that bfloat16 makes many of them equal."""
    folder = tmp_path_factory.mktemp("close")
    shutil.copytree(model.path, folder, dirs_exist_ok=True)
    network = LlamaForCausalLM.from_pretrained(model.path)
    values = torch.from_numpy(decoding.table.score_token[0].astype(np.int64))
    weight = network.lm_head.weight.data
    weight[values] = weight[values[0]] + 0.01 * weight[values]
    network.save_pretrained(folder)
    return Model.find(folder)


OpenEngine = Callable[..., "VllmEngine"]


@pytest.fixture(scope="session")
def options() -> dict[str, str]:
    """An engine that starts quickly and computes exactly; its cache holds more than 60 rows of the longest."""
    options = {"dtype": "float32", "enforce_eager": "true", "block_size": "32", "max_model_len": "512"}
    return options | {"num_gpu_blocks_override": "1024"}


@pytest.fixture(scope="module")
def open_engine(options: dict[str, str]) -> Iterator[OpenEngine]:
    """Opens engines, and closes them after the module's tests."""
    opened = []

    def start(model: Model, decoding: Decoding, kind: Any = None, **more: object) -> VllmEngine:
        from localjudge.engines.vllm.vllm_engine import VllmEngine

        engine = (kind or VllmEngine)(
            model,
            decoding,
            VllmOptions.parse(options | {name: str(value).lower() for name, value in more.items()}),
        )
        opened.append(engine)
        return engine

    yield start
    for engine in opened:
        engine.close()
