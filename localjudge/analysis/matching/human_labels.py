"""Labels by people (or by another judge): read from files, and matched to the rows of a run.

A label file has a record for each row, or for each row and annotator, in JSONL, CSV or Parquet. A record
identifies its row by the texts, or by `id` and `system` (`localjudge.analysis.matching.rows`), and one of the
row's own criteria by its text, in `criterion`. The labels are in columns named like the aspects, at the top
level or inside an object `scores`. Columns with other names are mapped; such a name can be a path
(`ratings.overall`, `scores.0`). A list of numbers has one label for each annotator. The column `annotator` (or
`rater`, `labeller`, `labeler`, `judge`) names the annotator, who has one label for each row and aspect.
`localjudge.analysis.matching.label_values` has the values.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.analysis import Floats, Integers
from localjudge.analysis.matching.identity import Identity, identities_of
from localjudge.analysis.matching.label_records import LabelArray, LabelRecords
from localjudge.analysis.matching.label_values import LabelColumn
from localjudge.analysis.matching.measured_texts import judged_rows
from localjudge.analysis.matching.rows import JudgedRows
from localjudge.analysis.matching.scores import Scores
from localjudge.errors import UsageError
from localjudge.rows.conversation import TURN, judges_conversation
from localjudge.rows.criteria import CRITERION
from localjudge.rows.inputs import STDIN, find_inputs, read_records
from localjudge.rows.record import Record
from localjudge.rubrics.aspect import Aspect

_CODES = re.compile(r":([^:=,]+=[^:=,]+(?:,[^:=,]+=[^:=,]+)*)$")
"""What each code of a column means, after the name of the column."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels matched to scores.

    `marks` has the labels of each score column, and `nominal` those of each aspect without an order, as numbers
    from 0; these also give the marks of the shares of its labels, 0 and 1. Where labels were settled by
    adjudication, both have its value alone, and `independent` has the labels before it. `chance` has the chance
    of a row to be labelled up to a common factor, if it is known. `digests` has the SHA-256 of each file, and
    `notes` remarks for the reader.
    """

    marks: Mapping[str, LabelArray]
    annotators: tuple[str, ...]
    digests: tuple[str, ...]
    notes: tuple[str, ...]
    nominal: Mapping[str, LabelArray] = field(default_factory=dict)
    chance: Mapping[int, float] = field(default_factory=dict)
    independent: Mapping[str, LabelArray] = field(default_factory=dict)

    def chances(self, rows: Integers) -> Floats:
        """Return the chance of each of these rows to be labelled, [m]; 1 if it is not known."""
        return np.array([self.chance.get(row, 1.0) for row in rows.tolist()])

    @property
    def aspects(self) -> tuple[str, ...]:
        return tuple(self.marks)

    def means(self, aspect: str) -> tuple[Integers, Floats]:
        """Return the rows that have labels of this aspect, and the mean label of each."""
        return self.marks[aspect].means()


def parse_mapping(assignments: Iterable[str], targets: Sequence[str]) -> dict[str, str]:
    """Parse `["helpfulness=overall"]` as `{"overall": "helpfulness"}`: a column's name, and what it holds.

    Labels can be codes: `better=label:0=a,1=b,2=tie` is `{"label:0=a,1=b,2=tie": "better"}`.

    Args:
        assignments: the texts.
        targets: the aspects, and the shares of labels such as `grade=correct`.

    Raises:
        UsageError: the target is unknown, or the text is not an assignment.
    """
    mapping: dict[str, str] = {}
    for assignment in assignments:
        fits = [target for target in targets if assignment.startswith(f"{target}=")]
        ours = max(fits, key=len, default="")
        theirs = assignment.removeprefix(f"{ours}=")
        if not ours or not theirs or "=" in without_codes(theirs)[0]:
            raise UsageError(
                f"`mapping` {assignment}: write OURS=THEIRS, where OURS is one of {', '.join(targets)}"
            )
        mapping[theirs] = ours
    return mapping


def without_codes(column: str) -> tuple[str, dict[str, str]]:
    """Return the name of a column, and the meaning of each of its codes: `label:0=a,1=b`."""
    codes = _CODES.search(column)
    return (
        (column[: codes.start()], dict(each.split("=") for each in codes[1].split(",")))
        if codes
        else (column, {})
    )


def read_labels(
    files: Sequence[str],
    scores: Scores,
    mapping: Mapping[str, str] | None = None,
    inputs: Sequence[str] = (),
    equal_chances: bool = True,
) -> Labels:
    """Return the labels of the rows that were judged.

    Args:
        files: label files, or globs of them.
        scores: the rows.
        mapping: the aspect, or the share of a label, that a column of another name holds.
        inputs: the files of the rows, for labels that are matched by instruction and candidate.
        equal_chances: refuse labels of rows that were drawn with unequal chances.

    Raises:
        UsageError: a file cannot be read, a value is not a label, no label belongs to any row, or the chances
            are unequal and must not be.
    """
    names = find_inputs(files)
    if special := [name for name in names if name == STDIN or not Path(name).is_file()]:
        raise UsageError(
            f"`labels` {special[0]}: must be a file, because it is read twice; write it to one first"
        )
    reading = _Matching(scores, columns_of(scores.rubric.aspects, mapping), inputs)
    for name in names:
        for number, record in read_records(name):
            reading.add(record, f"{name}:{number}")
    found = reading.labels(tuple(hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names))
    if equal_chances:
        refuse_unequal_chances(found.chance, "this command")
    return found


def columns_of(aspects: Mapping[str, Aspect], mapping: Mapping[str, str] | None = None) -> list[LabelColumn]:
    """Return the label columns to read: mapped columns, and columns with the names of the other aspects.

    Args:
        aspects: the aspects.
        mapping: the aspect, or the share of a label, that a column of another name holds.
    """
    mapping = mapping or {}
    mapped = list[LabelColumn]()
    for (name, codes), target in zip(map(without_codes, mapping), mapping.values(), strict=True):
        is_aspect = target in aspects
        own = LabelColumn.from_aspect(name, target, aspects[target]) if is_aspect else None
        mapped.append((own or LabelColumn.from_share(name, target)).with_codes(codes))
    taken = {target.partition("=")[0] for target in mapping.values()}
    return [
        *mapped,
        *(LabelColumn.from_aspect(name, name, each) for name, each in aspects.items() if name not in taken),
    ]


def refuse_unequal_chances(chance: Mapping[int, float], what: str) -> None:
    """Refuse labels of rows that were drawn with unequal chances, if a statistic weights all rows equally.

    Raises:
        UsageError: the chances differ.
    """
    if len(set(chance.values())) > 1:
        raise UsageError(
            f"`labels`: their rows were drawn with unequal chances (`label` with `prefer`), and {what} needs "
            "equal ones; label a sample without `prefer` for it"
        )


class _Matching:
    """Matches records to rows."""

    def __init__(self, scores: Scores, columns: list[LabelColumn], inputs: Sequence[str]) -> None:
        self._scores, self._columns = scores, columns
        self._fields = scores.rubric.fields
        self._names = dict(pair for each in scores.manifests for pair in each.last_start.columns.items())
        self._rows = JudgedRows(scores.identities, self._fields, lambda: judged_rows(scores, inputs))
        self._records = LabelRecords()
        self._of_one_turn = 0

    def add(self, given: Record, where: str) -> None:
        record, named = self._records.begin(given, where)
        of_labels = {column.name for column in self._columns}
        rest = {name: value for name, value in record.items() if name not in of_labels}
        for identity, fields in identities_of(rest, where, self._names, self._fields):
            self._mark(identity, {**record, **fields.others}, named, where)

    def _mark(self, identity: Identity, record: Mapping[str, Any], named: str, where: str) -> None:
        if CRITERION in self._fields and CRITERION not in identity.texts:
            raise UsageError(
                f"{where}: no {CRITERION}; a label is of one criterion of a row: give its text in the column "
                f"{CRITERION}"
            )
        found = self._rows.find(identity)
        self._of_one_turn += bool(found.rows) and TURN in identity.texts and judges_conversation(self._fields)
        places: Counter[str] = Counter()
        for column in self._columns:
            # Argilla's export has the annotator and the status of each label in lists of their own.
            users, status = (record.get(f"{column.name}.{name}") or [] for name in ("users", "status"))
            for at, value in enumerate(column.read(record, where)):
                places[column.target] += 1
                is_kept = value is not None and (at >= len(status) or status[at] in (None, "submitted"))
                who = (str(users[at]), 1) if at < len(users) else (named, places[column.target])
                for row in found.rows if is_kept else ():
                    self._records.mark(row, column.target, *who, value or 0.0, where)

    def labels(self, digests: tuple[str, ...]) -> Labels:
        given = self._records.marks
        if not given:
            raise UsageError(
                nothing_found(self._records, self._rows, self._scores.where, [*self._scores.rubric.aspects])
            )
        independent = self._records.independent
        for found in (given, independent):
            self._add_labels_of_shares(found)
        nominal = {aspect: given[aspect] for aspect in self._scores.nominal if aspect in given}
        for found in (given, independent):
            for aspect in nominal.keys() & found.keys():
                for place, label in enumerate(self._scores.nominal[aspect]):
                    is_label = (found[aspect].value == place).astype(np.float64)
                    found[f"{aspect}={label}"] = replace(found[aspect], value=is_label)
        of_turn = f"{self._of_one_turn} label records are of the last turn; the judge read whole conversations"
        return Labels(
            marks={column: given[column] for column in self._scores.aspects if column in given},
            nominal=nominal,
            annotators=self._records.annotators,
            digests=digests,
            notes=(
                *self._rows.notes("label records"),
                *self._records.notes(len(self._scores.ids)),
                *[of_turn] * bool(self._of_one_turn),
            ),
            chance=self._records.chance,
            independent=independent,
        )

    def _add_labels_of_shares(self, found: dict[str, LabelArray]) -> None:
        """Add the labels of aspects of two labels where a file says for one of them whether a row has it."""
        for aspect, labels in self._scores.nominal.items():
            for place, label in enumerate(labels if len(labels) == 2 else ()):
                share = found.get(f"{aspect}={label}")
                if aspect not in found and share is not None and np.isin(share.value, (0, 1)).all():
                    found[aspect] = replace(share, value=np.where(share.value == 1, place, 1.0 - place))


def nothing_found(records: LabelRecords, rows: JudgedRows, where: str, aspects: Sequence[str]) -> str:
    """Return the reason why no label was read, for a message.

    Args:
        records: the records.
        rows: the rows that were searched.
        where: the paths of the runs.
        aspects: the aspects.
    """
    columns = ", ".join(sorted(records.columns)[:12])
    if records.count and not rows.has_matched:
        why = "; ".join(rows.notes("label records"))
        return (
            f"`labels`: none of its {records.count} records matches a {rows.noun} of {where}: {why}; its "
            f"columns are {columns}"
        )
    return (
        f"`labels`: no label of {', '.join(aspects)}; its columns are {columns}; map a column with "
        f"`mapping` {aspects[0]}=THEIRS"
    )
