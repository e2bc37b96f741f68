"""Tests of the keys of `--json`: each command that measures prints exactly these, in this order.

A document does not depend on what the fields of a study are called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_preferences
import test_score_interval
from conftest import Cli, write_rows
from test_checklist import two_systems as two_systems
from test_compare import judged, rows_of
from test_gate import pair_run as pair_run
from test_jury import make_jury
from test_noise import flags as flags
from test_nominal import label_file, make_run, some_grades
from test_ranking import uneven_rows

FEW = 200

# Fixtures under names of their own.
run_of_lengths = test_preferences.judged
run_with_probabilities = test_score_interval.folder


@dataclass(frozen=True)
class ByName:
    """A mapping whose keys are names of the data: systems, aspects, columns, labels."""

    part: Part


@dataclass(frozen=True)
class ListOf:
    """A list of records."""

    part: Part


Part = Mapping[str, Any] | ByName | ListOf | None
"""What stands in a document: a record by its keys, a mapping, a list, or a plain value (None)."""

ESTIMATE = {"value": None, "low": None, "high": None}
"""An estimate, which also has the key `why` where the reason is known that it has no interval."""
GAIN = {**ESTIMATE, "why": None}
CONDITION = dict.fromkeys(
    [
        "condition", "kind", "column", "system", "limit", "passes", "change", "measured", "instructions",
        "rows", "lost", "bound", "p", "half_width", "room", "fall", "held", "weight", "fewest", "chance",
        "needed", "reason",
    ]
)  # fmt: skip
TABLE = {
    "column": None,
    "statistic": None,
    "rows": ListOf({"name": None, "instructions": None, "estimates": ByName(ESTIMATE), "significant": None}),
}
LOST_ROWS = dict.fromkeys(["system", "lost", "rows", "if_lowest", "if_highest"])
PAIR = {
    "first": None,
    "second": None,
    "column": None,
    "instructions": None,
    "difference": ESTIMATE,
    "p": None,
    "wins": None,
    "losses": None,
    "ties": None,
    "sign_p": None,
}
RANKING = {
    "columns": None,
    "of": None,
    "basis": None,
    "systems": ListOf(
        {
            "name": None,
            "rows": None,
            "instructions": None,
            "length": None,
            "component": None,
            "means": ByName(ESTIMATE),
            "same_instructions": ByName(ESTIMATE),
            "ranks": ByName(None),
            "length_held": ByName(ESTIMATE),
            "human": ByName(ESTIMATE),
        }
    ),
    "pairs": ListOf(PAIR),
    "groups": ByName(None),
    "untested": ByName(None),
    "detectable": ByName(None),
    "contradictions": ListOf(PAIR),
    "without_intervals": None,
    "by_tag": TABLE,
    "lost": ListOf(LOST_ROWS),
    "notes": None,
    "notices": None,
    "gate": ListOf(CONDITION),
}
SYSTEM_PAIR = {
    "first": None,
    "second": None,
    "pairs": None,
    "win_rate": ESTIMATE,
    "difference": ESTIMATE,
    "p": None,
    "wins": None,
    "ties": None,
    "losses": None,
    "sign_p": None,
    "significant": None,
    "contradicts": None,
    "contradiction_p": None,
    "contradiction_significant": None,
}
PREFERENCE_RANKING = {
    "by": None,
    "aspects": ByName(
        {
            "systems": ListOf(
                {
                    "name": None,
                    "pairs": None,
                    "instructions": None,
                    "win_rate": ESTIMATE,
                    "strength": ESTIMATE,
                    "ranks": None,
                    "component": None,
                    "win_rate_at_equal_length": ESTIMATE,
                    "strength_at_equal_length": ESTIMATE,
                    "shown_first": ESTIMATE,
                    "shown_second": ESTIMATE,
                }
            ),
            "pairs": ListOf(SYSTEM_PAIR),
            "groups": None,
            "untested": None,
            "detectable": None,
            "length": ESTIMATE,
            "position": ESTIMATE,
            "consistency": ESTIMATE,
            "unlimited": None,
            "notes": None,
        }
    ),
    "lost": ListOf(LOST_ROWS),
    "notes": None,
    "notices": None,
    "gate": ListOf(CONDITION),
}
MOVED_ROW = {
    "id": None,
    "system": None,
    "moved": None,
    "numbers": ByName(None),
    "verdicts": ByName(None),
}
ROW_WITHOUT_SCORE = dict.fromkeys(["id", "system", "reason", "is_absent"])
ORDER_OF_SYSTEMS = {
    "alike": None,
    "undecided": None,
    "contrary": ListOf({"first": None, "second": None, "old": ESTIMATE, "new": ESTIMATE}),
}
CHANGES = {
    "names": None,
    "differs": None,
    "how": None,
    "whose": None,
    "item": None,
    "instructions": None,
    "rows": None,
    "rows_by_system": ByName(None),
    "absent_by_system": ByName(None),
    "lost_by_system": ByName(None),
    "only_common": None,
    "columns": ByName(
        {
            "old": None,
            "new": None,
            "difference": ESTIMATE,
            "p": None,
            "sign_p": None,
            "detectable": None,
            "rose": None,
            "fell": None,
            "equal": None,
        }
    ),
    "imputed": ByName(None),
    "by_system": TABLE,
    "moved": ListOf(MOVED_ROW),
    "fallen": ByName(ListOf(MOVED_ROW)),
    "missing": ListOf(ROW_WITHOUT_SCORE),
    "failed": ListOf(ROW_WITHOUT_SCORE),
    "unmatched": ListOf(ROW_WITHOUT_SCORE),
    "only_new": None,
    "judges": {"kappa": ByName(ESTIMATE), "systems": None, "order": ByName(ORDER_OF_SYSTEMS)},
    "labelled": ByName(
        {
            "rows": None,
            "old": ByName(None),
            "new": ByName(None),
            "difference": ByName(ESTIMATE),
            "order": ByName(ORDER_OF_SYSTEMS),
        }
    ),
    "noise": ByName(dict.fromkeys(["run", "repeated", "bound", "within", "compared", "moved", "below"])),
    "notes": None,
    "notices": None,
    "gate": ListOf(CONDITION),
}
WITHIN = {
    "instructions": None,
    "pairs": None,
    "comparisons": ByName({"in_order": ESTIMATE, "over_chance": ESTIMATE, "epsilon": None}),
    "over_baselines": ByName(ESTIMATE),
}
AGREEMENT = {
    "aspects": ByName(
        {
            "rows": None,
            "instructions": None,
            "annotators": None,
            "comparisons": ByName(
                {
                    "spearman": ESTIMATE,
                    "pearson": ESTIMATE,
                    "mae": ESTIMATE,
                    "kappa": ESTIMATE,
                    "exact": ESTIMATE,
                    "within_one": ESTIMATE,
                    "bias": ESTIMATE,
                }
            ),
            "over_baselines": ByName(ByName(ESTIMATE)),
            "within": WITHIN,
            "alpha": ESTIMATE,
            "counts": ByName(ByName(None)),
        }
    ),
    "nominal": ByName(
        {
            "rows": None,
            "instructions": None,
            "annotators": None,
            "labels": None,
            "comparisons": ByName({"accuracy": ESTIMATE, "kappa": ESTIMATE}),
            "over_baselines": ByName(ByName(ESTIMATE)),
            "by_label": ByName({"labels": None, "recall": ESTIMATE, "given": None, "precision": ESTIMATE}),
            "counts": ByName(ByName(None)),
            "alpha": ESTIMATE,
        }
    ),
    "notes": None,
    "notices": None,
}
PAIR_AGREEMENT = {
    "aspects": ByName(
        {
            "pairs": None,
            "instructions": None,
            "annotators": None,
            "labels": ByName(None),
            "comparisons": ByName(
                {
                    "accuracy": ESTIMATE,
                    "without_ties": ESTIMATE,
                    "decided": None,
                    "kappa": ESTIMATE,
                    "auc": ESTIMATE,
                }
            ),
            "over_baselines": ByName(ESTIMATE),
            "consistency": ESTIMATE,
            "alpha": ESTIMATE,
        }
    ),
    "notes": None,
    "notices": None,
}
CALIBRATION = {
    "format": None,
    "judge": ByName(None),
    "model": None,
    "of": None,
    "rows": None,
    "aspects": ByName(
        {
            "x": None,
            "y": None,
            "rows": None,
            "instructions": None,
            "folds": None,
            "mse_as_judged": None,
            "mse_calibrated": None,
            "mse_constant": None,
            "gain": GAIN,
            "over_constant": GAIN,
        }
    ),
    "intervals": ByName(
        dict.fromkeys(
            [
                "level", "below", "above", "base", "lowest", "highest", "whole", "rows", "annotators",
                "instructions", "width", "constant_width",
            ]
        )
    ),
    "notices": None,
    "notes": None,
}  # fmt: skip
SAMPLE_SIZE = {"column": None, "instructions": ByName(None), "notes": None, "notices": None}
JURY = {
    "jurors": ListOf(
        {"name": None, "model": None, "rows": None, "scored": None, "lost": None, "bias": ByName(None)}
    ),
    "rows": None,
    "instructions": None,
    "not_shared": None,
    "aspects": ByName({"level": None, "alpha": ESTIMATE, "unanimous": None, "split": None}),
    "outlier": None,
    "outlier_untested": None,
    "errors": ByName(
        {
            "rows": None,
            "instructions": None,
            "best": None,
            "compared": None,
            "compared_instructions": None,
            "jury": ESTIMATE,
            "best_juror": ESTIMATE,
            "difference": ESTIMATE,
        }
    ),
    "notes": None,
    "notices": None,
}
AUDIT = {
    "model": None,
    "rubric": None,
    "rows": None,
    "instructions": None,
    "seed": None,
    "of": None,
    "ranges": ByName(None),
    "checks": ListOf(
        {
            "name": None,
            "does": None,
            "rows": None,
            "failed": None,
            "skipped": ByName(None),
            "aspects": ByName(
                {"direction": None, "tested": None, "held": None, "no_room": None, "shift": ESTIMATE}
            ),
            "decisive": None,
            "share": ESTIMATE,
            "chance": None,
            "shift": ESTIMATE,
            "threshold": None,
        }
    ),
    "aspects": None,
    "notices": None,
}
ORDER_AUDIT = {
    "model": None,
    "rubric": None,
    "check": None,
    "item": None,
    "rows": None,
    "instructions": None,
    "seed": None,
    "of": ByName(None),
    "sampled": None,
    "orders": ListOf(
        {
            "name": None,
            "does": None,
            "given": None,
            "rows": None,
            "instructions": None,
            "failed": None,
            "changed": ByName(ESTIMATE),
            "shift": ByName(ESTIMATE),
            "kept": ByName(None),
            "threshold": None,
        }
    ),
    "notices": None,
}
REPETITION = {
    "notices": None,
    "noise": {
        "rows": None,
        "failed": None,
        "instructions": None,
        "columns": ByName(
            {
                "expected": None,
                "width": None,
                "change": {"mean": ESTIMATE, "largest": None, "bound": None, "rows": None, "within": None},
            }
        ),
        "values": None,
        "changed": ByName(None),
        "changed_rows": None,
        "changed_rationales": None,
    },
}


def places(part: Part, place: str = "document") -> Iterator[str]:
    """Yield the place of each record that a document can have."""
    if isinstance(part, ByName):
        yield from places(part.part, f"{place}.*")
    elif isinstance(part, ListOf):
        yield from places(part.part, f"{place}[]")
    elif part is not None:
        yield place
        for key, inner in part.items():
            yield from places(inner, f"{place}.{key}")


def checked(document: Any, part: Part, place: str = "document") -> Iterator[str]:
    """Yield the place of each record of a document, and assert that it has exactly the keys of its part."""
    if isinstance(part, ByName):
        for value in document.values():
            yield from checked(value, part.part, f"{place}.*")
    elif isinstance(part, ListOf):
        for record in document:
            yield from checked(record, part.part, f"{place}[]")
    elif part is None:
        assert not isinstance(document, dict), place
        assert not isinstance(document, list) or not any(isinstance(value, dict) for value in document), place
    else:
        keys = list(document)
        if part is ESTIMATE and keys[-1] == "why":
            assert document["why"], f"{place} has a reason, or no key for it"
            keys.pop()
        assert keys == list(part), place
        yield place
        for key, inner in part.items():
            if document[key] is not None:
                yield from checked(document[key], inner, f"{place}.{key}")


def assert_keys(part: Part, *documents: Any) -> None:
    """Assert that all keys are as spelled, and that these documents together have every record."""
    seen = {place for document in documents for place in checked(document, part)}
    assert set(places(part)) - seen == set()


Printed = Callable[..., Any]


@pytest.fixture
def printed(cli: Cli) -> Printed:
    """Return the function that runs a command and returns what it prints with `--json`."""

    def document(*command: object, code: int = 0) -> Any:
        end = cli(*command, "--json")
        assert end.code == code, end.err
        return json.loads(end.out)

    return document


def write(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def of_systems(least: Mapping[str, int], count: int = 40) -> list[dict[str, Any]]:
    """Return rows of systems, each with scores from its least one to one above it."""
    random = np.random.default_rng(0)
    rows = []
    for system, lowest in least.items():
        scores = random.integers(lowest, lowest + 2, count).tolist()
        rows += [row | {"id": f"{row['id']}-{system}"} for row in rows_of(scores, f"of {system}", system)]
    return rows


def test_rank_prints_means_lost_rows_contradictions_tags_and_its_gate(
    tmp_path: Path, two_systems: Path, printed: Printed
) -> None:
    # On 10 instructions a is below b; c, whom both met on 60 others, puts a above b.
    of_a = dict.fromkeys(range(10), 2) | {n: 5 - n % 2 for n in range(10, 70)}
    of_b = {n: 3 + n % 2 for n in range(10)} | dict.fromkeys(range(70, 130), 1)
    of_c = {n: 2 + n % 3 // 2 for n in range(10, 130)} | {130: None}
    rows = uneven_rows({"a": of_a, "b": of_b, "c": of_c})
    run = judged(tmp_path / "run", rows, aspects=["wit"])
    labels = write(tmp_path / "labels.jsonl", [row for row in rows if row["wit"] is not None])
    means = printed("rank", run, "--min", "wit=1", "--max-failed", 0.5, "--resamples", FEW)
    of_people = printed("rank", run, "--labels", labels, "--resamples", FEW)
    by_tag = printed("rank", two_systems, "--resamples", FEW)
    assert_keys(RANKING, means, of_people, by_tag)


def test_rank_of_pairs_prints_strengths_lost_pairs_and_its_gate(
    pair_run: Callable[..., Path], run_of_lengths: Callable[..., Path], printed: Printed
) -> None:
    lost = pair_run("lost", {"a": "better", "m": "middle", "z": "null"}, None)
    of_lost = printed("rank", lost, "--min", "better=0.4", "--resamples", FEW, code=3)
    at_equal_length = printed("rank", run_of_lengths(), "--resamples", FEW)
    assert_keys(PREFERENCE_RANKING, of_lost, at_equal_length)


def test_compare_prints_what_changed_and_its_gate(
    tmp_path: Path, cli: Cli, flags: list[object], printed: Printed
) -> None:
    old_rows = of_systems({"north": 3, "south": 3})
    new_rows = [row | {"candidate": f"new {row['candidate']}"} for row in old_rows]
    old_rows[0]["helpfulness"] = None  # failed in OLD
    new_rows[1]["helpfulness"] = 1  # fell
    del new_rows[-1]  # missing in NEW
    new_rows.append(new_rows[2] | {"id": "another", "instruction": "another question", "helpfulness": None})
    old = judged(tmp_path / "old", old_rows)
    new = judged(tmp_path / "new", new_rows)
    gate = ("--margin", "helpfulness=0.2", "--max-failed", 0.5)
    of_responses = printed("compare", old, new, *gate, "--resamples", FEW, code=3)

    contrary = judged(tmp_path / "contrary", of_systems({"north": 4, "south": 2}), "another judge")
    known = judged(tmp_path / "known", of_systems({"north": 2, "south": 4}))
    labels = known.with_suffix(".jsonl")
    of_judges = printed("compare", known, contrary, "--labels", labels, "--resamples", FEW)

    rows = write_rows(tmp_path / "rows.jsonl", 20)
    noisy = [tmp_path / "noisy", tmp_path / "as-noisy"]
    for run in noisy:
        assert cli("score", rows, "--out", run, *flags, "--noise-rows", 20).code == 0
    of_noise = printed("compare", *noisy, "--resamples", FEW)
    assert_keys(CHANGES, of_responses, of_judges, of_noise)


def test_agree_prints_scores_and_labels_without_an_order(tmp_path: Path, printed: Printed) -> None:
    human, grades, _ = some_grades(40)
    run = make_run(tmp_path / "grades", [{"grade": grade} for grade in grades])
    file = label_file(tmp_path / "grades-of-people.jsonl", "grade", human)
    nominal = printed("agree", run, "--labels", file, "--resamples", FEW)

    rows = of_systems({"a": 2, "b": 3}, count=20)
    run = judged(tmp_path / "run", rows)
    higher = [row | {"helpfulness": row["helpfulness"] + n % 2} for n, row in enumerate(rows)]
    ordinal = printed("agree", run, "--labels", write(tmp_path / "people.jsonl", higher), "--resamples", FEW)
    assert_keys(AGREEMENT, nominal, ordinal)


def test_agree_prints_labels_of_pairs(tmp_path: Path, pair_run: Callable[..., Path], printed: Printed) -> None:
    run = pair_run("run", {"a": "better", "m": "middle"}, "m")
    labels = [
        {"instruction": f"Question {n}?", "candidate_a": f"better {n}", "candidate_b": f"middle {n}",
         "better": "A" if n % 3 else "B"}
        for n in range(8)
    ]  # fmt: skip
    file = write(tmp_path / "labels.jsonl", labels)
    assert_keys(PAIR_AGREEMENT, printed("agree", run, "--labels", file, "--resamples", FEW))


def test_calibrate_prints_its_file_and_the_notes_on_the_labels(
    run_with_probabilities: Path, tmp_path: Path, printed: Printed
) -> None:
    given = (run_with_probabilities / "run", "--labels", run_with_probabilities / "labels.jsonl")
    document = printed("calibrate", *given, "--interval", 0.9, "--out", tmp_path / "map.json")
    assert_keys(CALIBRATION, document)
    notes = document.pop("notes")
    assert isinstance(notes, list)
    assert document == json.loads((tmp_path / "map.json").read_text())


def test_sample_size_prints_the_instructions(printed: Printed) -> None:
    assert_keys(SAMPLE_SIZE, printed("sample-size", "--difference", 0.3))


def test_jury_prints_its_agreement_and_its_errors(tmp_path: Path, printed: Printed) -> None:
    runs, labels = make_jury(tmp_path, ("one", "two", "three"), rows=40)
    assert_keys(JURY, printed("jury", *runs, "--labels", labels, "--resamples", FEW))


def test_audit_prints_its_checks(tmp_path: Path, printed: Printed) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    assert_keys(AUDIT, printed("audit", rows, "--engine", "dry-run", "--out", tmp_path / "audit"))


@pytest.mark.parametrize("check", ["options", "aspects"])
def test_an_audit_of_orders_prints_its_orders(tmp_path: Path, printed: Printed, check: str) -> None:
    rubric = "correctness" if check == "options" else "six-aspects"
    rows = write_rows(tmp_path / "rows.jsonl", 3)
    given = ("--check", check, "--rubric", rubric, "--engine", "dry-run", "--out", tmp_path / "audit")
    assert_keys(ORDER_AUDIT, printed("audit", rows, *given))


def test_a_repetition_prints_its_noise(tmp_path: Path, cli: Cli, flags: list[object], printed: Printed) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    assert cli("score", rows, "--out", tmp_path / "run", *flags).code == 0
    assert_keys(REPETITION, printed("audit", "--check", "repeat", tmp_path / "run", "--sample", 3))
