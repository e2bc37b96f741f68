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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis import Floats, Integers
from localjudge.analysis.matching.label_values import LabelColumn
from localjudge.analysis.matching.measured_texts import judged_rows
from localjudge.analysis.matching.rows import JudgedRows, identity_of
from localjudge.analysis.matching.scores import Scores
from localjudge.errors import RowError, UsageError
from localjudge.records.outcome_columns import MODEL
from localjudge.rows.criteria import CRITERION
from localjudge.rows.inputs import STDIN, find_inputs, read_records
from localjudge.rows.record import Record
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.notices import exported

_ANNOTATOR = ("annotator", "rater", "labeller", "labeler", "judge")
_UNNAMED = "annotator"


@dataclass(frozen=True, slots=True)
class LabelArray:
    """The m labels of one aspect: the row of the scores, the annotator and the number of each, all [m]."""

    row: Integers
    annotator: Integers
    value: Floats

    def of_rows(self, chosen: NDArray[np.bool_]) -> LabelArray:
        """Return the labels of the chosen rows, a mask of the rows of the scores."""
        kept = chosen[self.row]
        return LabelArray(self.row[kept], self.annotator[kept], self.value[kept])

    def means(self) -> tuple[Integers, Floats]:
        """Return the rows that have labels, and the mean label of each."""
        rows, place = np.unique(self.row, return_inverse=True)
        return rows, np.bincount(place, self.value) / np.bincount(place)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels matched to scores.

    `marks` has the labels of each score column, and `nominal` those of each aspect without an order, as numbers
    from 0; these also give the marks of the shares of its labels, 0 and 1. `chance` has the chance of a row to
    be labelled, if it is known. `digests` has the SHA-256 of each file, and `notes` remarks for the reader.
    """

    marks: Mapping[str, LabelArray]
    annotators: tuple[str, ...]
    digests: tuple[str, ...]
    notes: tuple[str, ...]
    nominal: Mapping[str, LabelArray] = field(default_factory=dict)
    chance: Mapping[int, float] = field(default_factory=dict)

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
    """Parse `["overall=helpfulness"]` as `{"overall": "helpfulness"}`: a column's name, and what it holds.

    Args:
        assignments: the texts.
        targets: the aspects, and the shares of labels such as `grade=correct`.

    Raises:
        UsageError: the target is unknown, or the text is not an assignment.
    """
    mapping: dict[str, str] = {}
    for assignment in assignments:
        theirs, equals, ours = assignment.partition("=")
        if not equals or not theirs or ours not in targets:
            raise UsageError(
                f"`mapping` {assignment}: write THEIRS=OURS, where OURS is one of {', '.join(targets)}"
            )
        mapping[theirs] = ours
    return mapping


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
            are unequal.
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
        refuse_unequal_chances(found.chance)
    return found


def columns_of(aspects: Mapping[str, Aspect], mapping: Mapping[str, str] | None = None) -> list[LabelColumn]:
    """Return the label columns to read: mapped columns, and columns with the names of the other aspects.

    Args:
        aspects: the aspects.
        mapping: the aspect, or the share of a label, that a column of another name holds.
    """
    mapping = mapping or {}
    mapped = [
        LabelColumn.from_aspect(name, target, aspects[target])
        if target in aspects
        else LabelColumn.from_share(name, target)
        for name, target in mapping.items()
    ]
    taken = {target.partition("=")[0] for target in mapping.values()}
    return [
        *mapped,
        *(LabelColumn.from_aspect(name, name, each) for name, each in aspects.items() if name not in taken),
    ]


def refuse_unequal_chances(chance: Mapping[int, float]) -> None:
    """Refuse labels of rows that were drawn with unequal chances, for statistics that weigh all rows alike.

    Raises:
        UsageError: the chances differ.
    """
    if len(set(chance.values())) > 1:
        raise UsageError(
            "`labels`: their rows were drawn with unequal chances (`label` with `prefer`), which only "
            "`rank` undoes; label a sample without `prefer` for it"
        )


class LabelRecords:
    """The records of label files and their labels.

    Attributes:
        count: number of records.
        columns: the names of their columns.
    """

    def __init__(self) -> None:
        self.count = 0
        self.columns: set[str] = set()
        self._labels: dict[tuple[str, int, str], float] = {}  # by aspect, row and annotator
        self._contradicted: dict[tuple[str, int, str], str] = {}
        self._record_of: dict[tuple[str, int, str], int] = {}
        self._repeating: set[int] = set()
        self._notices: dict[str, None] = {}
        self.chance: dict[int, float] = {}  # by row
        self._given_chance: float | None = None
        self._answered = Counter[str]()  # by what a line of `localjudge label` says of itself

    def begin(self, record: Record, where: str) -> tuple[Mapping[str, Any], str]:
        """Count a record; return it and the name of its annotator.

        Raises:
            UsageError: it could not be read, or has scores of a dry run.
        """
        if isinstance(record, RowError):
            raise UsageError(f"{where}: {record.reason}")
        self.count += 1
        self._given_chance = None
        if isinstance(own := record.get("label"), Mapping) and "chance" in own:
            self._given_chance = own["chance"]
            self._answered += Counter(all=1, skipped=own["skipped"] is not None)
            self._answered += Counter({name: own[name] for name in ("saw_judge", "saw_labels")})
        self._notices |= dict.fromkeys(exported(record))
        if any(notice.startswith("dry run") for notice in self._notices):
            raise UsageError(
                f"{where}: scores of a dry run mean nothing and cannot be labels; give other labels"
            )
        self.columns.update(record)
        if isinstance(record.get("scores"), Mapping):
            self.columns.update(record["scores"])
        # In the export of a run, the judge is the annotator.
        judge = (MODEL,) if "key" in record else ()
        named = (str(record[name]) for name in (*_ANNOTATOR, *judge) if record.get(name) not in (None, ""))
        return record, next(named, _UNNAMED)

    def mark(self, row: int, aspect: str, named: str, place: int, value: float, where: str) -> None:
        """Add a label of a row.

        Args:
            row: the number of the row.
            aspect: the aspect.
            named: the name of the annotator, or of a list of annotators.
            place: the place of the label in that list, from 1.
            value: the label.
            where: the place of the record, for a message.

        Raises:
            UsageError: the row has another label, and neither names an annotator.
        """
        if self._given_chance is not None:
            self.chance[row] = self._given_chance
        annotator = named if place == 1 and named != _UNNAMED else f"{named} {place}"
        key = aspect, row, annotator
        if (before := self._labels.setdefault(key, value)) != value:
            if named == _UNNAMED:
                raise UsageError(
                    f"{where}: its row has another label of {aspect} already ({before:g}, here {value:g}), and "
                    "neither record names an annotator; add a column annotator"
                )
            self._contradicted.setdefault(key, f"{where}, annotator {named}")
        elif self._record_of.setdefault(key, self.count) != self.count:
            self._repeating.add(self.count)

    @property
    def _counted(self) -> dict[tuple[str, int, str], float]:
        return {key: value for key, value in self._labels.items() if key not in self._contradicted}

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators, in the order of their first labels."""
        return tuple(dict.fromkeys(annotator for _, _, annotator in self._counted))

    @property
    def marks(self) -> dict[str, LabelArray]:
        """The labels of each aspect."""
        number = {name: place for place, name in enumerate(self.annotators)}
        found: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
        for (aspect, row, annotator), value in self._counted.items():
            found[aspect].append((row, number[annotator], value))
        return {
            aspect: LabelArray(
                np.array(rows, dtype=np.int32),
                np.array(annotators, dtype=np.int32),
                np.array(values, dtype=np.float64),
            )
            for aspect, labels in found.items()
            for rows, annotators, values in [zip(*labels, strict=True)]
        }

    def notes(self) -> tuple[str, ...]:
        """Return remarks for the reader."""
        repeating, contradicted = len(self._repeating), self._contradicted
        said = [f"{repeating} of {self.count} label records repeat labels of the same row and annotator"]
        origins = (f"the labels are scores of a run with this notice: {notice}" for notice in self._notices)
        differ = [
            f"{len(contradicted)} labels are not used, because their annotator gave the same row another one "
            f"(first: {next(iter(contradicted.values()), '')})"
        ]
        return (*said * bool(repeating), *differ * bool(contradicted), *self._of_people(), *origins)

    def _of_people(self) -> Iterator[str]:
        """Yield remarks on the lines of `localjudge label`."""
        given = self._answered
        if skipped := given["skipped"]:
            yield (
                f"{skipped:,} of {given['all']:,} rows were skipped and are left out; labelled, they could "
                f"move a mean or a share by up to {skipped / given['all']:.0%} of its scale"
            )
        if given["saw_judge"]:
            yield f"{given['saw_judge']:,} labels were given with the judge's answer in sight"
        if given["saw_labels"]:
            yield f"{given['saw_labels']:,} labels were given after a look at what the labels say"


