"""A server that applies no token table: it answers with text, and its output format is not verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.protocol import EngineInfo, TextCompletion, TokenChoice, are_logprobs
from localjudge.engines.server.connection import OR_NONE, RequestRefusedError, RetryableRequestError, Usage
from localjudge.engines.server.served_model import UNVERIFIED, ServedModel, ServerEngine
from localjudge.engines.server.server_requests import LOG
from localjudge.engines.server.text_reader import TextReader
from localjudge.errors import SettingError
from localjudge.prompts.task import Prompt

_TRIAL = "Answer in the form that is asked for."
_NO_ANSWER = "the server's reply has no answer in it"
_FORM_KEYS = {"response_format", "structured_outputs"}
_NOISE = 1.0
"""The largest difference between two log-probabilities of a token after the same text, as bfloat16 can have."""


class _Token(BaseModel):
    token: str
    logprob: float | None = Field(None, strict=True)


class _ListedToken(BaseModel):
    token: str
    top_logprobs: Annotated[list[_Token] | None, OR_NONE] = None


class _Logprobs(BaseModel):
    content: list[_ListedToken] | None = None


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: Annotated[str | None, OR_NONE] = None
    reasoning: Annotated[str | None, OR_NONE] = None
    refusal: Annotated[str | None, OR_NONE] = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: Annotated[str | None, OR_NONE] = None
    logprobs: Annotated[_Logprobs | None, OR_NONE] = None


class _Reply(BaseModel):
    choices: list[_Choice]
    usage: Annotated[Usage | None, OR_NONE] = None


class TextServer(ServerEngine[TextCompletion]):
    """Completes prompts on a server by chat messages, under a JSON schema that the server enforces.

    Args:
        options: the server.
        model: a model of this server.
        reader: reads the answers, and says how they are decoded.

    Raises:
        SettingError: the server does not answer a trial.
    """

    kind, meaning = UNVERIFIED, f"{UNVERIFIED}: it applies no token table"

    def __init__(self, options: ServerOptions, model: ServedModel, reader: TextReader) -> None:
        self._reader, self._config = reader, reader.config
        self._top_logprobs = options.top_logprobs
        system = reader.config.rubric.system
        self._before = [{"role": "system", "content": system}] if system else []
        self._masked = False
        self._switches_thinking = True
        super().__init__(options, model, "/chat/completions")

    @property
    def info(self) -> EngineInfo:
        enforced = "json_schema" if self._reader.schema else "regex" if self._is_vllm else "nothing"
        return self._info(None, enforced=enforced, top_logprobs=self._top_logprobs, seeded=self._is_seeded)

    @property
    def _is_vllm(self) -> bool:
        return self._served.product.startswith("vllm")

    @property
    def _is_seeded(self) -> bool:
        """Whether requests have seeds. They can end a vLLM on a CPU, and it does not say what it runs on."""
        return self._config.temperature > 0 and not self._is_vllm

    def _check(self) -> None:
        """Send a trial, and find out what the log-probabilities that the server lists can show."""
        try:
            reply = self._try()
        except RequestRefusedError as refused:
            reply = self._try_with_less(refused)
        if self._top_logprobs:
            self._compare_lists(_first_listed(reply))

    def _try_with_less(self, refused: RequestRefusedError) -> dict[str, Any]:
        """Return the reply to a trial without what the server may not take, and leave that out from now on.

        That is the switch of thinking among the variables of the chat template, which a Mistral tokenizer does
        not have; the list of log-probabilities; or both.

        Args:
            refused: why the server refuses the whole trial.

        Raises:
            RequestRefusedError: it refuses the trial without them, too.
        """
        asked = self._top_logprobs
        attempts = [(False, asked)] if self._is_vllm else []
        if asked:
            attempts.append((True, 0))
        if asked and self._is_vllm:
            attempts.append((False, 0))
        for switches_thinking, top_logprobs in attempts:
            self._switches_thinking, self._top_logprobs = switches_thinking, top_logprobs
            try:
                reply = self._try()
            except RequestRefusedError:
                continue
            if not self._switches_thinking:
                self._left_out["thinking"] = f"whether the model thinks cannot be switched ({refused})"
                LOG.warning("server %s: %s", self._options.address, self._left_out["thinking"])
            if asked and not self._top_logprobs:
                self._leave_out("probabilities", f"it refuses to list log-probabilities ({refused})")
            return reply
        raise refused

    def _compare_lists(self, enforced: dict[str, float]) -> None:
        """Compare the lists of trials that a model's own log-probabilities, before any mask, make equal.

        They depend neither on the temperature nor on the enforced form, which is unlikely in a trial.

        Args:
            enforced: the list of the trial with the form.
        """
        free = {key: value for key, value in self._trial().items() if key not in _FORM_KEYS}
        other = {"temperature": 2.0 if self._config.temperature <= 1 else 0.5, "top_p": 1.0}
        try:
            usual, hot = (_first_listed(self._try(body)) for body in (free, free | other))
        except (RequestRefusedError, RetryableRequestError) as error:
            reason = f"whether its log-probabilities are the model's own cannot be tried ({error})"
        else:
            if not enforced or not usual or not hot:
                reason = "it lists no log-probabilities"
            elif not all(are_logprobs(each.values()) for each in (enforced, usual, hot)):
                reason = "it lists numbers that are no log-probabilities: above 0, or with a sum above 1"
            elif not _are_equal(usual, hot):
                reason = (
                    "its log-probabilities are those after the temperature, not the model's own (with vLLM, "
                    "give it --logprobs-mode raw_logprobs)"
                )
            else:
                if not _are_equal(usual, enforced):
                    self._masked = True
                    self._leave_out("mass", "its log-probabilities are those after the enforced form")
                return
        self._top_logprobs = 0
        self._leave_out("probabilities", reason)

    def _trial(self) -> dict[str, Any]:
        return {**self._body([{"role": "user", "content": _TRIAL}]), "max_tokens": 1}

    async def _answer(self, prompt: Prompt) -> TextCompletion:
        body = self._body([*self._before, {"role": "user", "content": prompt.text}])
        if self._is_seeded:
            body["seed"] = prompt.seed % 2**31
        try:
            reply = await self._requests.post(self._path, body)
        except RequestRefusedError as error:
            return TextCompletion(prompt.tag, error=str(error))
        completion = replace(_completion(prompt.tag, reply), masked=self._masked)
        self._prompt_tokens += completion.prompt_tokens
        # Some servers list log-probabilities that nobody has asked for.
        return completion if self._top_logprobs else replace(completion, choices=())

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._served.name,
            "messages": messages,
            "max_tokens": self._reader.max_tokens,
            "temperature": self._config.temperature,
            "top_p": self._config.top_p,
            "stream": False,
        }
        if self._top_logprobs:
            body |= {"logprobs": True, "top_logprobs": self._top_logprobs}
        if self._reader.schema is not None:
            schema = {"name": "answer", "strict": True, "schema": self._reader.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self._is_vllm:
            body["structured_outputs"] = {"regex": self._reader.pattern}
        return body | self._template_fields()

    def _template_fields(self) -> dict[str, Any]:
        """Return the fields of a request that have the variables of the chat template.

        Ollama's templates have no variables: `reasoning_effort`, a field of OpenAI's, alone says whether and
        how much its models think. vLLM reads this field, too, for gpt-oss.
        """
        variables = dict(self._config.template_args or {})
        effort = {"reasoning_effort": variables["reasoning_effort"]} if "reasoning_effort" in variables else {}
        if self._served.product.startswith("ollama"):
            given = [variables.pop(name) for name in ("enable_thinking", "thinking") if name in variables]
            if others := variables.keys() - effort.keys():
                advice = "Ollama's models read only enable_thinking and reasoning_effort; leave it out"
                raise SettingError("template_args", min(others), advice)
            return effort or ({} if all(given) else {"reasoning_effort": "none"})
        if self._is_vllm and self._switches_thinking:
            thinks = self._config.thinking_budget is not None
            variables = {"enable_thinking": thinks, "thinking": thinks} | variables
        return effort | ({"chat_template_kwargs": variables} if variables else {})


def _completion(tag: int, document: Mapping[str, Any]) -> TextCompletion:
    """Return the completion in a server's reply."""
    try:
        reply = _Reply.model_validate(document)
    except ValidationError:
        return TextCompletion(tag, error=_NO_ANSWER)
    if len(reply.choices) != 1:  # which of several belongs to the request is not known
        several = f"the server's reply has {len(reply.choices)} answers to one request"
        return TextCompletion(tag, error=several if reply.choices else _NO_ANSWER)
    (choice,) = reply.choices
    usage, message = reply.usage or Usage(), choice.message
    if message.refusal or choice.finish_reason == "content_filter":
        stopped = "the model refused to answer" if message.refusal else "the server's filter stopped the answer"
        return TextCompletion(
            tag,
            text=message.refusal or message.content or "",
            error=stopped,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
        )
    return TextCompletion(
        tag,
        text=message.content or "",
        thoughts=message.reasoning_content or message.reasoning or "",
        finished=choice.finish_reason != "length",
        choices=[
            TokenChoice(each.token, [(other.token, other.logprob) for other in each.top_logprobs or []])
            for each in (choice.logprobs and choice.logprobs.content) or []
        ],
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
    )


def _first_listed(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the log-probabilities that a reply lists for its first token; of equal texts, the largest."""
    choices = _completion(0, document).choices
    numbers = (
        [(text, number) for text, number in choices[0].alternatives if number is not None] if choices else []
    )
    return dict(sorted(numbers, key=itemgetter(1)))


def _are_equal(one: dict[str, float], other: dict[str, float]) -> bool:
    """Return whether tokens stand in both lists, and have the same log-probabilities there."""
    both = one.keys() & other.keys()
    return bool(both) and all(abs(one[text] - other[text]) <= _NOISE for text in both)
