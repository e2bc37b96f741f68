"""Files of other tools: the right texts come into the right fields, or a record is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from shape_records import (
    ANSWER,
    DIALOGUE,
    GRADED,
    GROUNDED,
    NAMES,
    PAIR,
    Made,
    Reading,
    Said,
    Shape,
    Texts,
    Uses,
)
from shapes import SHAPES

from localjudge import Row, UsageError, read_rows
from localjudge.records import Failure
from localjudge.rows.inputs import find_inputs

OTHER_USES = (ANSWER, GRADED, GROUNDED, DIALOGUE, PAIR)
WORDS = {"read": "", "refuse": "no ", "other": "never a wrong "}
ROLES = {"system": "System", "developer": "Developer", "user": "User", "assistant": "Assistant"}

# What is not yet read, or not yet refused, or wrong. Delete the line of what is right.
NOT_YET = frozenset(
    """
TRL prompt and completion, conversational: answer
TRL prompt and completion, conversational: conversation
TRL preference, conversational: pair
TRL preference, implicit prompt: pair
TRL KTO, conversational: answer
TRL KTO, conversational: conversation
TRL GRPO completions: answer
TRL GRPO completions: conversation
verl generations: answer
verl generations: answer with reference
verl generations: conversation
verl rollouts: answer
verl rollouts: answer with reference
OpenRLHF input and output: answer
OpenRLHF preference: pair
Alpaca: answer
Alpaca with text: answer
Alpaca with history: answer
Alpaca with history: conversation
Alpaca preference: pair
ShareGPT: answer
ShareGPT: conversation
ShareGPT with system: answer
ShareGPT with system: conversation
ShareGPT preference: pair
Glaive as ShareGPT: answer
Glaive as ShareGPT: conversation
Glaive function calling: answer
Glaive function calling: conversation
LMArena 2023: pair
LMArena 140k: pair
LMSYS Kaggle: pair
MT-Bench human judgments: pair
UltraFeedback: answer
UltraFeedback binarized: pair
HelpSteer3: pair
RewardBench 2, pairs: pair
RewardBench 2, responses: answer
PandaLM: pair
Auto-J: pair
Feedback Bench: answer
Feedback Bench: answer with reference
Feedback Bench: answer with criteria and reference
BiGGen Bench: answer
BiGGen Bench: answer with reference
BiGGen Bench: answer with criteria and reference
BiGGen Bench: conversation
BiGGen Bench responses: answer
BiGGen Bench responses: answer with reference
BiGGen Bench responses: answer with criteria and reference
HealthBench with completion: answer with a list of criteria
HealthBench with completion: answer
HealthBench metadata: answer with a list of criteria
HealthBench metadata: answer
HealthBench, answer in prompt: answer with a list of criteria
PaperBench: answer with a list of criteria
Arena-Hard v0.1: answer
Arena-Hard v0.1: conversation
lm-evaluation-harness: answer
lm-evaluation-harness: answer with reference
lm-evaluation-harness, filtered: answer
lm-evaluation-harness, filtered: answer with reference
lm-evaluation-harness, repeats: answer
lm-evaluation-harness, repeats: answer with reference
OpenAI batch: answer
OpenAI batch: conversation
OpenAI batch of responses: answer
OpenAI requests and completions: answer
OpenAI requests and completions: conversation
OpenAI preferences: pair
OpenAI response items: answer
OpenAI response items: conversation
OpenAI response with input: answer
OpenAI response with input: conversation
promptfoo results: answer
promptfoo results: conversation
promptfoo results, lines: answer
DeepEval test cases: answer
DeepEval test cases: answer with reference
DeepEval test cases: answer with context
DeepEval test run: answer
DeepEval test run: answer with reference
ragas, old names: answer with reference
ragas, old names: answer with context
ragas, new names: answer with context
ragas, several turns: answer
ragas, several turns: conversation
MLflow evaluation records: answer
MLflow evaluation records: answer with reference
MLflow results table: answer
MLflow results table: answer with reference
MLflow traces: answer
Langfuse traces: answer
Langfuse traces: conversation
LangSmith runs: answer
LangSmith experiment: answer
LangSmith experiment: answer with reference
Every Eval Ever: answer
Every Eval Ever: answer with reference
Every Eval Ever, several turns: answer with reference
responses in a list: answer
responses of systems in a list: answer
an object of objects: answer
an object of objects: answer with reference
a list of one: answer
a list of one: answer with reference
an array in JSON lines: answer
an array in JSON lines: answer with reference
objects of several lines: answer
objects of several lines: answer with reference
tau-bench: conversation
tau2-bench: conversation
SWE-agent: conversation
SWE-agent, commands as text: conversation
mini-SWE-agent: conversation
OpenHands: conversation
OpenHands SDK: conversation
written lm_eval-0.4.13-plain.jsonl: answer
written lm_eval-0.4.13-plain.jsonl: answer with reference
written lm_eval-0.4.13-filtered.jsonl: answer
written lm_eval-0.4.13-filtered.jsonl: answer with reference
written lm_eval-0.4.13-repeats.jsonl: answer
written lm_eval-0.4.13-repeats.jsonl: answer with reference
written datasets-5.2.0-trl-completion-conversational.parquet: answer
written datasets-5.2.0-trl-completion-conversational.parquet: conversation
written datasets-5.2.0-trl-preference-conversational.parquet: pair
written datasets-5.2.0-trl-preference-implicit.jsonl: pair
written openai-3.51.0-batch-chat-output.jsonl: answer
written openai-3.51.0-batch-chat-output.jsonl: conversation
written openai-3.51.0-batch-responses-output.jsonl: answer
written openai-3.51.0-batch-responses-output.jsonl: conversation
written ragas-0.4.3-single.jsonl: answer with context
written ragas-0.4.3-single.csv: answer with context
written ragas-0.4.3-several-turns.jsonl: answer
written ragas-0.4.3-several-turns.jsonl: conversation
written deepeval-4.3.1-cases.json: answer
written deepeval-4.3.1-cases.json: answer with reference
written deepeval-4.3.1-cases.json: answer with context
written deepeval-4.3.1-cases.jsonl: answer
written deepeval-4.3.1-cases.jsonl: answer with reference
written deepeval-4.3.1-cases.jsonl: answer with context
written deepeval-4.3.1-cases.csv: answer
written deepeval-4.3.1-cases.csv: answer with reference
written deepeval-4.3.1-cases.csv: answer with context
written deepeval-4.3.1-run.json: answer
written deepeval-4.3.1-run.json: answer with reference
written mlflow-3.17.0-eval_results_table.json: answer
written mlflow-3.17.0-eval_results_table.json: answer with reference
written mlflow-3.17.0-traces.jsonl: answer
written langsmith-0.14.17-experiment.csv: answer
written langsmith-0.14.17-experiment.csv: answer with reference
written langsmith-0.14.17-runs.jsonl: answer
written langfuse-5.0.4-observations.jsonl: answer
written langfuse-5.0.4-observations.jsonl: conversation
written promptfoo-0.123.1-results.json: answer
written promptfoo-0.123.1-results.json: conversation
written promptfoo-0.123.1-results.jsonl: answer
written mini_swe_agent-2.4.6-trajectory.traj.json: conversation
TRL prompt and completion: never a wrong conversation
TRL KTO: never a wrong conversation
verl rollouts: never a wrong conversation
OpenRLHF input and output: never a wrong conversation
Alpaca: never a wrong conversation
Alpaca with text: never a wrong conversation
HelpSteer2: never a wrong conversation
Feedback Bench: never a wrong conversation
PaperBench: never a wrong conversation
ragas, old names: never a wrong conversation
ragas, new names: never a wrong conversation
MLflow traces: never a wrong conversation
written datasets-5.2.0-trl-completion.jsonl: never a wrong conversation
written datasets-5.2.0-trl-completion.csv: never a wrong conversation
written ragas-0.4.3-single.jsonl: never a wrong conversation
written ragas-0.4.3-single.csv: never a wrong conversation
written mlflow-3.17.0-traces.jsonl: never a wrong conversation
""".splitlines()
)


class ShapeError(AssertionError):
    """A record is read wrongly, or not at all; the message begins with the shape's name."""


