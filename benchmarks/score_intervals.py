"""How often the intervals of `calibrate --interval` hold the label of a new response, and how wide they are.

    python benchmarks/score_intervals.py [--splits 1000] [--run RUN --labels FILE [--map OURS=THEIRS]]

Simulated judges of a scale from 1 to 5, three responses to each instruction: `good`, `sure` (its probabilities
are three times too narrow), `strict` (sure, and one point too low for all), `doubtful` (its doubt differs by
row, and is right), `even` (it does not), and `chance`. Labels of an instruction are alike. Each split fits on
some instructions and counts the labels of others. With a run, its labelled instructions are split at random.

`several` is `good`, with labels of three annotators who differ, and `another scale` has labels from 0 to 10.
`excess` is the coverage above the level: labels are whole numbers, so an interval covers more than it must.
Coverage may be below the level by its Monte Carlo error alone (two standard errors, after `±`). `constant` is
the width of intervals that are equally wide for all scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import LabelArray
from localjudge.records import Judgement
from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.rubrics.score_column import ScoreColumn, score_columns
from localjudge.statistics.score_interval import ScoreInterval, instructions_needed

LEVELS = (0.8, 0.9)
RESPONSES = 3
JUDGES: dict[str, dict[str, Any]] = {
    "good": {"error": 0.4},
    "sure": {"error": 0.6, "narrow": 3.0},
    "strict": {"error": 0.6, "narrow": 3.0, "bias": -1.0},
    "doubtful": {"error": 0.5, "varies": 1.2},
    "even": {"error": 0.6, "narrow": 2.0, "varies": 0.0},
    "chance": {"error": 0.6, "sees": 0.0},
    "several": {"error": 0.4, "annotators": 3},
    "another scale": {"error": 0.4, "scale": 2.0},
}
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The expected score, the spread, the label and the instruction of each label."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=1000)
    parser.add_argument("--run", type=Path, action="append", default=[], help="a run with probabilities")
    parser.add_argument("--labels", action="append", default=[], help="its label file, in the same order")
    parser.add_argument("--map", action="append", default=[], help="OURS=THEIRS, in the same order")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    (column,) = score_columns({"quality": Aspect(scale=Scale(lowest=1, highest=5))})
    found = []
    for level in LEVELS:
        for name, judge in JUDGES.items():
            for count in (instructions_needed(level), 50, 200):
                rng = np.random.default_rng(options.seed)
                draws = (
                    (_simulated(rng, count, **judge), _simulated(rng, 50, **judge))
                    for _ in range(options.splits)
                )
                found.append({"rows": name, "labelled": count} | _covered(column, draws, level))
        for run, labels, mapping in zip(options.run, options.labels, options.map, strict=True):
            aspect, rows = _read(run, labels, mapping)
            found += _of_run(run.name, aspect, rows, level, options)
    results_table.table("coverage of labels", list(found[0]), [list(line.values()) for line in found])
    results_table.write("score_intervals", {"splits": options.splits, "found": found}, options.results)


def _simulated(
    rng: np.random.Generator,
    count: int,
    error: float,
    narrow: float = 1.0,
    bias: float = 0.0,
    varies: float = 0.6,
    sees: float = 1.0,
    annotators: int = 1,
    scale: float = 1.0,
) -> Rows:
    group = np.repeat(np.arange(count), RESPONSES)
    quality = 3 + 0.8 * rng.normal(size=count)[group] + 0.6 * rng.normal(size=len(group))
    # The annotators differ by one point each.
    strict = np.arange(annotators) - (annotators - 1) / 2
    said = quality[:, None] + strict + 0.3 * rng.normal(size=(len(group), annotators))
    label = np.clip(np.round(scale * said), 1 if scale == 1 else 0, scale * 5).ravel()
    doubt = error * np.exp(varies * rng.normal(size=len(group)))
    seen = 3 + sees * (quality - 3) + bias + doubt * rng.normal(size=len(group))
    values = np.arange(1, 6)
    weight = -((values - seen[:, None]) ** 2) / (2 * (doubt / narrow)[:, None].clip(0.1) ** 2)
    shares = np.exp(weight - weight.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    expected = shares @ values
    spread = np.sqrt((shares * (values - expected[:, None]) ** 2).sum(axis=1))
    expected, spread, group = (np.repeat(each, annotators) for each in (expected, spread, group))
    return expected, spread, label, group


def _covered(column: ScoreColumn, draws: Iterator[tuple[Rows, Rows]], level: float) -> dict[str, Any]:
    """Fit on the first rows of each draw, and count the labels of the second by instruction."""
    covered, width, constant = [], [], []
    for fitted_on, (expected, spread, label, group) in draws:
        own = np.arange(len(fitted_on[2]), dtype=np.int32)
        labels = LabelArray(own, np.zeros_like(own), fitted_on[2])
        found = ScoreInterval.fit(
            (column.lowest, column.highest), fitted_on[0], fitted_on[1], labels, fitted_on[3], level
        )
        ends = np.array([found.ends(*each) for each in zip(expected.tolist(), spread.tolist(), strict=True)])
        inside = (ends[:, 0] <= label) & (label <= ends[:, 1])
        size = np.bincount(group)
        covered.append((np.bincount(group, inside) / size.clip(1))[size > 0].mean())
        width.append((ends[:, 1] - ends[:, 0]).mean())
        constant.append(found.constant_width)
    share = float(np.mean(covered))
    return {
        "level": level,
        "coverage": round(share, 3),
        "±": round(2 * float(np.std(covered)) / np.sqrt(len(covered)), 4),
        "excess": round(share - level, 3),
        "width": round(float(np.mean(width)), 2),
        "constant": round(float(np.mean(constant)), 2),
    }


def _read(run: Path, labels: str, mapping: str) -> tuple[ScoreColumn, Rows]:
    from localjudge.matching.judged_rows import read_scores
    from localjudge.matching.labels import label_targets, parse_mapping, read_labels
    from localjudge.runs.reader import read_outcomes

    scores = read_scores([run])
    known = read_labels([labels], scores, parse_mapping([mapping], label_targets(scores.rubric)))
    (aspect,) = known.aspects
    column = scores.columns[scores.aspects.index(aspect)]
    judged = (each for each in read_outcomes(run) if isinstance(each, Judgement))
    spread = np.array([column.spread(each) for each in judged])
    marks = known.marks[aspect]
    rows = marks.row
    return column, (scores.column(aspect, "expected")[rows], spread[rows], marks.value, scores.group[rows])


def _of_run(
    name: str, column: ScoreColumn, rows: Rows, level: float, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the coverage of a run's labels where half of its instructions, at most 100, are fitted on."""
    instructions = np.unique(rows[3])
    count = min(len(instructions) // 2, 100)
    if count < instructions_needed(level):
        yield {"rows": name, "labelled": count, "level": level} | dict.fromkeys(
            ("coverage", "±", "excess", "width", "constant")
        )
        return
    rng = np.random.default_rng(options.seed)

    def draws() -> Iterator[tuple[Rows, Rows]]:
        for _ in range(options.splits):
            seen = np.isin(rows[3], rng.permutation(instructions)[:count])
            yield tuple(each[seen] for each in rows), tuple(each[~seen] for each in rows)  # type: ignore[misc]

    yield {"rows": name, "labelled": count} | _covered(column, draws(), level)


if __name__ == "__main__":
    main()
