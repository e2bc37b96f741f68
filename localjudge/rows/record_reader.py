"""Find the fields of a row in a record: by its shape, by the columns that are given, or by usual names.

Every column of a record is a field, is a part of one, or is kept as a column of the row. A column that is given
to a field is in no other field, and a name that can mean two things is taken only where it can mean one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from localjudge.rows.columns import (
    CONVERSATION,
    CONVERSATIONS,
    CRITERION,
    IN_FULL,
    MESSAGES,
    PAIR,
    SHAPE,
    SYSTEM_PROMPT,
    TURN,
    Columns,
    column_names,
    folded,
    judges_conversation,
    own_fields,
    responses_of,
)
from localjudge.rows.conversation import read_conversation, read_pair
from localjudge.rows.messages import as_chat, role_of, roles_of
from localjudge.rows.paths import ABSENT, EACH, FIRST, Element, column, elements, is_missing, unpacked, value_at
from localjudge.rows.record import RecordError
from localjudge.rows.shapes import Shape, found_in, paths_in, recognized, shape_named, value_of

_LIKE_A_RESPONSE = re.compile(
    r"(?!correct|gold|best|expected|reference|ideal|true|right|label|num_|n_)"
    r".*(output|response|answer|completion|generation|prediction|reply|candidate)s?_?\d*$"
)
_END_OF_SENTENCE = (".", "!", "?", ":", "\n")
_LONGEST_NAME = 100
GATHERED = "@responses"
"""The column of the responses that a shape gathers."""
_CANDIDATE_OR_REFERENCE = ("answer", "output")
"""Names that some files give to the response and others to the reference."""
_OF_ONE_COLUMN = ("instruction", "reference", CRITERION, "candidate", *PAIR)
"""Fields for which two columns with usual names are one too many."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields that a record has.

    Attributes:
        record: the columns of the record by name.
        shape: the shape of the record.
        values: the value of each field by its name.
        taken: the column or the path of each field.
        others: the other columns of the record.
        number: its place among the rows of the record, from 0; None if the record is one row.
        element: the elements of lists that it is made of.
    """

    record: Mapping[str, Any]
    shape: Shape
    values: dict[str, Any] = dataclass_field(default_factory=dict)
    taken: dict[str, str] = dataclass_field(default_factory=dict)
    others: dict[str, Any] = dataclass_field(default_factory=dict)
    number: int | None = None
    element: Element = dataclass_field(default_factory=dict)

    def take(self, field: str, column: str) -> None:
        """Take one of the other columns for a field."""
        self.values[field], self.taken[field] = self.others.pop(column), column


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the fields of records with the same columns are.

    Attributes:
        sources: the column or the declaration of each field.
        kept: the columns that are not a part of a field.
        lists: the paths that go through a list.
        usual: the possible columns of each field that is in a column with a usual name.
        doubtful: the columns that can be the candidate if that of the candidate is the reference.
    """

    sources: Mapping[str, Any]
    kept: Sequence[str]
    lists: Sequence[str]
    usual: Mapping[str, Sequence[str]]
    doubtful: Sequence[str]


