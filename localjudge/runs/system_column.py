"""The systems of rows as a column of the input, by which statistics divide the rows like by another column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localjudge.rows.columns import names_of, responses_of
from localjudge.runs.run_manifest import RunManifest


def system_value(manifest: RunManifest, column: str) -> Callable[[Sequence[str | None]], str | None]:
    """Return a function that gives a row's value in a column from its systems; None if they are not in it.

    The column of both systems of a pair, "system", has the value "first vs second".

    Args:
        manifest: the manifest of the run.
        column: the column.
    """
    used, columns = manifest.rubric.fields, manifest.last_start.columns
    of_responses = [column in (field, *names_of(field, columns, used)) for field in responses_of(used).values()]
    is_of_all = column in ("system", *names_of("system", columns, used))

    def value(systems: Sequence[str | None]) -> str | None:
        if True in of_responses:
            return systems[of_responses.index(True)]
        named = [name for name in systems if name is not None]
        return " vs ".join(named) if is_of_all and len(named) == len(systems) else None

    return value
