"""Find the fields of a row in a record: by its shape, by the columns that are given, or by usual names.

Every column of a record is a field, is a part of one, or is kept as a column of the row. A column that is given
to a field is in no other field, and a name that can mean two things is taken only where it can mean one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localjudge.rows.columns import (
    CANDIDATE_OR_REFERENCE,
    ROWS_AT,
    SHAPE,
    Columns,
    column_names,
    folded,
    responses_of,
)
from localjudge.rows.conversation import (
    CONVERSATION,
    CONVERSATIONS,
    IN_FULL,
    MESSAGES,
    SYSTEM_PROMPT,
    TURN,
    as_chat,
    judges_conversation,
    with_conversation,
)
from localjudge.rows.criteria import CRITERION
from localjudge.rows.messages import role_of
from localjudge.rows.pair_columns import PAIR, compares_responses
from localjudge.rows.paths import ABSENT, EACH, FIRST, Places, column, elements, unpacked, value_at
from localjudge.rows.record import RecordError
from localjudge.rows.shapes import Shape, paths_in, recognized, shape_named, value_of

_LIKE_A_RESPONSE = re.compile(
    r"(output|response|answer|completion|generation|prediction|reply|candidate)s?_?\d*$"
)
_NOT_A_RESPONSE = re.compile(r"^(correct|gold|best|expected|reference|ideal|true|right|label)|^(num|n)_")
_END_OF_SENTENCE = (".", "!", "?", ":", "\n")
_LONGEST_NAME = 100
_GATHERED = "@responses"


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields that a record has.

    Attributes:
        values: the value of each field by its name.
        taken: the column or the path of each field.
        others: the other columns of the record.
        shape: the shape of the record; None if its columns have the usual names.
        number: its place among the rows of the record, from 0; None if the record is one row.
        element: the places of the elements of lists that it is made of.
    """

    values: dict[str, Any]
    taken: dict[str, str]
    others: dict[str, Any]
    shape: Shape | None = None
    number: int | None = None
    element: Places | None = None


