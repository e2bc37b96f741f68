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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_ADJUDICATED = " (adjudication)"


@dataclass(frozen=True, slots=True)
class LabelArray:
    """The m labels of one aspect: the row of the scores, the annotator and the number of each, all [m].

    `weight` has the inverse of the chance of each label's row to be drawn, up to a common factor; None if all
    chances are equal.
    """

    row: Integers
    annotator: Integers
    value: Floats
    weight: Floats | None = None

    @property
    def weights(self) -> Floats:
        """The weight of each label, 1 if all chances are equal, [m]."""
        return np.ones(len(self.row)) if self.weight is None else self.weight

    def weight_of(self, rows: Integers) -> Floats | None:
        """Return the weight of each of these rows, which have labels, [n]; None if all are equal."""
        if self.weight is None:
            return None
        weights: Floats = np.bincount(self.row, self.weight)[rows] / np.bincount(self.row)[rows]
        return weights

    def of_rows(self, chosen: NDArray[np.bool_]) -> LabelArray:
        """Return the labels of the chosen rows, a mask of the rows of the scores."""
        kept = chosen[self.row]
        weight = None if self.weight is None else self.weight[kept]
        return LabelArray(self.row[kept], self.annotator[kept], self.value[kept], weight)

    def means(self) -> tuple[Integers, Floats]:
        """Return the rows that have labels, and the mean label of each."""
        rows, place = np.unique(self.row, return_inverse=True)
        return rows, np.bincount(place, self.value) / np.bincount(place)


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


