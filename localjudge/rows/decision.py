"""Decide the reading of a file from the flags, its first records and the fields of the rubric.

A column feeds at most one field. It is claimed in this order: by a flag; by the declared shape of the records;
by a field of the rubric with its name; by the usual names of columns; by the turns of a conversation. What can
be read in two ways is refused, and the message has the flags for both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localjudge.errors import RowProblem
from localjudge.rows.claims import Claims, overlap
from localjudge.rows.columns import (
    CONVERSATIONS,
    CRITERION,
    HISTORY,
    MESSAGES,
    PAIR,
    SYSTEM_PROMPT,
    TURN,
    ReadingFlags,
    folded,
    own_fields,
    responses_of,
    usual_names,
)
from localjudge.rows.conversation_decision import ConversationDecision
from localjudge.rows.first_records import Column, FirstRecords
from localjudge.rows.form import encoded_paths, form_of, records_of_form
from localjudge.rows.missing import flag_of, known_columns, missing_fields_reason
from localjudge.rows.paths import EACH, column, list_of
from localjudge.rows.reading import KIND_NAMES, FieldSource, Kind, Reading, Source, TurnSource
from localjudge.rows.record import RecordError
from localjudge.rows.shapes import Declaration, Place, Shape

_LIKE_A_RESPONSE = re.compile(
    r"(?!correct|gold|best|expected|reference|ideal|true|right|label|num_|n_)"
    r".*(output|response|answer|completion|generation|prediction|reply|candidate)s?_?\d*$"
)
_CANDIDATE_OR_REFERENCE = ("answer", "output")
"""Names that some files give to the response and others to the reference."""
_OF_ONE_COLUMN = ("instruction", "reference", CRITERION, "candidate", *PAIR)
"""Fields for which a file may have one column with a usual name only."""
_OF_EXPORTS = frozenset({"key", "status"})
"""Columns of the outcomes of an exported run."""
_REQUIRED_ROLES = frozenset({"user", "assistant", "messages", "marked", "events"})
"""The parts of a conversation that each record needs: all but the prompt of a system and the turns before."""
_KINDS: Mapping[str, Sequence[Kind]] = {
    "instruction": ("text", "turns"),
    "candidate": ("text", "turns", "texts"),
    PAIR[0]: ("text", "turns"),
    PAIR[1]: ("text", "turns"),
    "reference": ("text", "texts", "number", "data"),
    MESSAGES: ("turns",),
    HISTORY: ("turns", "data"),
    SYSTEM_PROMPT: ("text",),
}
"""The kinds of the values that a field can have; other fields have any."""


def decide(
    records: Sequence[dict[str, Any]],
    flags: ReadingFlags,
    used: Sequence[str],
    *,
    label_columns: Iterable[str] = (),
    joined_name: str = "",
    of_labels: bool = False,
) -> Reading:
    """Return the reading of a file.

    Args:
        records: its first records.
        flags: what the user says of the file.
        used: the fields that the rubric's template uses.
        label_columns: columns that hold labels, which are in no field.
        joined_name: the name of the file that the records are joined with.
        of_labels: whether the records are labels, which need no response.

    Raises:
        RecordError: the records can be read in several ways, or a column that a flag names is missing.
    """
    form = form_of(records, flags)
    encoded = encoded_paths(records, form, flags)
    sample = records_of_form(records, form, flags, encoded)
    first = FirstRecords(sample, joined_name, frozenset(label_columns))
    for path in flags.encoded:
        if first.locate(path) is None:
            columns = known_columns(first.columns)
            raise RecordError(
                f"`encoded` {path}: no such column; the columns are {columns}", RowProblem.MISSING
            )
    if not of_labels:
        _refuse_other_records(first, form, flags, used)
    claims = _FieldDecision(first, form, flags, used).claims()
    talk = ConversationDecision(first, claims, form, flags, used)
    talk.decide()
    _refuse_response_or_reference(first, claims, form, flags)
    _refuse_wrong_kinds(first, claims, form, used)
    return Reading(
        form=form.name,
        any_form=flags.shape is not None,
        encoded=encoded,
        fields=claims.fields,
        claimed=tuple(claims.columns),
        object_lists=_object_lists(first, claims),
        joined_name=joined_name,
        shared_columns=tuple(first.shared),
        responses_hold_prompt=talk.responses_hold_prompt,
        turns_are_instruction=talk.turns_are_instruction,
        candidate_is_transcript=talk.candidate_is_transcript,
    )


def _object_lists(first: FirstRecords, claims: Claims) -> tuple[str, ...]:
    """Return the paths before `[*]` whose values are objects."""
    found: dict[str, None] = {}
    for taken in claims.fields.values():
        for source in taken.sources:
            if EACH in source.path and first.holds_object_list(source):
                found[list_of(source.path)] = None
    return tuple(found)


def _refuse_other_records(first: FirstRecords, form: Shape, flags: ReadingFlags, used: Sequence[str]) -> None:
    """Refuse records that hold no responses, or two where the rubric judges one.

    Raises:
        RecordError: with the file or the rubric that it needs.
    """
    if form.joins is not None and not first.is_joined:
        reason = f"is {form.title}; give the file with the rest, too: {form.joins} joins the two"
        raise RecordError(reason, RowProblem.JOIN)
    if "candidate" not in responses_of(used) or "candidate" in {*flags.columns, *form.fields}:
        return
    if PAIR[0] in form.fields:
        what = "two responses; compare them with --rubric pairwise"
        raise RecordError(f"is one of {form.title}, with {what}", RowProblem.FORM)
    if form.unanswered:
        raise RecordError(f"is one of {form.title}, with no response", RowProblem.FORM)


class _FieldDecision:
    """The decision which columns are the fields of a row, but for the turns of a conversation."""

    def __init__(self, first: FirstRecords, form: Shape, flags: ReadingFlags, used: Sequence[str]) -> None:
        self._first, self._form, self._flags, self._used = first, form, flags, used
        self._judged, self._names = responses_of(used), usual_names(used)
        self._claims = Claims(first, [*form.drop, *form.gather])

    def claims(self) -> Claims:
        """Return the sources of the fields.

        Raises:
            RecordError: several columns can be a field, or one that a flag names is missing.
        """
        self._take_flags()
        self._take_declared_fields()
        self._take_own_fields()
        if self._form.usual:
            self._take_usual_columns()
        return self._claims

    def _take_flags(self) -> None:
        """Take the columns that flags name.

        Raises:
            RecordError: no record has such a column, or two fields would read one value.
        """
        sources: dict[str, Source] = {}
        missing = []
        for name, path in self._flags.columns.items():
            source = self._first.locate(path)
            if source is None:
                missing.append(name)
            else:
                sources[name] = source
        if missing:
            raise RecordError(self._no_columns(missing), RowProblem.MISSING)
        for name, located in sources.items():
            source = _of_usable_kind(name, located)
            other = self._claims.field_of(source)
            if other is not None:
                path = self._flags.columns[name]
                reason = f"`columns` {name}={path}: is a part of the column of the {other}; choose another"
                raise RecordError(reason)
            self._claims.add(name, FieldSource(kind=source.kind, texts=(source,)), keeps_column=True)

    def _no_columns(self, missing: Sequence[str]) -> str:
        """Return that the records lack columns that flags name, and the reference if they lack that, too."""
        fields = list(missing)
        has_reference = bool(self._claims.usual_columns(self._names["reference"]))
        if "reference" in self._used and "reference" not in self._flags.columns and not has_reference:
            fields.append("reference")
        return missing_fields_reason(fields, list(self._first.columns), self._used, self._flags.columns)

    def _take_declared_fields(self) -> None:
        """Take the fields of the declared shape that no flag names and that the rubric knows."""
        known = {*self._names, TURN, *self._used}
        for name, declaration in self._form.fields.items():
            if name in known and name not in self._flags.columns:
                source = self._declared_source(name, declaration)
                if source is not None:
                    self._claims.add(name, source)
        self._leave_out_other_lists()

    def _declared_source(self, name: str, declaration: Declaration) -> FieldSource | None:
        """Return the source of a field by its declaration; None if the records have none of its values."""
        if declaration.turns:
            return self._declared_turns(name, declaration)
        located = [self._source_of_place(name, place) for place in declaration.texts]
        sources = tuple(source for source in located if source is not None)
        if not sources:
            return None
        if len(declaration.texts) > 1:
            return FieldSource(kind="text" if len(sources) > 1 else sources[0].kind, texts=sources)
        source = sources[0]
        if self._has_values(name, source):
            source = _of_usable_kind(name, source)
        return FieldSource(kind=source.kind, texts=(source,))

    def _declared_turns(self, name: str, declaration: Declaration) -> FieldSource | None:
        """Return the source of the turns of a declaration; None if the records have none of them."""
        parts = []
        for part in declaration.turns:
            roles: dict[str, tuple[Source, ...]] = {}
            for role, places in part.items():
                located = [self._source_of_place(name, place) for place in places]
                roles[role] = tuple(source for source in located if source is not None)
            if all(roles.values()):
                is_optional = not _REQUIRED_ROLES.intersection(roles)
                parts.append(TurnSource(roles=roles, optional=is_optional))
        return FieldSource(kind="turns", turns=tuple(parts)) if parts else None

    def _source_of_place(self, name: str, place: Place) -> Source | None:
        """Return the source of a declared place: its first path with values; None if no record has one of them.

        Raises:
            RecordError: some records have one of its paths, and others another one.
        """
        paths = place.paths
        if place.inside and any(self._first.holds_objects(path) for path in place.paths):
            paths = place.inside
        found = []
        for path in paths:
            is_named = any(overlap(path, named) for named in self._flags.columns.values())
            source = None if is_named else self._first.locate(path)
            if source is not None:
                found.append(source)
        with_values = [source for source in found if self._has_values(name, source)]
        if not with_values:
            return found[0] if found else None
        self._refuse_other_columns(name, with_values)
        return with_values[0]

    def _has_values(self, name: str, source: Source) -> bool:
        """Return whether a record has a value of a source; an empty text is a value of a response alone."""
        values = self._first.values(source)
        if name in self._judged:
            return bool(values)
        return any(value != "" for value in values)

    def _refuse_other_columns(self, name: str, sources: Sequence[Source]) -> None:
        """Refuse a field that some records have in the first of several columns, and others in another one.

        Raises:
            RecordError: with the flags of both columns.
        """
        if not sources:
            return
        chosen = sources[0]
        for other in sources[1:]:
            if self._first.stand_apart(chosen, other):
                raise RecordError(
                    f"some records have the {name} in {chosen.path!r} and others in {other.path!r}; choose "
                    f"{flag_of(name, chosen.path)} or {flag_of(name, other.path)}"
                )

    def _leave_out_other_lists(self) -> None:
        """Leave out ids and systems in a list that holds no responses, as when the user names these."""
        fields = self._claims.fields
        lists = {""}
        for name in (*self._judged, MESSAGES):
            if name in fields:
                lists.update(list_of(each.path) for each in fields[name].sources)
        for name in ("id", *self._judged.values()):
            if name in fields and name not in self._flags.columns:
                if any(list_of(each.path) not in lists for each in fields[name].sources):
                    self._claims.release(name)

    def _take_own_fields(self) -> None:
        """Take the fields of the rubric that are columns with their names, such as a context."""
        for name in own_fields(self._used):
            if name in self._claims.fields or name in CONVERSATIONS:
                continue
            source = self._first.locate(name)
            if source is None or column(source.path) not in self._first.columns:
                continue
            if self._claims.field_of(source) is None:
                self._claims.add(name, FieldSource(kind=source.kind, texts=(source,)))

    def _take_usual_columns(self) -> None:
        """Take the columns with usual names.

        Raises:
            RecordError: several columns can be the field.
        """
        for name, names in self._names.items():
            if name in self._claims.fields or name in (MESSAGES, HISTORY):
                continue
            possible = [each for each in self._claims.usual_columns(names) if self._is_possible(name, each)]
            if name != "reference" or "reference" in self._used:
                self._refuse_two_columns(name, possible)
                self._refuse_other_columns(name, [each.source for each in possible if each.kind is not None])
            found = _preferred(name, possible)
            if found is not None and (_suits(name, found) or folded(found.name) == name):
                source = _of_usable_kind(name, found.source)
                self._claims.add(name, FieldSource(kind=source.kind, texts=(source,)))

    def _is_possible(self, name: str, each: Column) -> bool:
        """Return whether a column with a usual name of a field can be it.

        In an exported run, `model` is the judge. Beside messages that a flag names, a question and a response
        are those of other records.
        """
        if name == "system" and each.name == "model" and self._first.columns.keys() >= _OF_EXPORTS:
            return False
        messages = self._claims.fields.get(MESSAGES)
        if messages is not None and messages.texts and name in ("instruction", "candidate"):
            return not self._first.stand_apart(messages.texts[0], each.source)
        return True

    def _refuse_two_columns(self, name: str, found: Sequence[Column]) -> None:
        """Refuse a field for which there are two columns, unless one of them has the name of the field.

        Raises:
            RecordError: with the flags of both columns.
        """
        if name not in _OF_ONE_COLUMN:
            return
        # A response that is missing in the first records must not give its field to another column.
        rivals = list(found)
        if name == "reference":
            rivals = [each for each in found if each.kind is not None]
        if len(rivals) < 2 or folded(rivals[0].name) == name:
            return
        other = ""
        both = [each.name for each in rivals if folded(each.name) in _CANDIDATE_OR_REFERENCE]
        if name == "candidate" and both and "reference" not in self._claims.fields:
            other = f", or give the reference with {flag_of('reference', both[-1])}"
        names = " and ".join(repr(each.name) for each in rivals)
        choices = " or ".join(flag_of(name, each.name) for each in rivals)
        raise RecordError(f"{names} are both possible columns for the {name}; choose {choices}{other}")


def _preferred(name: str, possible: Sequence[Column]) -> Column | None:
    """Return the first of several columns that can be a field, one with values before one without."""
    if possible and folded(possible[0].name) == name:
        return possible[0]
    with_values = [each for each in possible if each.kind is not None]
    return next(iter([*with_values, *possible]), None)


def _suits(name: str, each: Column) -> bool:
    """Return whether the values of a column are of a kind that a field can have."""
    kinds = _KINDS.get(name)
    return kinds is None or each.kind is None or each.kind in kinds or name in PAIR


def _of_usable_kind(name: str, source: Source) -> Source:
    """Return a source whose values a field can have: each text of a list of texts is a response.

    Raises:
        RecordError: the values are of another kind.
    """
    if name == "candidate" and source.kind == "texts" and EACH not in source.path:
        return source.model_copy(update={"path": source.path + EACH, "kind": "text"})
    kinds = _KINDS.get(name)
    if kinds is not None and source.kind not in kinds:
        raise RecordError(_wrong_kind(name, source.path, source.kind), RowProblem.KIND)
    return source


def _wrong_kind(name: str, path: str, kind: Kind) -> str:
    """Return that a column has values of another kind than a field, and what to do."""
    expected = " or ".join(KIND_NAMES[usable] for usable in _KINDS[name] if usable != "texts")
    reason = f"{path!r}, the {name}, is {KIND_NAMES[kind]}; it must be {expected}"
    if kind == "text":
        reason += f"; if it is the text of JSON: --encoded {path}"
    return reason


def _refuse_wrong_kinds(first: FirstRecords, claims: Claims, form: Shape, used: Sequence[str]) -> None:
    """Refuse a column with a usual name of a field that the records lack, whose values are of another kind.

    Raises:
        RecordError: there is one.
    """
    if not form.usual or MESSAGES in claims.fields:
        return
    judged = responses_of(used)
    for name, names in usual_names(used).items():
        needs_messages = name == MESSAGES and not judged.keys() & claims.fields.keys()
        if name in claims.fields or not (name in ("instruction", *judged) or needs_messages):
            continue
        for each in claims.usual_columns(names)[:1]:
            if each.kind is not None and each.kind not in _KINDS[name]:
                raise RecordError(_wrong_kind(name, each.name, each.kind), RowProblem.KIND)


def _refuse_response_or_reference(
    first: FirstRecords, claims: Claims, form: Shape, flags: ReadingFlags
) -> None:
    """Refuse a column that is the response in some files and the reference in others, where it can be either.

    Raises:
        RecordError: with the flags of both readings.
    """
    response = claims.fields.get("candidate")
    if response is None or "candidate" in {*flags.columns, *form.fields}:
        return
    name = column(response.texts[0].path)
    if folded(name) not in _CANDIDATE_OR_REFERENCE:
        return
    free = [each for each in claims.free_columns() if each.kind is not None]
    rivals = [each.name for each in free if _LIKE_A_RESPONSE.match(folded(each.name))]
    if rivals:
        both = f"{flag_of('reference', name)} {flag_of('candidate', rivals[0])}"
        raise RecordError(
            f"{name!r} can be the candidate or the reference of {rivals[0]!r}; choose with "
            f"{flag_of('candidate', name)}, or with {both}"
        )
    if folded(name) == "answer" and not {"reference", "system"} & claims.fields.keys():
        raise RecordError(
            f"{name!r} can be the candidate or the reference; choose with {flag_of('candidate', name)}, or "
            f"with {flag_of('reference', name)} and the column of the candidate"
        )
