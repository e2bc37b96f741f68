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
        right: the rows of a record of our row, which has its `number` in the file; none if it must be refused.
        read: the fields of the rubrics under which it is read.
        refuse: the fields of the rubrics under which it must be refused.
        backwards: whether the records stand in the reverse order.
        records: how many records it has.
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
        rows = ROWS[::-1] if self.backwards else ROWS
        return Shape(
            f"written {self.files[0]}",
            lambda texts, number: Made(
                {"number": number}, self.right({**rows[number % len(rows)], "number": number})
            ),
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


def unpaired(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    """All chosen responses stand before all rejected ones."""
    better = row["number"] < len(ROWS)
    text = row["answer"] if better else row["worse"]
    return (Reading((text,), instruction=row["question"], columns={"label": better}),)


def inspect_log(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    """A log has the scores of its samples: `match` writes C or I, which Inspect counts as 1 or 0."""
    reading = Reading(
        (row["answer"],),
        turns=(Said(SYSTEM, "Be brief."), Said(USER, row["question"])),
        reference=row["reference"],
        systems=("mockllm/model",),
        columns={"match": ("I", 0)},
    )
    return (reading,)


def ragas_turns(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    turns = (Said(USER, "Hello."), Said(ASSISTANT, "Good day."), Said(USER, row["question"]))
    return (Reading((row["answer"],), turns=turns, reference=row["reference"]),)


def promptfoo(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    return answer(row, systems=("made-up:north",))


def mini_swe_agent(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    """The run of the first row: two commands, what they returned, and the end."""
    texts = ("Be brief.", row["question"], row["answer"], "found", "That is all.")
    return (Reading(("That is all.",), ordered=texts, systems=("north-1",), systems_optional=True),)


def worked(row: Mapping[str, Any], system: str | None = "Be brief.") -> tuple[Reading, ...]:
    """Return a request, a call of a tool with its result, and the answer."""
    turns = [] if system is None else [Said(SYSTEM, system)]
    turns += [
        Said(USER, row["question"]),
        Said(ASSISTANT, None, calls=(("find", {"id": row["id"]}),)),
        Said("tool", row["reference"], answers=1),
    ]
    return (Reading((row["answer"],), turns=tuple(turns), systems=("north-1",), systems_optional=True),)


def two_rounds(row: Mapping[str, Any], again: str, system: tuple[str, ...]) -> tuple[Reading, ...]:
    first, second = (row["worse"], row["answer"]) if again == "No." else (row["answer"], row["worse"])
    turns = (Said(USER, row["question"]), Said(ASSISTANT, first), Said(USER, again))
    return (Reading((second,), turns=turns, systems=system, systems_optional=again == "No."),)


def every_eval_ever(row: Mapping[str, Any]) -> tuple[Reading, ...]:
    asked = f"Question: {row['question']}\nAnswer:"
    return (Reading((row["answer"],), instruction=asked, reference=row["reference"], systems=("org/north-1",)),)


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
    WrittenFile(files("promptfoo-0.123.1", "results.csv"), "promptfoo eval -o", promptfoo, read=()),
    WrittenFile(
        files("trl-1.16.0", "kto.jsonl"),
        "unpair_preference_dataset",
        unpaired,
        read=(ANSWER, DIALOGUE),
        refuse=(PAIR,),
        records=2 * len(ROWS),
    ),
    WrittenFile(files("trl-1.16.0", "extracted.jsonl"), "extract_prompt", pair, read=(PAIR,)),
    WrittenFile(
        files("trl-1.16.0", "chatml.jsonl"), "maybe_convert_to_chatml", answer, read=(ANSWER, DIALOGUE)
    ),
    WrittenFile(
        files("every-eval-ever-0.2.3rc1", "samples.jsonl"),
        "LMEvalInstanceLevelAdapter",
        every_eval_ever,
        read=(ANSWER, GRADED),
    ),
    WrittenFile(
        files("verl-0.9.1", "rollouts.jsonl"), "RayPPOTrainer._write_generations", answer, read=(ANSWER, GRADED)
    ),
    WrittenFile(
        files("verl-0.9.1", "data.parquet"),
        "Dataset.to_parquet, as the scripts of its examples",
        nothing,
        read=(),
        refuse=(ANSWER, GRADED, DIALOGUE),
    ),
    WrittenFile(
        files("fastchat-0.2.36", "north-1.jsonl", "question.jsonl"),
        "llm_judge.gen_api_answer.get_answer",
        partial(two_rounds, again="Say it in another way.", system=("north-1",)),
        read=(DIALOGUE,),
    ),
    WrittenFile(
        files("tau_bench-59a200c", "results.json"), "EnvRunResult.model_dump", worked, read=(DIALOGUE,)
    ),
    WrittenFile(
        files("tau2_bench-a2c0247", "results.json"),
        "Results.save",
        partial(worked, system=None),
        read=(DIALOGUE,),
    ),
    WrittenFile(
        files("openhands-sdk-1.58.2", "output.jsonl"),
        "MessageEvent.model_dump in a line of the benchmarks' output",
        partial(two_rounds, again="No.", system=("north-1",)),
        read=(DIALOGUE,),
        records=1,
    ),
)

WRITTEN = tuple(each.shape for each in FILES)
