"""Labels by people (or by another judge): read from files, and matched to the rows or pairs of a run.

A label file has a record for each row, or for each row and annotator, in JSONL, CSV or Parquet. A record
identifies its row by the texts, or by `id` and `system` (`localjudge.matching.row_index`), and one of the
row's own criteria by its text, in `criterion`. The labels are in columns named like the aspects, at the top
level or inside an object `scores`. Columns with other names are mapped; such a name can be a path
(`ratings.overall`, `scores.0`). A list of numbers has one label for each annotator. The column `annotator` (or
`rater`, `labeller`, `labeler`, `judge`) names the annotator, who has one label for each row and aspect.
`localjudge.matching.label_values` has the values, `localjudge.matching.pair_labels` those of pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.matching.label_records import ANNOTATOR, Annotator, LabelRecords
from localjudge.matching.label_values import (
    ColumnLabels,
    LabelColumn,
    LabelReader,
    ScoreLabels,
    without_codes,
)
from localjudge.matching.pair_labels import PairLabels
from localjudge.matching.record_identity import identities_of, label_reader
from localjudge.matching.row_index import Match, RowIndex
from localjudge.matching.run_rows import RunRows, rows_again
from localjudge.records.outcome_columns import PAIR_DIGESTS
from localjudge.rows.columns import CRITERION, SYSTEMS, TURN, Columns, compares_responses, judges_conversation
from localjudge.rows.formats import can_be_read_twice
from localjudge.rows.inputs import RecordStream, find_inputs
from localjudge.rows.record import FIRST_RECORDS, Record, RecordError
from localjudge.rows.row import RowReader
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import is_share
from localjudge.runs.notices import IMPORTED


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels matched to scores.

    Attributes:
        marks: the labels of each score column.
        annotators: the names of the annotators.
        notes: remarks for the reader.
        nominal: the labels of each aspect without an order, as numbers from 0; these also give the marks of the
            shares of its labels, 0 and 1.
        chance: the chance of each row to be labelled up to a common factor, if it is known.
    """

    marks: Mapping[str, LabelArray]
    annotators: tuple[str, ...]
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
        fitting = [target for target in targets if assignment.startswith(f"{target}=")]
        ours = max(fitting, key=len, default="")
        theirs = assignment.removeprefix(f"{ours}=")
        name, _ = without_codes(theirs)
        if not ours or not theirs or "=" in name:
            raise UsageError(
                f"`mapping` {assignment}: write OURS=THEIRS, where OURS is one of {', '.join(targets)}"
            )
        mapping[theirs] = ours
    return mapping


def label_targets(rubric: Rubric) -> list[str]:
    """Return the names that a column of labels can have: the aspects, and the shares of labels."""
    names = list(rubric.aspects) + [column.name for column in rubric.score_columns]
    return list(dict.fromkeys(names))


def read_labels(
    files: Sequence[str],
    judged: RunRows,
    mapping: Mapping[str, str] | None = None,
    inputs: Sequence[str] = (),
    equal_chances: bool = True,
    columns: Columns | None = None,
) -> Labels:
    """Return the labels of the rows that were judged; those of pairs are numbers of `RESULTS`.

    Args:
        files: label files, or globs of them. Labels of pairs can be in the inputs of the run: without files,
            these are read, or, if they cannot be read again, the columns of the run's rows.
        judged: the rows.
        mapping: the aspect, or the share of a label, that a column of another name holds.
        inputs: the files of the rows, for labels that are matched by texts.
        equal_chances: refuse labels of rows that were drawn with unequal chances.
        columns: the column of each field, or of the `annotator`, that has a name of its own in the files.

    Raises:
        UsageError: a file cannot be read, a value is not a label, no label belongs to any row, or the chances
            are unequal and must not be.
    """
    names = find_inputs(files or _inputs_with_labels(judged))
    for name in names:
        if not can_be_read_twice(name):
            raise UsageError(
                f"`labels` {name}: must be a file, because it is read twice; write it to one first"
            )
    matching = _LabelMatching(judged, mapping or {}, inputs=inputs, columns=columns or {})
    for name in names:
        matching.add_all((f"{name}:{number}", record) for number, record in RecordStream(name))
    if isinstance(judged, JudgedPairs) and not names:
        matching.add_all(_records_of_pairs(judged))
    labels = matching.labels()
    if equal_chances:
        refuse_unequal_chances(labels.chance, "this command")
    return labels


def _inputs_with_labels(judged: RunRows) -> Sequence[str]:
    """Return the inputs of a run of pairs, which can have labels; none if they cannot be read again."""
    manifest = judged.manifests[0]
    if not isinstance(judged, JudgedPairs):
        return []
    if manifest.settings.engine == IMPORTED:
        return []  # its input has the judge's verdicts, which are no labels
    inputs = manifest.last_start.inputs
    if not all(can_be_read_twice(name) for name in inputs):
        return []
    return inputs


