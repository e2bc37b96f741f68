"""The HTML table that a notebook shows for a run, an outcome or a ranking. No text becomes markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def html_table(lines: Sequence[Mapping[str, object]], caption: str) -> str:
    """Return lines with the same keys as an HTML table; no text becomes markup or a formula.

    Args:
        lines: the values by the names of their columns; None is an empty cell.
        caption: text above the table.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in (lines[0] if lines else ()))
    body = "".join(f"<tr>{''.join(map(_cell, line.values()))}</tr>" for line in lines)
    # Notebooks typeset $…$ as a formula, but in elements of these classes.
    return (
        '<table class="tex2jax_ignore mathjax_ignore" style="white-space: pre-wrap">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    shown = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return f'<td style="text-align: left; vertical-align: top">{escape(shown)}</td>'