def refuse_unequal_chances(chance: Mapping[int, float], what: str) -> None:
    """Refuse labels of rows that were drawn with unequal chances, for what weighs all rows alike.

    Raises:
        UsageError: the chances differ.
    """
    if len(set(chance.values())) > 1:
        raise UsageError(
            f"`labels`: their rows were drawn with unequal chances (`label` with `prefer`), and {what} needs "
            "equal ones; label a sample without `prefer` for it"
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
        self._settling: set[str] = set()  # the annotators whose labels settle others
        self._chance: dict[int, tuple[str, float]] = {}  # the file and the chance of each row
        self._given: tuple[str, float] | None = None
        self._seen = Counter[str]()  # by what a line of `localjudge label` says of itself
        self._skipped: dict[str, tuple[bool, float]] = {}  # whether a row has no label, and its weight

    def begin(self, record: Record, where: str) -> tuple[Mapping[str, Any], str]:
        """Count a record; return it and the name of its annotator.

        Raises:
            UsageError: it could not be read, or has scores of a dry run.
        """
        if isinstance(record, RowError):
            raise UsageError(f"{where}: {record.reason}")
        self.count += 1
        self._given, suffix = None, ""
        if isinstance(own := record.get("label"), Mapping) and "chance" in own:
            # Samples of different sizes without a preference are one random sample.
            chance = own["chance"] if own.get("prefer", True) else 1.0
            self._given = where.rpartition(":")[0], chance
            self._seen += Counter({name: own[name] for name in ("saw_judge", "saw_labels")})
            if own.get("adjudicates"):
                suffix = _ADJUDICATED
            else:
                is_skipped, _ = self._skipped.get(own["row"], (True, 0.0))
                self._skipped[own["row"]] = is_skipped and own["skipped"] is not None, 1 / chance
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
        name = next(named, _UNNAMED) + suffix
        self._settling |= {name} if suffix else set()
        return record, name

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
        if self._given is not None:
            self._chance[row] = self._given
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
    def chance(self) -> dict[int, float]:
        """The chance of each row to be labelled, up to a common factor; in each file, the mean weight is 1."""
        of_files: dict[str, list[float]] = defaultdict(list)
        for file, chance in self._chance.values():
            of_files[file].append(chance)
        of_weight_1 = {
            file: 1 / float(np.mean(1 / np.array(own))) if len(set(own)) > 1 else own[0]
            for file, own in of_files.items()
        }
        return {row: chance / of_weight_1[file] for row, (file, chance) in self._chance.items()}

    @property
    def _settled(self) -> set[tuple[str, int]]:
        """The aspects and rows whose labels were settled by adjudication."""
        return {(aspect, row) for aspect, row, annotator in self._counted if annotator in self._settling}

    @property
    def marks(self) -> dict[str, LabelArray]:
        """The labels of each aspect; where they were settled, the adjudicated ones alone."""
        settled = self._settled
        return self._arrays(lambda key: key[2] in self._settling or key[:2] not in settled)

    @property
    def independent(self) -> dict[str, LabelArray]:
        """The labels of each aspect before adjudication."""
        return self._arrays(lambda key: key[2] not in self._settling)

    def _arrays(self, chosen: Callable[[tuple[str, int, str]], bool]) -> dict[str, LabelArray]:
        number, chance = {name: place for place, name in enumerate(self.annotators)}, self.chance
        found: dict[str, list[tuple[int, int, float, float]]] = defaultdict(list)
        for (aspect, row, annotator), value in self._counted.items():
            if chosen((aspect, row, annotator)):
                found[aspect].append((row, number[annotator], value, 1 / chance.get(row, 1.0)))
        is_even = len(set(chance.values())) < 2
        return {
            aspect: LabelArray(
                np.array(rows, dtype=np.int32),
                np.array(annotators, dtype=np.int32),
                np.array(values, dtype=np.float64),
                None if is_even else np.array(weights),
            )
            for aspect, labels in found.items()
            for rows, annotators, values, weights in [zip(*labels, strict=True)]
        }

    def notes(self, rows: int) -> tuple[str, ...]:
        """Return remarks for the reader; `rows` is the number of rows that were judged."""
        repeating, contradicted = len(self._repeating), self._contradicted
        said = [f"{repeating} of {self.count} label records repeat labels of the same row and annotator"]
        origins = (f"the labels are scores of a run with this notice: {notice}" for notice in self._notices)
        differ = [
            f"{len(contradicted)} labels are not used, because their annotator gave the same row another one "
            f"(first: {next(iter(contradicted.values()), '')})"
        ]
        return (*said * bool(repeating), *differ * bool(contradicted), *self._of_people(rows), *origins)

    def _of_people(self, rows: int) -> Iterator[str]:
        """Yield remarks on how the rows were drawn and labelled, which the lines of `localjudge label` say."""
        weights = np.array([weight for _, weight in self._skipped.values()])
        skipped = np.array([is_skipped for is_skipped, _ in self._skipped.values()], dtype=np.bool_)
        if skipped.any():
            share = weights[skipped].sum() / weights.sum()
            yield (
                f"{skipped.sum():,} of {len(skipped):,} rows were skipped and are left out; labelled, they "
                f"could move a mean or a share by up to {share:.0%} of its scale"
            )
        if len(set(self.chance.values())) > 1:
            yield (
                "the labelled rows were drawn with unequal chances, and each has the weight of 1 / its chance; "
                "counts are of the rows as they were drawn"
            )
        elif not self._chance and 0 < len({row for _, row, _ in self._labels}) < rows:
            yield "the labels do not say how their rows were drawn; they are taken as a random sample"
        if settled := len(self._settled):
            yield (
                f"labels that differed were settled by adjudication in {settled:,} cases; only alpha and "
                "the alternative annotator test use the labels before it"
            )
        if self._seen["saw_judge"]:
            yield f"{self._seen['saw_judge']:,} labels were given with the judge's answer in sight"
        if self._seen["saw_labels"]:
            yield f"{self._seen['saw_labels']:,} labels were given after a look at what the labels say"


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
        independent = self._records.independent
        for found in (given, independent):
            for aspect in nominal.keys() & found.keys():
                for place, label in enumerate(self._scores.nominal[aspect]):
                    is_label = (found[aspect].value == place).astype(np.float64)
                    found[f"{aspect}={label}"] = replace(found[aspect], value=is_label)
        return Labels(
            marks={column: given[column] for column in self._scores.aspects if column in given},
            nominal=nominal,
            annotators=self._records.annotators,
            digests=digests,
            notes=(*self._rows.notes("label records"), *self._records.notes(len(self._scores.ids))),
            chance=self._records.chance,
            independent=independent,
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
