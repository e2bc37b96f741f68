"""How often the kept verdicts of `localjudge escalate` miss the rate that was asked, and how much is kept.

    python benchmarks/escalation.py [confidences.json …]

Simulated judges of known quality judge a population; labels are drawn from it with replacement. The rate is
missed if something is kept and agrees less often in the population. An oracle knows the agreement at each
confidence, and keeps as much as the rate allows. Judges of instructions with several rows, which are right
together, are labelled in two ways: random rows, or all rows of random instructions. Files given are JSON lists
of pairs, a confidence and whether the verdict agrees with people: each is a population of its own, such as the
labelled rows of a real run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import Flags, Floats
from localjudge.statistics.confidence_threshold import ERROR, threshold

RATE = 0.9
SIZE = 100_000
LABELS = (100, 300, 1000)
INSTRUCTIONS = 400
CLUSTERED: dict[str, tuple[int, int, float, float]] = {
    "four rows, alike": (4, 4, 0.899, 0.899),
    "four rows, alike, good": (4, 4, 0.97, 0.97),
    "one to eight rows, alike": (1, 8, 0.899, 0.899),
    "one or sixteen rows, the sixteen worse": (1, 16, 0.99, 0.88),
    "one or sixteen rows, the sixteen right": (1, 16, 0.80, 0.904),
}
"""The fewest and the most rows of an instruction, and the probability that all of them agree: if it has fewer
than the most, and if it has the most."""
Agreement = Callable[[Floats], Floats]
JUDGES: dict[str, tuple[Callable[[np.random.Generator], Floats], Agreement]] = {
    "calibrated": (lambda random: 0.5 + random.beta(2, 1, SIZE) / 2, lambda sure: sure),
    "calibrated, often sure": (lambda random: 0.5 + random.beta(4, 1, SIZE) / 2, lambda sure: sure),
    "too sure": (lambda random: 0.5 + random.beta(4, 1, SIZE) / 2, lambda sure: 0.5 + 0.95 * (sure - 0.5)),
    "right in half": (lambda random: random.random(SIZE), lambda sure: np.where(sure > 0.5, 0.95, 0.6)),
    "right in three of ten": (lambda random: random.random(SIZE), lambda sure: np.where(sure > 0.7, 0.97, 0.6)),
    "good everywhere": (lambda random: random.random(SIZE), lambda sure: 0.9 + 0.1 * sure),
    "just below the rate": (lambda random: random.random(SIZE), lambda sure: np.full_like(sure, 0.8999)),
    "poor": (lambda random: random.random(SIZE), lambda sure: np.full_like(sure, 0.6)),
}


def populations(files: list[Path]) -> dict[str, tuple[Floats, Floats]]:
    """Return the confidences and the probability of agreement of each population, by name."""
    random = np.random.default_rng(0)
    found = {}
    for name, (confidences, agreement) in JUDGES.items():
        sure = confidences(random)
        found[name] = sure, agreement(sure)
    for file in files:
        sure, agrees = np.array(json.loads(file.read_text()), dtype=np.float64).T
        found[file.stem] = sure, agrees
    return found


def oracle(confidence: Floats, agreement: Floats) -> float:
    """Return the share that can be kept at the rate by a threshold."""
    order = np.argsort(-confidence, kind="stable")
    share = np.cumsum(agreement[order]) / np.arange(1, len(order) + 1)
    last = np.append(np.diff(confidence[order]) != 0, True)  # equal confidences are kept together
    enough = np.flatnonzero((share >= RATE) & last)
    return float((enough[-1] + 1) / len(order)) if len(enough) else 0.0


def measured(confidence: Floats, agreement: Floats, labels: int, samples: int, error: float) -> dict[str, Any]:
    random = np.random.default_rng(1)
    missed, kept_shares = 0, []
    for _ in range(samples):
        rows = random.integers(len(confidence), size=labels)
        agreed: Flags = random.random(labels) < agreement[rows]
        found = threshold(confidence[rows], agreed, np.arange(labels), RATE, error)
        kept = confidence >= (np.inf if found is None else found)
        kept_shares.append(float(kept.mean()))
        missed += bool(kept.any() and agreement[kept].mean() < RATE - 1e-9)
    best = oracle(confidence, agreement)
    return {
        "oracle_keeps": round(best, 3),
        "median_kept": round(float(np.median(kept_shares)), 3),
        "of_oracle": round(float(np.median(kept_shares)) / best, 2) if best else None,
        "nothing_kept": round(float(np.mean(np.array(kept_shares) == 0)), 3),
        "rate_missed": missed / samples,
    }


def clustered(name: str, by_rows: bool, labels: int, samples: int, error: float) -> dict[str, Any]:
    """Return how often agreement falls below the target in the rows of a run, and what share is kept.

    The rows of an instruction have the same confidence, and all agree or none. The rows of the run are few, so
    each run is drawn anew.
    """
    fewest, most, agrees_if_few, agrees_if_many = CLUSTERED[name]
    random = np.random.default_rng(2)
    missed, kept_shares = 0, []
    for _ in range(samples):
        # One or sixteen: one row in nine of ten instructions. Otherwise any size is as likely.
        sizes = random.integers(fewest, most + 1, INSTRUCTIONS)
        if most == 16:
            sizes = np.where(random.random(INSTRUCTIONS) < 0.9, fewest, most)
        group = np.repeat(np.arange(INSTRUCTIONS), sizes)
        agrees = random.random(INSTRUCTIONS) < np.where(sizes < most, agrees_if_few, agrees_if_many)
        confidence, agreed = random.random(INSTRUCTIONS)[group], agrees[group]
        if by_rows:
            labelled = random.permutation(len(group))[:labels]
        else:
            drawn = random.permutation(INSTRUCTIONS)
            drawn = drawn[: 1 + np.searchsorted(np.cumsum(sizes[drawn]), labels)]
            labelled = np.flatnonzero(np.isin(group, drawn))
        found = threshold(confidence[labelled], agreed[labelled], group[labelled], RATE, error)
        kept = confidence >= (np.inf if found is None else found)
        kept_shares.append(float(kept.mean()))
        missed += bool(kept.any() and agreed[kept].mean() < RATE)
    return {
        "oracle_keeps": None,
        "median_kept": round(float(np.median(kept_shares)), 3),
        "of_oracle": None,
        "nothing_kept": round(float(np.mean(np.array(kept_shares) == 0)), 3),
        "rate_missed": missed / samples,
    }


def main() -> None:
    options = _options()
    found = {
        f"{name}, {labels} labels": measured(sure, agreement, labels, options.samples, options.error)
        for name, (sure, agreement) in populations(options.files).items()
        for labels in LABELS
    }
    found |= {
        f"{name}; labels of random {'rows' if by_rows else 'instructions'}, 300": clustered(
            name, by_rows, 300, options.samples, options.error
        )
        for name in CLUSTERED
        for by_rows in (True, False)
    }
    results_table.table(
        f"{RATE:.0%} agreement, error {options.error}, {options.samples:,} draws each",
        ["", "oracle keeps", "median kept", "of oracle", "nothing kept", "rate missed"],
        [[name, *one.values()] for name, one in found.items()],
    )
    results_table.write(
        "escalation",
        {"rate": RATE, "error": options.error, "samples": options.samples, "found": found},
        options.results,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--error", type=float, default=2 * ERROR, help="of one judge alone: 0.05")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
