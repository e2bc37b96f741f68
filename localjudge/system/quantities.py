"""Counts, sizes, times and shares as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MIB = 2**20
GIB = 2**30
UNDEFINED_SIGN = "–"  # noqa: RUF001
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def as_number(text: str) -> float | None:
    """Return the decimal number that a text is; None for other texts, also for 0_3, nan, inf and " 1"."""
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: 1 row, 1,200 rows.

    Args:
        number: the number.
        one: the noun for one.
        many: the noun for several; None appends an s.
    """
    if number == 1:
        return f"1 {one}"
    if many is None:
        many = one + "s"
    return f"{number:,} {many}"


def file_size(count: float) -> str:
    """Return bytes of a file or a disk in decimal units, as disks are sold: 1.2 kB, 3.4 MB, 5.6 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def memory_size(count: float) -> str:
    """Return bytes of memory in binary units, as GPUs are sold: 0.5 MiB, 24.0 GiB."""
    if count >= GIB // 10:
        return f"{count / GIB:,.1f} GiB"
    return f"{count / MIB:,.1f} MiB"


def duration(seconds: float) -> str:
    """Return a time as minutes and seconds, 0:10, or as hours, minutes and seconds, 1:02:03."""
    all_minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(all_minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{whole_seconds:02}"
    return f"{minutes}:{whole_seconds:02}"


def hours(seconds: float) -> str:
    """Return a long time in words: 45 seconds, 12 minutes, 3.5 hours."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{figure(seconds / size)} {unit}"
    return f"{figure(seconds)} seconds"


def figure(value: float) -> str:
    """Return a number with three digits, and all digits of a larger one: < 0.001, 0.0123, 4.56, 1,234."""
    if value < 0.001:
        return "< 0.001"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def in_digits(value: float | None) -> str:
    """Return a number that is at least 0 with three digits, 0 as it is; a dash for an undefined one."""
    if value is None:
        return UNDEFINED_SIGN
    if value == 0:
        return "0"
    return figure(value).replace("< ", "less than ")


def percent(share: float) -> str:
    """Return a share in percent; only a share of 0 or 1 is 0 % or 100 %.

    It has no decimal places, and one below 1 % and above 99 %: 0%, < 0.1%, 0.4%, 37%, 99.6%, 100%.
    """
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.0005:
        return "< 0.1%"
    if share > 0.9995:
        return "> 99.9%"
    if share < 0.01 or share > 0.99:
        return f"{share:.1%}"
    return f"{share:.0%}"


def bars(shares: Iterable[float]) -> str:
    """Return one bar character for each share from 0 to 1; a share below 0.005 is a dot."""
    return "".join(_bar(share) for share in shares)


def _bar(share: float) -> str:
    if share < 0.005:
        return "·"
    height = min(7, int(share * 8))
    return "▁▂▃▄▅▆▇█"[height]


def p_in_words(value: float) -> str:
    """Return a p-value for a sentence: p = .17, p < .001."""
    if value < 0.001:
        return f"p {p_value(value)}"
    return f"p = {p_value(value)}"


def p_value(value: float | None) -> str:
    """Return a p-value without its leading zero: .17, .047, .003, < .001."""
    if value is None:
        return UNDEFINED_SIGN
    if value < 0.001:
        return "< .001"
    text = f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
    return text.removeprefix("0")
