"""Files of other tools: the right texts come into the right fields, or a record is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby, islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from conftest import Cli
from shape_checks import ShapeError, check, differences, is_judged, one_response_each
from shape_records import (
    ANSWER,
    DIALOGUE,
    GRADED,
    GROUNDED,
    NAMES,
    PAIR,
    Made,
    Shape,
    Texts,
    Uses,
)
from shapes import SHAPES

from localjudge import Row, UsageError, read_rows
from localjudge.records import Failure
from localjudge.rows.inputs import find_inputs

OTHER_USES = (ANSWER, GRADED, GROUNDED, DIALOGUE, PAIR)
WORDS = {"read": "", "refuse": "no ", "other": "never a wrong "}


def rows_of(shape: Shape, folder: Path, made: Sequence[Made], used: Uses) -> list[list[Row | Failure]]:
    """Return the outcomes of each record, in the order of the records."""
    files = [str(file) for file in shape.write(folder, made)]
    outcomes = [*read_rows(find_inputs(files), used=used)]
    found = [[*rows] for _, rows in groupby(outcomes, key=lambda row: row.source)]
    if len(found) == 1 and len(outcomes) == sum(len(each.readings) for each in made):
        rest = iter(outcomes)  # one document, whose rows have one place
        found = [[*islice(rest, len(each.readings))] for each in made]
    return found


def made_records(shape: Shape) -> list[Made]:
    texts = Texts(Random(shape.name))
    return [shape.make(texts, number) for number in range(shape.records)]


def cases(kind: Literal["read", "refuse", "other"]) -> list[Any]:
    """Return each shape with the fields of each rubric under which it is read, refused, or neither."""
    found = []
    for shape in SHAPES:
        others = tuple(used for used in OTHER_USES if used not in (*shape.read, *shape.refuse, *shape.untold))
        for used in {"read": shape.read, "refuse": shape.refuse, "other": others}[kind]:
            name = f"{shape.name}: {WORDS[kind]}{NAMES[used]}"
            absent = pytest.mark.skipif(not find_spec("inspect_ai"), reason="needs Inspect")
            found.append(pytest.param(shape, used, id=name, marks=[absent] * ("inspect_ai" in name)))
    return found


def labelled() -> list[Any]:
    return [pytest.param(shape, id=f"{shape.name}: labels") for shape in SHAPES if shape.labels]


@pytest.mark.parametrize(("shape", "used"), cases("read"))
def test_each_record_of_a_tool_has_the_right_texts_in_the_right_fields(
    tmp_path: Path, shape: Shape, used: Uses
) -> None:
    made = made_records(shape)
    try:
        found = rows_of(shape, tmp_path, made, used)
    except UsageError as error:
        raise ShapeError(f"{shape.name}: refused: {error}") from None
    check(shape, made, found, used)


@pytest.mark.parametrize(("shape", "used"), cases("other"))
def test_no_rubric_reads_a_record_of_a_tool_wrongly(tmp_path: Path, shape: Shape, used: Uses) -> None:
    """Under a rubric that the shape is not made for, its records are refused, or read rightly."""
    made = made_records(shape)
    try:
        found = rows_of(shape, tmp_path, made, used)
    except UsageError:
        return
    if len(found) > len(made) and any(is_judged(row, used) for rows in found[len(made) :] for row in rows):
        raise ShapeError(f"{shape.name}: wrong: {len(found)} records, right are {len(made)}")
    for each, rows in zip(made, found, strict=False):
        readings = (
            each.readings
            if used == PAIR
            else [one for whole in each.readings for one in one_response_each(whole)]
        )
        for row in rows:
            if not is_judged(row, used):
                continue
            assert isinstance(row, Row)
            if used == PAIR and any(len(one.responses) < 2 and not one.trajectories for one in readings):
                raise ShapeError(f"{shape.name}: wrong: a pair {row!r} of {each.record!r}")
            wrong = [[*differences(row, one, used)] for one in readings]
            if not wrong or all(wrong):
                raise ShapeError(f"{shape.name}: wrong: {wrong[0] if wrong else row!r}; record {each.record!r}")


@pytest.mark.parametrize(("shape", "used"), cases("refuse"))
def test_a_record_without_what_a_rubric_shows_is_refused(tmp_path: Path, shape: Shape, used: Uses) -> None:
    made = made_records(shape)
    try:
        found = rows_of(shape, tmp_path, made, used)
    except UsageError:
        return
    judged = [row for rows in found for row in rows if isinstance(row, Row) and is_judged(row, used)]
    if judged:
        raise ShapeError(
            f"{shape.name}: wrong: {len(judged)} rows instead of a refusal, the first {judged[0]!r}"
        )
    assert all(row.reason for rows in found for row in rows if isinstance(row, Failure))


@pytest.mark.slow
@pytest.mark.parametrize("shape", labelled())
def test_the_labels_of_pairs_mean_what_the_tool_means(cli: Cli, tmp_path: Path, shape: Shape) -> None:
    made = made_records(shape)
    run = tmp_path / "run"
    files = shape.write(tmp_path, made)
    ended = cli("score", *files, "--rubric", "pairwise", "--engine", "dry-run", "--out", run, "--quiet")
    if ended.code:
        raise ShapeError(f"{shape.name}: refused: {ended.err}")
    ended = cli("agree", run, "--allow-dry-run", "--resamples", 100, "--json")
    if ended.code:
        raise ShapeError(f"{shape.name}: refused: {ended.err}")
    (aspect,) = json.loads(ended.out)["aspects"].values()
    right = Counter(each.label for each in made for _ in each.readings)
    assert right["a"] != right["b"], "labels that are read the other way round would have the same counts"
    if aspect["labels"] != {label: right[label] for label in ("a", "tie", "b")}:
        raise ShapeError(f"{shape.name}: wrong: labels are {aspect['labels']!r}, right are {dict(right)!r}")
