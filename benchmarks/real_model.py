"""What one answer to each row is worth with a real model: localjudge, scripts with guided JSON, and free text.

    python models/smollm2.py --out smollm2
    python benchmarks/real_model.py --model smollm2 [--rows rows.jsonl] [--count 48] [--limits 64 192 512]

All contenders judge the same rows with the same model and prompt in vLLM, greedily, and within the same number
of answer tokens. localjudge asks once. The scripts ask again for each answer that they cannot read, up to ten
times at a temperature of 0.7. Three use vLLM's JSON schema (xgrammar, guidance, outlines); their answers must
be whole. One uses no constraint, as Prometheus-eval does: a regular expression takes the last score that the
text names for each aspect. All start from an empty prefix cache and take turns, round by round; the figures are
medians, because a disturbance of the machine would decide a single run.

The quality is measured against the free text, on the rows where its first answer has all scores: the share of
scores that are equal, and the mean difference of expected scores, constrained minus free. The scripts' expected
scores come from a further pass, which is not timed, with the 20 likeliest tokens at each score.
"""

from __future__ import annotations

import argparse
import bisect
import math
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import environment
import results_table
from compared_engines import SeparateProcess, structured_outputs
from throughput import judged_rows

BACKENDS = ("xgrammar", "guidance", "outlines")
FREE = "free text"
MEASURED = ("localjudge", "xgrammar")
"""Contenders whose scores are compared with those of the free text; all backends have the same schema."""

STAND_IN = {"instruction": "-", "reference": "-", "candidate": "-"}

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class AnswersRun:
    """One run over all rows.

    Attributes:
        first: rows whose first answer has all scores.
        final: rows that have all scores in the end.
        requested: answers that were requested.
        tokens: tokens of all answers that were requested.
        seconds: from the first prompt to the last answer.
    """

    first: int
    final: int
    requested: int
    tokens: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows with all scores per second."""
        return self.final / self.seconds


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """The scores of a row's first answer, and their expected values; None where they cannot be read."""

    scores: Scores | None
    expected: Scores | None


class LocaljudgeRows:
    """localjudge in this process; each limit has an engine of its own."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._setting = setting
        self._answers: list[FirstAnswer] = []

    def run(self, limit: int) -> AnswersRun:
        with limited_judge(self._setting, limit) as judge:
            rows = judged_rows(judge, self._setting["inputs"], self._setting["count"])
            _ = list(judge.score([STAND_IN]))  # opens the engine
            judge.engine.reset()
            begin = time.perf_counter()
            outcomes = {outcome.source: outcome for outcome in judge.score(rows)}
            seconds = time.perf_counter() - begin
        judged = [outcomes[row.source] for row in rows]
        self._answers = [
            FirstAnswer(each.scores, each.expected) if each.status == "judged" else FirstAnswer(None, None)
            for each in judged
        ]
        parsed = sum(answer.scores is not None for answer in self._answers)
        tokens = sum(each.output_tokens for each in judged if each.status == "judged")
        return AnswersRun(parsed, parsed, len(rows), tokens, seconds)

    def answers(self, limit: int) -> list[FirstAnswer]:
        """Return the answers of the last run, whose engine had this limit."""
        return self._answers

    def close(self) -> None:
        """Do nothing: each run closes its engine."""


class VllmScript:
    """A script with vLLM alone that asks again; `backend` None is free text with a regular expression."""

    def __init__(self, setting: dict[str, Any], backend: str | None) -> None:
        from vllm import LLM
        from vllm.sampling_params import StructuredOutputsParams

        from localjudge import Rubric

        guided = {"structured_outputs_config": structured_outputs(backend)} if backend else {}
        self._llm = LLM(
            model=setting["model"],
            max_model_len=setting["max_model_len"],
            dtype=setting["dtype"],
            generation_config="vllm",
            **guided,
            **setting["arguments"],
        )
        self._rubric = Rubric.load()
        self._scale = [int(value) for value in self._rubric.aspects["safety"].values]
        self._chats = [[{"role": "user", "content": text}] for text in setting["texts"]]
        # As in structured_outputs: no white space between the parts, where the backend supports that.
        compact = {"whitespace_pattern": ""} if backend == "outlines" else {}
        schema = self._rubric.answer_layout.schema
        self._guided = StructuredOutputsParams(json=schema, **compact) if backend else None
        self._ask(self._chats[:1], 8, 0)  # compiles the grammar

    def run(self, limit: int, retries: int, temperature: float) -> AnswersRun:
        self._llm.reset_prefix_cache()
        begin = time.perf_counter()
        missing = list(range(len(self._chats)))
        requested = first = tokens = 0
        for attempt in range(1 + retries):
            answers = self._ask([self._chats[row] for row in missing], limit, temperature if attempt else 0)
            requested += len(missing)
            tokens += sum(len(answer.outputs[0].token_ids) for answer in answers)
            missing = [
                row
                for row, answer in zip(missing, answers, strict=True)
                if self._places(answer.outputs[0].text) is None
            ]
            if attempt == 0:
                first = len(self._chats) - len(missing)
            if not missing:
                break
        final, seconds = len(self._chats) - len(missing), time.perf_counter() - begin
        return AnswersRun(first, final, requested, tokens, seconds)

    def answers(self, limit: int) -> list[FirstAnswer]:
        """Return the first answers, with the expected value of each score."""
        return [self._read(each.outputs[0]) for each in self._ask(self._chats, limit, 0, logprobs=20)]

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()

    def _ask(self, chats: list[Any], limit: int, temperature: float, logprobs: int | None = None) -> Any:
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=temperature, max_tokens=limit, structured_outputs=self._guided, logprobs=logprobs
        )
        switches = {"enable_thinking": False}
        return self._llm.chat(chats, params, use_tqdm=False, chat_template_kwargs=switches)

    def _places(self, text: str) -> dict[str, tuple[int, int]] | None:
        """Return each aspect's score and the place of its first character; None if there are not all."""
        if self._guided:
            try:
                self._rubric.parse(text)
            except ValueError:
                return None
        return named_scores(text, self._rubric.answer.keys_of(self._rubric.aspects), self._scale)

    def _read(self, output: Any) -> FirstAnswer:
        places = self._places(output.text)
        if places is None:
            return FirstAnswer(None, None)
        decode, tokens = self._llm.get_tokenizer().decode, list(output.token_ids)

        def expected(place: int) -> float:
            lengths = range(1, len(tokens) + 1)
            rank = bisect.bisect_right(lengths, place, key=lambda length: len(decode(tokens[:length])))
            likely = {each.decoded_token.strip(' "'): each.logprob for each in output.logprobs[rank].values()}
            values = [value for value in self._scale if str(value) in likely]
            weights = [math.exp(likely[str(value)]) for value in values]
            return sum(map(math.prod, zip(values, weights, strict=True))) / sum(weights)

        scores: Scores = {aspect: score for aspect, (score, _) in places.items()}
        try:
            return FirstAnswer(scores, {aspect: expected(place) for aspect, (_, place) in places.items()})
        except ZeroDivisionError:  # no value is among the likeliest tokens
            return FirstAnswer(scores, None)


