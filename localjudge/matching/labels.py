"""Labels by people (or by another judge): read from files, and matched to the rows or pairs of a run.

A label file has a record for each row, or for each row and annotator, in JSONL, CSV or Parquet. A record
identifies its row by the texts, or by `id` and `system` (`localjudge.matching.row_index`), and one of the
row's own criteria by its text, in `criterion`. The labels are in columns named like the aspects, at the top
level or inside an object `scores`. Columns with other names are mapped; such a name can be a path
(`ratings.overall`, `scores.0`). A list of numbers has one label for each annotator. The column `annotator` (or
`rater`, `labeller`, `labeler`, `judge`) names the annotator, who has one label for each row and aspect.
`localjudge.matching.label_values` has the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.errors import UsageError
from localjudge.matching import identities_of, label_reader
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.matching.label_records import ANNOTATOR, LabelRecords
from localjudge.matching.label_values import (
    GivenLabels,
    LabelColumn,
    LabelReader,
    PairLabels,
    ScoreLabels,
    without_codes,
)
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

    `marks` has the labels of each score column, and `nominal` those of each aspect without an order, as numbers
    from 0; these also give the marks of the shares of its labels, 0 and 1. `chance` has the chance of a row to
    be labelled up to a common factor, if it is known. `notes` has remarks for the reader.
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
        fits = [target for target in targets if assignment.startswith(f"{target}=")]
        ours = max(fits, key=len, default="")
        theirs = assignment.removeprefix(f"{ours}=")
        if not ours or not theirs or "=" in without_codes(theirs)[0]:
            raise UsageError(
                f"`mapping` {assignment}: write OURS=THEIRS, where OURS is one of {', '.join(targets)}"
            )
        mapping[theirs] = ours
    return mapping


def label_targets(rubric: Rubric) -> list[str]:
    """Return the names that a column of labels can have: the aspects, and the shares of labels."""
    return [*dict.fromkeys([*rubric.aspects, *(column.name for column in rubric.score_columns)])]


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
    manifest = judged.manifests[0]
    inputs_of_run = manifest.last_start.inputs
    # The input of an imported run has the judge's verdicts, which are no labels of it.
    has_inputs = manifest.settings.engine != IMPORTED and all(map(can_be_read_twice, inputs_of_run))
    in_inputs = isinstance(judged, JudgedPairs) and has_inputs
    names = find_inputs(files or inputs_of_run if in_inputs else files)
    if special := [name for name in names if not can_be_read_twice(name)]:
        raise UsageError(
            f"`labels` {special[0]}: must be a file, because it is read twice; write it to one first"
        )
    matching = _LabelMatching(judged, mapping or {}, inputs, columns or {})
    for name in names:
        matching.add_all((f"{name}:{number}", record) for number, record in RecordStream(name))
    if isinstance(judged, JudgedPairs) and not names:
        matching.add_all(_records_of_pairs(judged))
    labels = matching.labels()
    if equal_chances:
        refuse_unequal_chances(labels.chance, "this command")
    return labels


def _records_of_pairs(judged: JudgedPairs) -> Iterator[tuple[str, Record]]:
    """Yield the columns of the rows of a run as label records, with their places."""
    for identity, columns in zip(judged.identities, judged.columns, strict=True):
        identifying = zip((*PAIR_DIGESTS, *SYSTEMS), (*identity.digests, *identity.systems), strict=True)
        yield f"{judged.where}: {identity.id}", {**columns, **dict(identifying), "id": identity.id}


def _systems_of(judged: RunRows) -> set[str]:
    """Return the names of the systems of all rows."""
    named = chain.from_iterable(identity.systems for identity in judged.identities)
    return {system for system in named if system is not None}


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
        *(LabelColumn.from_aspect(name, name, aspect) for name, aspect in aspects.items() if name not in taken),
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


class _LabelMatching:
    """Matches the records of label files to judged rows."""

    def __init__(
        self, judged: RunRows, mapping: Mapping[str, str], inputs: Sequence[str], columns: Columns
    ) -> None:
        rubric = judged.manifests[0].rubric
        self._judged, self._rubric, self._fields = judged, rubric, rubric.fields
        self._columns: dict[str, str] = {}
        for run in judged.manifests:
            self._columns |= run.last_start.columns
        self._given = {name: path for name, path in columns.items() if name != ANNOTATOR}
        self._rows = RowIndex(
            judged.identities, self._fields, lambda: rows_again(judged, inputs), rubric.mode.item
        )
        self._values: LabelReader
        if compares_responses(self._fields):
            self._values = PairLabels(rubric.aspects, mapping, _systems_of(judged))
        else:
            self._values = ScoreLabels(columns_of(rubric.aspects, mapping))
        self._records = LabelRecords(columns.get(ANNOTATOR))
        self._of_one_turn = 0

    def add_all(self, records: Iterable[tuple[str, Record]]) -> None:
        """Add the labels of the records of a file, by one reading of them.

        Raises:
            UsageError: a record could not be read, its row cannot be determined, or a value is not a label.
        """
        records = iter(records)
        first = list(islice(records, FIRST_RECORDS))
        readable = [record for _, record in first if isinstance(record, dict)]
        try:
            reader = label_reader(readable, self._columns, self._fields, self._values.names, given=self._given)
        except RecordError as error:
            raise UsageError(f"{first[0][0].rpartition(':')[0]}: {error}") from None
        for where, record in chain(first, records):
            self._add(record, where, reader)

    def _add(self, given: Record, where: str, reader: RowReader) -> None:
        record, annotator = self._records.begin(given, where)
        for identity, values in identities_of(record, where, reader):
            if CRITERION in self._fields and CRITERION not in identity.texts:
                raise UsageError(
                    f"{where}: no {CRITERION}; a label is of one criterion of a row: give its text in the "
                    f"column {CRITERION}"
                )
            match = self._rows.find(identity)
            of_turn = TURN in identity.texts and judges_conversation(self._fields)
            self._of_one_turn += bool(match.rows) and of_turn
            labels = self._values.given({**record, **values.others}, values, reader.reading, where)
            self._mark(match, labels, annotator, where)

    def _mark(self, match: Match, given: Iterable[GivenLabels], annotator: str, where: str) -> None:
        count = Counter[str]()
        order = -1 if match.is_reversed else 1
        for labels in given:
            for place, value in enumerate(labels.values):
                count[labels.target] += 1
                named = (annotator, count[labels.target])
                if place < len(labels.annotators):
                    named = (labels.annotators[place], 1)
                for row in match.rows:
                    systems = self._judged.identities[row].systems[::order]
                    number = self._values.number(value, labels, systems, where)
                    if number is not None:
                        number = 1 - number if match.is_reversed else number
                        self._records.mark(row, labels.target, *named, number, where)

    def labels(self) -> Labels:
        """Return the labels of all records.

        Raises:
            UsageError: there are none, or they can be read in two ways.
        """
        self._records.check_annotator()
        how_read = self._values.how_read()
        marks = self._records.marks
        if not marks:
            raise UsageError(nothing_found(self._records, self._rows, self._judged, [*self._rubric.aspects]))
        columns = self._rubric.score_columns
        nominal = {column.aspect: tuple(column.numbers) for column in columns if is_share(column.name)}
        self._add_labels_of_shares(marks, nominal)
        labelled = {aspect: marks[aspect] for aspect in nominal if aspect in marks}
        for aspect, of_aspect in labelled.items():
            for number, label in enumerate(nominal[aspect]):
                is_label = (of_aspect.value == number).astype(np.float64)
                marks[f"{aspect}={label}"] = replace(of_aspect, value=is_label)
        of_turn = f"{self._of_one_turn} label records are of the last turn; the judge read whole conversations"
        return Labels(
            marks={column.name: marks[column.name] for column in columns if column.name in marks},
            nominal=labelled,
            annotators=self._records.annotators,
            notes=(
                *self._rows.notes("label records", " that counts" * bool(self._judged.selected)),
                *self._records.notes(len(self._judged.identities)),
                *[of_turn] * bool(self._of_one_turn),
                *how_read,
            ),
            chance=self._records.chance,
        )

    def _add_labels_of_shares(
        self, arrays: dict[str, LabelArray], nominal: Mapping[str, Sequence[Value]]
    ) -> None:
        """Add the labels of aspects of two labels where a file says for one of them whether a row has it."""
        for aspect, labels in nominal.items():
            for place, label in enumerate(labels if len(labels) == 2 else ()):
                share = arrays.get(f"{aspect}={label}")
                if aspect not in arrays and share is not None and np.isin(share.value, (0, 1)).all():
                    arrays[aspect] = replace(share, value=np.where(share.value == 1, place, 1.0 - place))


def nothing_found(records: LabelRecords, rows: RowIndex, judged: RunRows, aspects: Sequence[str]) -> str:
    """Return the reason why no label was read, for a message.

    Args:
        records: the records.
        rows: the rows that were searched.
        judged: the same, with their runs.
        aspects: the aspects.
    """
    columns = ", ".join(sorted(records.columns)[:12])
    if records.count and not rows.has_matched:
        why = "; ".join(rows.notes("label records", " that counts" * bool(judged.selected)))
        return (
            f"`labels`: none of its {records.count} records matches a {rows.noun} of {judged.where}: {why}; "
            f"its columns are {columns}"
        )
    return (
        f"`labels`: no label of {', '.join(aspects)}; its columns are {columns}; map a column with "
        f"`mapping` {aspects[0]}=THEIRS"
    )
