"""Size and power of every condition of a gate, as `localjudge compare` computes it from two runs.

    python benchmarks/gate_conditions.py

Responses on a scale from 1 to 5, preferences of pairs from 0 to 1, and checklists of which half have negative
points are compared, with one, four, or 1 to 20 responses to an instruction. Two runs are read once; then their
numbers are drawn again and again, matched, and given to the gate.

- size: how often a condition passes where it must not: the mean fell by exactly the margin, nothing rose, or a
  row falls with just the chance that must be ruled out.
- power: how often it passes where nothing changed, or for `--improve`, where the mean rose by a quarter of the
  scatter of a row.
- A plain threshold, without confidence, stands just at the true mean: it passes about half of the time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import results_table

from localjudge.arrays import Floats, Integers
from localjudge.studies.compare.compared_rows import ComparedColumn, ComparedRows
from localjudge.studies.compare.gate import check_gate
from localjudge.studies.compare.matched_runs import match_runs
from localjudge.studies.conditions import Kind, Threshold
from localjudge.studies.imported_scores import import_scores

ENDS = {"response": (1.0, 5.0), "pair": (0.0, 1.0), "checklist": (-0.5, 1.0)}
"""The ends of the scale; those of a checklist are the lowest of a row with negative points, and 1."""
LAYOUTS = {"1": (1,), "4": (4,), "1 to 20": (1, 1, 1, 2, 2, 3, 20)}
"""The numbers of responses to an instruction, which are repeated."""
INSTRUCTIONS = (40, 150)
MARGIN = 0.1
"""As a share of the scale; so is the plain drop."""
SCATTER = 0.12
"""The deviation of the change of a row, as a share of the scale: half of it is of the instruction."""
RISE = 0.25
"""The rise, as a share of the scatter of a row."""
SHARE = 0.1


def main() -> None:
    options = _options()
    lines = []
    for layout, count in product(LAYOUTS, INSTRUCTIONS):
        with tempfile.TemporaryDirectory() as folder:
            runs = two_runs(Path(folder), sizes=_sizes(LAYOUTS[layout], count))
            for kind in ENDS:
                lines.append(measured(runs, kind, layout=layout, count=count, samples=options.samples))
    error = float(np.sqrt(0.05 * 0.95 / options.samples))
    results_table.table(
        f"{options.samples:,} samples a cell; the Monte Carlo error of 0.05 is {error:.4f}",
        list(lines[0]),
        [list(line.values()) for line in lines],
    )
    found = {"samples": options.samples, "error_of_0.05": round(error, 4), "cells": lines}
    results_table.write("gate_conditions", found, options.results)


def _sizes(of_layout: Sequence[int], count: int) -> list[int]:
    return [of_layout[at % len(of_layout)] for at in range(count)]


def two_runs(folder: Path, sizes: Sequence[int]) -> ComparedRows:
    """Return two runs of one system, whose numbers are replaced afterwards."""
    rows = [
        {
            "id": f"{at}-{place}",
            "instruction": f"q{at}",
            "candidate": f"a{at} {place}",
            "system": "s",
            "help": 3,
        }
        for at, size in enumerate(sizes)
        for place in range(size)
    ]
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("old", "new"):
        import_scores([str(file)], folder / name, ["help"], judge="a judge")
    # The gate asks the folders whether the runs are complete.
    return ComparedRows.read([folder / "old", folder / "new"])


def measured(runs: ComparedRows, kind: str, *, layout: str, count: int, samples: int) -> dict[str, Any]:
    """Return the size and the power of each condition."""
    low, high = ENDS[kind]
    width = high - low
    rng = np.random.default_rng(list(ENDS).index(kind))
    passes: dict[tuple[Kind, str], list[bool]] = {}
    for _ in range(samples):
        for what, shift, fallen in (
            ("size", -MARGIN * width, SHARE),
            ("power", 0.0, 0.0),
            ("no rise", 0.0, 0.0),
            ("rise", RISE * SCATTER * width, 0.0),
        ):
            drawn = with_numbers(runs, kind, rng, shift=shift, fallen=fallen)
            asked = thresholds(what, kind)
            conditions = check_gate(match_runs(drawn, gate=True), asked, flips=400)
            for condition in conditions:
                passes.setdefault((condition.threshold.kind, what), []).append(condition.passes)
    shares = {key: float(np.mean(each)) for key, each in passes.items()}
    return {
        "kind": kind,
        "responses": layout,
        "instructions": count,
        "margin size": shares[Kind.MARGIN, "size"],
        "power": shares[Kind.MARGIN, "power"],
        "max-fell size": shares[Kind.MAX_FELL, "size"],
        "power ": shares[Kind.MAX_FELL, "power"],
        "improve size": shares[Kind.IMPROVE, "no rise"],
        "power  ": shares[Kind.IMPROVE, "rise"],
        "drop at limit": shares[Kind.MAX_MEAN_DROP, "size"],
    }


def thresholds(what: str, kind: str) -> list[Threshold]:
    """Return the conditions that are measured on a population."""
    width = ENDS[kind][1] - ENDS[kind][0]
    if what in ("no rise", "rise"):
        return [Threshold(Kind.IMPROVE, "help")]
    return [
        Threshold(Kind.MARGIN, "help", MARGIN * width),
        Threshold(Kind.MAX_FELL, "help", SHARE),
        Threshold(Kind.MAX_MEAN_DROP, "help", MARGIN * width),
    ]


def with_numbers(
    runs: ComparedRows, kind: str, rng: np.random.Generator, *, shift: float, fallen: float
) -> ComparedRows:
    """Return the runs with drawn numbers of both.

    Rows that fall do so by half of the scale; the others rise, so that the mean change is the shift.

    Args:
        runs: the runs.
        kind: what a row is.
        rng: draws the numbers.
        shift: the mean change.
        fallen: the share of rows that fall.
    """
    low, high = ENDS[kind]
    width = high - low
    fall = 0.5 * width if kind != "checklist" else 0.5
    group: Integers = runs.group[runs.run == 0]
    lowest = np.where(group % 2 == 0, low, 0.0) if kind == "checklist" else np.full(len(group), low)
    scatter = SCATTER * width / np.sqrt(2)
    change = shift + rng.normal(0, scatter, int(group.max()) + 1)[group] + rng.normal(0, scatter, len(group))
    if fallen:
        has_fallen = rng.random(len(group)) < fallen
        rise = (fallen * fall + shift) / (1 - fallen)
        change = np.where(has_fallen, -fall, rise + rng.normal(0, 0.05 * width, len(group)))
    # The lowest that can fall as far.
    middle = fall + 0.15 * width + max(lowest)
    old = middle + rng.normal(0, 0.05 * width, len(group))
    new: Floats = old + change
    values = np.concatenate([np.clip(old, lowest, high), np.clip(new, lowest, high)])
    return replace(
        runs,
        columns={"help": ComparedColumn(values, (low, high))},
        lowest=np.tile(lowest, 2)[:, None],
        has_criteria=kind == "checklist",
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
