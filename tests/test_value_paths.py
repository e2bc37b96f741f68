"""Probabilities of whole values: those that a model gives to all the tokens of each value, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_tokenizers import TOKENIZER_NAMES, model_with
from test_generation import (
    ENGINE_ARGS,
    OTHER_CACHES,
    PREFILL,
    completions,
    counted_passes,
    prompts_of,
    rationale_tokens,
    save_model,
)
from test_typed_answers import rubrics, table_of
from value_oracle import ASPECTS, total_variation, values_one_by_one

from localjudge import Judge, Judgement, Rubric
from localjudge.constraint import value_paths
from localjudge.constraint.masking import DeviceTable, HostTable, ScoreBuffer
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import UNEXPLORED, ValuePaths
from localjudge.prompts.task import Prompt


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_values_of_any_rubric_have_the_probabilities_of_all_their_tokens(data: st.DataObject) -> None:
    """The model is random, as sure as real ones are, and its answer as well."""
    table, _ = table_of(data.draw(rubrics()))
    random = Random(data.draw(st.integers(0, 2**32)))
    seed, scale = random.getrandbits(31), random.choice([1.0, 4.0])

    def logits(before: Sequence[int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(hash((seed, *before)) % 2**63)
        return torch.randn(table.next_state.shape[1], generator=generator) * scale

    answer, state, left = list[int](), table.start, table.limit(4)
    while not table.is_complete(state):
        answer.append(int(random.choice(np.flatnonzero(table.allowed(state, left - len(answer), 0)))))
        state = int(table.next_state[state, answer[-1]])
    paths = ValuePaths(table)
    kept = ScoreBuffer(paths, 1, torch.device("cpu"))

    def ask(pick: int, before: Sequence[int]) -> None:
        kept.keep(logits(before)[None], torch.tensor([0]), torch.tensor([pick]))

    for place, state in enumerate(table.states(answer)):
        for pick in np.flatnonzero(paths.state == state).tolist():
            ask(pick, answer[:place])
    asked = 0
    while branches := paths.unexplored(kept.look([0])[0], answer):
        for branch in branches:
            asked += 1
            ask(branch.pick, [*answer[: branch.begin], *branch.written])
    probabilities, mass, _ = paths.values(kept.take([0])[0])
    expected, all_of_it = values_one_by_one(table, answer, logits)
    assert asked <= paths.most_branches
    assert total_variation(probabilities, expected) <= UNEXPLORED + 1e-6
    assert mass == pytest.approx(all_of_it, abs=UNEXPLORED + 1e-6)
    if all(table.first_token_decides):
        assert not asked
        assert probabilities == pytest.approx(expected, abs=1e-6)


def values_at(
    table: TokenTable, logits: Callable[[Sequence[int]], torch.Tensor]
) -> tuple[np.ndarray[Any, Any], list[tuple[int, ...]]]:
    """Return the probabilities of the values of an answer that begins with them, and their tokens."""
    paths = ValuePaths(table)
    kept = ScoreBuffer(paths, 1, torch.device("cpu"))
    spelled = [tuple(value[value >= 0].tolist()) for value in table.value_token[0]]
    for value in spelled:
        state = int(table.score_state[0])
        for length, token in enumerate(value):
            for pick in np.flatnonzero(paths.state == state).tolist():
                kept.keep(logits(value[:length])[None], torch.tensor([0]), torch.tensor([pick]))
            state = int(table.next_state[state, token])
        for pick in np.flatnonzero(paths.state == state).tolist():
            kept.keep(logits(value)[None], torch.tensor([0]), torch.tensor([pick]))
    return paths.values(kept.take([0])[0])[0][0], spelled


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("12ab", min_size=1, max_size=4), min_size=3, max_size=9, unique=True),
    st.sampled_from(["{value}", "Score: {value}", "{value}\nDone."]),
    st.integers(0, 2**31),
)
def test_another_value_changes_only_the_share_of_the_beginning_that_it_has(
    labels: list[str], form: str, seed: int
) -> None:
    """1, 10 and 100 beside 1 and 10: each beginning keeps its share, and values outside it their odds."""

    def logits(before: Sequence[int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(hash((seed, *before)) % 2**63)
        return torch.randn(table.next_state.shape[1], generator=generator) * 3

    found = []
    for some in (labels[:-1], labels):
        rubric = Rubric.model_validate(
            {
                "name": "generated",
                "aspects": {"value": {"choices": some}},
                "answer": {"form": form},
                "prompt": {"template": "{$instruction} {$candidate} {$aspects} {$answer_format}"},
            }
        )
        table, _ = table_of(rubric)
        found.append(values_at(table, logits))
    (before, tokens), (after, more) = found
    assume(tokens == more[:-1])  # the space before a value is a part of it only if all then begin differently
    added = more[-1]
    shared = max(n for n in range(len(added) + 1) if any(one[:n] == added[:n] for one in tokens))
    alike = np.array([one[:shared] == added[:shared] for one in tokens])
    if shared:
        assert after[:-1][~alike] == pytest.approx(before[~alike], abs=1e-9)
        assert after[:-1][alike].sum() + after[-1] == pytest.approx(before[alike].sum(), abs=1e-9)
    else:
        assert after[:-1] / after[:-1].sum() == pytest.approx(before, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(rubrics(), st.integers(0, 2**31), st.sampled_from([0.5, 4.0]))
def test_what_is_written_follows_the_probabilities_that_are_kept(
    rubric: Rubric, seed: int, scale: float
) -> None:
    """At each pick, on the host and on a device, the masked logits are those of its branches."""
    table, _ = table_of(rubric)
    paths, generator = ValuePaths(table), torch.Generator().manual_seed(seed)
    for kind in (HostTable, DeviceTable):
        tensors = kind(table, 0, torch.device("cpu"), len(paths.state))
        given = torch.randn(len(paths.state), table.next_state.shape[1], generator=generator) * scale
        written = given.clone()
        slots, left = np.arange(len(paths.state)), table.distance[paths.state].astype(np.int64) + 9
        rows: Any = (paths.state, left, slots)
        tensors.constrain(written, *(rows if kind is HostTable else map(torch.from_numpy, rows)))
        kept, shares = tensors.scores.take(slots.tolist()), torch.softmax(written.double(), dim=1)
        for pick, count in enumerate(paths.count):
            columns = paths.column[pick]
            tokens = [*paths.token[pick, :count], *([paths.closing[pick]] if paths.closing[pick] >= 0 else [])]
            branches = kept[pick, [*columns[:count], columns[-3]]][: len(tokens)]
            assert shares[pick, tokens].numpy() == pytest.approx(branches, abs=1e-6)
            assert int(written[pick].argmax()) == tokens[int(branches.argmax())]
            assert torch.isfinite(written[pick]).sum() == len(tokens)


@pytest.mark.slow
def test_sampled_values_are_as_frequent_as_they_are_probable(tmp_path: Path) -> None:
    aspects = ["ten", "heat"]
    judge = judge_of(save_model(tmp_path, "llama", {}), aspects, engine_args=ENGINE_ARGS, temperature=1.0)
    text = judge.prompts.encode("A response to judge.")
    drawn = completions(judge, [Prompt(n, list(text), seed=n) for n in range(400)])
    again = completions(judge, [Prompt(0, list(text), seed=0)])
    assert again[0].tokens == drawn[0].tokens
    table, first = judge.decoding.table, 0
    counts, expected = (np.zeros(table.value_token.shape[1]) for _ in range(2))
    for each in drawn.values():
        assert each.probabilities is not None
        path = table.states(each.tokens)
        rest = each.tokens[path.index(int(table.score_state[first])) :]
        spelled = [tuple(value[value >= 0].tolist()) for value in table.value_token[first]]
        written = max((value for value in spelled if value and rest[: len(value)] == value), key=len)
        counts[spelled.index(written)] += 1
        expected += each.probabilities[first]
    # Each answer has its own rationale, so its own probabilities: the difference is a sum of 400 of mean 0.
    deviation = np.sqrt((expected * (1 - expected / len(drawn))).clip(min=1))
    assert np.abs(counts - expected).max() <= 4.5 * deviation.max()


def test_a_value_that_was_written_although_another_is_likelier_is_named(tmp_path: Path) -> None:
    judge = judge_of(save_model(tmp_path, "llama", {}), ["hundred", "heat"], engine_args=ENGINE_ARGS)
    rows = [{"instruction": f"Say {n}.", "candidate": f"{n * n}"} for n in range(40)]
    named = 0
    for outcome in judge.score(rows):
        assert isinstance(outcome, Judgement)
        for aspect, shares in outcome.probabilities.items():
            values = [*judge.rubric.aspects[aspect].values.values()]
            is_likeliest = shares[values.index(outcome.scores[aspect])] == max(shares)
            assert (aspect in outcome.not_likeliest) is not is_likeliest
            named += not is_likeliest
    assert named


def test_a_broken_logit_beside_a_later_token_of_a_value_leaves_no_number() -> None:
    """The first token needs no mass, and keeps its probabilities; what follows it does."""
    rubric = Rubric.model_validate(
        {
            "name": "hundred",
            "aspects": {"hundred": ASPECTS["hundred"]},
            "prompt": {"template": "{$candidate} {$aspects}"},
        }
    )
    table, _ = table_of(rubric)
    paths, logits = ValuePaths(table), torch.randn(1, table.next_state.shape[1])
    kept = ScoreBuffer(paths, 1, torch.device("cpu"))
    broken = next(token for token in range(logits.shape[1]) if not (paths.token == token).any())
    for pick in range(len(paths.state)):
        whole = logits.clone()
        whole[0, broken] = torch.nan if pick else 0.0
        kept.keep(whole, torch.tensor([0]), torch.tensor([pick]))
    assert paths.most_branches
    assert np.isnan(paths.values(kept.take([0])[0])[0]).any()


def judge_of(model: Path, aspects: Sequence[str] = tuple(ASPECTS), **settings: Any) -> Judge:
    rubric = Rubric.model_validate(
        {
            "name": "shared-tokens",
            "aspects": {name: ASPECTS[name] for name in aspects},
            "prompt": {"template": "{$instruction} {$candidate} {$aspects} {$answer_format}"},
        }
    )
    return Judge(model, rubric=rubric, max_rationale_tokens=12, **settings)


def assert_of_whole_values(judge: Judge, prompts: list[Prompt], unexplored: float) -> None:
    """The judge's probabilities are those of each value given to its model, without a cache."""
    found = completions(judge, prompts)
    table, network = judge.decoding.table, judge.engine._model  # type: ignore[attr-defined]
    for prompt in prompts[:4]:

        @torch.inference_mode()
        def logits(before: Sequence[int], prompt: list[int] = prompt.tokens) -> torch.Tensor:
            tokens = torch.tensor([[*prompt, *before]])
            said: torch.Tensor = network(tokens, use_cache=False, logits_to_keep=1).logits[0, 0]
            return said

        completion = found[prompt.tag]
        assert completion.probabilities is not None
        expected, mass = values_one_by_one(table, completion.tokens, logits)
        assert total_variation(completion.probabilities, expected) <= unexplored + 1e-4
        if not unexplored:
            assert completion.probabilities == pytest.approx(expected, abs=1e-4)
            assert completion.mass == pytest.approx(mass, abs=1e-4)


