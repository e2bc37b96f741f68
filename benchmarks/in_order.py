"""How often the interval of "in order" of `localjudge agree` contains the true share, and who is above chance.

    python benchmarks/in_order.py [--sets 150]

Two, three or two to five responses to each instruction. A label is the rounded quality of a response, from 1
to 5: about four of ten pairs of one instruction have equal labels (a third with `finer` labels, where a blind
judge does equally well with any epsilon). Judges: `blind` gives random scores; `level` knows the instruction,
but not the response: its random scores are closer together where labels are more often equal; `weak` and `good`
know the response, too. The true share is that of the best epsilon in 60,000 instructions. `known epsilon` is an
alternative: the share of sets in which the interval contains the true share if the epsilon that is best on the
same instructions is taken as known, and `its bias` that of its value. `above chance` is the share of sets in
which `agree` says so: at most 2.5 % is right for the first two judges. `over a baseline` is the coverage of the
share of the judge minus that of a second `weak` judge on the same pairs.

Then `compare` of two judges of the same responses, in runs of 40 instructions, eight systems and six aspects:
how often it finds a difference in agreement with the labels between judges that are equally good, and how often
it names systems that the judges put in opposite order, where their true order is the same, with means that are
0.2 apart, or the reverse of it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import LabelArray
from localjudge.matching.labels import Labels, read_labels
from localjudge.statistics.resampling import mean_estimate
from localjudge.statistics.within_instructions import LabelledResponses
from localjudge.studies.compare.compared_rows import ComparedRows
from localjudge.studies.compare.label_agreement import compare_labels
from localjudge.studies.compare.matched_runs import MatchedRuns, match_runs
from localjudge.studies.compare.two_judges import compare_two_judges
from localjudge.studies.imported_scores import import_scores

SIZES = (50, 150, 300)
RESPONSES = {"2": (2, 2), "3": (3, 3), "2 to 5": (2, 5)}
FINER = 1.25
"""How many `finer` labels there are for one of the others."""
JUDGES = {"blind": 0.0, "level": 0.0, "weak": 0.5, "good": 0.9}
CELLS = [("2", judge, 1.0) for judge in JUDGES]
CELLS += [("3", "weak", 1.0), ("2 to 5", "level", 1.0), ("2 to 5", "good", 1.0)]
CELLS += [("2", "blind", FINER), ("2", "weak", FINER)]
POPULATION = 60_000
ASPECTS = ("a", "b", "c", "d", "e", "f")
INSTRUCTIONS, SYSTEMS = 40, 8


def drawn(
    rng: np.random.Generator, instructions: int, responses: str, judge: str, finer: float
) -> tuple[np.ndarray, np.ndarray, LabelledResponses]:
    """Return the scores of all rows, those of a second weak judge, and the labels."""
    low, high = RESPONSES[responses]
    group = np.repeat(np.arange(instructions), rng.integers(low, high + 1, instructions))
    level = rng.normal(0, 1.1, instructions)[group]
    of_response, noise, error, other = rng.normal(0, 0.7, (4, len(group)))
    label = np.clip(np.round(finer * (3 + level + of_response + error / 5)), finer, 5 * finer)
    if judge == "level":
        noise *= np.exp(-np.abs(level))
    column = 3 + level + JUDGES[judge] * of_response + (1 - JUDGES[judge]) * noise
    rows = len(group)
    marks = LabelArray(np.arange(rows, dtype=np.int32), np.zeros(rows, dtype=np.int32), label)
    found = LabelledResponses.from_labels(marks, group.astype(np.int32), np.arange(rows))
    assert found is not None
    return column, 3 + level + (of_response + other) / 2, found


def shares(column: np.ndarray, labelled: LabelledResponses, epsilon: float) -> np.ndarray:
    """Return the share of pairs in order of each instruction."""
    by_column, by_label = (
        each[labelled.first] - each[labelled.second] for each in (column[labelled.row], labelled.label)
    )
    says = np.where(np.abs(by_column) <= epsilon, 0, np.sign(by_column))
    group = labelled.group[labelled.first]
    found: np.ndarray = np.bincount(group, says == np.sign(by_label)) / np.bincount(group)
    return found


@cache
def true_share(cell: tuple[str, str, float]) -> float:
    """Return the share in order of a large population for the best epsilon."""
    column, _, labelled = drawn(np.random.default_rng(99), POPULATION, *cell)
    return float(
        max(shares(column, labelled, epsilon).mean() for epsilon in np.append(np.linspace(0, 3, 61), 99))
    )


def measured(size: int, cell: tuple[str, str, float], sets: int, seed: int) -> dict[str, Any]:
    (responses, judge, finer), truth = cell, true_share(cell)
    rng, above = np.random.default_rng([seed, size]), 0
    held, known, widths = list[bool](), list[bool](), list[float]()
    values, biased, paired = list[Any](), list[float](), list[bool]()
    for number in range(sets):
        column, weak, labelled = drawn(rng, size, *cell)
        found, share = labelled.compare(column, number)
        over = share.minus(labelled.compare(weak, number)[1]).difference()
        if over.low is not None and over.high is not None:
            paired.append(over.low <= truth - true_share((responses, "weak", finer)) <= over.high)
        values.append(found.in_order.value)
        if found.in_order.low is not None and found.in_order.high is not None:
            held.append(found.in_order.low <= truth <= found.in_order.high)
            widths.append(found.in_order.high - found.in_order.low)
        above += found.over_chance.low is not None and found.over_chance.low > 0
        own = shares(column, labelled, found.epsilon or 0.0)
        naive = mean_estimate(own, np.arange(len(own)), 0, 1, seed=number)
        known.append(naive.low is not None and naive.high is not None and naive.low <= truth <= naive.high)
        biased.append(own.mean())
    coverage = float(np.mean(held))
    return {
        "responses": responses,
        "judge": f"{judge}, finer" if finer > 1 else judge,
        "instructions": size,
        "true share": round(truth, 3),
        "bias": round(float(np.mean(values)) - truth, 3),
        "coverage": round(coverage, 3),
        "error": round(math.sqrt(coverage * (1 - coverage) / len(held)), 3),
        "width": round(float(np.mean(widths)), 3),
        "undefined": sets - len(held),
        "over a baseline": round(float(np.mean(paired)), 3),
        "known epsilon": round(float(np.mean(known)), 3),
        "its bias": round(float(np.mean(biased)) - truth, 3),
        "above chance": round(above / sets, 3),
    }


def two_judges(folder: Path) -> tuple[MatchedRuns, Labels]:
    """Return two runs of the same responses by two judges, and labels of all of them, to be replaced."""
    rows = [
        {"instruction": f"question {at // SYSTEMS}", "candidate": f"answer {at}", "system": f"s{at % SYSTEMS}"}
        | {"id": str(at)}
        | dict.fromkeys(ASPECTS, 1 + at % 5)
        for at in range(INSTRUCTIONS * SYSTEMS)
    ]
    (file := folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for judge in ("old", "new"):
        import_scores([str(file)], folder / judge, ASPECTS, judge=judge)
    matched = match_runs(ComparedRows.read([folder / "old", folder / "new"]))
    return matched, read_labels([str(file)], matched.rows.source)


def judged(matched: MatchedRuns, scores: np.ndarray) -> MatchedRuns:
    """Return the runs with other scores, [2, rows, aspects]."""
    rows, table = matched.rows, np.empty((len(matched.rows.run), len(ASPECTS)))
    first_rows = matched.cells.first_rows
    table[first_rows.T] = scores
    numbers = dict(zip(ASPECTS, table.T, strict=True))
    columns = {
        name: replace(column, values=numbers.get(name, table.mean(axis=1)))
        for name, column in rows.columns.items()
    }
    verdicts = {name: replace(written, numbers=numbers[name]) for name, written in rows.verdicts.items()}
    rows = replace(rows, verdicts=verdicts, columns=columns)
    old, new = (rows.values[first_rows[:, run]] for run in (0, 1))
    return replace(matched, rows=rows, cells=replace(matched.cells, old=old, new=new))


def between_judges(sets: int, seed: int) -> dict[str, float]:
    """Return how often `compare` finds what is not there, and contrary orders that are there."""
    rng, found = np.random.default_rng(seed), dict[str, list[bool]]()
    level = np.tile(np.arange(SYSTEMS) * 0.2, INSTRUCTIONS)[:, None]
    with tempfile.TemporaryDirectory() as folder:
        matched, labels = two_judges(Path(folder))
    size = (INSTRUCTIONS * SYSTEMS, len(ASPECTS))

    def rounded(values: np.ndarray) -> np.ndarray:
        return np.clip(np.round(2.5 + values), 1, 5)

    for number in range(sets):
        quality = rng.normal(0, 0.7, (size[0], 1)) + rng.normal(0, 0.5, size)
        quality += np.repeat(rng.normal(0, 0.7, INSTRUCTIONS), SYSTEMS)[:, None]
        errors = rng.normal(0, 0.5, (3, size[0], 1)) + rng.normal(0, 0.5, (3, *size))
        old, new, people = (rounded(quality + level + error) for error in errors)
        reverse = rounded(quality + level[::-1] + errors[1])
        marks = {
            name: replace(labels.marks[name], value=np.tile(people[:, at], 2))
            for at, name in enumerate(ASPECTS)
        }
        equal = judged(matched, np.stack([old, new]))
        compared = compare_labels(equal, replace(labels, marks=marks), resamples=100, seed=number)
        ends = [each.difference for aspect in compared.values() for each in aspect.measures.values()]
        differs = any(
            each.low is not None and each.high is not None and each.low * each.high > 0 for each in ends
        )
        found.setdefault("a false difference", []).append(differs)
        for name, scores in {"the same": new, "the reverse": reverse}.items():
            both = judged(matched, np.stack([old, scores]))
            orders = compare_two_judges(both, resamples=300, seed=number).order.values()
            found.setdefault(f"contrary systems, {name} order", []).append(
                any(each.contrary for each in orders)
            )
    return {name: round(float(np.mean(each)), 3) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found = [measured(size, cell, options.sets, options.seed) for cell in CELLS for size in SIZES]
    results_table.table(
        f"the share in order, {options.sets} sets of each kind",
        [*found[0]],
        [list(each.values()) for each in found],
    )
    compared = between_judges(options.sets, options.seed)
    results_table.table(
        "two judges in `compare`, share of the sets", ["", "share"], [[*each] for each in compared.items()]
    )
    results_table.write(
        "in_order", {"sets": options.sets, "found": found, "two judges": compared}, options.results
    )


if __name__ == "__main__":
    main()
