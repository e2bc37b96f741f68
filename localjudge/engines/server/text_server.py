"""A server that applies no token table: it answers with text, and keeps to the form by its own word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import httpx2
from pydantic import BaseModel, ValidationError

from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.protocol import EngineInfo, TextCompletion, TextDecoding, TokenChoice
from localjudge.engines.server.connection import RequestRefusedError, RequestTroubleError
from localjudge.engines.server.served_model import ServedModel
from localjudge.engines.server.server_requests import ServerRequests
from localjudge.errors import EngineError, UsageError
from localjudge.prompts.prompt import Prompt

UNVERIFIED: Literal["unverified"] = "unverified"
"""The kind of a server that applies no token table."""
_CHAT = "/chat/completions"
_TRIAL = "Answer in the form that is asked for."


class _Token(BaseModel):
    token: str
    logprob: float = 0.0


class _ListedToken(_Token):
    top_logprobs: list[_Token] | None = None


class _Logprobs(BaseModel):
    content: list[_ListedToken] | None = None


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Reply(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


class TextServer:
    """Completes prompts on a server by chat messages, under a JSON schema that the server enforces.

    Args:
        options: the server.
        model: a model of this server.
        decoding: how answers are decoded.

    Raises:
        UsageError: the server does not answer a trial.
    """

    def __init__(self, options: ServerOptions, model: ServedModel, decoding: TextDecoding) -> None:
        self._options, self._model, self._decoding = options, model, decoding
        self._top_logprobs = options.top_logprobs
        self._turns = [{"role": turn.role, "content": turn.text} for turn in decoding.turns]
        self._prompt_tokens = self._asked_again = 0
        self._requests: ServerRequests[TextCompletion] = ServerRequests(options, lambda: (_CHAT, self._trial()))
        try:
            self._try()
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> EngineInfo:
        model, address = self._model, str(self._options.address)
        enforced = "json_schema" if self._decoding.schema else "regex" if self._is_vllm else "nothing"
        return EngineInfo(
            name="server",
            dtype="unknown",
            device="unknown",
            versions={"httpx2": httpx2.__version__, "server": model.product},
            applies_table=False,
            max_num_seqs=self._options.max_num_seqs,
            details={
                "kind": UNVERIFIED,
                "server": address,
                "model": {"name": model.name, "digests": "unknown", "reported": model.reported},
                "enforced": enforced,
                "top_logprobs": self._top_logprobs,
                "seeded": self._is_seeded,
            },
            headline=(
                f"engine server ({UNVERIFIED}: it applies no token table) · {address} · {model.product} · "
                f"{model.name} · up to {self._options.max_num_seqs} requests at once"
            ),
        )

    def statistics(self) -> Mapping[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "asked_again": self._asked_again,
            "repeated_requests": self._requests.repeated,
            "most_requests_at_once": self._requests.largest,
        }

    def close(self) -> None:
        """Close the connections; the server runs on."""
        self._requests.close()

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[TextCompletion]]:
        return self._requests.complete(prompts, self._answer)

    @property
    def _is_vllm(self) -> bool:
        return self._model.product.startswith("vllm")

    @property
    def _is_seeded(self) -> bool:
        """Whether requests have seeds. They can end a vLLM on a CPU, and it does not say what it runs on."""
        return self._decoding.temperature > 0 and (self._options.seeded or not self._is_vllm)

    def _try(self) -> None:
        """Send a trial; without log-probabilities if the server refuses those."""
        try:
            try:
                self._requests.run_when_ready(self._ask_trial)
            except RequestRefusedError:
                if not self._top_logprobs:
                    raise
                self._top_logprobs = 0
                self._requests.run_when_ready(self._ask_trial)
        except (RequestTroubleError, RequestRefusedError, EngineError) as error:
            said = str(error).removeprefix(f"--server {self._options.address}: ")
            raise UsageError(f"--server {self._options.address}: does not answer a trial: {said}") from None

    async def _ask_trial(self) -> None:
        await self._requests.connection.post(_CHAT, self._trial())

    def _trial(self) -> dict[str, Any]:
        return {**self._body([{"role": "user", "content": _TRIAL}]), "max_tokens": 1}

    async def _answer(self, prompt: Prompt) -> TextCompletion:
        """Return the completion of a prompt; one that is not whole is asked for again if that is wanted."""
        messages = [*self._turns, {"role": "user", "content": prompt.text}]
        for again in range(self._options.ask_again + 1):
            self._asked_again += again > 0
            body = self._body(messages)
            if self._is_seeded:
                body["seed"] = (prompt.seed + again) % 2**31
            try:
                completion = _completion(prompt.tag, await self._requests.post(_CHAT, body))
            except RequestRefusedError as error:
                return TextCompletion(prompt.tag, error=str(error))
            self._prompt_tokens += completion.prompt_tokens
            if completion.error is None and self._decoding.is_whole(completion):
                break
        return completion

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        decoding = self._decoding
        body: dict[str, Any] = {
            "model": self._model.name,
            "messages": messages,
            "max_tokens": decoding.max_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "stream": False,
        }
        if self._top_logprobs:
            body |= {"logprobs": True, "top_logprobs": self._top_logprobs}
        if decoding.schema is not None:
            schema = {"name": "answer", "strict": True, "schema": decoding.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self._is_vllm:
            body["structured_outputs"] = {"regex": decoding.pattern}
        if self._is_vllm:
            body["chat_template_kwargs"] = {"enable_thinking": decoding.thinks, "thinking": decoding.thinks}
        return body


def _completion(tag: int, document: Mapping[str, Any]) -> TextCompletion:
    """Return the completion in a server's reply."""
    try:
        reply = _Reply.model_validate(document)
        choice = reply.choices[0]
    except (ValidationError, IndexError):
        return TextCompletion(tag, error="the server's reply has no answer in it")
    usage, message = reply.usage or _Usage(), choice.message
    listed = (choice.logprobs and choice.logprobs.content) or []
    return TextCompletion(
        tag,
        text=message.content or "",
        thoughts=message.reasoning_content or message.reasoning or "",
        finished=choice.finish_reason != "length",
        choices=[
            TokenChoice(each.token, {other.token: other.logprob for other in each.top_logprobs or []})
            for each in listed
        ],
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
    )
