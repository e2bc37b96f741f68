"""The results of checks, as `doctor` and `models verify` print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from localjudge.cli.commands import in_flags
from localjudge.cli.console import Console, print_json

if TYPE_CHECKING:
    from localjudge.verification import Check, State

_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "note": ("!", "yellow"),
    "wrong": ("✗", "red"),
}


def print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print the results of checks as a list or as JSON."""
    shown_checks = [replace(check, found=in_flags(check.found), fix=in_flags(check.fix)) for check in checks]
    if as_json:
        print_json([_check_document(check) for check in shown_checks], indent=2)
    else:
        Console(soft_wrap=True).print(_check_list(shown_checks))


def _check_document(check: Check) -> dict[str, Any]:
    """Return a check as `localjudge doctor --json` and `models verify --json` have it."""
    return {"name": check.name, "state": check.state, "found": check.found, "fix": check.fix}


def _check_list(checks: Sequence[Check]) -> Text:
    """Return one terminal line per check: a mark, its state, its name, what was found, and the fix."""
    name_width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        mark, colour = _MARKS[check.state]
        result = f"{check.found} → {check.fix}" if check.fix else check.found
        one_line = " ".join(result.split())
        line = Text.assemble((f"{mark} {check.state:<5}", colour), f" {check.name:<{name_width}}  {one_line}")
        lines.append(line)
    return Text("\n").join(lines)