class RecordReader:
    """A reader of records.

    Args:
        columns: the column of each field whose column is given.
        used: the fields that the rubric's template uses.
        lenient: take the first of several possible columns.

    Attributes:
        given: the column of each field whose column is given.
        used: the fields that the rubric's template uses.
        rows_at: the path of the rows in a file that holds one object; None to find them.
    """

    def __init__(self, columns: Columns, used: Sequence[str], *, lenient: bool = False) -> None:
        self.used, self._lenient = used, lenient
        self.given = {field: path for field, path in columns.items() if not field.startswith("@")}
        self.rows_at = columns.get(ROWS_AT)
        self._has_shape = SHAPE in columns
        self._shape = shape_named(columns[SHAPE]) if SHAPE in columns else None
        others = (MESSAGES, SYSTEM_PROMPT, *CONVERSATIONS.intersection(used))
        self._names = {**column_names(used), **{name: (name,) for name in others}}
        self._known = {*self._names, TURN, *used}
        self._judges_one = not compares_responses(used)
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def shape_of(self, record: Mapping[str, Any]) -> Shape | None:
        """Return the shape of a record; None if it is read by the usual names."""
        return self._shape if self._has_shape else recognized(record)

    def first(self, record: Mapping[str, Any], field: str) -> Any:
        """Return the first value that a record has for a field; None if it has none."""
        shape = self.shape_of(record)
        own = shape.fields.get(field) if shape else None
        names = [self.given[field]] if field in self.given else [own, *self._names.get(field, ())]
        values = (value_of(name, record) for name in names if name is not None)
        return next((value for value in values if value is not ABSENT and value not in (None, "")), None)

    def fields(self, record: Mapping[str, Any], shape: Shape | None = None) -> Iterator[Fields]:
        """Yield the fields of each row of a record.

        Args:
            record: columns by name.
            shape: the shape of the record; None to read it by the usual names.

        Raises:
            RecordError: several columns are possible for a field, or the record is not of its shape.
        """
        given = self.given
        if self._lenient:
            given = {field: path for field, path in given.items() if value_at(record, path) is not ABSENT}
        declared = shape.fields if shape else {}
        sources = {field: source for field, source in declared.items() if field in self._known} | given
        if shape is not None and shape.gather and self._judges_one:
            lists = [unpacked(value_at(record, path)) for path in shape.gather]
            record = {**record, _GATHERED: [each for found in lists for each in found]}
            single = {field: path for field, path in sources.items() if field not in PAIR}
            sources = {"candidate": _GATHERED + EACH, **single}
        if shape is None and "candidate" not in sources and self._judges_one:
            usual = self._names["candidate"]
            listed = [key for key in record if key in usual and _is_list_of_texts(record[key])]
            sources |= {"candidate": f"{listed[0]}[*]"} if len(listed) == 1 else {}
        paths = [path for source in sources.values() for path in paths_in(source)] if sources else []
        places = elements(record, paths, product=shape is not None and shape.product)
        for number, element in enumerate(places or [FIRST]):
            found = self._of_element(record, shape, sources, paths, element)
            found.values.update(self._numbered(found, number) if places is not None else {})
            if shape is not None:
                self._settle(record, found, shape)
            fields = with_conversation(found.values, found.taken, self.used)
            for name in (SYSTEM_PROMPT, MESSAGES):  # what no field shows is a column
                if name in fields and name not in self.used:
                    value = fields.pop(name)
                    if (key := found.taken.pop(name, name)) in record:
                        value = record[key]
                    found.others.setdefault(key, value)
            own = None if places is None else number
            yield Fields(fields, found.taken, found.others, shape, own, element)

    def _settle(self, record: Mapping[str, Any], found: Fields, shape: Shape) -> None:
        """Settle what depends on the rubric: which turns are judged, and whether there is a response at all.

        Raises:
            RecordError: the rubric cannot judge the record.
        """
        two = PAIR[0] in shape.fields and "candidate" not in found.values
        if self._judges_one and not self._lenient and (shape.unanswered or two):
            what = "two responses; compare them with --rubric pairwise" if two else "no response"
            raise RecordError(f"is one of {shape.title}, with {what}")
        if shape.turns is not None and isinstance(last := value_at(record, shape.turns), int):
            for name in PAIR:
                if (chat := as_chat(found.values.get(name))) is not None:
                    found.values[name] = _first_turns(chat, last)
        roles = [role_of(turn) for turn in as_chat(found.values.get(MESSAGES)) or ()]
        if shape.answered and roles[-1:] == ["user"] and "candidate" not in found.values:
            raise RecordError("the last turn is the user's; give the response in another column")
        is_shown = judges_conversation(self.used) or IN_FULL in self.used
        turns = roles.count("user")
        is_long = turns > 1 or "tool" in roles
        if (
            shape.whole
            and is_long
            and not is_shown
            and self._judges_one
            and CONVERSATIONS.isdisjoint(self.used)
        ):
            has = f"its question has {turns} turns" if turns > 1 else "it has calls of tools"
            rubric = "agent" if "tool" in roles else "conversation"
            raise RecordError(
                f"{has}, and the rubric has no {{${CONVERSATION}}} to show them; "
                f"judge them with --rubric {rubric}"
            )
        reference = found.values.get("reference")
        if "turns" in (given := shape.fields.get("reference", "")) and isinstance(given, Mapping) and reference:
            found.values["reference"] = "\n\n".join(map(str, reference)) if is_shown else reference[-1]
        if TURN in found.values:
            found.others[TURN] = found.values.pop(TURN)
            found.taken.pop(TURN)
        for name in (*shape.drop, *shape.gather):
            found.others.pop(name, None)

    def _numbered(self, found: Fields, number: int) -> dict[str, Any]:
        """Return another id for each element of a list of responses without a system."""
        own, system = found.values.get("id"), found.values.get("system")
        return {"id": f"{own}-{number + 1}"} if own not in (None, "") and system in (None, "") else {}

    def _of_element(
        self,
        record: Mapping[str, Any],
        shape: Shape | None,
        sources: Mapping[str, Any],
        paths: Sequence[str],
        element: Places,
    ) -> Fields:
        values, taken = dict[str, Any](), dict[str, str]()
        for field, source in sources.items():
            value = value_of(source, record, element)
            if value is not ABSENT:
                values[field] = value
            if value is not ABSENT or field in self.given:
                taken[field] = source if isinstance(source, str) else " + ".join(paths_in(source))
        own = (field for field in (shape.fields if shape else ()) if field in sources)
        of_shape = {path for field in own for path in paths_in(sources[field])}
        claimed = {path for path in paths if path in record}
        claimed |= {column(path) for path in paths if path not in record and (path in of_shape or EACH in path)}
        if shape is None or shape.usual:
            self._add_usual(record, claimed, values, taken)
        others = {key: value for key, value in record.items() if key not in claimed}
        lists = dict.fromkeys(path.partition(EACH)[0] + EACH for path in paths if EACH in path)
        for name in lists:
            inner = value_at(record, name, element)
            if isinstance(inner, Mapping):
                used = {path.removeprefix(f"{name}.") for path in paths}
                others |= {key: value for key, value in inner.items() if key not in used}
        return Fields(values, taken, others)

    def _add_usual(
        self, record: Mapping[str, Any], claimed: set[str], values: dict[str, Any], taken: dict[str, str]
    ) -> None:
        """Add the fields that are in columns with usual names, and claim these columns."""
        key = (*record, None, *sorted(claimed), None, *taken) if claimed or taken else tuple(record)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 1000:
                self._plans.clear()
            plan = self._plans[key] = _Plan.of(record, claimed, self._names, taken, self.used)
        if not self._lenient:
            plan.check(record)
        for field, name in plan.taken.items():
            values[field], taken[field] = record[name], name
        claimed.update(plan.taken.values())
        if "system" in plan.taken and "system" not in self.given:
            self._settle_system(record, plan, values, taken, claimed)
        if self._judges_one and "candidate" not in taken and MESSAGES not in taken:
            self._find_chat(record, claimed, values, taken)

    def _settle_system(
        self,
        record: Mapping[str, Any],
        plan: _Plan,
        values: dict[str, Any],
        taken: dict[str, str],
        claimed: set[str],
    ) -> None:
        """Take a `system` that is a prompt for the prompt of a system, and its name from another column."""
        name, others = plan.taken["system"], plan.others.get("system", ())
        value = record[name]
        if folded(name) != "system" or not isinstance(value, str) or not value:
            return
        is_prompt = len(value) > _LONGEST_NAME or (
            value.count(" ") > 1 and value.rstrip(" ").endswith(_END_OF_SENTENCE)
        )
        if is_prompt:
            values[SYSTEM_PROMPT], taken[SYSTEM_PROMPT] = value, name
            del values["system"], taken["system"]
            if others:
                values["system"], taken["system"] = record[others[0]], others[0]
                claimed.add(others[0])
        elif (
            others
            and not self._lenient
            and not {"key", "label"} & record.keys()
            and (MESSAGES in values or as_chat(values.get("instruction")))
            and record[others[0]] != value
        ):
            raise RecordError(
                f"{name!r} can be a prompt or, like {others[0]!r}, the name of a system; choose the name with "
                f"`columns` system={others[0]}"
            )

    def _find_chat(
        self, record: Mapping[str, Any], claimed: set[str], values: dict[str, Any], taken: dict[str, str]
    ) -> None:
        """Take the only column that holds messages for the conversation."""
        if as_chat(values.get("instruction")) is not None:
            return
        chats = [key for key, value in record.items() if key not in claimed and as_chat(value) is not None]
        if len(chats) == 1:
            values[MESSAGES], taken[MESSAGES] = record[chats[0]], chats[0]
            claimed.add(chats[0])
        elif chats and not self._lenient:
            said = " and ".join(map(repr, chats))
            raise RecordError(f"{said} are conversations; choose one with --column messages={chats[0]}")