def named_scores(text: str, keys: dict[str, str], values: Sequence[int]) -> dict[str, tuple[int, int]] | None:
    """Return the last score that a text names for each aspect, and its place; None if an aspect has none.

    A range, such as "[1-5]", and a number with a fraction are not scores.
    """
    found = {}
    numbers = "|".join(sorted(map(str, values), key=len, reverse=True))
    for aspect, key in keys.items():
        pattern = rf"\b{re.escape(key)}\b\W{{0,8}}(?:score\W{{0,6}})?({numbers})(?![-\u2013.]?\d)"
        matches = list(re.finditer(pattern, text, re.IGNORECASE))
        if not matches:
            return None
        found[aspect] = (int(matches[-1][1]), matches[-1].start(1))
    return found


def limited_judge(setting: dict[str, Any], limit: int) -> Any:
    """Create a judge whose answers have at most `limit` tokens."""
    from localjudge import Judge

    options = {name: setting[name] for name in ("max_model_len", "dtype") if name in setting}
    shortest = Judge(
        setting["model"],
        engine="vllm",
        max_rationale_tokens=1,
        engine_args=setting["arguments"] | options,
    )
    smallest = shortest.decoding.limit
    if limit < smallest:
        raise SystemExit(f"--limits {limit}: the shortest answer takes {smallest} tokens")
    return Judge(shortest.config.replace(max_rationale_tokens=limit - smallest + 1))


