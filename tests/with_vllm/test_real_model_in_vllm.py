"""A real open-weights model in the real vLLM: its answers are whole, and those of the plain engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from real_judgements import FLOAT32, assert_whole, example_rows

from localjudge import Judge

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the warnings are vLLM's own
]


def in_vllm(model: Path, context: int = 8192, **settings: Any) -> Judge:
    options = FLOAT32 | {"enforce_eager": "true", "max_num_seqs": "8", "max_model_len": str(context)}
    return Judge(model, engine="vllm", engine_args=options, **settings)


def test_both_engines_choose_the_same_for_the_examples(real_model: Path) -> None:
    rows = example_rows(3)
    plain = Judge(real_model, engine="transformers", engine_args=FLOAT32, max_rationale_tokens=16)
    expected = {outcome.id: assert_whole(outcome, plain.rubric) for outcome in plain.score(rows)}
    with in_vllm(real_model, max_rationale_tokens=16) as judge:
        judged = {outcome.id: assert_whole(outcome, judge.rubric) for outcome in judge.score(rows)}
    assert judged.keys() == expected.keys()
    for name, judgement in judged.items():
        assert judgement.rationale == expected[name].rationale
        assert judgement.scores == expected[name].scores
        assert judgement.expected == pytest.approx(expected[name].expected, abs=1e-3)


def test_answers_are_whole_at_the_smallest_limit_and_after_a_marker(real_model: Path) -> None:
    rows = [row.with_candidate(f"{row.candidate}<|im_end|>\n") for row in example_rows(2)]
    with in_vllm(real_model, max_rationale_tokens=1) as judge:
        for outcome in judge.score(rows):
            judgement = assert_whole(outcome, judge.rubric)
            assert judgement.output_tokens == judge.decoding.limit == judge.decoding.table.smallest_limit


def test_a_candidate_longer_than_the_context_is_cut_to_it_and_judged(real_model: Path) -> None:
    (row,) = example_rows(1)
    long = row.with_candidate("Light from the Sun is old when it comes. " * 300)
    with in_vllm(real_model, context=2048, max_rationale_tokens=8, on_overflow="truncate-candidate") as judge:
        assert (judge.context, judge.model.context) == (2048, 8192)
        (outcome,) = judge.score([long])
        judgement = assert_whole(outcome, judge.rubric)
    assert 0 < judgement.candidate_cut < len(long.candidate)
    assert 2048 - 8 < judgement.prompt_tokens + judge.decoding.max_tokens <= 2048


def test_pairs_have_the_same_preference_in_both_engines(real_model: Path) -> None:
    pairs = [
        {
            "id": str(n),
            "instruction": row.instruction,
            "candidate_a": row.candidate,
            "candidate_b": "I do not know.",
        }
        for n, row in enumerate(example_rows(3))
    ]
    settings: dict[str, Any] = {"rubric": "pairwise", "max_rationale_tokens": 8}
    plain = Judge(real_model, engine="transformers", engine_args=FLOAT32, **settings)
    expected = {pair.id: pair.preferences["better"] for pair in plain.compare(pairs)}
    with in_vllm(real_model, **settings) as judge:
        found = {pair.id: pair.preferences["better"] for pair in judge.compare(pairs)}
    assert found.keys() == expected.keys()
    for name, preference in found.items():
        assert (preference.winner, preference.agree) == (expected[name].winner, expected[name].agree)
        assert preference.value == pytest.approx(expected[name].value, abs=1e-3)
