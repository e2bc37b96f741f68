"""A vLLM server with our token table in its sampler: its answers are whole by construction.

Prompts and answers are token ids. The table, its limits and the context are compared before the first row. The
probabilities of the values come with each answer: vLLM returns the log-probabilities of the tokens that begin a
value, before the mask, and they are normalized at the places of the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, StrictInt

from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import ValuePaths
from localjudge.engines.engine_options import TableServerOptions
from localjudge.engines.protocol import (
    LARGEST_LOGPROB,
    SMALLEST_LOGPROB,
    Completion,
    Decoding,
    EngineInfo,
    completion,
)
from localjudge.engines.server.connection import OR_NONE, Connection, Logprob, RequestRefusedError, Usage
from localjudge.engines.server.served_model import ServedModel, ServerEngine
from localjudge.engines.vllm.table_settings import KEY, table_digest
from localjudge.errors import SettingError
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

_PATH = "/completions"
_MOST_LISTED = 128
"""vLLM's limit of tokens whose log-probabilities a request names."""
_OTHER_TABLE = "0" * 32
_TABLE = re.compile(rf"{KEY}: this server has the table ([0-9a-f]{{32}})")


class _Logprobs(BaseModel):
    top_logprobs: list[dict[str, Logprob] | None] | None = None


class _Choice(BaseModel):
    token_ids: list[StrictInt]
    logprobs: Annotated[_Logprobs | None, OR_NONE] = None


class _Reply(BaseModel):
    choices: list[_Choice]
    usage: Annotated[Usage | None, OR_NONE] = None


async def table_of(connection: Connection, model: str) -> str | None:
    """Return the digest of a server's token table, which its refusal of another table names; None without one.

    Args:
        connection: the server.
        model: the name of a model on it.

    Raises:
        RetryableRequestError, RequestRefusedError, EngineError: as `Connection.post`.
    """
    body = {"model": model, "prompt": [0], "max_tokens": 1, "vllm_xargs": {KEY: _OTHER_TABLE}}
    try:
        await connection.post(_PATH, body)
    except RequestRefusedError as refused:
        if named := _TABLE.search(str(refused)):
            return named[1]
        raise
    return None


