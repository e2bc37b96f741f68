"""Requests over HTTP to one server and to no other, each with a bounded answer and a bounded time."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import ssl
from enum import Enum
from typing import Annotated, Any

import httpx2
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, WrapValidator

from localjudge.engines.engine_options import ConnectionOptions, ServerAddress
from localjudge.engines.server.replying_models import LOG, ReplyingModels
from localjudge.errors import EngineError, SettingError
from localjudge.rubrics.answer import RepeatedKeyError, without_duplicates
from localjudge.secret_texts import HIDDEN, SHORTEST, remember_secret, without_secrets

KEY_VARIABLE = "LOCALJUDGE_SERVER_KEY"
"""The environment variable with the key of a server that asks for one."""
LARGEST_REPLY = 32_000_000
"""Limit of bytes of one reply."""
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 30.0
"""Limit of seconds of a question about the server itself, which it answers without its model."""
_NOT_READY = {502, 503, 504}
_MALFORMED = {400, 422}
_ROW = {*_MALFORMED, 413, 414}
_MOST_TOKENS = 2**31
"""More tokens than a prompt or an answer can have."""


def _or_none(value: Any, read: Any) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


OR_NONE = WrapValidator(_or_none)
"""Reads a value of another type as None: the server does not say."""
TokenCount = Annotated[
    int, BeforeValidator(lambda value: value if type(value) is int and 0 <= value < _MOST_TOKENS else 0)
]
"""A number of tokens; 0 if the server's number is none."""
Logprob = Annotated[
    float, Field(strict=True), BeforeValidator(lambda value: math.nan if value is None else value)
]
"""A log-probability; NaN if the server's is null. A text is not a number."""


class Usage(BaseModel):
    """The numbers of tokens of a prompt and its answer; 0 if the server does not say."""

    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0


class RetryReason(Enum):
    """The reason why a request got no answer, and may get one later."""

    AWAY = "away"
    """The server cannot be reached."""
    NOT_READY = "not_ready"
    """The server, or the gateway before it, says that it is not ready, such as while it loads its model."""
    BUSY = "busy"
    """The server has too many requests."""
    LOST = "lost"
    """The request timed out, lost its connection, or met an error inside the server."""


class RetryableRequestError(Exception):
    """A request got no answer, and may get one later.

    Args:
        reason: the kind of the reason.
        words: the reason in words.
    """

    def __init__(self, reason: RetryReason, words: str) -> None:
        super().__init__(words)
        self.reason = reason


def _lost(words: str) -> RetryableRequestError:
    return RetryableRequestError(RetryReason.LOST, words)


class RequestRefusedError(Exception):
    """The server refuses a request, or its reply cannot be read: the same request would end in the same way.

    Args:
        words: the reason in words.
        is_malformed: whether the server says that it does not take such a request (status 400 or 422).
    """

    def __init__(self, words: str, *, is_malformed: bool = False) -> None:
        super().__init__(words)
        self.is_malformed = is_malformed


REQUEST_ERRORS = (RetryableRequestError, RequestRefusedError, EngineError)
"""The errors of a request."""


class Connection:
    """A connection to one server; it ignores proxies, and follows no redirect.

    Each request has a socket of its own: what a server sends after a reply is never read as the next one. The
    key that is sent to the server is hidden in all texts that come back, before any of them is used or cut.

    Args:
        options: the server.

    Attributes:
        address: the address of the server.
        named: what its replies to `post` say of the model.

    Raises:
        SettingError: the key cannot be sent.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self.address, self._seconds = options.address, options.request_timeout
        trusted = ssl.create_default_context()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        transport = httpx2.AsyncHTTPTransport(
            verify=trusted, trust_env=False, limits=limits, uds=self.address.socket
        )
        self.named = ReplyingModels(str(self.address))
        headers = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "localjudge"}
        key = _server_key()
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            headers=headers,
            timeout=httpx2.Timeout(self._seconds, connect=min(self._seconds, _CONNECT_SECONDS)),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, url: str) -> Any:
        """Return the JSON document at a URL of the server. Raises as `post`."""
        return await self._ask("GET", url, None, min(self._seconds, _LOOK_SECONDS))

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request.

        Args:
            path: its path below the API, such as `/chat/completions`.
            body: its JSON document.

        Raises:
            RetryableRequestError: there is no answer now.
            RequestRefusedError: there is no answer to this request.
            EngineError: the server answers no request of this run.
        """
        reply = await self._ask("POST", self.address.base + path, body, self._seconds)
        if not isinstance(reply, dict):
            raise _lost("the server's reply is not a JSON object")
        if reply.get("error"):  # some gateways answer 200 with an error inside
            raise _lost(f"the server says: {_words_of(reply)}")
        self.named.add(reply)
        return reply

    async def _ask(self, method: str, url: str, body: dict[str, Any] | None, seconds: float) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        received = bytearray()
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, url, content=content, headers=headers) as response,
            ):
                async for piece in response.aiter_bytes():
                    received += piece
                    if len(received) > LARGEST_REPLY:
                        large = f"the server's reply has more than {LARGEST_REPLY:,} bytes and was cut off"
                        raise RequestRefusedError(large)
        except (TimeoutError, httpx2.ReadTimeout, httpx2.WriteTimeout):
            raise _lost(f"the server gave no answer within {seconds:g} s") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            away = f"the server cannot be reached: {_first_line(error)}"
            raise RetryableRequestError(RetryReason.AWAY, away) from None
        except httpx2.HTTPError as error:
            raise _lost(f"the connection broke: {_first_line(error)}") from None
        return _read_reply(self.address, response, bytes(received))


