"""Check a model server: whether it answers, what it serves, and of which kind it is."""

from __future__ import annotations

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.selection import find_served_model
from localjudge.errors import UsageError


def examine_server(options: ServerOptions, model: str | None) -> list[Check]:
    """Ask a server for its models and its version; no row and no prompt is sent.

    Args:
        options: the server.
        model: the name of the model on it; None if it has only one.
    """
    try:
        served = find_served_model(options, model)
    except UsageError as error:
        found, _, fix = str(error).partition("; ")
        return [wrong("server", found, fix or "give --model one of its models")]
    said = getattr(served, "product", "unknown")
    return [
        ok("server", f"{options.address}: answers; {said}; serves {served.name}"),
        note("kind", "unverified: it applies no token table; an answer that is not whole becomes a failure"),
    ]
