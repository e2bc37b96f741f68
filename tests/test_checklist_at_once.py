"""All criteria of a row in one answer: always whole, with a value of its own for each, by one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import CHAT_TEMPLATES, TOKENIZER_NAMES, tokenizer_with
from test_grammar import answer_at_random, vocabulary_of
from test_transformers import THINKING_CHAT, save_random_model
from transformers import AutoModelForCausalLM
from value_oracle import total_variation, values_one_by_one

from localjudge import Judge, JudgeConfig, Rubric, UsageError
from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import UNEXPLORED
from localjudge.constraint.vocabulary import Vocabulary, read_vocabulary
from localjudge.engines.protocol import Completion
from localjudge.engines.server.text_reader import TextReader
from localjudge.models.model import Model
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.task import Prompt
from localjudge.records import Failure, Judgement, Row
from localjudge.records.outcome_columns import from_line, to_line
from localjudge.rows.criteria import MOST_TOGETHER, read_criteria
from localjudge.rows.inputs import given_rows
from localjudge.rubrics.rubric_file import read_document

SHIPPED = read_document("checklist-at-once")
ANSWERS: dict[str, dict[str, Any]] = {
    "a form": {"form": "Answers:\n{met}"},
    "a form, then reasons": {"form": "{met}\nReasons: {rationale}\n"},
    "JSON": {"rationale_place": "none"},
    "JSON after reasons": {"rationale_place": "before"},
    "JSON, then reasons": {"rationale_place": "after", "scores": ""},
}


def rubric_with(answer: dict[str, Any], **aspect: Any) -> Rubric:
    return Rubric.model_validate(
        {**SHIPPED, "answer": answer, **({"aspects": {"met": aspect}} if aspect else {})}
    )


def table_of(rubric: Rubric, vocabulary: Vocabulary, encode: Any = None) -> TokenTable:
    *shorter, largest = rubric.layouts
    return token_table(largest, vocabulary, encode, shorter=shorter[::-1])


def row(count: int, name: str = "r") -> dict[str, Any]:
    return {
        "id": name,
        "instruction": "Why is the sky blue?",
        "candidate": "Air.",
        "criteria": [{"criterion": f"says {name} {n}", "points": n - 1, "tags": ["t"]} for n in range(count)],
    }


@cache
def small_table(answer: str) -> tuple[Rubric, Vocabulary, TokenTable]:
    rubric = rubric_with(ANSWERS[answer])
    vocabulary = vocabulary_of([b" yes", b" no", b'":"', b'","', b"\n1", b". ", b"Good.", b"12"], ends=2)
    return rubric, vocabulary, table_of(rubric, vocabulary)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_an_answer_to_any_number_of_criteria_is_whole_within_any_limit(data: st.DataObject) -> None:
    rubric, vocabulary, table = small_table(data.draw(st.sampled_from([*ANSWERS])))
    count, random = data.draw(st.integers(1, MOST_TOGETHER)), Random(data.draw(st.integers(0, 2**32)))
    own, layout = table.beginning(int(table.starts[count - 1])), rubric.layout_for(count)
    for text_tokens in (1, 2, data.draw(st.integers(3, 60))):
        tokens = answer_at_random(own, own.limit(text_tokens), closing_margin_for(text_tokens), random)
        answer = rubric.parse(layout.opening + vocabulary.decode(tokens), count)
        assert [*answer.scores] == [field.name for field in layout.values]
        assert len(answer.scores) == count
        assert own.whole([*tokens, *vocabulary.ends]) == tokens
        own.was_cut(tokens, text_tokens)


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
def test_an_answer_is_whole_for_every_number_and_tokenizer(name: str) -> None:
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["ChatML"])
    vocabulary = read_vocabulary(tokenizer, len(tokenizer), [tokenizer.convert_tokens_to_ids("<|im_end|>")])
    encoder = PromptEncoder(tokenizer)
    rubric = Rubric.load("checklist-at-once")
    table = table_of(rubric, vocabulary, encoder.spell)
    assert len(table.distance) < 10 * MOST_TOGETHER, "the numbers of criteria share their states"
    for count, start in enumerate(table.starts.tolist(), 1):
        own, layout = table.beginning(start), rubric.layout_for(count)
        tokens = answer_at_random(own, own.smallest_limit, 0, Random(count))
        assert len(rubric.parse(layout.opening + vocabulary.decode(tokens), count).scores) == count


@pytest.mark.parametrize("answer", ["a form", "JSON after reasons"])
@pytest.mark.parametrize("aspect", [{"boolean": True}, {"scale": {"lowest": 1, "highest": 10}}])
def test_probabilities_are_those_of_the_model_without_a_cache(
    model: Path, answer: str, aspect: dict[str, Any]
) -> None:
    """Rows of different numbers stand in one batch; what the model says at each value is computed again."""
    rubric = rubric_with(ANSWERS[answer], **aspect)
    with Judge(model, rubric=rubric, max_rationale_tokens=6, engine_args={"dtype": "float32"}) as judge:
        rows = list(given_rows([row(count, f"r{count}") for count in (1, 2, 5)], rubric.fields))
        asked = {row.id: row for row in rows if isinstance(row, Row)}
        tasks = {name: judge.task_builder.task(row) for name, row in asked.items()}
        judged = {each.id: each for each in judge.score(rows)}
        network = AutoModelForCausalLM.from_pretrained(model, dtype="float32")
        table = judge.decoding.table
        completions: dict[str, Completion] = {}
        prompts = [Prompt(n, t.tokens, 0, start=t.start) for n, t in enumerate(tasks.values())]
        for found in judge.engine.complete(prompts):
            completions |= {[*tasks][each.tag]: each for each in found if isinstance(each, Completion)}
    for name, task in tasks.items():
        outcome, tokens = judged[name], completions[name].tokens
        assert isinstance(outcome, Judgement), outcome.error
        chosen = table.values_from(task.start)
        own = replace(
            table.beginning(task.start),
            score_state=table.score_state[chosen],
            value_token=table.value_token[chosen],
        )

        def logits(before: Sequence[int], prompt: list[int] = task.tokens) -> torch.Tensor:
            with torch.no_grad():
                found: torch.Tensor = network(torch.tensor([[*prompt, *before]])).logits[0, -1]
                return found

        expected, mass = values_one_by_one(own, tokens, logits)
        assert len(outcome.scores) == len(expected) == len(asked[name].criteria)
        assert total_variation(np.array([*outcome.probabilities.values()]), expected) <= UNEXPLORED + 1e-4
        assert [*outcome.mass.values()] == pytest.approx(mass, rel=2 * UNEXPLORED, abs=1e-4)


def test_an_answer_does_not_depend_on_the_rows_beside_it(model: Path) -> None:
    rows = [row(count, f"r{count}") for count in (3, 1, 7, 40, 2)]
    found = []
    for size in (1, 5):
        settings = {"batch_size": str(size), "dtype": "float32"}
        with Judge(model, rubric="checklist-at-once", engine_args=settings) as judge:
            found.append({each.id: each for each in judge.check(rows)})
    for name, alone in found[0].items():
        for one, other in zip(alone.results, found[1][name].results, strict=True):
            assert one.value == other.value
            assert one.probability == pytest.approx(other.probability, abs=1e-4)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_line_holds_the_values_of_all_criteria_as_lists(count: int) -> None:
    rubric = Rubric.load("checklist-at-once")
    names = [field.name for field in rubric.layout_for(count).values]
    asked = list(read_criteria(row(count)["criteria"]))
    judged = Judgement(
        id="r", key="k", row=1, criteria=asked, texts={}, scores=dict.fromkeys(names, True),
        expected=dict.fromkeys(names, 0.75), probabilities={name: [0.25, 0.75] for name in names},
        mass=dict.fromkeys(names[1:], 0.5), likeliest=dict.fromkeys(names[1:], True),
        rationale_cut=False, prompt_tokens=1, output_tokens=1,
    )  # fmt: skip
    line = to_line(judged, rubric.columns)
    assert line["met"] == [True] * count
    assert line["met_mass"] == [None, *[0.5] * (count - 1)]
    assert [each["points"] for each in line["criteria"]] == [n - 1 for n in range(count)]
    assert from_line(json.loads(json.dumps(line)), rubric.columns) == judged
    for damage in ({"met": True}, {"met": [True] * (count + 1)}, {"criteria": "a"}, {"met_mass": 1.0}):
        with pytest.raises(ValueError, match="list of"):
            from_line(line | damage, rubric.columns)
    failed = Failure(id="r", key="k", row=1, criteria=asked, error="no answer")
    broken = to_line(failed, rubric.columns)
    assert broken.keys() == line.keys()
    assert from_line(broken, rubric.columns) == failed
    assert [each.criteria for each in failed.by_criterion] == [[each] for each in asked]


def test_more_criteria_than_an_answer_holds_fail_the_row_and_none_counts_as_not_met(model: Path) -> None:
    with Judge(model, rubric="checklist-at-once", engine="dry-run") as judge:
        (found,) = judge.check([row(MOST_TOGETHER + 1)])
    assert found.error == (
        "row 1: 41 criteria, more than the 40 that one answer holds; judge them by checklist, one a prompt"
    )
    assert (found.points.score, found.points.judged, found.points.criteria) == (None, 0, MOST_TOGETHER + 1)
    assert found.points.low is not None
    assert found.points.low < 0 < found.points.high
    assert {each.value for each in found.results} == {None}


def test_a_row_needs_only_the_room_of_its_own_answer(model: Path) -> None:
    rubric = Rubric.load("checklist-at-once")
    with Judge(model, rubric=rubric, engine="dry-run") as judge:
        rows = [each for each in given_rows([row(2), row(40)], rubric.fields) if isinstance(each, Row)]
        answers = [judge.task_builder.opening(each).answer_tokens for each in rows]
        assert answers[0] < answers[1] == judge.decoding.max_tokens
        context = len(judge.task_builder.encoded(rows[0])) + answers[0]
    for less, error in ((0, None), (1, f"do not fit the context of {context - 1}")):
        limit = {"max_model_len": str(context - less)}
        with Judge(model, rubric=rubric, engine="dry-run", engine_args=limit) as judge:
            (found,) = judge.check([row(2)])
        assert (found.error is None) if error is None else (error in str(found.error))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answer": {"rationale_place": "each"}}, "has one rationale"),
        ({"template": SHIPPED["prompt"]["template"] + "{$answer_format}"}, "describe it in words"),
        ({"template": SHIPPED["prompt"]["template"] + "{$criterion}"}, "remove one of the two"),
        ({"answer": {"form": "{met} {met}"}}, "write it once"),
    ],
)
def test_what_one_answer_cannot_have_is_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    template = change.pop("template", SHIPPED["prompt"]["template"])
    document = {**SHIPPED, "prompt": {"template": template}, **change}
    with pytest.raises(ValueError, match=says):
        Rubric.model_validate(document)


def test_a_column_named_criteria_is_still_text_for_other_rubrics() -> None:
    rubric = Rubric.model_validate(
        {"name": "own", "aspects": ["tact"], "scale": {"lowest": 1, "highest": 5},
         "prompt": {"template": "{$instruction} {$candidate} {$criteria} Tact: 1 to 5"}}
    )  # fmt: skip
    (found,) = given_rows([{"instruction": "a", "candidate": "b", "criteria": "be brief"}], rubric.fields)
    assert isinstance(found, Row)
    assert "be brief" in rubric.text(found)


def test_a_server_without_the_table_and_a_model_that_thinks_first_are_refused(tmp_path: Path) -> None:
    config = JudgeConfig.from_settings(rubric="checklist-at-once")
    with pytest.raises(UsageError, match="needs the token table; judge by checklist, one criterion a prompt"):
        TextReader(config, config.answer_layout)
    folder = save_random_model(tmp_path, Model.find().path / "tokenizer.json", chat=THINKING_CHAT)
    with pytest.raises(UsageError, match="no model that thinks first gives here; judge by checklist"):
        Judge(folder, rubric="checklist-at-once", thinking_budget=10)
