"""Check a model server: whether it answers, what it serves, and of which kind it is."""

from __future__ import annotations

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.server.connection import REQUEST_ERRORS
from localjudge.engines.server.served_model import ServedModel
from localjudge.engines.server.server_requests import ServerRequests
from localjudge.engines.server.table_server import table_of
from localjudge.errors import UsageError


def examine_server(options: ServerOptions, model: str | None) -> list[Check]:
    """Ask a server for its models, its version and its token table; no row is sent.

    Args:
        options: the server.
        model: the name of the model on it; None if it has only one.
    """
    try:
        served = ServedModel.ask(options, model, waits=False)
    except UsageError as error:
        found, _, fix = str(error).partition("; ")
        return [wrong("server", found, fix or "give --model one of its models")]
    answers = ok("server", f"{options.address}: answers; {served.product}; serves {served.name}")
    table = _table_on(options, served) if served.product.startswith("vllm") else None
    if table is None:
        unverified = "unverified: it applies no token table; an answer that is not whole becomes a failure"
        return [answers, note("kind", unverified)]
    return [answers, ok("kind", f"by construction, with --server-kind table: it has the token table {table}")]


def _table_on(options: ServerOptions, model: ServedModel) -> str | None:
    """Return the digest of the token table on a vLLM server; None if it has none, or does not say."""
    requests: ServerRequests[None] = ServerRequests(options)
    try:
        return requests.run(table_of(requests.connection, model.name))
    except REQUEST_ERRORS:
        return None
    finally:
        requests.close()
