"""A server that applies no token table: it answers with text, and its output format is not verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.protocol import EngineInfo, TextCompletion, TextDecoding, TokenChoice
from localjudge.engines.server.connection import RequestRefusedError
from localjudge.engines.server.served_model import ServedModel, ServerEngine
from localjudge.errors import SettingError
from localjudge.prompts.task import Prompt

UNVERIFIED: Literal["unverified"] = "unverified"
"""The kind of a server that applies no token table."""
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


class TextServer(ServerEngine[TextCompletion]):
    """Completes prompts on a server by chat messages, under a JSON schema that the server enforces.

    Args:
        options: the server.
        model: a model of this server.
        decoding: how answers are decoded.

    Raises:
        SettingError: the server does not answer a trial.
    """

    def __init__(self, options: ServerOptions, model: ServedModel, decoding: TextDecoding) -> None:
        self._decoding = decoding
        self._top_logprobs = options.top_logprobs
        self._turns = [{"role": turn.role, "content": turn.text} for turn in decoding.turns]
        self._retries = 0
        super().__init__(options, model, "/chat/completions")

    @property
    def info(self) -> EngineInfo:
        enforced = "json_schema" if self._decoding.schema else "regex" if self._is_vllm else "nothing"
        return self._info(
            UNVERIFIED,
            f"{UNVERIFIED}: it applies no token table",
            applies_table=False,
            details={"enforced": enforced, "top_logprobs": self._top_logprobs, "seeded": self._is_seeded},
        )

    def statistics(self) -> Mapping[str, Any]:
        return {**super().statistics(), "retries": self._retries}

    @property
    def _is_vllm(self) -> bool:
        return self._served.product.startswith("vllm")

    @property
    def _is_seeded(self) -> bool:
        """Whether requests have seeds. They can end a vLLM on a CPU, and it does not say what it runs on."""
        seeded = self._options.seeded == "true" or not self._is_vllm
        return self._decoding.temperature > 0 and seeded

    def _check(self) -> None:
        """Send a trial; without log-probabilities if the server refuses those."""
        try:
            self._try()
        except RequestRefusedError:
            if not self._top_logprobs:
                raise
            self._top_logprobs = 0
            self._try()

    def _trial(self) -> dict[str, Any]:
        return {**self._body([{"role": "user", "content": _TRIAL}]), "max_tokens": 1}

    async def _answer(self, prompt: Prompt) -> TextCompletion:
        """Return the completion of a prompt; repeat the request up to `retries` times if it is not whole."""
        messages = [*self._turns, {"role": "user", "content": prompt.text}]
        for again in range(self._options.retries + 1):
            self._retries += again > 0
            body = self._body(messages)
            if self._is_seeded:
                body["seed"] = (prompt.seed + again) % 2**31
            try:
                completion = _completion(prompt.tag, await self._requests.post(self._path, body))
            except RequestRefusedError as error:
                return TextCompletion(prompt.tag, error=str(error))
            self._prompt_tokens += completion.prompt_tokens
            if completion.error is None and self._decoding.is_whole(completion):
                break
        return completion

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        decoding = self._decoding
        body: dict[str, Any] = {
            "model": self._served.name,
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
        return body | self._template_fields()

    def _template_fields(self) -> dict[str, Any]:
        """Return the fields of a request that have the variables of the chat template.

        Ollama's templates have no variables: `reasoning_effort`, a field of OpenAI's, alone says whether and
        how much its models think. vLLM reads this field, too, for gpt-oss.
        """
        variables = dict(self._decoding.template_args)
        effort = {"reasoning_effort": variables["reasoning_effort"]} if "reasoning_effort" in variables else {}
        if self._served.product.startswith("ollama"):
            thinks = [variables.pop(name) for name in ("enable_thinking", "thinking") if name in variables]
            if others := variables.keys() - effort.keys():
                advice = "Ollama's models read only enable_thinking and reasoning_effort; leave it out"
                raise SettingError("template_args", min(others), advice)
            return effort or ({} if all(thinks) else {"reasoning_effort": "none"})
        if self._is_vllm:
            variables = {
                "enable_thinking": self._decoding.thinks,
                "thinking": self._decoding.thinks,
            } | variables
        return effort | ({"chat_template_kwargs": variables} if variables else {})


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
