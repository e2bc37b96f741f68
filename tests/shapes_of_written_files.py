"""Files that the tools' own writers wrote from our rows (`written_files/write.py`), and what is right for each.

The other shapes are made from the documentation of their tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shape_records import (
    ANSWER,
    ASSISTANT,
    DIALOGUE,
    GRADED,
    GROUNDED,
    PAIR,
    SYSTEM,
    USER,
    Made,
    Reading,
    Said,
    Shape,
)

FOLDER = Path(__file__).parent / "written_files"
ROWS: list[dict[str, Any]] = json.loads((FOLDER / "rows.json").read_text())

Read = Callable[[Mapping[str, Any]], tuple[Reading, ...]]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file, what wrote it, and what is right.

    Attributes:
        files: the names, beginning with the tool and its version; the first holds the records.
        writer: the function or the command that wrote it.
        right: the rows of a record; none if it must be refused.
        read: the fields of the rubrics under which it is read.
        refuse: the fields of the rubrics under which it must be refused.
        backwards: whether the records stand in the reverse order.
        records: the number of our rows in it.
    """

    files: tuple[str, ...]
    writer: str
    right: Read
    read: tuple[tuple[str, ...], ...] = (ANSWER,)
    refuse: tuple[tuple[str, ...], ...] = ()
    backwards: bool = False
    records: int = len(ROWS)

    @property
    def shape(self) -> Shape:
        """The file as a shape: its records are not made, but there."""
        rows = ROWS[: self.records][::-1] if self.backwards else ROWS[: self.records]
        return Shape(
            f"written {self.files[0]}",
            lambda texts, number: Made({"of": rows[number]["id"]}, self.right(rows[number])),
            lambda folder, made: [FOLDER / name for name in self.files],
            read=self.read,
            refuse=self.refuse,
            records=self.records,
        )


def answer(row: Mapping[str, Any], **others: Any) -> tuple[Reading, ...]:
    return (Reading((row["answer"],), instruction=row["question"], reference=row["reference"], **others),)