def quoted(text: str | None) -> str:
    return "\n".join(f"> {line}" for line in (text or "").split("\n"))


def transcript(turns: Sequence[Said]) -> str:
    """Return a conversation as the guide shows it."""
    blocks: list[str] = []
    calls = 0
    for turn in turns:
        if turn.answers is not None:
            blocks.append(f"Tool, result of call {turn.answers}:\n{quoted(turn.text)}")
            continue
        if turn.text is not None:
            blocks.append(f"{ROLES[turn.role]}:\n{quoted(turn.text)}")
        for name, arguments in turn.calls:
            calls += 1
            given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            blocks.append(f"Assistant, call {calls}:\n{quoted(f'{name} {given}')}")
    return "\n\n".join(blocks)


def kept(value: Any, name: str) -> Iterator[Any]:
    """Yield each value that has this key, at any depth, also in JSON that is kept as text."""
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == name or str(key).endswith(f".{name}"):
                yield inner
            yield from kept(inner, name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from kept(inner, name)


def allowed(right: str | tuple[str, ...] | None) -> tuple[str | None, ...]:
    return right if isinstance(right, tuple) else (right,)


def differences(row: Row, reading: Reading, used: Uses) -> Iterator[str]:
    """Yield what is wrong with a row, a sentence for each field."""
    if used == DIALOGUE and reading.ordered:
        where = [max(row.candidate.find(text), row.candidate.find(quoted(text))) for text in reading.ordered]
        if -1 in where or where != sorted(where):
            yield f"conversation is {row.candidate!r}, right are {reading.ordered!r} in this order"
    elif used == DIALOGUE:
        right = [transcript(turns) for turns in reading.conversations]
        if row.candidate not in right:
            yield f"conversation is {row.candidate!r}, right is {right!r}"
    elif reading.trajectories:
        yield from trajectory_differences(row, reading)
    else:
        if row.texts != reading.responses:
            yield f"responses are {row.texts!r}, right is {reading.responses!r}"
        asked = [*allowed(reading.instruction)]
        if reading.turns:
            asked += [reading.turns[-1].text, transcript(reading.turns)]
        if "instruction" in used and row.instruction not in asked:
            yield f"instruction is {row.instruction!r}, right is {asked!r}"
    if "reference" in used:
        alternatives = reading.reference if isinstance(reading.reference, tuple) else (reading.reference,)
        right = "\nor\n".join(str(each) for each in alternatives)
        if row.reference != right:
            yield f"reference is {row.reference!r}, right is {right!r}"
    systems = [response.system for response in row.responses]
    right_systems = reading.systems or (None,) * len(systems)
    if reading.systems_optional and (not reading.systems or systems == [None] * len(systems)):
        pass
    elif any(name not in allowed(one) for name, one in zip(systems, right_systems, strict=True)):
        yield f"systems are {systems!r}, right is {reading.systems!r}"
    for name, text in reading.fields.items():
        if name in used and row.fields.get(name) not in allowed(text):
            yield f"{name} is {row.fields.get(name)!r}, right is {text!r}"
    for name, parts in reading.shown.items():
        if name in used:
            places = [row.fields[name].find(part) for part in parts]
            if -1 in places or places != sorted(places):
                yield f"{name} is {row.fields[name]!r}, right are {parts!r} in this order"
    if "criterion" in used:
        criteria = [(each.text, pytest.approx(each.points)) for each in row.criteria]
        if criteria != [*reading.criteria]:
            yield f"criteria are {criteria!r}, right is {reading.criteria!r}"
    for name, value in reading.columns.items():
        found = [*kept(dict(row.columns), name)]
        if not found or any(each != value for each in found):
            yield f"kept {name} is {found!r}, right is {value!r}"


def trajectory_differences(row: Row, reading: Reading) -> Iterator[str]:
    """Yield what is wrong with two conversations: each has its own texts, in order, and none of the other's."""
    for place, turns in enumerate(reading.trajectories):
        shown = row.texts[place]
        others = reading.trajectories[1 - place]
        wanted = [turn.text or "" for turn in turns if turn.role == "assistant"]
        where = -1
        for text in wanted:
            found = max(shown.find(text, where + 1), shown.find(quoted(text), where + 1))
            if found <= where:
                yield f"response {place + 1} is {shown!r}, and lacks {text!r} in its place"
            where = found
        for turn in others:
            if turn.role == "assistant" and turn.text and turn.text in shown and turn.text not in wanted:
                yield f"response {place + 1} is {shown!r}, and has {turn.text!r} of the other"
        for turn in turns:
            seen = f"{row.instruction}\n{shown}"
            if turn.role == "user" and turn.text not in seen and quoted(turn.text) not in seen:
                yield f"the user's {turn.text!r} is not shown"
        if '[{"' in shown or '["' in shown[:2]:
            yield f"response {place + 1} is JSON: {shown!r}"


def rows_of(shape: Shape, folder: Path, made: Sequence[Made], used: Uses) -> list[list[Row | Failure]]:
    """Return the outcomes of each record, in the order of the records."""
    files = [str(file) for file in shape.write(folder, made)]
    found = read_rows(find_inputs(files), dict(shape.columns), used=used)
    return [[*rows] for _, rows in groupby(found, key=lambda row: row.source)]


def made_records(shape: Shape) -> list[Made]:
    texts = Texts(Random(shape.name))
    return [shape.make(texts, number) for number in range(shape.records)]


def is_judged(row: Row | Failure, used: Uses) -> bool:
    """Return whether a row has all that its rubric shows; without a text, no prompt is made."""
    if isinstance(row, Failure):
        return False
    others = set(used) - {"reference", "criterion", "instruction", "candidate", *DIALOGUE, *PAIR}
    lacks_reference = "reference" in used and row.reference is None
    return not lacks_reference and others <= set(row.fields) and ("criterion" not in used or bool(row.criteria))


def cases(kind: Literal["read", "refuse", "other"]) -> list[Any]:
    """Return each shape with the fields of each rubric under which it is read, refused, or neither."""
    found = []
    for shape in SHAPES:
        others = tuple(used for used in OTHER_USES if used not in (*shape.read, *shape.refuse))
        for used in {"read": shape.read, "refuse": shape.refuse, "other": others}[kind]:
            name = f"{shape.name}: {WORDS[kind]}{NAMES[used]}"
            not_yet = pytest.mark.xfail(strict=True, raises=ShapeError, reason="not yet")
            absent = pytest.mark.skipif(not find_spec("inspect_ai"), reason="needs Inspect")
            marks = [absent] if "inspect_ai" in name else [not_yet] if name in NOT_YET else []
            found.append(pytest.param(shape, used, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("shape", "used"), cases("read"))
def test_each_record_of_a_tool_has_the_right_texts_in_the_right_fields(
    tmp_path: Path, shape: Shape, used: Uses
) -> None:
    made = made_records(shape)
    try:
        found = rows_of(shape, tmp_path, made, used)
    except UsageError as error:
        raise ShapeError(f"{shape.name}: refused: {error}") from None
    check(shape, made, found, used)


def check(shape: Shape, made: Sequence[Made], found: Sequence[list[Row | Failure]], used: Uses) -> None:
    """Raise a ShapeError for the first record that is silently wrong, or else if any is refused."""
    if len(found) != len(made):
        first = next(iter(found), [None])[0]
        raise ShapeError(f"{shape.name}: {len(made)} records, {len(found)} came; the first is {first!r}")
    refused = []
    for each, rows in zip(made, found, strict=True):
        readings = [one for one in each.readings if "reference" not in used or one.reference not in {None, ""}]
        read = [row for row in rows if isinstance(row, Row) and is_judged(row, used)]
        failures = [row for row in rows if row not in read]
        if len(read) > len(readings):
            raise ShapeError(f"{shape.name}: wrong: {len(read)} rows, right are {len(readings)}: {read!r}")
        rest = iter(readings)
        for row in read:  # a reading that is left out belongs to a failure
            wrong = [*differences(row, next(rest), used)]
            while wrong and failures and (reading := next(rest, None)):
                wrong = [*differences(row, reading, used)]
            if wrong:
                raise ShapeError(f"{shape.name}: wrong: {'; '.join(wrong)}; record {each.record!r}")
        if len(read) < len(readings):
            if not failures:
                raise ShapeError(
                    f"{shape.name}: wrong: {len(read)} rows, right are {len(readings)}; {each.record!r}"
                )
            refused.append(getattr(failures[0], "error", f"a text is missing in {failures[0]!r}"))
    if refused:
        raise ShapeError(
            f"{shape.name}: refused {len(refused)} of {len(made)}: {refused[0]}; {made[0].record!r}"
        )


def one_response_each(reading: Reading) -> Iterator[Reading]:
    """Yield a reading of each response of a pair, which a rubric of one response may judge."""
    if reading.trajectories:
        for place, turns in enumerate(reading.trajectories):
            text = turns[-1].text or ""
            yield replace(
                reading,
                responses=(text,),
                turns=turns[:-1],
                trajectories=(),
                systems=reading.systems[place:][:1],
            )
    for place, text in enumerate(reading.responses):
        yield replace(reading, responses=(text,), systems=reading.systems[place:][:1], columns={})


@pytest.mark.parametrize(("shape", "used"), cases("other"))
def test_no_rubric_reads_a_record_of_a_tool_wrongly(tmp_path: Path, shape: Shape, used: Uses) -> None:
    """Under a rubric that the shape is not made for, its records are refused, or read rightly."""
    made = made_records(shape)
    try:
        found = rows_of(shape, tmp_path, made, used)
    except UsageError:
        return
    if len(found) > len(made) and any(is_judged(row, used) for rows in found[len(made) :] for row in rows):
        raise ShapeError(f"{shape.name}: wrong: {len(found)} records, right are {len(made)}")
    for each, rows in zip(made, found, strict=False):
        readings = (
            each.readings
            if used == PAIR
            else [one for whole in each.readings for one in one_response_each(whole)]
        )
        for row in rows:
            if not is_judged(row, used):
                continue
            assert isinstance(row, Row)
            if used == PAIR and any(len(one.responses) < 2 and not one.trajectories for one in readings):
                raise ShapeError(f"{shape.name}: wrong: a pair {row!r} of {each.record!r}")
            wrong = [[*differences(row, one, used)] for one in readings]
            if not wrong or all(wrong):
                raise ShapeError(f"{shape.name}: wrong: {wrong[0] if wrong else row!r}; record {each.record!r}")


@pytest.mark.parametrize(("shape", "used"), cases("refuse"))
def test_a_record_without_what_a_rubric_shows_is_refused(tmp_path: Path, shape: Shape, used: Uses) -> None:
    made = made_records(shape)
    try:
        found = rows_of(shape, tmp_path, made, used)
    except UsageError:
        return
    judged = [row for rows in found for row in rows if isinstance(row, Row) and is_judged(row, used)]
    if judged:
        raise ShapeError(
            f"{shape.name}: wrong: {len(judged)} rows instead of a refusal, the first {judged[0]!r}"
        )
    assert all(row.reason for rows in found for row in rows if isinstance(row, Failure))
