"""What is wrong with a row, compared with what is right for its record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shape_records import DIALOGUE, PAIR, Made, Reading, Said, Shape, Uses

from localjudge import Row
from localjudge.records import Failure

ROLES = {"system": "System", "developer": "Developer", "user": "User", "assistant": "Assistant"}


class ShapeError(AssertionError):
    """A record is read wrongly, or not at all; the message begins with the shape's name."""


def quoted(text: str | None) -> str:
    return "\n".join(f"> {line}" for line in (text or "").split("\n"))


def transcript(turns: Sequence[Said]) -> str:
    """Return a conversation as the guide shows it."""
    blocks: list[str] = []
    calls = 0
    for turn in turns:
        if turn.answers is not None:
            blocks.append(f"Tool, result of call {turn.answers}:\n{quoted(turn.text)}")
            continue
        if turn.text is not None:
            blocks.append(f"{ROLES[turn.role]}:\n{quoted(turn.text)}")
        for name, arguments in turn.calls:
            calls += 1
            given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            blocks.append(f"Assistant, call {calls}:\n{quoted(f'{name} {given}')}")
    return "\n\n".join(blocks)


def kept(value: Any, name: str) -> Iterator[Any]:
    """Yield each value that has this key, at any depth, also in JSON that is kept as text."""
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == name or str(key).endswith(f".{name}"):
                yield inner
            yield from kept(inner, name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from kept(inner, name)


def allowed(right: Any) -> tuple[Any, ...]:
    return right if isinstance(right, tuple) else (right,)


def differences(row: Row, reading: Reading, used: Uses) -> Iterator[str]:
    """Yield what is wrong with a row, a sentence for each field."""
    if used == DIALOGUE and reading.ordered:
        where = [max(row.candidate.find(text), row.candidate.find(quoted(text))) for text in reading.ordered]
        if -1 in where or where != sorted(where):
            yield f"conversation is {row.candidate!r}, right are {reading.ordered!r} in this order"
    elif used == DIALOGUE:
        transcripts = [transcript(turns) for turns in reading.conversations]
        if row.candidate not in transcripts:
            yield f"conversation is {row.candidate!r}, right is {transcripts!r}"
    elif reading.trajectories:
        yield from trajectory_differences(row, reading)
    else:
        if row.texts != reading.responses:
            yield f"responses are {row.texts!r}, right is {reading.responses!r}"
        asked = [*allowed(reading.instruction)]
        if reading.turns:
            asked += [*(turn.text for turn in reading.turns if turn.role == "user")][-1:]
            asked.append(transcript(reading.turns))
        if "instruction" in used and row.instruction not in asked:
            yield f"instruction is {row.instruction!r}, right is {asked!r}"
    if "reference" in used:
        alternatives = reading.reference if isinstance(reading.reference, tuple) else (reading.reference,)
        right = "\nor\n".join(str(each) for each in alternatives)
        if row.reference != right:
            yield f"reference is {row.reference!r}, right is {right!r}"
    systems = [response.system for response in row.responses]
    right_systems = reading.systems or (None,) * len(systems)
    if reading.systems_optional and (not reading.systems or systems == [None] * len(systems)):
        pass
    elif any(name not in allowed(one) for name, one in zip(systems, right_systems, strict=True)):
        yield f"systems are {systems!r}, right is {reading.systems!r}"
    for name, text in reading.fields.items():
        if name in used and row.fields.get(name) not in allowed(text):
            yield f"{name} is {row.fields.get(name)!r}, right is {text!r}"
    for name, parts in reading.shown.items():
        if name in used:
            places = [row.fields[name].find(part) for part in parts]
            if -1 in places or places != sorted(places):
                yield f"{name} is {row.fields[name]!r}, right are {parts!r} in this order"
    if "criterion" in used:
        criteria = tuple((each.text, round(each.points, 9)) for each in row.criteria)
        if criteria != tuple((text, round(points, 9)) for text, points in reading.criteria):
            yield f"criteria are {criteria!r}, right is {reading.criteria!r}"
    for name, value in reading.columns.items():
        found = [*kept(dict(row.columns), name)]
        values = [each.get("value") if isinstance(each, Mapping) else each for each in found]
        if not any(one in values for one in allowed(value)):
            yield f"kept {name} is {found!r}, right is {value!r}"


def trajectory_differences(row: Row, reading: Reading) -> Iterator[str]:
    """Yield what is wrong with two conversations: each has its own texts, in order, and none of the other's."""
    for place, turns in enumerate(reading.trajectories):
        shown = row.texts[place]
        others = reading.trajectories[1 - place]
        wanted = [turn.text or "" for turn in turns if turn.role == "assistant"]
        where = -1
        for text in wanted:
            found = max(shown.find(text, where + 1), shown.find(quoted(text), where + 1))
            if found <= where:
                yield f"response {place + 1} is {shown!r}, and lacks {text!r} in its place"
            where = found
        for turn in others:
            if turn.role == "assistant" and turn.text and turn.text in shown and turn.text not in wanted:
                yield f"response {place + 1} is {shown!r}, and has {turn.text!r} of the other"
        for turn in turns:
            seen = f"{row.instruction}\n{shown}"
            if turn.role == "user" and turn.text not in seen and quoted(turn.text) not in seen:
                yield f"the user's {turn.text!r} is not shown"
        if '[{"' in shown or '["' in shown[:2]:
            yield f"response {place + 1} is JSON: {shown!r}"


def is_judged(row: Row | Failure, used: Uses) -> bool:
    """Return whether a row has all that its rubric shows; without a text, no prompt is made."""
    if isinstance(row, Failure):
        return False
    others = set(used) - {"reference", "criterion", "instruction", "candidate", *DIALOGUE, *PAIR}
    lacks_reference = "reference" in used and row.reference is None
    return not lacks_reference and others <= set(row.fields) and ("criterion" not in used or bool(row.criteria))


def one_response_each(reading: Reading) -> Iterator[Reading]:
    """Yield a reading of each response of a pair, which a rubric of one response may judge."""
    if reading.trajectories:
        for place, turns in enumerate(reading.trajectories):
            text = turns[-1].text or ""
            yield replace(
                reading,
                responses=(text,),
                turns=turns[:-1],
                trajectories=(),
                systems=reading.systems[place:][:1],
            )
    for place, text in enumerate(reading.responses):
        yield replace(reading, responses=(text,), systems=reading.systems[place:][:1], columns={})


def check(shape: Shape, made: Sequence[Made], found: Sequence[list[Row | Failure]], used: Uses) -> None:
    """Raise a ShapeError for the first record that is silently wrong, or else if any is refused."""
    if len(found) != len(made):
        first = next(iter(found), [None])[0]
        raise ShapeError(f"{shape.name}: {len(made)} records, {len(found)} came; the first is {first!r}")
    refused = []
    for each, rows in zip(made, found, strict=True):
        readings = [one for one in each.readings if "reference" not in used or one.reference not in {None, ""}]
        read = [row for row in rows if isinstance(row, Row) and is_judged(row, used)]
        failures = [row for row in rows if row not in read]
        if len(read) > len(readings):
            raise ShapeError(f"{shape.name}: wrong: {len(read)} rows, right are {len(readings)}: {read!r}")
        rest = iter(readings)
        for row in read:  # a reading that is left out belongs to a failure
            wrong = [*differences(row, next(rest), used)]
            while wrong and failures and (reading := next(rest, None)):
                wrong = [*differences(row, reading, used)]
            if wrong:
                raise ShapeError(f"{shape.name}: wrong: {'; '.join(wrong)}; record {each.record!r}")
        if len(read) < len(readings):
            if not failures:
                raise ShapeError(
                    f"{shape.name}: wrong: {len(read)} rows, right are {len(readings)}; {each.record!r}"
                )
            refused.append(getattr(failures[0], "error", f"a text is missing in {failures[0]!r}"))
    if refused:
        raise ShapeError(
            f"{shape.name}: refused {len(refused)} of {len(made)}: {refused[0]}; {made[0].record!r}"
        )