def of_system(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    return answer(row, systems=(row["system"],))


def with_contexts(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    return answer(row, shown={"context": tuple(row["contexts"])})


def pair(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    return (Reading((row["answer"], row["worse"]), instruction=row["question"]),)


def nothing(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    return ()


def lm_eval(row: Mapping[str, Any], times: int = 1) -> tuple[Reading, ...]:
    asked = (f"Question: {row['question']}\nAnswer:", row["question"])
    reading = Reading((row["answer"],), instruction=asked, reference=row["reference"])
    return (reading,) * times


def unpaired(row: Mapping[str, Any], better: bool) -> tuple[Reading, ...]:
    text = row["answer"] if better else row["worse"]
    return (Reading((text,), instruction=row["question"], columns={"label": better}),)


def inspect_log(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    """A log has the scores of its samples: `match` writes C or I."""
    turns = (Said(SYSTEM, "Be brief."), Said(USER, row["question"]))
    return (Reading((row["answer"],), turns=turns, reference=row["reference"], systems=("mockllm/model",)),)


def ragas_turns(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    turns = (Said(USER, "Hello."), Said(ASSISTANT, "Good day."), Said(USER, row["question"]))
    return (Reading((row["answer"],), turns=turns, reference=row["reference"]),)


def promptfoo(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    return answer(row, systems=("made-up:north",))


def mini_swe_agent(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    """The run of the first row: two commands, what they returned, and the end."""
    texts = ("Be brief.", row["question"], row["answer"], "found", "That is all.")
    return (Reading(("That is all.",), ordered=texts, systems=("north-1",), systems_optional=True),)


def files(tool: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{tool}-{name}" for name in names)


LM_EVAL = partial(WrittenFile, writer="simple_evaluate, EvaluationTracker.save_results_samples")
DATASETS = partial(WrittenFile, writer="Dataset.to_json, to_csv, to_parquet")
FILES = (
    LM_EVAL(files("lm_eval-0.4.13", "plain.jsonl"), right=lm_eval, read=(ANSWER, GRADED)),
    LM_EVAL(files("lm_eval-0.4.13", "filtered.jsonl"), right=lm_eval, read=(ANSWER, GRADED)),
    LM_EVAL(files("lm_eval-0.4.13", "repeats.jsonl"), right=partial(lm_eval, times=2), read=(ANSWER, GRADED)),
    LM_EVAL(files("lm_eval-0.4.13", "choices.jsonl"), right=nothing, read=(), refuse=(ANSWER, GRADED)),
    WrittenFile(
        files("inspect_ai-0.3.285", "log.eval"),
        "eval with log_format eval",
        inspect_log,
        read=(ANSWER, GRADED, DIALOGUE),
    ),
    WrittenFile(
        files("inspect_ai-0.3.285", "log.json"),
        "eval with log_format json",
        inspect_log,
        read=(ANSWER, GRADED, DIALOGUE),
    ),
    DATASETS(files("datasets-5.2.0", "trl-completion.jsonl"), right=answer, refuse=(GRADED,)),
    DATASETS(files("datasets-5.2.0", "trl-completion.csv"), right=answer),
    DATASETS(
        files("datasets-5.2.0", "trl-completion-conversational.parquet"), right=answer, read=(ANSWER, DIALOGUE)
    ),
    DATASETS(files("datasets-5.2.0", "trl-preference.jsonl"), right=pair, read=(PAIR,)),
    DATASETS(files("datasets-5.2.0", "trl-preference-conversational.parquet"), right=pair, read=(PAIR,)),
    DATASETS(files("datasets-5.2.0", "trl-preference-implicit.jsonl"), right=pair, read=(PAIR,)),
    WrittenFile(
        files("openai-3.51.0", "completions.jsonl"),
        "ChatCompletion.model_dump_json",
        nothing,
        read=(),
        refuse=(ANSWER, DIALOGUE),
    ),
    WrittenFile(
        files("openai-3.51.0", "batch-chat-output.jsonl", "batch-chat-input.jsonl"),
        "ChatCompletion.to_dict in a line of the batch",
        of_system,
        read=(ANSWER, DIALOGUE),
        backwards=True,
    ),
    WrittenFile(
        files("openai-3.51.0", "batch-responses-output.jsonl", "batch-responses-input.jsonl"),
        "Response.to_dict in a line of the batch",
        of_system,
        read=(ANSWER, DIALOGUE),
        backwards=True,
    ),
    WrittenFile(
        files("ragas-0.4.3", "single.jsonl"),
        "EvaluationDataset.to_jsonl",
        with_contexts,
        read=(ANSWER, GRADED, GROUNDED),
    ),
    WrittenFile(
        files("ragas-0.4.3", "single.csv"),
        "EvaluationDataset.to_csv",
        with_contexts,
        read=(ANSWER, GRADED, GROUNDED),
    ),
    WrittenFile(
        files("ragas-0.4.3", "several-turns.jsonl"),
        "EvaluationDataset.to_jsonl",
        ragas_turns,
        read=(ANSWER, DIALOGUE),
    ),
    WrittenFile(
        files("deepeval-4.3.1", "cases.json"),
        "EvaluationDataset.save_as",
        with_contexts,
        read=(ANSWER, GRADED, GROUNDED),
    ),
    WrittenFile(
        files("deepeval-4.3.1", "cases.jsonl"),
        "EvaluationDataset.save_as",
        with_contexts,
        read=(ANSWER, GRADED, GROUNDED),
    ),
    WrittenFile(
        files("deepeval-4.3.1", "cases.csv"),
        "EvaluationDataset.save_as; contexts are joined with |",
        with_contexts,
        read=(ANSWER, GRADED, GROUNDED),
    ),
    WrittenFile(files("deepeval-4.3.1", "run.json"), "TestRun.save", with_contexts, read=(ANSWER, GRADED)),
    WrittenFile(
        files("mlflow-3.17.0", "eval_results_table.json"),
        "mlflow.models.evaluate",
        answer,
        read=(ANSWER, GRADED),
    ),
    WrittenFile(
        files("mlflow-3.17.0", "traces.jsonl"),
        "mlflow.search_traces, to_json",
        answer,
        refuse=(GRADED,),
        backwards=True,
    ),
    WrittenFile(
        files("langsmith-0.14.17", "experiment.csv"),
        "evaluate, ExperimentResults.to_pandas",
        answer,
        read=(ANSWER, GRADED),
    ),
    WrittenFile(files("langsmith-0.14.17", "runs.jsonl"), "schemas.Run", answer, refuse=(GRADED,)),
    WrittenFile(
        files("langsmith-0.14.17", "examples.jsonl"),
        "schemas.Example",
        nothing,
        read=(),
        refuse=(ANSWER, GRADED),
    ),
    WrittenFile(
        files("langfuse-5.0.4", "observations.jsonl"),
        "api.ObservationV2",
        of_system,
        read=(ANSWER, DIALOGUE),
        refuse=(GRADED,),
    ),
    WrittenFile(
        files("langfuse-5.0.4", "items.jsonl"), "api.DatasetItem", nothing, read=(), refuse=(ANSWER, GRADED)
    ),
    WrittenFile(
        files("promptfoo-0.123.1", "results.json"), "promptfoo eval -o", promptfoo, read=(ANSWER, DIALOGUE)
    ),
    WrittenFile(files("promptfoo-0.123.1", "results.jsonl"), "promptfoo eval -o", promptfoo),
    WrittenFile(
        files("mini_swe_agent-2.4.6", "trajectory.traj.json"),
        "DefaultAgent.save",
        mini_swe_agent,
        read=(DIALOGUE,),
        records=1,
    ),
)

WRITTEN = tuple(each.shape for each in FILES)
