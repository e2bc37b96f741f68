"""Check whether an endpoint could listen: its address, its token and its certificate."""

from __future__ import annotations

from collections.abc import Callable

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.errors import UsageError
from localjudge.serve.listener import LOOPBACK, Listener


def examine_endpoint(make: Callable[[], Listener]) -> list[Check]:
    """Bind the address and release it; nobody can connect meanwhile.

    Args:
        make: returns the listener, or raises UsageError.
    """
    try:
        listener = make()
        listener.bind().close()
    except UsageError as error:
        found, _, fix = str(error).partition("; ")
        return [wrong("endpoint", found, fix)]
    scheme = "http" if listener.certfile is None else "https"
    who = "this machine" if listener.token is None else "those who have the token"
    checks = [ok("endpoint", f"{scheme}://{listener.host}:{listener.port} is free; would answer {who}")]
    if listener.certfile is None and listener.host not in LOOPBACK:
        plain = "without TLS, the rows and the token can be read on the network"
        checks.append(note("endpoint", plain, "give --certfile and --keyfile"))
    return checks