class TableServer(ServerEngine[Completion]):
    """Completes prompts on a vLLM server that was started with the flags that
    `localjudge serve --print-vllm-flags` prints.

    Args:
        model: the model's directory here: its tokenizer and its configuration; the weights are the server's.
        decoding: how answers are decoded; the server must have the same table and limits.
        options: the server.

    Raises:
        SettingError: the server has another table, other limits or a smaller context, or does not answer.
    """

    kind, meaning = "by construction", "whole by construction: it has this token table"

    def __init__(self, model: Model, decoding: Decoding, options: TableServerOptions) -> None:
        self._model, self._decoding = model, decoding
        self._paths = ValuePaths(decoding.table)
        self._digest = table_digest(decoding)
        known = decoding.table.score_token[decoding.table.first_token_decides]
        listed = np.unique(known[known >= 0]).tolist()
        self._listed = listed if len(listed) <= _MOST_LISTED else []
        self._seeded = decoding.temperature > 0
        self._context = options.context(model)
        super().__init__(options, ServedModel.ask(options, options.served_model), _PATH)

    @property
    def info(self) -> EngineInfo:
        return self._info(self._context, table=self._digest, seeded=self._seeded)

    def _check(self) -> None:
        """Check that the server has the context and this table, and that its answer to a trial follows it.

        Raises:
            SettingError: it does not.
        """

        def refusal(reason: str) -> SettingError:
            return SettingError("server", self._options.address, reason)

        command = "the command that localjudge serve --print-vllm-flags prints"
        advice = f"start it with {command}, or give `server_kind` unverified"
        context = self._served.server_context
        if context is not None and (self._context is None or context < self._context):
            here = self._context or "without a limit"
            raise refusal(f"its context is {context}, and here it is {here}; give `max_model_len` {context}")
        there = self._requests.run_when_ready(table_of, self._requests.connection, self._served.name)
        if there is None:
            raise refusal(f"has no token table; {advice}")
        if there != self._digest:
            raise refusal(f"has the table {there}, and the judge's is {self._digest}; {advice}")
        try:
            reply = self._try()
        except RequestRefusedError as refused:
            if "seed" not in str(refused) or not self._seeded:
                raise
            self._seeded = False
            reply = self._try()
        answered, table = self._completion(Prompt(0, [], 0), reply), self._decoding.table
        try:
            if answered.error is not None:
                raise ValueError(answered.error)
            _, answer = table.split(answered.tokens)
            table.was_cut(answer, self._decoding.text_tokens, self._decoding.closing_margin)
        except (ValueError, LookupError) as error:
            raise refusal(f"its answer to a trial breaks the token table: {error}; {advice}") from None
        if any(each < SMALLEST_LOGPROB for found in _listed(reply) for each in found):
            self._listed = []
            advice = "start it with --logprobs-mode raw_logprobs"
            self._leave_out("probabilities", f"its log-probabilities are those after the mask; {advice}")

    def _trial(self) -> dict[str, Any]:
        tokens = [*self._model.prompts.head, *self._model.prompts.tail] or [0]
        return self._body(Prompt(0, tokens, 0))

    async def _answer(self, prompt: Prompt) -> Completion:
        try:
            return self._completion(prompt, await self._requests.post(_PATH, self._body(prompt)))
        except RequestRefusedError as error:
            return Completion(prompt.tag, error=str(error))

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        """Return the request of a prompt, with each setting of which a server may have another default."""
        decoding = self._decoding
        body: dict[str, Any] = {
            "model": self._served.name,
            "prompt": prompt.tokens,
            "max_tokens": decoding.max_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": sorted(self._model.vocabulary.ends),
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "vllm_xargs": {KEY: self._digest},
        }
        if self._listed:
            body |= {"logprobs": 1, "logprob_token_ids": self._listed}
        if self._seeded:
            body["seed"] = prompt.seed % 2**63
        return body

    def _completion(self, prompt: Prompt, document: Mapping[str, Any]) -> Completion:
        """Return the completion of a prompt in a server's reply."""
        tag = prompt.tag
        try:
            reply = _Reply.model_validate(document)
            (choice,) = reply.choices
        except ValueError:
            return Completion(tag, error="the server's reply does not hold the tokens of one answer")
        self._prompt_tokens += reply.usage.prompt_tokens if reply.usage else 0
        table = self._decoding.table
        unknown = [each for each in choice.token_ids if not 0 <= each < table.next_state.shape[1]]
        if unknown:
            reason = f"has the token {str(unknown[0])[:20]}, which the model does not have"
            return Completion(tag, error=f"the server's reply {reason}")
        tokens = table.whole(choice.token_ids)
        listed = choice.logprobs.top_logprobs if choice.logprobs else None
        if not listed or not self._listed:
            return Completion(tag, tuple(tokens))
        if len(listed) != len(choice.token_ids):
            reason = f"log-probabilities at {len(listed)} places for {len(choice.token_ids)} tokens"
            return Completion(tag, error=f"the server's reply has {reason}")
        kept = self._probabilities(table, tokens, listed)
        if kept is None:
            return Completion(tag, tuple(tokens))
        return completion(prompt, tokens, self._paths, kept, table.first_token_decides)

    def _probabilities(
        self, table: TokenTable, tokens: list[int], listed: list[dict[str, float] | None]
    ) -> NDArray[np.float64] | None:
        """Return the values' probabilities as `ScoreBuffer.take` does, (width,); None if one is not listed.

        It is NaN where the answer lacks the value, or the server's numbers are not log-probabilities, and for
        an aspect whose values share first tokens.
        """
        paths = self._paths
        aspect_at = {int(table.score_state[at]): at for at in np.flatnonzero(table.first_token_decides)}
        kept = np.full(paths.width, np.nan)
        state = table.entry
        for token, found in zip(tokens, listed, strict=False):
            aspect = aspect_at.get(state)
            if aspect is not None and found:
                names = [f"token_id:{each}" for each in table.score_token[aspect] if each >= 0]
                if not found.keys() >= set(names):  # the server ignores the list of a request
                    return None
                chosen = np.array([found[name] for name in names])
                chosen = np.exp(np.where(chosen <= LARGEST_LOGPROB, chosen, np.nan))
                total = chosen.sum()
                is_likeliest = max(found[name] for name in names) >= max(found.values())
                kept[paths.column[aspect, : len(names)]] = chosen / total if total > 0 else np.nan
                kept[paths.column[aspect, -3:]] = 0.0, min(total, 1.0), is_likeliest
            state = int(table.next_state[state, token])
        return kept


def _listed(document: Mapping[str, Any]) -> list[Iterable[float]]:
    """Return the log-probabilities at each place of a server's reply."""
    (choice,) = _Reply.model_validate(document).choices
    places = choice.logprobs.top_logprobs if choice.logprobs else None
    return [place.values() for place in places or [] if place]
