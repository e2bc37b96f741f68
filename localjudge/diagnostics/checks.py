"""What was looked at and found right or wrong, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.text import Text

State = Literal["ok", "note", "wrong"]

_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "note": ("!", "yellow"),
    "wrong": ("✗", "red"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is.
        state: `ok`; `note`, which stops nothing but should be known; or `wrong`.
        found: what was found.
        mend: what to do about it; empty where there is nothing to do.
    """

    name: str
    state: State
    found: str
    mend: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def note(name: str, found: str, mend: str = "") -> Check:
    return Check(name, "note", found, mend)


def wrong(name: str, found: str, mend: str) -> Check:
    return Check(name, "wrong", found, mend)


def is_sound(checks: Sequence[Check]) -> bool:
    """Whether nothing is wrong."""
    return all(check.state != "wrong" for check in checks)


def checklist(checks: Sequence[Check]) -> Text:
    """A line a check, for a terminal: a mark and a word, its name, what was found, and what to do about it."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        mark, colour = _MARKS[check.state]
        said = f"{check.found} → {check.mend}" if check.mend else check.found
        lines.append(
            Text.assemble(
                (f"{mark} {check.state:<5}", colour),
                f" {check.name:<{width}}  {' '.join(said.split())}",
            )
        )
    return Text("\n").join(lines)