class RecordReader:
    """A reader of records.

    Args:
        columns: the column of each field whose column is given.
        used: the fields that the rubric's template uses.
        lenient: take the first of several possible columns.

    Attributes:
        columns: the columns that are given, with the shape, the path of the rows and the file to join.
        given: the column of each field whose column is given.
        used: the fields that the rubric's template uses.
        judged: the field of each response that is judged, and the field of its system.
        own_fields: the fields that are columns of the rubric's own.
        needed: the fields that each row has.
        names: the usual names of the column of each field.
        found_at: the path of the rows in the last file that holds one object; empty if there is none.
    """

    def __init__(self, columns: Columns, used: Sequence[str], *, lenient: bool = False) -> None:
        self.columns, self.used, self._lenient, self.found_at = columns, used, lenient, ""
        self.given = {field: path for field, path in columns.items() if not field.startswith("@")}
        self._shape = shape_named(columns[SHAPE]) if SHAPE in columns else None
        others = (MESSAGES, SYSTEM_PROMPT, *CONVERSATIONS.intersection(used))
        self.names = {**column_names(used), **{name: (name,) for name in others}}
        self.judged, self.own_fields = responses_of(used), own_fields(used)
        self.needed = {"instruction", *self.judged, *self.own_fields, *{CRITERION}.intersection(used)}
        self._shows_all_turns = judges_conversation(used) or IN_FULL in used
        self._layouts: dict[tuple[Any, ...], _Layout] = {}

    def shape_of(self, record: Mapping[str, Any]) -> Shape:
        return self._shape or recognized(record)

    def first(self, record: Mapping[str, Any], field: str) -> Any:
        """Return the first value that a record has for a field; None if it has none."""
        declared = filter(None, [self.shape_of(record).fields.get(field)])
        names = [self.given[field]] if field in self.given else [*declared, *self.names.get(field, ())]
        return next((value for name in names if not is_missing(value := value_of(name, record))), None)

    def fields(self, record: Mapping[str, Any], shape: Shape) -> Iterator[Fields]:
        """Yield the fields of each row of a record.

        Args:
            record: columns by name.
            shape: the shape of the record.

        Raises:
            RecordError: several columns are possible for a field, or the record is not of its shape.
        """
        if shape.gather and "candidate" in self.judged:
            lists = [unpacked(value_at(record, path)) for path in shape.gather]
            record = {**record, GATHERED: [each for found in lists for each in found]}
        layout = self._layout_of(record, shape)
        if not self._lenient:
            self._check(record, shape, layout)
        places = elements(record, layout.lists, product=shape.product)
        for number, element in enumerate(places or [FIRST]):
            found = Fields(record, shape, number=None if places is None else number, element=element)
            self._fill(found, layout)
            self._settle(found)
            read = read_conversation if "candidate" in self.judged else read_pair
            read(found.values, found.taken, self.used)
            for name in (SYSTEM_PROMPT, MESSAGES):  # what no field shows is a column
                if name in found.values and name not in self.used:
                    value, key = found.values.pop(name), found.taken.pop(name, name)
                    found.others.setdefault(key, record.get(key, value))
            yield found

    def _layout_of(self, record: Mapping[str, Any], shape: Shape) -> _Layout:
        """Return where the fields of a record are."""
        possible = () if shape.has else self.names.get("candidate", ())
        listed = [name for name in possible if name in record and _is_list_of_texts(record[name])]
        own = {"candidate": listed[0] + EACH} if len(listed) == 1 else {}  # each of its texts is a response
        key = (shape.name, *own.values(), *record)
        if (found := self._layouts.get(key)) is None:
            if len(self._layouts) > 1000:
                self._layouts.clear()
            known = {*self.names, TURN, *self.used}
            own |= {field: source for field, source in shape.fields.items() if field in known}
            found = self._layouts[key] = self._new_layout(record, shape, own | self.given)
        return found

    def _new_layout(self, record: Mapping[str, Any], shape: Shape, sources: Mapping[str, Any]) -> _Layout:
        paths = [(path, field) for field, source in sources.items() for path in paths_in(source)]
        # A path that is given leaves the rest of its column, unless it goes through a list.
        claimed = {*shape.drop, *shape.gather} | {
            path if path in record or (field in self.given and EACH not in path) else column(path)
            for path, field in paths
        }
        free = [key for key in record if isinstance(key, str) and key not in claimed]
        alike = {folded(key): key for key in reversed(free)} | {key: key for key in free}
        there = {field for path, field in paths if column(path) in record or path in record} | self.given.keys()
        usual = {
            field: [*dict.fromkeys(alike[name] for name in possible if name in alike)]
            for field, possible in self.names.items()
            if shape.usual and field not in there and not alike.keys().isdisjoint(possible)
        }
        taken = {field: found[0] for field, found in usual.items()}
        kept = [key for key in record if key not in claimed and key not in taken.values()]
        named = [key for key in kept if isinstance(key, str) and _LIKE_A_RESPONSE.match(folded(key))]
        doubtful = named if folded(taken.get("candidate", "")) in _CANDIDATE_OR_REFERENCE else []
        return _Layout({**sources, **taken}, kept, [path for path, _ in paths if EACH in path], usual, doubtful)

    def _check(self, record: Mapping[str, Any], shape: Shape, layout: _Layout) -> None:
        """Check that a record is of the kind that the rubric judges, and can be read in one way only.

        Raises:
            RecordError: with the file, the rubric or the column that it needs.
        """
        if shape.joins is not None:
            raise RecordError(
                f"is {shape.title}; give the file with the rest, too: {shape.joins} joins the two"
            )
        two = PAIR[0] in shape.fields
        if "candidate" in self.judged.keys() - layout.sources.keys() and (two or shape.unanswered):
            what = "two responses; compare them with --rubric pairwise" if two else "no response"
            raise RecordError(f"is one of {shape.title}, with {what}")
        for field, found in layout.usual.items():
            if field in _OF_ONE_COLUMN and len(found) > 1 and folded(found[0]) != field:
                both = [each for each in found if folded(each) in _CANDIDATE_OR_REFERENCE]
                is_reference = field == "candidate" and both and "reference" not in layout.sources
                other = f", or give the reference with `columns` reference={both[-1]}" if is_reference else ""
                raise RecordError(
                    f"{' and '.join(map(repr, found))} are both possible columns for the {field}; choose one "
                    f"with `columns` {field}={found[0]}{other}"
                )
        name, *_ = layout.usual.get("candidate", [""])
        rivals = [each for each in layout.doubtful if isinstance(record[each], str) and record[each]]
        known = {"reference", "system"} & layout.sources.keys()
        if rivals or (folded(name) == "answer" and not layout.doubtful and not known):
            of, then = f" of {rivals[0]!r}" if rivals else "", "`columns` candidate="
            then = then + rivals[0] if rivals else "and the column of the candidate"
            raise RecordError(
                f"{name!r} can be the candidate or the reference{of}; choose with `columns` candidate={name}, "
                f"or with `columns` reference={name} {then}"
            )

    def _fill(self, found: Fields, layout: _Layout) -> None:
        """Fill in the fields of a row of a record, as they are in its columns."""
        record, values, taken = found.record, found.values, found.taken
        for field, source in layout.sources.items():
            value, there = found_in(source, record, found.element)
            if value is not ABSENT:
                values[field] = value
            if value is not ABSENT or field in self.given:
                taken[field] = " + ".join(found.shape.gather) if there.startswith(GATHERED) else there
        found.others.update({name: record[name] for name in layout.kept})
        for name in {path.partition(EACH)[0] + EACH for path in layout.lists}:
            if isinstance(inner := value_at(record, name, found.element), Mapping):
                of_element = {path.removeprefix(f"{name}.") for path in layout.lists}
                found.others.update({key: inner[key] for key in inner if key not in of_element})
        systems = layout.usual.get("system", ())
        if systems and folded(systems[0]) == "system" and values["system"]:
            self._settle_system(found, systems[1:])
        if found.shape.usual and "candidate" in self.judged and not {"candidate", MESSAGES} & taken.keys():
            self._find_chat(found)
        own = values.get("id")
        if found.number is not None and not is_missing(own) and is_missing(values.get("system")):
            values["id"] = f"{own}-{found.number + 1}"

    def _settle_system(self, found: Fields, others: Sequence[str]) -> None:
        """Take a `system` that is a prompt for the prompt of a system, and its name from another column."""
        values, taken = found.values, found.taken
        if _is_prompt(values["system"]):
            values[SYSTEM_PROMPT], taken[SYSTEM_PROMPT] = values.pop("system"), taken.pop("system")
            for other in others[:1]:
                found.take("system", other)
            return
        is_outcome = not found.record.keys().isdisjoint(("key", "label"))  # where `model` is the judge
        has_chat = MESSAGES in values or as_chat(values.get("instruction")) is not None
        differ = [each for each in others[:1] if found.record[each] != values["system"]]
        if differ and has_chat and not (is_outcome or self._lenient):
            raise RecordError(
                f"{taken['system']!r} can be a prompt or, like {differ[0]!r}, the name of a system; choose the "
                f"name with `columns` system={differ[0]}"
            )

    def _find_chat(self, found: Fields) -> None:
        """Take the only column that holds messages for the conversation."""
        if as_chat(found.values.get("instruction")) is not None:
            return
        chats = [key for key, value in found.others.items() if as_chat(value) is not None]
        if len(chats) > 1 and not self._lenient:
            said = " and ".join(map(repr, chats))
            raise RecordError(f"{said} are conversations; choose one with --column messages={chats[0]}")
        if len(chats) == 1:
            found.take(MESSAGES, chats[0])

    def _settle(self, found: Fields) -> None:
        """Settle what depends on the rubric: which turns are judged, and the reference of a turn.

        Raises:
            RecordError: the rubric cannot judge the record.
        """
        values, shape = found.values, found.shape
        if shape.turns is not None and isinstance(last := value_at(found.record, shape.turns), int):
            chats = {name: as_chat(values.get(name)) for name in PAIR}
            values |= {name: _first_turns(chat, last) for name, chat in chats.items() if chat is not None}
        roles = roles_of(values.get(MESSAGES)) if shape.whole and "candidate" in self.judged else []
        is_shown = self._shows_all_turns or not CONVERSATIONS.isdisjoint(self.used)
        if not is_shown and (roles.count("user") > 1 or "tool" in roles):
            rubric = "agent" if "tool" in roles else CONVERSATION
            raise RecordError(f"has turns that only {{${CONVERSATION}}} shows; judge it with --rubric {rubric}")
        if shape.reference_of_turns and isinstance(texts := unpacked(values.get("reference")), list) and texts:
            values["reference"] = "\n\n".join(map(str, texts)) if self._shows_all_turns else texts[-1]
        if shape.has and TURN in values:
            found.others[TURN] = values.pop(TURN)
            found.taken.pop(TURN)


def _is_list_of_texts(value: Any) -> bool:
    value = None if isinstance(value, str) else unpacked(value)
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _is_prompt(system: Any) -> bool:
    """Return whether a `system` is a text for a system, and not its name."""
    return isinstance(system, str) and (
        len(system) > _LONGEST_NAME or (system.count(" ") > 1 and system.rstrip(" ").endswith(_END_OF_SENTENCE))
    )


def _first_turns(chat: list[Any], turns: int) -> list[Any]:
    """Return the beginning of a conversation, with as many turns of the user and the answers to them."""
    asked = [place for place, turn in enumerate(chat) if role_of(turn) == "user"]
    return chat[: asked[turns]] if 0 < turns < len(asked) else chat