def _server_key() -> str | None:
    """Return the key of the server, which is hidden from now on; None if the environment has none.

    A warning says so if answers can have the key's text by chance.

    Raises:
        SettingError: it cannot stand in a header.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        return None
    is_new = remember_secret(key)
    if is_new and re.fullmatch("[a-z]+|[0-9]+", key):
        LOG.warning(
            f"the key in the variable {KEY_VARIABLE} is a word or a number: where an answer has the same text, "
            f"{HIDDEN} stands in its place, too"
        )
    if not re.fullmatch("[!-~]+", key):
        advice = "has a space or another character that a header cannot have; give the key alone"
        raise SettingError("server", f"the variable {KEY_VARIABLE}", advice)
    return key


def _decoded(received: bytes, errors: str) -> str:
    """Return the text of a reply, in an encoding of JSON.

    Args:
        received: the bytes of the reply.
        errors: how bytes are decoded that are not of this encoding, as `bytes.decode` says.

    Raises:
        UnicodeDecodeError: there are such bytes, and `errors` allows none.
    """
    return received.decode(json.detect_encoding(received), errors)


def _without_secrets_in(value: Any) -> Any:
    """Return a value of JSON without the secrets of this process in its texts and names.

    Numbers stay as they are, also if a key has the same digits.

    Raises:
        RepeatedKeyError: two names of an object are the same without the secrets.
    """
    if isinstance(value, str):
        return value if len(value) < SHORTEST else without_secrets(value)
    if isinstance(value, list):
        return [_without_secrets_in(each) for each in value]
    if isinstance(value, dict):
        members = [(_without_secrets_in(name), _without_secrets_in(each)) for name, each in value.items()]
        return without_duplicates(members)
    return value


def _read_reply(address: ServerAddress, response: httpx2.Response, received: bytes) -> Any:
    status, document, repeated = response.status_code, None, ""
    try:
        sent = json.loads(_decoded(received, "surrogatepass"), object_pairs_hook=without_duplicates)
        document = _without_secrets_in(sent)
    except RepeatedKeyError as error:  # which of the two is meant is not known
        repeated = f"the server's reply {error}"
    except (ValueError, RecursionError):
        pass
    if status == 200:
        if repeated:
            raise RequestRefusedError(repeated)
        if document is None:
            raise _lost("the server's reply is not JSON")
        return document
    words = _words_of(document) or _first_line(_decoded(received, "replace"))
    said = f"the server answered {status}: {words}"
    if 300 <= status < 400:
        to = without_secrets(response.headers.get("location", "another address"))[:200]
        advice = f"redirects to {to}, and rows go only where you say; give the final URL"
        raise EngineError(f"server {address}: {advice}")
    if status == 429 or status in _NOT_READY:
        reason = RetryReason.BUSY if status == 429 else RetryReason.NOT_READY
        raise RetryableRequestError(reason, said)
    if status >= 500 or status == 408:
        raise _lost(said)
    if status in _ROW:
        raise RequestRefusedError(said, is_malformed=status in _MALFORMED)
    advice = f"; put the key into the variable {KEY_VARIABLE}" if status in (401, 403) else ""
    raise EngineError(f"server {address}: {said}{advice}")


def _words_of(document: Any) -> str:
    """Return the message in a server's JSON document of an error, in one line; empty if there is none."""
    found = document.get("error", document.get("detail")) if isinstance(document, dict) else None
    if isinstance(found, dict):
        found = found.get("message", found)
    return _first_line(found if isinstance(found, str) else json.dumps(found)) if found else ""


def _first_line(said: object) -> str:
    hidden = without_secrets(str(said))
    printable = hidden.encode("utf-8", "backslashreplace").decode()  # JSON can hold half of a character
    return " ".join(printable.split())[:300] or type(said).__name__
