"""How the spelling of an answer's fixed text moves the scores of a model.

    python benchmarks/spellings.py rows.jsonl --model DIR [--rows 48]

Each spelling judges the same rows greedily with the same limit of a rationale. The result has for each spelling
the tokens of fixed text that an answer decodes, the expected scores, and the surprise of the model at the fixed
text: the negative log-probability of its tokens without a token table, the opening included, in nats an answer.

The model also answers freely, greedily and without a table: after the prompt alone, and after the opening of
each spelling. Where such an answer parses (the whole text, or the content of its fence), its scores are
compared with the expected scores of each spelling.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, quantiles
from typing import Any, get_args

import numpy as np
import results_table
from compared_engines import SeparateProcess
from throughput import judged_rows

from localjudge.rubrics.answer import AnswerSpelling

SPELLINGS = get_args(AnswerSpelling)


@dataclass(frozen=True, slots=True)
class SpelledAnswer:
    """An answer in one spelling.

    Attributes:
        prompt: its token ids, the opening included.
        tokens: the token ids of the answer.
        fixed: the places of fixed text among the answer's tokens.
        expected: the expected score of each aspect.
        cut: whether the limit ended the rationale.
    """

    prompt: list[int]
    tokens: list[int]
    fixed: list[int]
    expected: list[float]
    cut: bool


class SpelledRows:
    """localjudge with one spelling."""

    def __init__(self, options: argparse.Namespace, spelling: AnswerSpelling) -> None:
        from localjudge import Judge

        self._judge = Judge(
            options.model,
            engine="vllm",
            answer_spelling=spelling,
            max_rationale_tokens=options.max_rationale_tokens,
            engine_args=_engine_args(options),
        )
        self._rows = judged_rows(self._judge, options.inputs, options.rows)

    def setting(self) -> dict[str, Any]:
        """Return what free answers share with these: the prompts without an opening, the opening, the limit."""
        judge = self._judge
        return {
            "prompts": [judge.model.prompts.encode(judge.rubric.text(row)) for row in self._rows],
            "opened": [judge.prompts.encode(judge.rubric.text(row)) for row in self._rows],
            "opening": judge.rubric.answer_layout.spelled(judge.config.answer_spelling).opening,
            "limit": judge.decoding.limit,
            "engine": judge.engine.info.model_dump(mode="json"),
        }

    def run(self) -> list[SpelledAnswer]:
        from localjudge.prompts.task import Prompt

        judge, decoding = self._judge, self._judge.decoding
        tasks = list(judge.task_builder.tasks(self._rows))
        prompts = [Prompt(tag, task.tokens, tag) for tag, task in enumerate(tasks)]
        answers: dict[int, SpelledAnswer] = {}
        for completions in judge.engine.complete(prompts):
            for one in completions:
                path = decoding.table.states(one.tokens)
                inside, picked = decoding.table.text[path] >= 0, set(decoding.table.score_state.tolist())
                fixed = [
                    step for step in range(len(one.tokens)) if not inside[step + 1] and path[step] not in picked
                ]
                assert one.probabilities is not None
                values = [[*aspect.values.values()] for aspect in judge.rubric.aspects.values()]
                answers[one.tag] = SpelledAnswer(
                    prompts[one.tag].tokens,
                    list(one.tokens),
                    fixed,
                    (one.probabilities * np.array(values, float)).sum(axis=1).tolist(),
                    decoding.table.was_cut(one.tokens, decoding.text_tokens, decoding.closing_margin),
                )
        return [answers[tag] for tag in range(len(prompts))]

    def close(self) -> None:
        self._judge.engine.llm.llm_engine.engine_core.shutdown()  # type: ignore[attr-defined]


class FreeAnswers:
    """vLLM alone, without a table."""

    def __init__(self, options: argparse.Namespace) -> None:
        from vllm import LLM

        from localjudge import Rubric
        from localjudge.models.model import Model

        model = Model.find(options.model)
        self._llm = LLM(model=str(model.path), generation_config="vllm", **_engine_args(options))
        self._ends, self._rubric = model.end_tokens, Rubric.load()

    def scores(self, prompts: Sequence[list[int]], opening: str, limit: int) -> list[list[int] | None]:
        """Return the scores of each greedy answer; None where it does not parse."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        params = SamplingParams(temperature=0, max_tokens=limit, stop_token_ids=list(self._ends))
        answers = self._llm.generate([TokensPrompt(prompt_token_ids=each) for each in prompts], params)
        return [self._scores(opening + each.outputs[0].text) for each in answers]

    def _scores(self, text: str) -> list[int] | None:
        """Return the scores of the object in a Markdown fence, or of the whole text if it has none."""
        inner = text.partition("```json\n")[2] or text
        try:
            answer = self._rubric.parse(inner.partition("\n```")[0].strip())
            return [int(score) for score in answer.scores.values()]
        except ValueError:
            return None

    def surprise(self, answers: Sequence[SpelledAnswer], openings: Sequence[int]) -> list[float]:
        """Return the negative log-probability of each answer's fixed text, the opening included, in nats.

        Args:
            answers: complete answers.
            openings: for each answer, the tokens of its prompt that hold the opening.
        """
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        found = []
        for answer, opening in zip(answers, openings, strict=True):
            whole = [*answer.prompt, *answer.tokens]
            (output,) = self._llm.generate(
                [TokensPrompt(prompt_token_ids=whole)],
                SamplingParams(max_tokens=1, prompt_logprobs=0),
                use_tqdm=False,
            )
            places = [*range(len(answer.prompt) - opening, len(answer.prompt))]
            places += [len(answer.prompt) + place for place in answer.fixed]
            found.append(-sum(output.prompt_logprobs[place][whole[place]].logprob for place in places))
        return found

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()