@pytest.fixture(scope="module", params=["llama", "mistral with a window"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose rows move within its cache, and one whose rows cannot."""
    architecture = request.param.split()[0]
    settings = {} if architecture == "llama" else OTHER_CACHES[architecture]
    return save_model(tmp_path_factory.mktemp(architecture), architecture, settings)


@pytest.mark.parametrize("unexplored", [0.0, UNEXPLORED])
def test_transformers_asks_its_cache_for_the_values_that_were_not_written(
    model: Path, unexplored: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_paths, "UNEXPLORED", unexplored)
    judge = judge_of(model, engine_args=ENGINE_ARGS, temperature=1.0)
    assert_of_whole_values(judge, prompts_of(judge), unexplored)


@pytest.mark.parametrize("tokenizer_name", TOKENIZER_NAMES)
def test_values_have_the_probabilities_of_all_their_tokens_with_every_tokenizer(
    tokenizer_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_paths, "UNEXPLORED", 0.0)
    judge = judge_of(model_with(tokenizer_name, tmp_path), engine_args=ENGINE_ARGS)
    assert_of_whole_values(judge, prompts_of(judge), 0.0)


def test_an_answer_has_the_same_probabilities_alone_and_in_a_batch(model: Path) -> None:
    judge = judge_of(model, engine_args=ENGINE_ARGS)
    prompts = prompts_of(judge)
    together = completions(judge, prompts)
    for prompt in prompts:
        alone = completions(judge, [prompt])[prompt.tag]
        assert alone.tokens == together[prompt.tag].tokens
        assert alone.probabilities == pytest.approx(together[prompt.tag].probabilities, abs=2 * UNEXPLORED)


def test_values_with_first_tokens_of_their_own_take_no_passes_more(tmp_path: Path) -> None:
    judge = judge_of(save_model(tmp_path, "llama", {}), engine_args=ENGINE_ARGS, aspects=["five"])
    with counted_passes(judge) as shapes:
        longest = max(
            rationale_tokens(judge, each) for each in completions(judge, prompts_of(judge)[:4]).values()
        )
    assert len(shapes) == PREFILL + longest + 1