def quality(free: list[FirstAnswer], other: list[FirstAnswer]) -> dict[str, Any]:
    """Compare the scores of rows that both have, aspect by aspect."""
    both = [(a, b) for a, b in zip(free, other, strict=True) if a.scores and b.scores]
    pairs = [(a.scores[name], b.scores[name]) for a, b in both for name in a.scores]
    expected = [
        b.expected[name] - a.expected[name] for a, b in both if a.expected and b.expected for name in a.expected
    ]
    return {
        "rows": len(both),
        "equal_scores": round(fmean(a == b for a, b in pairs), 4) if pairs else None,
        "mean_score_difference": round(fmean(b - a for a, b in pairs), 4) if pairs else None,
        "mean_expected_difference": round(fmean(expected), 4) if expected else None,
        "mean_absolute_expected_difference": round(fmean(map(abs, expected)), 4) if expected else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a model directory")
    parser.add_argument(
        "--rows", nargs="+", default=["examples"], help="files of rows; default: those that ship"
    )
    parser.add_argument("--count", type=int, default=48, help="maximum number of rows")
    parser.add_argument(
        "--limits", type=int, nargs="+", default=[64, 192, 512], help="most tokens of an answer"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contender at each limit")
    parser.add_argument("--retries", type=int, default=10)
    parser.add_argument("--retry-temperature", type=float, default=0.7)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-num-seqs", type=int, default=48)
    parser.add_argument("--log", type=Path, help="file for vLLM's output")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    environment.settle(cache_gib=2)

    setting: dict[str, Any] = {
        "model": str(options.model),
        "inputs": options.rows,
        "count": options.count,
        "arguments": {"max_num_seqs": options.max_num_seqs, "enforce_eager": True},
    }
    judge = limited_judge(setting, max(options.limits))
    rows = judged_rows(judge, options.rows, options.count)
    setting["texts"] = [judge.rubric.text(row) for row in rows]
    longest = max(len(judge.task_builder.task(row).tokens) for row in rows)
    setting |= {"max_model_len": longest + max(options.limits) + 1, "dtype": options.dtype}
    print(f"{len(rows)} rows, prompts of up to {longest} tokens")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        log = options.log or Path(folder) / "vllm.log"

        def started(make: Any, *arguments: Any) -> SeparateProcess:
            process = SeparateProcess(log, make, setting, *arguments)
            processes.callback(process.close)
            return process

        contenders = {"localjudge": started(LocaljudgeRows)}
        contenders |= {name: started(VllmScript, name) for name in BACKENDS}
        contenders[FREE] = started(VllmScript, None)
        again = (options.retries, options.retry_temperature)
        found = {}
        for limit in options.limits:
            runs: dict[str, list[AnswersRun]] = {name: [] for name in contenders}
            for _ in range(options.rounds):
                for name, contender in contenders.items():
                    runs[name].append(contender.call("run", limit, *(() if name == "localjudge" else again)))
            free = contenders[FREE].call("answers", limit)
            compared = {name: quality(free, contenders[name].call("answers", limit)) for name in MEASURED}
            found[str(limit)] = {"contenders": summary(runs), "quality": compared}
            show(limit, found[str(limit)], len(rows))
            measured = {
                "model": options.model.name,
                "rows": len(rows),
                "longest_prompt": longest,
                "dtype": options.dtype,
                "max_num_seqs": options.max_num_seqs,
                "retries": options.retries,
                "retry_temperature": options.retry_temperature,
                "rounds": options.rounds,
                "limits": found,
            }
            results_table.write("real_model", measured, options.results)  # so far: a limit can take an hour


def summary(runs: dict[str, list[AnswersRun]]) -> dict[str, Any]:
    """Return the median of each figure over the rounds, and of our speed to this one's within a round."""
    return {
        name: {
            "parsed_first": median(run.first for run in measured),
            "parsed": median(run.final for run in measured),
            "answers_requested": median(run.requested for run in measured),
            "output_tokens": median(run.tokens for run in measured),
            "seconds": round(median(run.seconds for run in measured), 2),
            "scored_rows_per_second": round(median(run.rows_per_second for run in measured), 3),
            "localjudge_to_this": _ratio(runs["localjudge"], measured),
        }
        for name, measured in runs.items()
    }


def _ratio(ours: list[AnswersRun], theirs: list[AnswersRun]) -> float | None:
    """Return the median ratio of the speeds within a round; None if a round of theirs has no row."""
    if not all(run.final for run in theirs):
        return None
    return round(
        median(one.rows_per_second / other.rows_per_second for one, other in zip(ours, theirs, strict=True)), 2
    )


def show(limit: int, found: dict[str, Any], rows: int) -> None:
    results_table.table(
        f"{rows} rows, answers of up to {limit} tokens",
        [
            "",
            "parse at first",
            "parse in the end",
            "answers requested",
            "tokens",
            "seconds",
            "rows with all scores/s",
            "localjudge to this",
        ],
        [[name, *one.values()] for name, one in found["contenders"].items()],
    )
    results_table.table(
        f"against the free text, where its first answer has all scores, up to {limit} tokens",
        ["", "rows", "equal scores", "score difference", "expected difference", "the same, absolute"],
        [[name, *one.values()] for name, one in found["quality"].items()],
    )


if __name__ == "__main__":
    main()