def _records_of_pairs(judged: JudgedPairs) -> Iterator[tuple[str, Record]]:
    """Yield the columns of the rows of a run as label records, each after its run and its id."""
    for identity, columns in zip(judged.identities, judged.columns, strict=True):
        record = dict(columns)
        record |= zip(PAIR_DIGESTS, identity.digests, strict=True)
        record |= zip(SYSTEMS, identity.systems, strict=True)
        record["id"] = identity.id
        yield f"{judged.where}: {identity.id}", record


def _systems_of(judged: RunRows) -> set[str]:
    """Return the names of the systems of all rows."""
    systems = set(chain.from_iterable(identity.systems for identity in judged.identities))
    return {system for system in systems if system is not None}


def columns_of(aspects: Mapping[str, Aspect], mapping: Mapping[str, str] | None = None) -> list[LabelColumn]:
    """Return the label columns to read: mapped columns, and columns with the names of the other aspects.

    Args:
        aspects: the aspects.
        mapping: the aspect, or the share of a label, that a column of another name holds.
    """
    columns: list[LabelColumn] = []
    mapped_aspects: set[str] = set()
    for mapped, target in (mapping or {}).items():
        name, codes = without_codes(mapped)
        if target in aspects:
            column = LabelColumn.from_aspect(name, target, aspect=aspects[target])
        else:
            column = LabelColumn.from_share(name, target)
        columns.append(column.with_codes(codes))
        mapped_aspects.add(target.partition("=")[0])
    for name, aspect in aspects.items():
        if name not in mapped_aspects:
            columns.append(LabelColumn.from_aspect(name, name, aspect=aspect))
    return columns


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


class _LabelMatching:
    """Matches the records of label files to judged rows.

    Args:
        judged: the rows.
        mapping: the aspect, or the share of a label, that a column of another name holds.
        inputs: the files of the rows.
        columns: the column of each field, or of the `annotator`, that has a name of its own in the files.
    """

    def __init__(
        self, judged: RunRows, mapping: Mapping[str, str], *, inputs: Sequence[str], columns: Columns
    ) -> None:
        rubric = judged.manifests[0].rubric
        self._judged = judged
        self._rubric = rubric
        self._fields = rubric.fields
        self._run_columns: dict[str, str] = {}
        for manifest in judged.manifests:
            self._run_columns |= manifest.last_start.columns
        self._user_columns = {name: path for name, path in columns.items() if name != ANNOTATOR}
        self._rows = RowIndex(
            judged.identities,
            self._fields,
            texts_again=lambda: rows_again(judged, inputs),
            noun=rubric.mode.item,
        )
        self._reader: LabelReader
        if compares_responses(self._fields):
            self._reader = PairLabels(rubric.aspects, mapping, systems=_systems_of(judged))
        else:
            self._reader = ScoreLabels(columns_of(rubric.aspects, mapping))
        self._records = LabelRecords(columns.get(ANNOTATOR))
        self._of_last_turn = 0

    def add_all(self, records: Iterable[tuple[str, Record]]) -> None:
        """Add the labels of the records of a file, by one reading of them.

        Args:
            records: the records, each after its file and line.

        Raises:
            UsageError: a record could not be read, its row cannot be determined, or a value is not a label.
        """
        records = iter(records)
        first = list(islice(records, FIRST_RECORDS))
        readable = [record for _, record in first if isinstance(record, dict)]
        try:
            reader = label_reader(
                readable,
                self._run_columns,
                used=self._fields,
                label_columns=self._reader.names,
                user_columns=self._user_columns,
            )
        except RecordError as error:
            where, _ = first[0]
            file, _, _ = where.rpartition(":")
            raise UsageError(f"{file}: {error}") from None
        for where, record in chain(first, records):
            self._add(record, where, reader=reader)

    def _add(self, read_record: Record, where: str, *, reader: RowReader) -> None:
        """Add the labels of a record, for each of its rows."""
        record, annotator = self._records.begin(read_record, where)
        for identity, values in identities_of(record, where, reader=reader):
            if CRITERION in self._fields and CRITERION not in identity.text_hashes:
                raise UsageError(
                    f"{where}: no {CRITERION}; a label is of one criterion of a row: give its text in the "
                    f"column {CRITERION}"
                )
            match = self._rows.find(identity)
            if match.rows and TURN in identity.text_hashes and judges_conversation(self._fields):
                self._of_last_turn += 1
            columns = {**record, **values.others}
            labels_before = Counter[str]()
            for labels in self._reader.read(columns, values, reading=reader.reading, where=where):
                number = labels_before[labels.target] + 1
                labels_before[labels.target] += len(labels.values)
                annotators = _annotators_of(labels, annotator, number=number)
                for value, name in zip(labels.values, annotators, strict=True):
                    self._mark(match, value, labels=labels, annotator=name, where=where)

    def _mark(
        self, match: Match, value: object, *, labels: ColumnLabels, annotator: Annotator, where: str
    ) -> None:
        """Give a label to the rows of a record.

        Args:
            match: the rows.
            value: the label, for the order of the responses in the record.
            labels: the labels of its column.
            annotator: its annotator.
            where: the file and line of the record.
        """
        for row in match.rows:
            systems = self._judged.identities[row].systems
            if match.is_reversed:
                systems = systems[::-1]
            number = self._reader.number(value, labels, systems=systems, where=where)
            if number is None:
                continue
            if match.is_reversed:
                number = 1 - number
            self._records.mark(row, labels.target, annotator=annotator, value=number, where=where)

    def labels(self) -> Labels:
        """Return the labels of all records.

        Raises:
            UsageError: there are none, or they can be read in two ways.
        """
        self._records.check_annotator()
        how_read = self._reader.how_read()
        marks = self._records.marks
        if not marks:
            raise UsageError(self._reason_without_labels())
        columns = self._rubric.score_columns
        values_of_nominal = {
            column.aspect: tuple(column.numbers) for column in columns if is_share(column.name)
        }
        nominal = _nominal_marks(marks, values_of_nominal)
        for aspect, numbers in nominal.items():
            for number, value in enumerate(values_of_nominal[aspect]):
                is_value = (numbers.value == number).astype(np.float64)
                marks[f"{aspect}={value}"] = replace(numbers, value=is_value)
        return Labels(
            marks={column.name: marks[column.name] for column in columns if column.name in marks},
            nominal=nominal,
            annotators=self._records.annotators,
            notes=self._notes(how_read),
            chance=self._records.chance,
        )

    def _notes(self, how_read: Sequence[str]) -> tuple[str, ...]:
        """Return remarks for the reader.

        Args:
            how_read: how the values of each column were read.
        """
        notes = list(self._notes_on_matches())
        notes += self._records.notes(len(self._judged.identities))
        if self._of_last_turn:
            notes.append(
                f"{self._of_last_turn} label records are of the last turn; the judge read whole conversations"
            )
        notes += how_read
        return tuple(notes)

    def _notes_on_matches(self) -> tuple[str, ...]:
        """Return the remarks on records that match no row, or were matched without their texts."""
        which = " that counts" if self._judged.selected else ""
        return self._rows.notes("label records", which)

    def _reason_without_labels(self) -> str:
        """Return the reason why no label was read, for a message."""
        columns = ", ".join(sorted(self._records.columns)[:12])
        if self._records.count and not self._rows.has_matched:
            why = "; ".join(self._notes_on_matches())
            return (
                f"`labels`: none of its {self._records.count} records matches a {self._rows.noun} of "
                f"{self._judged.where}: {why}; its columns are {columns}"
            )
        aspects = list(self._rubric.aspects)
        return (
            f"`labels`: no label of {', '.join(aspects)}; its columns are {columns}; map a column with "
            f"`mapping` {aspects[0]}=THEIRS"
        )


