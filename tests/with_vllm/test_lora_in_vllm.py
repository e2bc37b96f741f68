"""LoRA adapters in the real vLLM: the answers of the plain engine, and an adapter of another model refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from lora_files import write_adapter

from localjudge import Judge, Judgement, ModelError
from localjudge.models.model import Model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the warnings are vLLM's own
]

ROWS = [
    {"id": f"r{n}", "instruction": "Is it so?", "reference": "Yes.", "candidate": "No, " * n} for n in range(4)
]


@pytest.fixture(scope="module")
def adapter(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("lora") / "adapter", model.path, rank=12)


def judged(
    model: Model, engine: str, options: dict[str, str], adapter: Path | None
) -> list[tuple[object, ...]]:
    own = {"dtype": "float32"} if engine == "transformers" else options | {"max_model_len": "1024"}
    named = None if adapter is None else str(adapter)
    with Judge(
        str(model.path), adapter=named, engine=engine, engine_args=own, max_rationale_tokens=12
    ) as judge:
        found = sorted(judge.score(ROWS), key=lambda outcome: outcome.id)
    assert all(isinstance(outcome, Judgement) for outcome in found)
    return [(each.id, each.texts, each.scores, each.output_tokens) for each in found]


def test_both_engines_choose_the_same_tokens_with_an_adapter_and_others_without(
    model: Model, adapter: Path, options: dict[str, str]
) -> None:
    ours = judged(model, "vllm", options, adapter)
    assert ours == judged(model, "transformers", options, adapter)
    assert ours != judged(model, "vllm", options, None)


def test_an_adapter_of_another_model_is_refused_before_the_engine_starts(
    model: Model, adapter: Path, options: dict[str, str]
) -> None:
    judge = Judge(adapter=str(adapter), engine="vllm", engine_args=options)
    with pytest.raises(ModelError, match="does not belong to the model bundled"):
        _ = judge.engine


def test_a_rank_above_the_limit_of_vllm_is_refused_with_the_other_engine(
    model: Model, tmp_path: Path, options: dict[str, str]
) -> None:
    high = write_adapter(tmp_path / "high", model.path, rank=600)
    judge = Judge(str(model.path), adapter=str(high), engine="vllm", engine_args=options)
    with pytest.raises(ModelError, match=r"its rank of 600 exceeds vLLM's limit of 512"):
        _ = judge.engine
