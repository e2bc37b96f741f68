"""A server that applies no token table: it answers with text, and its output format is not verified.

The server is asked to enforce the JSON schema of the answer. One that refuses it is asked for any JSON object,
or for text. The prompt then says the form, and the answer is read by the same reader: what is not exactly an
answer is a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.protocol import Enforced, EngineInfo, TextCompletion, TokenChoice, are_logprobs
from localjudge.engines.server.connection import OR_NONE, RequestRefusedError, RetryableRequestError, Usage
from localjudge.engines.server.replying_models import LOG
from localjudge.engines.server.served_model import UNVERIFIED, ServedModel, ServerEngine
from localjudge.engines.server.text_reader import TextReader
from localjudge.engines.server.trials import Accepted, RequestParts, Trials
from localjudge.errors import SettingError
from localjudge.prompts.task import Prompt

_TRIAL = "Answer in the form that is asked for."
_NO_ANSWER = "the server's reply has no answer in it"
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
        self._served = model
        system = reader.config.rubric.system
        self._before = [{"role": "system", "content": system}] if system else []
        self._masked = False
        self._forms = self._forms_to_try()
        self._parts = RequestParts(
            enforced=self._forms[0],
            top_logprobs=options.top_logprobs,
            switches_thinking=self._is_vllm,
        )
        super().__init__(options, model, "/chat/completions")

    @property
    def info(self) -> EngineInfo:
        found = self._info(None, top_logprobs=self._parts.top_logprobs, seeded=self._is_seeded)
        return found.model_copy(update={"enforced": self._parts.enforced})

    @property
    def _is_vllm(self) -> bool:
        return self._served.product.startswith("vllm")

    @property
    def _is_seeded(self) -> bool:
        """Whether requests have seeds. They can end a vLLM on a CPU, and it does not say what it runs on."""
        return self._config.temperature > 0 and not self._is_vllm

    def _forms_to_try(self) -> list[Enforced]:
        """Return what the server is asked to enforce of the answer, most first."""
        if self._reader.schema is not None:
            return ["json_schema", "json_object", "none"]
        return ["regex", "none"] if self._is_vllm else ["none"]

    def _check(self) -> None:
        """Send trials, and find out what the server takes and what its log-probabilities can show."""
        trials = Trials(lambda parts: self._try(self._trial(parts)))
        accepted = trials.find_accepted(self._parts, self._forms)
        self._parts = accepted.parts
        self._record_refusals(accepted)
        if self._parts.top_logprobs:
            self._compare_lists(_first_listed(accepted.reply))

    def _record_refusals(self, accepted: Accepted) -> None:
        """Record and log what the server does not take, and why."""
        if accepted.form_refusal is not None:
            instead = "any JSON object" if accepted.parts.enforced == "json_object" else "text"
            reason = f"it refuses to enforce the form of an answer ({accepted.form_refusal})"
            self._left_out["form"] = f"{reason}, and is asked for {instead}"
            LOG.warning("server %s: %s", self._options.address, self._left_out["form"])
        if accepted.thinking_refusal is not None:
            reason = f"whether the model thinks cannot be switched ({accepted.thinking_refusal})"
            self._left_out["thinking"] = reason
            LOG.warning("server %s: %s", self._options.address, self._left_out["thinking"])
        if accepted.logprobs_refusal is not None:
            reason = f"it refuses to list log-probabilities ({accepted.logprobs_refusal})"
            self._leave_out("probabilities", reason)

    def _compare_lists(self, enforced: dict[str, float]) -> None:
        """Compare the lists of trials that a model's own log-probabilities, before any mask, make equal.

        They depend neither on the temperature nor on the enforced form, which is unlikely in a trial.

        Args:
            enforced: the list of the trial with the form.
        """
        trial = self._trial()
        free = {key: value for key, value in trial.items() if key not in self._form_fields(self._parts)}
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
        self._parts = replace(self._parts, top_logprobs=0)
        self._leave_out("probabilities", reason)

    def _trial(self, parts: RequestParts | None = None) -> dict[str, Any]:
        return self._body([], _TRIAL, parts or self._parts) | {"max_tokens": 1}

    async def _answer(self, prompt: Prompt) -> TextCompletion:
        body = self._body(self._before, prompt.text, self._parts)
        if self._is_seeded:
            body["seed"] = prompt.seed % 2**31
        try:
            reply = await self._requests.post(self._path, body)
        except RequestRefusedError as error:
            return TextCompletion(prompt.tag, error=str(error))
        completion = replace(_completion(prompt.tag, reply), masked=self._masked)
        self._prompt_tokens += completion.prompt_tokens
        # Some servers list log-probabilities that nobody has asked for.
        return completion if self._parts.top_logprobs else replace(completion, choices=())

    def _body(self, before: list[dict[str, str]], text: str, parts: RequestParts) -> dict[str, Any]:
        """Return a request.

        Args:
            before: the turns before the user's.
            text: the text of the user's turn, to which the form of the answer is added if it is not enforced.
            parts: the parts of the request that a server may refuse.
        """
        if parts.enforced in ("json_object", "none") and self._reader.form_in_words:
            text = f"{text}\n\n{self._reader.form_in_words}"
        messages = before + [{"role": "user", "content": text}]
        body: dict[str, Any] = {
            "model": self._served.name,
            "messages": messages,
            "max_tokens": self._reader.max_tokens,
            "temperature": self._config.temperature,
            "top_p": self._config.top_p,
            "stream": False,
        }
        if parts.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": parts.top_logprobs}
        return body | self._form_fields(parts) | self._template_fields(parts)

    def _form_fields(self, parts: RequestParts) -> dict[str, Any]:
        """Return the fields of a request that ask the server to enforce the form of the answer."""
        if parts.enforced == "json_schema":
            schema = {"name": "answer", "strict": True, "schema": self._reader.schema}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        if parts.enforced == "json_object":
            return {"response_format": {"type": "json_object"}}
        if parts.enforced == "regex":
            return {"structured_outputs": {"regex": self._reader.pattern}}
        return {}

    def _template_fields(self, parts: RequestParts) -> dict[str, Any]:
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
        if parts.switches_thinking:
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
