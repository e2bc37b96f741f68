"""Which rows count: all, or those with a value in a column."""

from __future__ import annotations

import json

from localjudge.errors import UsageError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.rows.columns import names_of, responses_of
from localjudge.runs.run_manifest import RunManifest

_MOST_SHOWN = 10
"""Largest number of values or columns that a message names."""
_LONGEST_SHOWN = 60
"""Largest number of characters of each."""


class RowSelection:
    """Which rows count: all, or those with a value in a column of the input; the systems are a column, too.

    Args:
        where: COLUMN=VALUE, a value that is not text as in JSON; None for all rows.
        of_old: choose among the rows of the first run; the others are read, but marked.

    Raises:
        UsageError: `where` is something else.
    """

    def __init__(self, where: str | None = None, of_old: bool = False) -> None:
        self.of_old = of_old
        self._where = where
        column, equals, value = (where or "").partition("=")
        if where is not None and (not column or not equals):
            raise UsageError(f"`where` {where}: write COLUMN=VALUE, such as topic=code")
        self._column = column
        self._value = value
        self._columns_seen = set[str]()
        self._values_seen = set[str]()
        self._rows = 0
        self._chosen = 0

    def includes(self, run: int, manifest: RunManifest, row: RowOutcome) -> bool:
        """Return whether a row counts, and remember what a message says of its columns.

        Args:
            run: the number of its run.
            manifest: the manifest of its run.
            row: the row.
        """
        if self._where is None or (self.of_old and run > 0):
            return True
        self._columns_seen.update(row.first.columns)
        if any(row.systems):
            self._columns_seen.add("system")
        values = self._values_of(manifest, row)
        for value in values:
            if len(self._values_seen) < _MOST_SHOWN:
                self._values_seen.add(value)
        is_chosen = self._value in (values or ["null"])
        self._rows += 1
        self._chosen += is_chosen
        return is_chosen

    def _values_of(self, manifest: RunManifest, row: RowOutcome) -> list[str]:
        """Return the values of a row in the column, as they are written in the condition."""
        columns = row.first.columns
        if self._column not in columns:
            return _systems_in(self._column, manifest, row=row)
        value = columns[self._column]
        return [value if isinstance(value, str) else json.dumps(value)]

    def refuse_none(self) -> None:
        """Refuse a condition that no row fulfils, or whose column no row has.

        Raises:
            UsageError: no row counts.
        """
        has_rows = self._chosen > 0 and bool(self._values_seen)
        if self._where is None or has_rows:
            return
        if self._values_seen:
            what = "value; its values are"
            names = self._values_seen
        else:
            what = "column; a run keeps what its prompt does not use:"
            names = self._columns_seen
        shown = ", ".join(name[:_LONGEST_SHOWN] for name in sorted(names)[:_MOST_SHOWN])
        raise UsageError(f"`where` {self._where}: no row has this {what} {shown or 'none'}")

    @property
    def notices(self) -> tuple[str, ...]:
        """How many rows the numbers are about, unless all rows count."""
        if self._where is None:
            return ()
        return (f"only rows with {self._where}: {self._chosen:,} of {self._rows:,}",)


def _systems_in(column: str, manifest: RunManifest, *, row: RowOutcome) -> list[str]:
    """Return the systems of a row that are in a column; the column `system` has both of a pair."""
    used = manifest.rubric.fields
    renamed = manifest.last_start.columns
    systems = []
    for field, system in zip(responses_of(used).values(), row.systems, strict=True):
        if not system:
            continue
        columns = ["system", field]
        columns += names_of("system", renamed, used=used)
        columns += names_of(field, renamed, used=used)
        if column in columns:
            systems.append(system)
    return systems
