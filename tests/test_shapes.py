"""Files of other tools: the right texts come into the right fields, or a record is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby, islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from conftest import Cli
from shape_checks import ShapeError, check, differences, is_judged, one_response_each
from shape_records import (
    ANSWER,
    DIALOGUE,
    GRADED,
    GROUNDED,
    NAMES,
    PAIR,
    Made,
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
ShareGPT, other roles: answer
ShareGPT, other roles: conversation
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
lm-evaluation-harness, chat: answer
lm-evaluation-harness, chat: conversation
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
written inspect_ai-0.3.285-log.eval: answer
written inspect_ai-0.3.285-log.eval: answer with reference
written inspect_ai-0.3.285-log.eval: conversation
written inspect_ai-0.3.285-log.json: answer
written inspect_ai-0.3.285-log.json: answer with reference
written inspect_ai-0.3.285-log.json: conversation
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
written trl-1.16.0-kto.jsonl: answer
written trl-1.16.0-kto.jsonl: conversation
written trl-1.16.0-extracted.jsonl: pair
written every-eval-ever-0.2.3rc1-samples.jsonl: answer
written every-eval-ever-0.2.3rc1-samples.jsonl: answer with reference
written verl-0.9.1-rollouts.jsonl: answer
written verl-0.9.1-rollouts.jsonl: answer with reference
written tau_bench-59a200c-results.json: conversation
written tau2_bench-a2c0247-results.json: conversation
written openhands-sdk-1.58.2-output.jsonl: conversation
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
written verl-0.9.1-rollouts.jsonl: never a wrong conversation
TRL preference, conversational: labels
TRL preference, implicit prompt: labels
OpenRLHF preference: labels
ShareGPT preference: labels
LMArena 2023: labels
LMArena 140k: labels
LMSYS Kaggle: labels
MT-Bench human judgments: labels
UltraFeedback binarized: labels
HelpSteer2 preference: labels
HelpSteer3: labels
RewardBench 2, pairs: labels
Auto-J: labels
OpenAI preferences: labels
""".splitlines()
)


def rows_of(shape: Shape, folder: Path, made: Sequence[Made], used: Uses) -> list[list[Row | Failure]]:
    """Return the outcomes of each record, in the order of the records."""
    files = [str(file) for file in shape.write(folder, made)]
    outcomes = [*read_rows(find_inputs(files), used=used)]
    found = [[*rows] for _, rows in groupby(outcomes, key=lambda row: row.source)]
    if len(found) == 1 and len(outcomes) == sum(len(each.readings) for each in made):
        rest = iter(outcomes)  # one document, whose rows have one place
        found = [[*islice(rest, len(each.readings))] for each in made]
    return found


def made_records(shape: Shape) -> list[Made]:
    texts = Texts(Random(shape.name))
    return [shape.make(texts, number) for number in range(shape.records)]


def cases(kind: Literal["read", "refuse", "other"]) -> list[Any]:
    """Return each shape with the fields of each rubric under which it is read, refused, or neither."""
    found = []
    for shape in SHAPES:
        others = tuple(used for used in OTHER_USES if used not in (*shape.read, *shape.refuse, *shape.untold))
        for used in {"read": shape.read, "refuse": shape.refuse, "other": others}[kind]:
            name = f"{shape.name}: {WORDS[kind]}{NAMES[used]}"
            not_yet = pytest.mark.xfail(strict=True, raises=ShapeError, reason="not yet")
            absent = pytest.mark.skipif(not find_spec("inspect_ai"), reason="needs Inspect")
            marks = [absent] * ("inspect_ai" in name) + [not_yet] * (name in NOT_YET)
            found.append(pytest.param(shape, used, id=name, marks=marks))
    return found


def labelled() -> list[Any]:
    found = []
    for shape in filter(lambda one: one.labels, SHAPES):
        name = f"{shape.name}: labels"
        not_yet = pytest.mark.xfail(strict=True, raises=ShapeError, reason="not yet")
        found.append(pytest.param(shape, id=name, marks=[not_yet] if name in NOT_YET else []))
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


@pytest.mark.slow
@pytest.mark.parametrize("shape", labelled())
def test_the_labels_of_pairs_mean_what_the_tool_means(cli: Cli, tmp_path: Path, shape: Shape) -> None:
    made = made_records(shape)
    run = tmp_path / "run"
    files = shape.write(tmp_path, made)
    ended = cli("score", *files, "--rubric", "pairwise", "--engine", "dry-run", "--out", run, "--quiet")
    if ended.code:
        raise ShapeError(f"{shape.name}: refused: {ended.err}")
    ended = cli("agree", run, "--allow-dry-run", "--resamples", 100, "--json")
    if ended.code:
        raise ShapeError(f"{shape.name}: refused: {ended.err}")
    (aspect,) = json.loads(ended.out)["aspects"].values()
    right = Counter(each.label for each in made for _ in each.readings)
    assert right["a"] != right["b"], "labels that are read the other way round would have the same counts"
    if aspect["labels"] != {label: right[label] for label in ("a", "tie", "b")}:
        raise ShapeError(f"{shape.name}: wrong: labels are {aspect['labels']!r}, right are {dict(right)!r}")