def _annotators_of(labels: ColumnLabels, name: str, *, number: int) -> list[Annotator]:
    """Return the annotator of each label in a column.

    Args:
        labels: the labels.
        name: the name in the record, for labels without an annotator of their own.
        number: the number of the first label among those of the record with the same target, from 1.
    """
    annotators = [Annotator(name, number + index) for index in range(len(labels.values))]
    for index, own_name in enumerate(labels.annotators[: len(annotators)]):
        annotators[index] = Annotator(own_name, 1)
    return annotators


def _nominal_marks(
    marks: Mapping[str, LabelArray], values_of_nominal: Mapping[str, Sequence[Value]]
) -> dict[str, LabelArray]:
    """Return the labels of each aspect without an order, as numbers from 0.

    Of an aspect of two values, a file may say for one of them whether a row has it.

    Args:
        marks: the labels by aspect, and by share of a value.
        values_of_nominal: the values of each aspect without an order.
    """
    nominal: dict[str, LabelArray] = {}
    for aspect, values in values_of_nominal.items():
        if aspect in marks:
            nominal[aspect] = marks[aspect]
        elif len(values) == 2:
            numbers = _numbers_of_shares(marks, aspect, values=values)
            if numbers is not None:
                nominal[aspect] = numbers
    return nominal


def _numbers_of_shares(
    marks: Mapping[str, LabelArray], aspect: str, *, values: Sequence[Value]
) -> LabelArray | None:
    """Return the labels of an aspect of two values from those of the share of one; None without such labels.

    Args:
        marks: the labels by aspect, and by share of a value.
        aspect: the aspect.
        values: its values.
    """
    for number, value in enumerate(values):
        share = marks.get(f"{aspect}={value}")
        if share is not None and np.isin(share.value, (0, 1)).all():
            numbers = np.where(share.value == 1, number, 1.0 - number)
            return replace(share, value=numbers)
    return None
