"""A real HTTP server in this process whose replies come from a function."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from localjudge import Judge
from localjudge.records import Outcome
from localjudge.rubrics.rubric import Rubric

Body = dict[str, Any]
Reply = tuple[int, Any] | bytes
"""A status, and a JSON document, bytes, or headers and bytes; or all bytes of a reply as they are sent."""
Script = Callable[[str, int], Reply | None]
"""A function that returns the reply from the row's text and how often it was asked before; None hangs up."""

WHOLE = '{"rationale":"Seen.","scores":{"tact":"2","wit":"3"}}'
TRIAL = "Answer in the form that is asked for."
ROWS = [{"id": f"r{n}", "instruction": f"Q{n}?", "candidate": f"C{n}", "reference": "R"} for n in range(6)]
"""Rows for `short_rubric`."""
FORM_RUBRIC = """
name = "form"
aspects = ["score"]
scale = { lowest = 1, highest = 5 }
[answer]
form = "Feedback: {rationale} [RESULT] {score}"
[prompt]
template = "Q: {$instruction} A: {$candidate} score 1-5"
"""
"""A rubric whose answers have a form of their own; the prompt does not say it."""
FAST = {"retry_wait": "0.01", "request_timeout": "20", "patience": "20"}
"""Options of the engine that suit a test."""


def chat(text: str, **others: Any) -> Reply:
    """Return the reply of a chat completion with this text."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **others}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}


Place = str | dict[str, float] | list[tuple[str, float | None]]
"""The tokens listed at a place and their shares, the chosen one first; None for no share, 0.9 for a text."""


def listing(*places: Place) -> dict[str, Any]:
    """Return the log-probabilities of a reply."""
    content = []
    for place in places:
        shares = [(place, 0.9)] if isinstance(place, str) else place
        shares = [*shares.items()] if isinstance(shares, dict) else shares
        top = [{"token": token, "logprob": share and math.log(share)} for token, share in shares]
        content.append({**top[0], "top_logprobs": top})
    return {"logprobs": {"content": content}}


def answer_trial(body: Body) -> Reply:
    """Return the reply of a server whose log-probabilities are the model's own, whatever the request says."""
    return chat(WHOLE, **listing({"{": 0.1, "Sure": 0.6, "I": 0.2}))


class ScriptedServer(ThreadingHTTPServer):
    """A server of one model, `tiny`.

    Attributes:
        script: replies to rows.
        trial: replies to a request without text of a row.
        refusal: returns the reply to a request that the server does not take, and None for any other.
        asked: the text of each row that came, in order.
        bodies: the requests' documents, trials included.
        models: the names of the models that it lists.
        version: the version that it names at `version_path`, which is vLLM's; None for none.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: Script, place: int | Path = 0) -> None:
        if isinstance(place, Path):
            self.address_family = socket.AF_UNIX
        super().__init__(("127.0.0.1", place) if isinstance(place, int) else str(place), ScriptedHandler)  # type: ignore[arg-type]
        self.script = script
        self.trial: Callable[[Body], Reply | None] = answer_trial
        self.refusal: Callable[[Body], Reply | None] = lambda body: None
        self.asked: list[str] = []
        self.bodies: list[Body] = []
        self.paths: list[str] = []
        self.models = ["tiny"]
        self.version: str | None = None
        self.version_path = "/version"
        self._lock = threading.Lock()

    def server_bind(self) -> None:
        # The server of the library asks for the name of its host.
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        return connection, address or ("unix", 0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, path: str, body: Body | None) -> Reply | None:
        with self._lock:
            self.paths.append(path)
            if body is None:
                if path == self.version_path and self.version:
                    return 200, {"version": self.version}
                return (
                    (200, {"data": [{"id": name} for name in self.models]})
                    if path == "/v1/models"
                    else (404, {})
                )
            self.bodies.append(body)
            text = body["messages"][-1]["content"]
            is_trial = text.startswith(TRIAL)
            before = self.asked.count(text)
            if not is_trial:
                self.asked.append(text)
        if refused := self.refusal(body):
            return refused
        return self.trial(body) if is_trial else self.script(text, before)


class ScriptedHandler(BaseHTTPRequestHandler):
    """Sends the replies of its server."""

    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Body | None) -> None:
        reply = self.server.reply(self.path, body)
        if reply is None:
            self.close_connection = True
            return
        if isinstance(reply, bytes):
            self._send(reply)
            return
        status, content = reply
        headers, content = content if isinstance(content, tuple) else ({}, content)
        written = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(written)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(written)

    def _send(self, written: bytes) -> None:
        try:
            self.wfile.write(written)
        except (BrokenPipeError, ConnectionResetError):  # the client has read enough
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(script: Script, place: int | Path = 0) -> Iterator[ScriptedServer]:
    """Serve in a thread until the end of the block, at a port of this machine or at a Unix socket."""
    server = ScriptedServer(script, place)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def always(reply: Reply) -> Script:
    return lambda text, before: reply


def number_of(text: str) -> int:
    """Return the number of the row whose text a server got."""
    return int(text.partition("Q: Q")[2].partition("?")[0])


def judge_on(server: ScriptedServer, rubric: Path | Rubric, **settings: Any) -> Judge:
    given = settings.pop("engine_args", {})
    return Judge(
        rubric=rubric, engine="server", engine_args={"server": server.url, **FAST, **given}, **settings
    )


def judged(script: Script, rubric: Path, rows: Any = ROWS, **settings: Any) -> dict[str, Outcome]:
    with serving(script) as server, judge_on(server, rubric, **settings) as judge:
        found = {outcome.id: outcome for outcome in judge.score(rows)}
    assert len(found) == len(rows)
    return found
