"""A worse run never passes: no lost, failed or lowered row turns a condition from failed to passed.

Random designs are compared in process, on the functions that match two runs and check a gate, and through the
command. Each design is changed in one place for the worse, and no condition may come closer to passing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from test_compare import judged

from localjudge.errors import UsageError
from localjudge.matching.identity import Identity
from localjudge.matching.judged_rows import read_scores
from localjudge.records.keys import response_digest
from localjudge.studies.compare.compared_rows import ComparedColumn, ComparedRows
from localjudge.studies.compare.gate import check_gate
from localjudge.studies.compare.matched_runs import match_runs
from localjudge.studies.conditions import Condition, Kind, Threshold
from localjudge.studies.imported_scores import import_scores

DESIGNS = 400
CHANGES = 6
"""Number of single changes of each design."""
SCALES = {"response": (1.0, 5.0), "pair": (0.0, 1.0), "checklist": (-0.5, 1.0)}
COLLAPSE = {"response": 2.0, "pair": 0.5, "checklist": 0.5}
SHORT = 1e-9


@dataclass(frozen=True)
class MadeRow:
    """A row of a design: its score is None if it failed."""

    instruction: int
    place: int
    system: str
    id: str | None
    score: float | None
    lowest: float
    chosen: bool = True
    counts: bool = True

    def worse(self, by: float) -> MadeRow:
        if self.score is None:
            return self
        return replace(self, score=max(self.lowest, self.score - by))


@dataclass(frozen=True)
class Design:
    """The rows of two runs."""

    kind: str
    old: tuple[MadeRow, ...]
    new: tuple[MadeRow, ...]

    def worse(self, random: np.random.Generator) -> Design:
        """Return the design with one change of NEW for the worse."""
        new = list(self.new)
        at = int(random.integers(len(new)))
        row = new[at]
        how = random.choice(["lower", "lowest", "failed", "absent", "instruction", "system"], p=_HOW)
        if how == "lower":
            new[at] = row.worse(float(random.exponential(0.5 * (SCALES[self.kind][1] - row.lowest))))
        elif how == "lowest":
            new[at] = row.worse(math.inf)
        elif how == "failed":
            new[at] = replace(row, score=None)
        elif how == "absent":
            del new[at]
        elif how == "instruction":
            new = [each for each in new if (each.instruction, each.system) != (row.instruction, row.system)]
        else:
            new = [each for each in new if each.system != row.system]
        return replace(self, new=tuple(new))


_HOW = [0.3, 0.15, 0.2, 0.2, 0.1, 0.05]


def designed(seed: int) -> Design:
    """Return a random design: unequal responses, systems, ids, lost and failed rows, chosen rows."""
    random = np.random.default_rng(seed)
    kind = str(random.choice([*SCALES]))
    low, high = SCALES[kind]
    ids = str(random.choice(["own", "none", "repeated"], p=[0.6, 0.2, 0.2]))
    most = int(random.choice([1, 2, 4, 20], p=[0.4, 0.2, 0.3, 0.1]))
    systems = [f"s{at}" for at in range(int(random.choice([1, 2, 5], p=[0.5, 0.3, 0.2])))]
    only = str(random.choice(systems)) if random.random() < 0.2 else None
    has_topic = random.random() < 0.2
    is_whole = random.random() < 0.5
    rise = float(random.choice([-0.3, 0, 0, 0.3])) * (high - low)
    scatter = float(random.choice([0, 0.05, 0.3])) * (high - low)
    rows: tuple[list[MadeRow], list[MadeRow]] = ([], [])
    for instruction in range(int(random.integers(1, 25))):
        lowest = low if kind != "checklist" else float(random.choice([0.0, low]))
        counts = not has_topic or bool(random.random() < 0.7)
        for system in systems:
            for place in range(int(random.integers(1, most + 1))):
                before = random.choice([low, high, random.uniform(low, high)], p=[0.1, 0.4, 0.5])
                after = before + rise + scatter * random.standard_normal()
                name = {"own": f"{instruction}-{place}-{system}", "none": None, "repeated": f"{instruction}"}[
                    ids
                ]
                for of_run, score in zip(rows, (before, after), strict=True):
                    has_failed = not is_whole and random.random() < 0.05
                    if is_whole or random.random() > 0.03:
                        value = None if has_failed else float(np.clip(score, lowest, high))
                        is_chosen = only is None or system == only
                        of_run.append(
                            MadeRow(instruction, place, system, name, value, lowest, is_chosen, counts)
                        )
    return Design(kind, tuple(rows[0]), tuple(rows[1]))


def compared_rows(design: Design, source: Any) -> ComparedRows:
    """Return the rows of a design as they are read from two runs."""
    every = [
        (run, line, row)
        for run, of_run in enumerate((design.old, design.new))
        for line, row in enumerate(of_run)
    ]
    scored = [each for each in every if each[2].score is not None]
    ordered = scored + [each for each in every if each[2].score is None]
    known = {row.instruction for _, _, row in scored}
    high = SCALES[design.kind][1]
    values = np.array([row.score for _, _, row in scored], dtype=np.float64)
    lowest = np.array([row.lowest for _, _, row in scored])
    of_old = [row.lowest for run, _, row in scored if run == 0]
    return ComparedRows(
        source=source,
        run=np.array([run for run, _, _ in ordered]),
        line=np.array([line for _, line, _ in ordered]),
        identities=[_identity(run, line, row) for run, line, row in ordered],
        group=np.array([row.instruction if row.instruction in known else -1 for _, _, row in ordered]),
        systems=[row.system for _, _, row in ordered],
        errors=["" if row.score is not None else "it failed" for _, _, row in ordered],
        counts=np.array([row.counts or run == 1 for run, _, row in ordered]),
        chosen=np.array([row.chosen for _, _, row in ordered]),
        columns={"help": ComparedColumn(values, (min(of_old, default=0.0), high))},
        lowest=lowest[:, None],
        verdicts={},
        is_reversed=np.zeros(len(scored), dtype=np.bool_),
        score_kind="expected",
        has_criteria=design.kind == "checklist",
    )


def _identity(run: int, line: int, row: MadeRow) -> Identity:
    where = f"{'old' if run == 0 else 'new'}.jsonl:{line}"
    digest = response_digest(f"q{row.instruction}", f"{run} {line}")
    return Identity(where, row.id or where, (row.system,), (digest,), group=f"q{row.instruction}")


def asked(design: Design, may_lose: bool) -> list[Threshold]:
    width = SCALES[design.kind][1] - min(row.lowest for row in design.old)
    of_means = [(kind, share * width) for kind in (Kind.MARGIN, Kind.MAX_MEAN_DROP) for share in (0.05, 0.4)]
    thresholds = [Threshold(kind, "help", limit) for kind, limit in of_means]
    thresholds += [
        Threshold(Kind.IMPROVE, "help"),
        Threshold(Kind.MIN, "help", SCALES[design.kind][1] - width / 2),
    ]
    thresholds += [Threshold(Kind.MAX_FELL, "help", share) for share in (0.15, 0.5)]
    return thresholds + ([Threshold(Kind.MAX_FAILED, "", 0.3)] if may_lose else [])


def verdicts(design: Design, source: Any, may_lose: bool) -> dict[tuple[Any, ...], Condition] | str:
    """Return the conditions of a design, or why it is refused."""
    try:
        matched = match_runs(compared_rows(design, source), gate=True)
        conditions = check_gate(matched, asked(design, may_lose))
    except UsageError as error:
        return str(error)
    return {(each.threshold, each.system): each for each in conditions}


def closer(before: Condition, after: Condition) -> bool:
    """Return whether a condition is closer to passing after than before, or passes only after."""
    rooms = [-math.inf if each.room is None else each.room for each in (before, after)]
    return rooms[1] > rooms[0] + SHORT or (after.passes and not before.passes)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two complete runs of one judge; only their manifests and folders are used."""
    folder = tmp_path_factory.mktemp("runs")
    row = {"instruction": "q", "candidate": "a", "help": 3}
    return read_scores([judged(folder / name, [row], aspects=["help"]) for name in ("old", "new")])


