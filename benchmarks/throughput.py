"""Rows per second, end to end, against a script that a user would write with vLLM alone.

    python benchmarks/throughput.py rows.jsonl [more.jsonl] [--model DIR] [--rounds 3]

The script calls vLLM's `chat` with the answer's JSON schema as structured output, greedily; answers that do not
parse are requested again, up to ten times, with a higher temperature. Model, rows, order, limit and engine
arguments are the same. Each has its own engine and process; they take turns, from an empty prefix cache.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import results_table
from compared_engines import SeparateProcess, structured_outputs


@dataclass(frozen=True, slots=True)
class RowsRun:
    """One run over all rows.

    Attributes:
        parsed: number of rows whose last answer parses.
        first: number of rows whose first answer parses.
        requested: number of answers that were requested.
    """

    seconds: float
    parsed: int
    first: int
    requested: int


class LocaljudgeRows:
    """The whole path of localjudge, from rows to judgements."""

    def __init__(
        self, model: str | None, inputs: list[str], most: int, rationale: int, arguments: dict[str, Any]
    ):
        from localjudge import Judge

        self._judge = Judge(model, engine="vllm", max_rationale_tokens=rationale, engine_args=arguments)
        self._rows = judged_rows(self._judge, inputs, most)
        self._judge.configure_engine(
            max(len(self._judge.task_builder.task(row).tokens) for row in self._rows), None
        )
        self._engine: Any = self._judge.engine

    def setting(self) -> dict[str, Any]:
        """Return the settings that the script must share."""
        engine = self._judge.engine.info
        return {
            "model": str(self._judge.model.path),
            "limit": self._judge.decoding.limit,
            "max_model_len": engine.context,
            "dtype": engine.dtype,
            "texts": [self._judge.rubric.text(row) for row in self._rows],
        }

    def run(self) -> RowsRun:
        self._engine.reset()
        begin = time.perf_counter()
        judged = sum(outcome.status == "judged" for outcome in self._judge.score(self._rows))
        return RowsRun(time.perf_counter() - begin, judged, judged, len(self._rows))

    def close(self) -> None:
        self._engine.llm.llm_engine.engine_core.shutdown()


class VllmScript:
    """The script that a user would write with vLLM alone."""

    def __init__(self, setting: dict[str, Any], backend: str, temperature: float, arguments: dict[str, Any]):
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        from localjudge import Rubric

        engine = {name: setting[name] for name in ("model", "max_model_len", "dtype")}
        self._llm = LLM(
            **engine,
            generation_config="vllm",
            structured_outputs_config=structured_outputs(backend),
            **arguments,
        )
        self._rubric = Rubric.load()
        self._chats = [[{"role": "user", "content": text}] for text in setting["texts"]]
        schema = StructuredOutputsParams(json=self._rubric.answer_layout.schema)
        limit = setting["limit"]
        self._greedy = SamplingParams(temperature=0, max_tokens=limit, structured_outputs=schema)
        self._again = SamplingParams(temperature=temperature, max_tokens=limit, structured_outputs=schema)

    def run(self, retries: int = 10) -> RowsRun:
        self._llm.reset_prefix_cache()
        begin = time.perf_counter()
        missing = list(range(len(self._chats)))
        requested, first = 0, 0
        for attempt in range(1 + retries):
            answers = self._llm.chat(
                [self._chats[row] for row in missing],
                self._again if attempt else self._greedy,
                use_tqdm=False,
                chat_template_kwargs={"enable_thinking": False},
            )
            requested += len(missing)
            missing = [
                row
                for row, answer in zip(missing, answers, strict=True)
                if not self._parses(answer.outputs[0].text)
            ]
            if attempt == 0:
                first = len(self._chats) - len(missing)
            if not missing:
                break
        return RowsRun(time.perf_counter() - begin, len(self._chats) - len(missing), first, requested)

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()

    def _parses(self, text: str) -> bool:
        try:
            self._rubric.parse(text)
        except ValueError:
            return False
        return True


def judged_rows(judge: Any, inputs: list[str], most: int) -> list[Any]:
    """Return the first rows of the inputs that this rubric can judge and that fit the model's context."""
    from localjudge import Row
    from localjudge.rows.inputs import find_inputs, read_rows

    rows: list[Row] = []
    for row in read_rows(find_inputs(inputs)):
        if len(rows) == most:
            break
        if isinstance(row, Row) and judge.task_builder.task(row).error is None:
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", help="a model directory; default: the bundled model")
    parser.add_argument("--rows", type=int, default=500, help="maximum number of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-rationale-tokens", type=int, default=256)
    parser.add_argument("--backend", default="xgrammar", help="backend of the script's structured output")
    parser.add_argument("--retry-temperature", type=float, default=0.7)
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--log", type=Path, help="file for vLLM's output")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

    arguments = {"max_num_seqs": options.max_num_seqs, "enforce_eager": options.enforce_eager}
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "vllm.log"
        rationale = options.max_rationale_tokens
        ours = SeparateProcess(
            log, LocaljudgeRows, options.model, options.inputs, options.rows, rationale, arguments
        )
        setting = ours.call("setting")
        script = SeparateProcess(
            log, VllmScript, setting, options.backend, options.retry_temperature, arguments
        )
        contenders = {"localjudge": ours, "vLLM chat": script}
        runs: dict[str, list[RowsRun]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, contender in contenders.items():
                runs[name].append(contender.call("run"))
        for contender in contenders.values():
            contender.close()

    rows = len(setting["texts"])
    found = {name: summary(ran, rows) for name, ran in runs.items()}
    ratio = median(
        theirs.seconds / own.seconds for own, theirs in zip(runs["localjudge"], runs["vLLM chat"], strict=True)
    )
    results_table.table(
        f"{rows} rows, limit {setting['limit']} tokens; ours is {ratio:.2f} times as fast",
        ["", "rows/s", "parse share", "parse share, first answer", "answers requested"],
        [
            [name, one["rows_per_second"], one["parse_share"], one["first_parse_share"], one["answers_per_row"]]
            for name, one in found.items()
        ],
    )
    results_table.write(
        "throughput",
        {
            "model": Path(setting["model"]).name,
            "rows": rows,
            "limit": setting["limit"],
            "dtype": setting["dtype"],
            "max_num_seqs": options.max_num_seqs,
            "backend": options.backend,
            "ours_to_script": round(ratio, 3),
            "contenders": found,
        },
        options.results,
    )


def summary(ran: list[RowsRun], rows: int) -> dict[str, Any]:
    return {
        "rows_per_second": round(rows / median(run.seconds for run in ran), 2),
        "seconds": [round(run.seconds, 2) for run in ran],
        "parse_share": round(median(run.parsed for run in ran) / rows, 4),
        "first_parse_share": round(median(run.first for run in ran) / rows, 4),
        "answers_per_row": round(median(run.requested for run in ran) / rows, 2),
    }


if __name__ == "__main__":
    main()
