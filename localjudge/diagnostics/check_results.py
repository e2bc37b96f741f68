"""Results of checks, for people and for programs."""

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
    """The result of one check.

    Attributes:
        name: what was checked.
        state: `ok`; `note`, a remark that does not prevent a run; or `wrong`.
        found: what was found.
        fix: what to do about it; empty if nothing needs to be done.
    """

    name: str
    state: State
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def note(name: str, found: str, fix: str = "") -> Check:
    return Check(name, "note", found, fix)


def wrong(name: str, found: str, fix: str) -> Check:
    return Check(name, "wrong", found, fix)


def is_sound(checks: Sequence[Check]) -> bool:
    """Return whether nothing is wrong."""
    return all(check.state != "wrong" for check in checks)


def checklist(checks: Sequence[Check]) -> Text:
    """Return one terminal line per check: a mark, its state, its name, what was found, and the fix."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        mark, colour = _MARKS[check.state]
        said = f"{check.found} → {check.fix}" if check.fix else check.found
        lines.append(
            Text.assemble(
                (f"{mark} {check.state:<5}", colour),
                f" {check.name:<{width}}  {' '.join(said.split())}",
            )
        )
    return Text("\n").join(lines)