def main() -> None:
    options = _options()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "vllm.log"
        answers, settings = {}, {}
        for spelling in SPELLINGS:
            judge = SeparateProcess(log, SpelledRows, options, spelling)
            settings[spelling], answers[spelling] = judge.call("setting"), judge.call("run")
            judge.close()
        free = SeparateProcess(log, FreeAnswers, options)
        limit = max(setting["limit"] for setting in settings.values()) + 48  # room for another spelling
        freely = {"prompt alone": free.call("scores", settings[SPELLINGS[0]]["prompts"], "", limit)}
        surprise = {}
        for spelling, setting in settings.items():
            freely[f"opening, {spelling}"] = free.call("scores", setting["opened"], setting["opening"], limit)
            openings = [_differing(*pair) for pair in zip(setting["prompts"], setting["opened"], strict=True)]
            surprise[spelling] = free.call("surprise", answers[spelling], openings)
        free.close()
    _report(options, settings, answers, freely, surprise)


def _report(
    options: argparse.Namespace,
    settings: dict[str, dict[str, Any]],
    answers: dict[str, list[SpelledAnswer]],
    freely: dict[str, list[list[int] | None]],
    surprise: dict[str, list[float]],
) -> None:
    from localjudge import Rubric

    rubric = Rubric.load()
    rows = len(answers[SPELLINGS[0]])
    found: dict[str, Any] = {}
    for spelling, judged in answers.items():
        found[spelling] = {
            "fixed_tokens_decoded": round(mean(len(each.fixed) for each in judged), 2),
            "fixed_tokens_decoded_least_and_most": [
                min(len(each.fixed) for each in judged),
                max(len(each.fixed) for each in judged),
            ],
            "output_tokens": round(mean(len(each.tokens) for each in judged), 1),
            "cut_share": round(mean(each.cut for each in judged), 3),
            "fixed_text_surprise_nats": round(mean(surprise[spelling]), 2),
            "expected": {
                aspect: _distribution([each.expected[place] for each in judged])
                for place, aspect in enumerate(rubric.aspects)
            },
        }
    results_table.table(
        f"{rows} rows, greedy, rationales of up to {options.max_rationale_tokens} tokens",
        ["", "fixed tokens decoded", "output tokens", "rationales cut", "surprise at fixed text (nats)"],
        [
            [name, *(one[key] for key in ("fixed_tokens_decoded", "output_tokens", "cut_share")),
             one["fixed_text_surprise_nats"]]
            for name, one in found.items()
        ],
    )  # fmt: skip
    results_table.table(
        "expected scores: mean (lower quartile, median, upper quartile)",
        ["", *SPELLINGS],
        [
            [aspect, *(_in_words(one["expected"][aspect]) for one in found.values())]
            for aspect in rubric.aspects
        ],
    )
    moved = {
        f"{one} and {other}": _moved(answers[one], answers[other])
        for place, one in enumerate(SPELLINGS)
        for other in SPELLINGS[place + 1 :]
    }
    results_table.table(
        "how far apart the expected scores of a row are",
        ["", "mean", "largest"],
        [[name, one["mean"], one["largest"]] for name, one in moved.items()],
    )
    distance = {
        after: {
            "parsed": sum(scores is not None for scores in free),
            "scores": dict(sorted(Counter(n for scores in free for n in scores or ()).items())),
            **{f"distance_to_{spelling}": _distance(answers[spelling], free) for spelling in SPELLINGS},
        }
        for after, free in freely.items()
    }
    results_table.table(
        f"free answers of {rows} that parse, and the mean distance of their scores to the expected scores",
        ["after", "parse", *SPELLINGS],
        [
            [after, one["parsed"], *(one[f"distance_to_{spelling}"] for spelling in SPELLINGS)]
            for after, one in distance.items()
        ],
    )
    engine = settings[SPELLINGS[0]]["engine"]
    results_table.write(
        "spellings",
        {
            "model": Path(options.model).name,
            "rows": rows,
            "max_rationale_tokens": options.max_rationale_tokens,
            "engine": {name: engine[name] for name in ("name", "dtype", "runner") if name in engine},
            "spellings": found,
            "apart": moved,
            "free_answers": distance,
        },
        options.results,
    )


