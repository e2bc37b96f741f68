"""A model on a server, described as the server reports it; and the base class of engines on a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeGuard

import httpx2
from pydantic import JsonValue

from localjudge.engines.engine_options import ConnectionOptions
from localjudge.engines.protocol import EngineInfo
from localjudge.engines.server.connection import (
    REQUEST_ERRORS,
    Connection,
    RetryableRequestError,
    RetryReason,
)
from localjudge.engines.server.replying_models import LOG
from localjudge.engines.server.server_requests import Answered, ServerRequests
from localjudge.errors import ModelError, SettingError
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

UNVERIFIED = "unverified"
"""The kind of a server that applies no token table."""
# Where servers say what they are, and the field of the version: vLLM, Ollama, llama.cpp.
_PRODUCTS = {
    "/version": ("vllm", "version"),
    "/api/version": ("ollama", "version"),
    "/props": ("llama.cpp", "build_info"),
}


@dataclass(frozen=True)
class ServedModel(Model):
    """A model on a server. Its files, its tokenizer and their digests are not known here.

    Attributes:
        product: the server's program, and its version: `vllm 0.32.0`; `unknown` if it does not say.
        server_context: the most tokens of a prompt and its answer there; None if the server does not say.
    """

    product: str = "unknown"
    server_context: int | None = None

    @classmethod
    def ask(cls, options: ConnectionOptions, name: str | None, *, waits: bool = True) -> Self:
        """Ask a server for its models, and return one of them.

        A server that cannot list its models may serve one that is named: its first request will show it.

        Args:
            options: the server.
            name: the model's name on the server; None if it serves only one.
            waits: whether to wait for a server that is not ready yet.

        Raises:
            SettingError: the server cannot be reached.
            ModelError: it does not serve such a model, or several and none is named.
        """
        requests = ServerRequests(options)
        try:
            ask = requests.run_when_ready if waits else requests.run
            listed, product = ask(_look, requests.connection, name is None)
        except REQUEST_ERRORS as error:
            advice = f"{_reason(error, options)}; start the server, or correct the URL"
            raise SettingError("server", options.address, advice) from None
        finally:
            requests.close()
        where = f"the server {options.address}"
        found = {each["id"]: each for each in listed if isinstance(each, dict) and _is_text(each.get("id"))}
        names = ", ".join(sorted(found)[:10])
        if name is None:
            if len(found) != 1:
                raise ModelError(f"`model`: {where} serves {names or 'no model that it names'}; name one")
            (name,) = found
        known = next((each for each in (name, f"{name}:latest") if each in found), None)
        if known is None and found:
            raise ModelError(f"model {name}: {where} does not serve it; it serves {names}")
        context = found.get(known or "", {}).get("max_model_len")
        context = context if isinstance(context, int) else None
        return cls(known or name, Path(), product=product, server_context=context)

    @property
    def is_served(self) -> bool:
        return True

    @cached_property
    def files(self) -> dict[str, str]:
        """No digest: only the server has the files."""
        return {}

    @property
    def digest(self) -> str:
        """The name of the model, which is not verified."""
        return f"unverified {self.name}"


def _is_text(value: Any) -> TypeGuard[str]:
    """Return whether a value is a text that UTF-8 can hold."""
    return isinstance(value, str) and value.isprintable()


async def _look(connection: Connection, needs_list: bool) -> tuple[list[Any], str]:
    """Return the models that a server lists, and its product and version.

    Args:
        connection: the server.
        needs_list: whether a server that cannot list its models is an error.
    """
    try:
        document = await connection.get(f"{connection.address.base}/models")
    except REQUEST_ERRORS as error:
        is_there = not isinstance(error, RetryableRequestError) or error.reason is RetryReason.LOST
        if needs_list or not is_there:
            raise
        document = None
    listed = document.get("data") if isinstance(document, dict) else None
    product = "unknown"
    for path, (name, key) in _PRODUCTS.items():
        with suppress(*REQUEST_ERRORS):
            found = await connection.get(connection.address.root + path)
            if isinstance(found, dict) and _is_text(found.get(key)):
                product = f"{name} {found[key][:60]}"
                break
    return listed if isinstance(listed, list) else [], product


def _reason(error: Exception, options: ConnectionOptions) -> str:
    """Return the text of an error of a request, without the server."""
    return str(error).removeprefix(f"server {options.address}: ")


class ServerEngine(ABC, Generic[Answered]):
    """An engine on a server: its requests, its counts and its description.

    Args:
        options: the server.
        served: the model on it.
        path: the path of a completion, below the API.

    Raises:
        SettingError: the server does not answer a trial.
    """

    kind: ClassVar[str]
    """The kind of the server, and its `meaning` for people."""
    meaning: ClassVar[str]

    def __init__(self, options: ConnectionOptions, served: ServedModel, path: str) -> None:
        self._options, self._served, self._path = options, served, path
        self._prompt_tokens = 0
        self._left_out: dict[str, JsonValue] = {}
        self._requests = ServerRequests(options, lambda: (path, self._trial()))
        try:
            self._check()
        except REQUEST_ERRORS as error:
            self.close()
            advice = f"does not answer a trial: {_reason(error, options)}"
            raise SettingError("server", options.address, advice) from None
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _check(self) -> None:
        """Check by a trial that the server can answer."""

    @abstractmethod
    def _trial(self) -> dict[str, Any]:
        """Return the body of a request without text of a row."""

    @abstractmethod
    async def _answer(self, prompt: Prompt) -> Answered:
        """Return the completion of a prompt."""

    def _try(self, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a trial, or this request without text of a row, when the server is ready; return its reply."""
        post = self._requests.connection.post
        return self._requests.run_when_ready(post, self._path, body or self._trial())

    def _leave_out(self, what: str, reason: str) -> None:
        """Record and log why the server's numbers do not show the probabilities or the mass of the values."""
        self._left_out[what] = reason
        LOG.warning("server %s: no %s (null): %s", self._options.address, what, reason)

    def _info(self, context: int | None, **details: JsonValue) -> EngineInfo:
        """Return the description of the engine; `details` are added to those of every server."""
        address, served, most = str(self._options.address), self._served, self._options.max_num_seqs
        named = self._requests.connection.named.as_details()
        model: JsonValue = {"name": served.name, "digests": "unknown", **named}
        left_out = {"left_out": self._left_out} if self._left_out else {}
        return EngineInfo(
            name="server",
            dtype="unknown",
            device="unknown",
            versions={"httpx2": httpx2.__version__, "server": served.product},
            max_num_seqs=most,
            applies_table=self.kind != UNVERIFIED,
            context=context,
            details={"kind": self.kind, "server": address, "model": model, **details, **left_out},
            headline=f"engine server ({self.meaning}) · {address} · {served.product} · {served.name} · "
            f"up to {most} requests at once",
        )

    def statistics(self) -> Mapping[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "repeated_requests": self._requests.repeated,
            "most_requests_at_once": self._requests.largest,
        }

    def reset(self, at_once: int | None = None) -> None:
        """Send at most this many requests at once; what the server knows of earlier prompts is its own."""
        self._requests.limit(at_once)

    def close(self) -> None:
        """Close the connections; the server continues to run."""
        self._requests.close()

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Answered]]:
        return self._requests.complete(prompts, self._answer)
