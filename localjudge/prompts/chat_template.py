"""Render chat templates in a separate process with limits, because a template is a program from a stranger.

The process starts at the first rendering and serves all later ones. It uses the function of transformers.
The kernel enforces the limits, because a template can spend its time and memory in a single operation, which no
Python exception interrupts. Run as a program, this module is that process: JSON lines in, JSON lines out.
"""

from __future__ import annotations

import atexit
import datetime
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from localjudge.errors import ModelError

SECONDS = 10.0
"""Time limit of one rendering, in seconds."""
CHARACTERS = 1_000_000
"""Limit of characters in one rendered text."""
_BYTES = 2**30
_TIMED_OUT = -signal.SIGALRM
"""Exit status of a process that ran out of time."""


class FixedDate(datetime.datetime):
    """The date of templates that print one, so that a run that continues tomorrow sends the same prompts."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls(2026, 1, 1, tzinfo=tz)


Content = str | list[dict[str, str]]
"""The content of a turn: a text, or a list of parts."""
Message = Mapping[str, Content]
"""A turn: its role and its content."""
_lock = threading.Lock()
_renderer: subprocess.Popen[bytes] | None = None


def render_template(template: str, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    """Return the text of a chat template, as `transformers.utils.chat_template_utils` renders it.

    Args:
        template: the template's source.
        messages: the turns, each with a role and a content, which is a text or a list of parts.
        variables: everything else that the template may read; values that JSON can hold.

    Raises:
        ModelError: the template cannot be rendered, takes more than `SECONDS` or 1 GiB of memory (which macOS
            does not limit), or renders more than `CHARACTERS`.
    """
    request = {
        "template": template,
        "messages": list(messages),
        "variables": dict(variables),
        "seconds": SECONDS,
        "characters": CHARACTERS,
    }
    reply, status = _request(json.dumps(request).encode() + b"\n")
    if status == _TIMED_OUT:
        raise ModelError(f"the chat template cannot be rendered: it takes more than {SECONDS:g} s")
    if not reply.endswith(b"\n"):
        raise ModelError(
            f"the chat template cannot be rendered: the process that renders it ended with {status}"
        )
    answer = json.loads(reply)
    if "error" in answer:
        raise ModelError(f"the chat template cannot be rendered: {answer['error']}")
    return str(answer["text"])


def _request(request: bytes) -> tuple[bytes, int | None]:
    """Send one line to the renderer. Return its reply, and its exit status if it ended instead."""
    global _renderer
    with _lock:
        if _renderer is None or _renderer.poll() is not None:
            _stop()
            _renderer = _started()
        assert _renderer.stdin is not None
        assert _renderer.stdout is not None
        try:
            _renderer.stdin.write(request)
            _renderer.stdin.flush()
            reply = _renderer.stdout.readline()
            if reply.endswith(b"\n"):
                return reply, None
            return reply, _renderer.wait()
        except BrokenPipeError:
            return b"", _renderer.wait()
        except BaseException:  # after an interrupt, the next request must not read the reply to this one
            _stop()
            raise


def _started() -> subprocess.Popen[bytes]:
    """Start the renderer. It uses the same packages as this process, and no threads of numpy."""
    variables = dict(os.environ)
    variables["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in sys.path)
    variables["OPENBLAS_NUM_THREADS"] = "1"
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "localjudge.prompts.chat_template"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt at the terminal must reach only the parent process
        env=variables,
    )


@atexit.register
def _stop() -> None:
    global _renderer
    if _renderer is not None:
        _renderer.kill()
        _renderer.communicate()
        _renderer = None


def _serve() -> None:
    """Render each request from stdin, one line each, until stdin ends."""
    from transformers.utils import chat_template_utils

    # Its `strftime_now` asks this name for the date; a function among the variables would reach no template
    # from transformers 5.24 on.
    chat_template_utils.datetime = FixedDate
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the default action ends the process, in any operation
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _BYTES if hard == resource.RLIM_INFINITY else min(_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    for line in sys.stdin.buffer:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        try:
            (text,), _ = chat_template_utils.render_jinja_template(
                [request["messages"]],
                chat_template=request["template"],
                **request["variables"],
            )
            if len(text) > request["characters"]:
                raise ValueError(f"it renders {len(text):,} characters, more than {request['characters']:,}")
            reply = {"text": text}
        except Exception as error:  # a template may raise anything
            message = " ".join(str(error)[:500].split())
            reply = {"error": message or type(error).__name__}
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve()