class _Matching:
    """Matches records to rows."""

    def __init__(self, scores: Scores, columns: list[LabelColumn], inputs: Sequence[str]) -> None:
        self._scores, self._columns = scores, columns
        self._fields = scores.rubric.fields
        self._names = dict(pair for each in scores.manifests for pair in each.last_start.columns.items())
        self._rows = JudgedRows(scores.identities, self._fields, lambda: judged_rows(scores, inputs))
        self._records = LabelRecords()

    def add(self, given: Record, where: str) -> None:
        record, named = self._records.begin(given, where)
        of_labels = {column.name for column in self._columns}
        rest = {name: value for name, value in record.items() if name not in of_labels}
        identity = identity_of(rest, where, self._names, self._fields)
        if CRITERION in self._fields and CRITERION not in identity.texts:
            raise UsageError(
                f"{where}: no {CRITERION}; a label is of one criterion of a row: give its text in the column "
                f"{CRITERION}"
            )
        found = self._rows.find(identity)
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
        nominal = {aspect: given[aspect] for aspect in self._scores.nominal if aspect in given}
        for aspect, marks in nominal.items():
            for place, label in enumerate(self._scores.nominal[aspect]):
                given[f"{aspect}={label}"] = replace(marks, value=(marks.value == place).astype(np.float64))
        return Labels(
            marks={column: given[column] for column in self._scores.aspects if column in given},
            nominal=nominal,
            annotators=self._records.annotators,
            digests=digests,
            notes=(*self._rows.notes("label records"), *self._records.notes()),
            chance=self._records.chance,
        )


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
        f"`mapping` THEIRS={aspects[0]}"
    )
