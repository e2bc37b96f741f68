"""Which sign of a judge's confidence tells its right verdicts from its wrong ones.

    python benchmarks/confidence.py RUN=LABELS[:OURS=THEIRS] … --by ASPECT [--write FOLDER]

For each labelled row of a real run: whether the verdict agrees with most labels, and three signs: the verdict's
probability; whether both orders of a pair say the same; the mass of the values. Of each
sign the table has the area under the ROC curve, the probability that a right verdict has more of it than a
wrong one (0.5 is chance), with a 95 % interval that resamples rows. Signs that a run lacks are left out.
`--write` keeps probability and agreement for `benchmarks/escalation.py`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from scipy.stats import mannwhitneyu

from localjudge.arrays import Flags, Floats
from localjudge.matching.run_rows import read_judged_rows
from localjudge.modes.row_outcome import RowOutcome
from localjudge.studies.escalation import JudgeVerdicts, select

RATE = 0.9
"""The rate that a selection asks for; the labelled rows and their agreement do not depend on it."""
RESAMPLES = 1000


SIGNS = ("both orders agree", "mass")


def signs_of(aspect: str, outcome: RowOutcome) -> Iterator[tuple[str, str, float]]:
    """Yield the signs of a row, judged or failed; NaN where it has none."""

    known = outcome.preference(aspect)
    agree = math.nan if known is None or known.agree is None else float(known.agree)
    masses = [each.mass[aspect] for each in outcome.judged if aspect in each.mass]
    mass = sum(masses) / len(masses) if masses else math.nan
    yield from (("sign", name, value) for name, value in zip(SIGNS, (agree, mass), strict=True))


def area(sign: Floats, agreed: Flags) -> float:
    """Return the probability that a right verdict has more of the sign than a wrong one; a tie counts half."""
    right, wrong = sign[agreed], sign[~agreed]
    if not len(right) or not len(wrong):
        return math.nan
    return float(mannwhitneyu(right, wrong).statistic) / (len(right) * len(wrong))


def measured(sign: Floats, agreed: Flags) -> dict[str, Any]:
    """Return the area with its interval."""
    random = np.random.default_rng(0)
    draws = (random.integers(len(sign), size=len(sign)) for _ in range(RESAMPLES))
    areas = [area(sign[rows], agreed[rows]) for rows in draws]
    low, high = np.nanquantile(areas, [0.025, 0.975])
    return {"area": round(area(sign, agreed), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def main() -> None:
    options = _options()
    found: dict[str, Any] = {}
    for given in options.runs:
        folder, _, labels = given.partition("=")
        files, _, mapping = labels.partition(":")
        ours, _, theirs = mapping.partition("=")
        verdicts = JudgeVerdicts.read(Path(folder), options.by)
        _, signs = read_judged_rows([verdicts.folder], [verdicts.manifest], partial(signs_of, options.by))
        judged = select(verdicts, verdicts.labels([files], {theirs: ours} if theirs else {}, ()), RATE)
        _, one_each = np.unique(verdicts.rows.group[judged.tested], return_index=True)
        rows, agreed = judged.tested[one_each], judged.agreed[one_each]
        columns = {"probability": verdicts.confidence} | {name: signs.column("sign", name) for name in SIGNS}
        name = verdicts.folder.resolve().name
        found[name] = {"labels": len(rows), "agreement": round(float(agreed.mean()), 3)} | {
            sign: measured(values[rows], agreed)
            for sign, values in columns.items()
            if np.isfinite(values[rows]).all()
        }
        if options.write is not None:
            pairs = [*zip(verdicts.confidence[rows].tolist(), map(int, agreed.tolist()), strict=True)]
            (options.write / f"{name}.json").write_text(json.dumps(pairs))
    signs_found = [
        *dict.fromkeys(sign for one in found.values() for sign in one if isinstance(one[sign], dict))
    ]
    results_table.table(
        f"{options.by}: area under the ROC curve of right verdicts, with 95 % interval",
        ["", "labels", "agreement", *signs_found],
        [
            [name, one["labels"], one["agreement"], *(_shown(one.get(sign)) for sign in signs_found)]
            for name, one in found.items()
        ],
    )
    results_table.write("confidence", {"by": options.by, "found": found}, options.results)


def _shown(one: dict[str, float] | None) -> str:
    return "-" if one is None else f"{one['area']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN=LABELS[:OURS=THEIRS]")
    parser.add_argument("--by", required=True, metavar="ASPECT")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