@pytest.mark.parametrize("seed", range(DESIGNS // 40))
def test_a_worse_run_is_never_closer_to_passing(source: Any, seed: int) -> None:
    tried = 0
    for number in range(40):
        design = designed(1000 * seed + number)
        random = np.random.default_rng([seed, number])
        may_lose = bool(random.random() < 0.7)
        if not any(row.score is not None for row in design.old) or not design.new:
            continue
        before = verdicts(design, source, may_lose)
        if isinstance(before, str):
            continue  # it is refused, which is no verdict on NEW
        for _ in range(CHANGES):
            worse = design.worse(random)
            after = verdicts(worse, source, may_lose)
            tried += 1
            for key, condition in after.items() if isinstance(after, dict) else ():
                assert key in before, (number, key)
                assert not closer(before[key], condition), (number, before[key], condition)
    assert tried > 60


def test_the_designs_pass_and_fail_each_condition(source: Any) -> None:
    """Otherwise nothing would be tested."""
    found: dict[Kind, set[bool]] = {kind: set() for kind in Kind}
    refused = 0
    for number in range(200):
        conditions = verdicts(designed(number), source, may_lose=True)
        refused += isinstance(conditions, str)
        for each in conditions.values() if isinstance(conditions, dict) else ():
            found[each.threshold.kind].add(each.passes)
    assert found == {kind: {True, False} for kind in Kind}
    assert refused < 100


def test_the_largest_rise_does_not_fail_a_margin_as_the_bound_of_students_t_does(
    tmp_path: Path, cli: Cli
) -> None:
    """Of ten instructions one rises from 1 to 5: the variance rises by more than the mean."""
    rooms = []
    for name, score in {"risen": 5, "same": 1, "failed": None}.items():
        rows = [{"id": f"{at}", "instruction": f"q{at}", "candidate": f"a{at}", "help": 1} for at in range(10)]
        old = judged(tmp_path / "old", rows, aspects=["help"]) if name == "risen" else tmp_path / "old"
        new = judged(tmp_path / name, [rows[0] | {"help": score}, *rows[1:]], aspects=["help"])
        end = cli("compare", old, new, "--margin", "help=1.1", "--json")
        rooms.append(json.loads(end.out)["gate"][0]["room"])
    assert rooms == sorted(rooms, reverse=True)


@pytest.mark.parametrize("seed", range(10))
def test_the_command_never_lets_a_worse_run_pass(tmp_path: Path, cli: Cli, seed: int) -> None:
    def rooms(new: Path) -> dict[str, float] | None:
        flags = ("--margin", "help=0.5", "--max-fell", "help=0.2", "--max-failed", "0.2", "--resamples", 200)
        end = cli("compare", tmp_path / "old", new, *flags, "--json")
        if end.code == 2:
            return None
        assert end.code in (0, 3), end.err
        conditions = json.loads(end.out)["gate"]
        assert (end.code == 0) == all(each["passes"] for each in conditions)
        return {each["condition"]: -math.inf if each["room"] is None else each["room"] for each in conditions}

    for old, new, worse in designs_of_responses(seed, count=10):
        for name, rows in (("old", old), ("new", new), ("worse", worse)):
            folder = tmp_path / name
            for file in (*folder.glob("*"),) if folder.exists() else ():
                file.unlink()
            # `judged` would give ids to rows that have none.
            file = folder.with_suffix(".jsonl")
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            import_scores([str(file)], folder, ["help"], judge="a judge")
        before, after = rooms(tmp_path / "new"), rooms(tmp_path / "worse")
        if before is not None and after is not None:
            assert after.keys() <= before.keys()
            for name, room in after.items():
                assert room <= before[name] + SHORT, name


def designs_of_responses(seed: int, count: int) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
    """Yield the rows of OLD, of NEW and of a worse NEW for files."""
    random = np.random.default_rng(seed)
    number = 1000 * seed
    while count:
        number += 1
        design = designed(number)
        is_usable = design.kind == "response" and all(row.chosen and row.counts for row in design.old)
        if not is_usable or len(design.new) > 150:
            continue
        worse = design.worse(random)
        if any(row.score is not None for row in design.old) and any(row.score is not None for row in worse.new):
            count -= 1
            yield tuple(list(map(_as_row, rows)) for rows in (design.old, design.new, worse.new))  # type: ignore[misc]


def _as_row(row: MadeRow) -> dict[str, Any]:
    name = {} if row.id is None else {"id": row.id}
    texts = {"instruction": f"q{row.instruction}", "candidate": f"a{row.instruction}-{row.place}-{row.system}"}
    return name | texts | {"system": row.system, "help": row.score}