def _is_list_of_texts(value: Any) -> bool:
    value = value.tolist() if hasattr(value, "tolist") else value
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _first_turns(chat: list[Any], turns: int) -> list[Any]:
    """Return the beginning of a conversation, with as many turns of the user and the answers to them."""
    asked = [place for place, turn in enumerate(chat) if role_of(turn) == "user"]
    return chat[: asked[turns]] if 0 < turns < len(asked) else chat


@dataclass(frozen=True, slots=True)
class _Plan:
    """How records with the same columns are read by the usual names.

    Attributes:
        taken: the column of each field.
        others: the other columns that are possible for a field.
        problem: the reason why no such record can be read.
        doubtful: the column of the candidate, if its name can also be that of a reference, and the columns
            that then can be the candidate.
    """

    taken: Mapping[str, str]
    others: Mapping[str, Sequence[str]]
    problem: str | None
    doubtful: tuple[str, Sequence[str]] | None

    @classmethod
    def of(
        cls,
        record: Mapping[str, Any],
        claimed: set[str],
        names: Mapping[str, Sequence[str]],
        known: Mapping[str, str],
        used: Sequence[str],
    ) -> _Plan:
        free = {key: None for key in record if isinstance(key, str) and key not in claimed}
        alike = {folded(key): key for key in reversed(free) if folded(key) not in free} | {
            key: key for key in free
        }
        taken, others = dict[str, str](), dict[str, Sequence[str]]()
        problem = None
        strict = ("instruction", "reference", CRITERION, *responses_of(used))
        for field, usual in names.items():
            if field in known:
                continue
            possible = [*dict.fromkeys(alike[name] for name in usual if name in alike)]
            if not possible:
                continue
            if folded(possible[0]) != field and len(possible) > 1 and field in strict and problem is None:
                problem = (
                    f"{' and '.join(map(repr, possible))} are both possible columns for the {field}; "
                    f"choose one with `columns` {field}={possible[0]}"
                )
                if field == "candidate" and (
                    both := [each for each in possible if folded(each) in CANDIDATE_OR_REFERENCE]
                ):
                    problem += f", or give the reference with `columns` reference={both[-1]}" * (
                        "reference" not in known
                    )
            taken[field], others[field] = possible[0], possible[1:]
        doubtful = None
        own = taken.get("candidate")
        if own is not None and folded(own) in CANDIDATE_OR_REFERENCE:
            like = [
                key
                for key in free
                if key not in taken.values()
                and _LIKE_A_RESPONSE.search(folded(key))
                and not _NOT_A_RESPONSE.search(folded(key))
            ]
            doubtful = (own, like) if like else None
        return cls(taken, others, problem, doubtful)

    def check(self, record: Mapping[str, Any]) -> None:
        """Check that these records can be read in one way only.

        Raises:
            RecordError: a column can mean two things.
        """
        if self.problem:
            raise RecordError(self.problem)
        if self.doubtful is not None:
            name, like = self.doubtful
            if found := [each for each in like if isinstance(record[each], str) and record[each]]:
                raise RecordError(
                    f"{name!r} can be the candidate, or the reference of {found[0]!r}; choose with `columns` "
                    f"candidate={name}, or with `columns` reference={name} `columns` candidate={found[0]}"
                )
