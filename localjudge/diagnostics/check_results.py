"""Results of checks, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong"]


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


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def note(name: str, found: str, fix: str = "") -> Check:
    return Check(name, "note", found, fix)


def wrong(name: str, found: str, fix: str) -> Check:
    return Check(name, "wrong", found, fix)


def is_sound(checks: Sequence[Check]) -> bool:
    """Return whether nothing is wrong."""
    return all(check.state != "wrong" for check in checks)