def _differing(plain: list[int], opened: list[int]) -> int:
    """Return how many of the last tokens of a prompt with an opening are not those of the prompt without it."""
    same = next(
        (place for place, (one, other) in enumerate(zip(plain, opened, strict=False)) if one != other),
        len(plain),
    )
    return len(opened) - same


def _distribution(values: list[float]) -> dict[str, Any]:
    return {
        "mean": round(mean(values), 2),
        "quartiles": [round(value, 2) for value in quantiles(values, n=4, method="inclusive")],
        "least_and_most": [round(min(values), 2), round(max(values), 2)],
    }


def _in_words(distribution: dict[str, Any]) -> str:
    lower, middle, upper = distribution["quartiles"]
    return f"{distribution['mean']} ({lower}, {middle}, {upper})"


def _moved(one: list[SpelledAnswer], other: list[SpelledAnswer]) -> dict[str, float]:
    apart = [
        abs(a - b)
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first.expected, second.expected, strict=True)
    ]
    return {"mean": round(mean(apart), 2), "largest": round(max(apart), 2)}


def _distance(judged: list[SpelledAnswer], free: list[list[int] | None]) -> float | None:
    """Return the mean distance of expected scores to the scores of free answers; None if none parses."""
    apart = [
        abs(expected - score)
        for answer, scores in zip(judged, free, strict=True)
        if scores is not None
        for expected, score in zip(answer.expected, scores, strict=True)
    ]
    return round(mean(apart), 2) if apart else None


def _engine_args(options: argparse.Namespace) -> dict[str, Any]:
    given = {"max_num_seqs": options.max_num_seqs, "enforce_eager": options.enforce_eager}
    return given | ({"max_model_len": options.max_model_len} if options.max_model_len else {})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--rows", type=int, default=48, help="maximum number of rows")
    parser.add_argument("--max-rationale-tokens", type=int, default=256)
    parser.add_argument("--max-num-seqs", type=int, default=48)
    parser.add_argument("--max-model-len", type=int, help="the engine's context; default: the model's")
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--log", type=Path, help="file for vLLM's output")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
