"""vLLM judges texts by a model that also takes images; its processors of images need torchvision."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from small_vision_models import ROTATION, save_vision_model

from localjudge import Judge, Judgement
from localjudge.models.model import Model
from localjudge.rows.formats import EXAMPLES
from localjudge.rows.inputs import read_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the warnings are vLLM's own
    pytest.mark.skipif(
        find_spec("torchvision") is None, reason="needs torchvision, which comes with vLLM for a GPU"
    ),
]

# vLLM's attention on a CPU has no heads of 16 numbers.
TEXT = {
    "hidden_size": 128,
    "head_dim": 64,
    "rope_parameters": ROTATION | {"mrope_section": [8, 12, 12]},
}


def test_vllm_gives_the_scores_of_transformers(tmp_path: Path, short_rubric: Path) -> None:
    Model.find().tokenizer.save_pretrained(tmp_path)
    folder = save_vision_model(tmp_path, "qwen3_vl", **TEXT)
    rows = list(read_rows([EXAMPLES]))[:4]
    cache = {"dtype": "float32", "enforce_eager": "true", "kv_cache_memory_bytes": "100000000"}
    with Judge(folder, rubric=short_rubric, engine="transformers") as judge:
        expected = [one for one in judge.score(rows) if isinstance(one, Judgement)]
    with Judge(folder, rubric=short_rubric, engine="vllm", engine_args=cache) as judge:
        found = [one for one in judge.score(rows) if isinstance(one, Judgement)]
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert one.expected == pytest.approx(other.expected, abs=0.01)
