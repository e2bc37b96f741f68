"""A vLLM server with our token table in its sampler: its answers are whole by construction.

Prompts and answers are token ids. The table, its limits and the context are compared before the first row. The
probabilities of the values come with each answer: vLLM returns the log-probabilities of the tokens that begin a
value, before the mask, and they are normalized at the places of the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import httpx2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from localjudge.engines.engine_options import TableServerOptions
from localjudge.engines.protocol import LARGEST_LOGPROB, Completion, Decoding, EngineInfo, completion
from localjudge.engines.server.connection import Connection, RequestRefusedError, RequestTroubleError
from localjudge.engines.server.served_model import ServedModel
from localjudge.engines.server.server_requests import ServerRequests
from localjudge.engines.vllm.score_collector import KEY, TableSettings
from localjudge.errors import EngineError, UsageError
from localjudge.models.model import Model
from localjudge.prompts.prompt import Prompt

BY_CONSTRUCTION: Literal["by construction"] = "by construction"
"""The kind of a server with our token table."""
_PATH = "/completions"
_MOST_LISTED = 128
"""vLLM's limit of tokens whose log-probabilities a request names."""
_OTHER_TABLE = "0" * 32
_TABLE = re.compile(rf"{KEY}: this server has the table ([0-9a-f]{{32}})")


class _Logprobs(BaseModel):
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(BaseModel):
    token_ids: list[int]
    logprobs: _Logprobs | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0


class _Reply(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


async def table_of(connection: Connection, model: str) -> str | None:
    """Return the digest of a server's token table, by a request for another one; None if it has none.

    Args:
        connection: the server.
        model: the name of a model on it.

    Raises:
        RequestTroubleError, RequestRefusedError, EngineError: as `Connection.post`.
    """
    body = {"model": model, "prompt": [0], "max_tokens": 1, "vllm_xargs": {KEY: _OTHER_TABLE}}
    try:
        await connection.post(_PATH, body)
    except RequestRefusedError as refused:
        if named := _TABLE.search(str(refused)):
            return named[1]
        raise
    return None


class TableServer:
    """Completes prompts on a vLLM server that was started with the flags of `localjudge serve-flags`.

    Args:
        model: the model's directory here: its tokenizer and its configuration; the weights are the server's.
        decoding: how answers are decoded; the server must have the same table and limits.
        options: the server.

    Raises:
        UsageError: the server has another table, other limits or a smaller context, or does not answer.
    """

    def __init__(self, model: Model, decoding: Decoding, options: TableServerOptions) -> None:
        self._model, self._decoding, self._options = model, decoding, options
        self._served = ServedModel.ask(options.server, options.served_model)
        self._digest = TableSettings.served(decoding, Path()).digest(decoding.table)
        known = decoding.table.score_token[decoding.table.has_probabilities]
        listed = np.unique(known[known >= 0]).tolist()
        self._listed = listed if len(listed) <= _MOST_LISTED else []
        self._seeded = decoding.temperature > 0
        self._prompt_tokens = 0
        self._check_context()
        self._requests: ServerRequests[Completion] = ServerRequests(
            options.server, lambda: (_PATH, self._body(Prompt(0, self._trial_tokens, 0)))
        )
        try:
            self._check_table()
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> EngineInfo:
        address, served, most = str(self._options.address), self._served, self._options.server.max_num_seqs
        return EngineInfo(
            name="server",
            dtype="unknown",
            device="unknown",
            versions={"httpx2": httpx2.__version__, "server": served.product},
            applies_table=True,
            context=self._options.context(self._model),
            max_num_seqs=most,
            details={
                "kind": BY_CONSTRUCTION,
                "server": address,
                "model": {"name": served.name, "digests": "unknown", "reported": served.reported},
                "table": self._digest,
                "seeded": self._seeded,
            },
            headline=(
                f"engine server (whole {BY_CONSTRUCTION}: it has this token table) · {address} · "
                f"{served.product} · {served.name} · up to {most} requests at once"
            ),
        )

    def statistics(self) -> Mapping[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "repeated_requests": self._requests.repeated,
            "most_requests_at_once": self._requests.largest,
        }

    def close(self) -> None:
        """Close the connections; the server runs on."""
        self._requests.close()

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        return self._requests.complete(prompts, self._answer)

    @property
    def _trial_tokens(self) -> list[int]:
        return [*self._model.prompts.head, *self._model.prompts.tail] or [0]

    def _check_context(self) -> None:
        there, here = self._served.reported.get("max_model_len"), self._options.context(self._model)
        if isinstance(there, int) and (here is None or there < here):
            raise UsageError(
                f"--server {self._options.address}: its context is {there}, and here it is "
                f"{here or 'without a limit'}; give --max-model-len {there}"
            )

    def _check_table(self) -> None:
        """Check that the server has this table, and that its answer to a trial follows it.

        Raises:
            UsageError: it does not.
        """
        where = f"--server {self._options.address}"
        advice = "start it with the flags that localjudge serve-flags prints, or give --server-kind unverified"
        try:
            connection, name = self._requests.connection, self._served.name
            there = self._requests.run_when_ready(lambda: table_of(connection, name))
            if there is None:
                raise UsageError(f"{where}: has no token table; {advice}")
            if there != self._digest:
                raise UsageError(f"{where}: has the table {there}, and the judge's is {self._digest}; {advice}")
            answered = self._answer_to_trial()
        except (RequestTroubleError, RequestRefusedError, EngineError) as error:
            said = str(error).removeprefix(f"{where}: ")
            raise UsageError(f"{where}: does not answer a trial: {said}") from None
        try:
            if answered.error is not None:
                raise ValueError(answered.error)
            _, answer = self._decoding.table.split(answered.tokens)
            self._decoding.table.was_cut(answer, self._decoding.text_tokens, self._decoding.closing_margin)
        except (ValueError, LookupError) as error:
            raise UsageError(
                f"{where}: its answer to a trial breaks the token table: {error}; {advice}"
            ) from None

    def _answer_to_trial(self) -> Completion:
        """Return the answer to a trial; without a seed if the server has none."""

        async def ask() -> dict[str, Any]:
            return await self._requests.connection.post(_PATH, self._body(Prompt(0, self._trial_tokens, 0)))

        try:
            reply = self._requests.run_when_ready(ask)
        except RequestRefusedError as refused:
            if "seed" not in str(refused) or not self._seeded:
                raise
            self._seeded = False
            reply = self._requests.run_when_ready(ask)
        return self._completion(0, reply)

    async def _answer(self, prompt: Prompt) -> Completion:
        try:
            return self._completion(prompt.tag, await self._requests.post(_PATH, self._body(prompt)))
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

    def _completion(self, tag: int, document: Mapping[str, Any]) -> Completion:
        """Return the completion in a server's reply."""
        try:
            reply = _Reply.model_validate(document)
            choice = reply.choices[0]
        except (ValidationError, IndexError):
            return Completion(tag, error="the server's reply has no tokens in it")
        self._prompt_tokens += reply.usage.prompt_tokens if reply.usage else 0
        table = self._decoding.table
        unknown = [each for each in choice.token_ids if not 0 <= each < table.next_state.shape[1]]
        if unknown:
            reason = f"has the token {str(unknown[0])[:20]}, which the model does not have"
            return Completion(tag, error=f"the server's reply {reason}")
        tokens = table.whole(choice.token_ids)
        listed = choice.logprobs.top_logprobs if choice.logprobs else None
        if not listed:
            return Completion(tag, tuple(tokens))
        if len(listed) != len(choice.token_ids):
            reason = f"log-probabilities at {len(listed)} places for {len(choice.token_ids)} tokens"
            return Completion(tag, error=f"the server's reply has {reason}")
        kept = self._probabilities(tokens, listed)
        return Completion(tag, tuple(tokens)) if kept is None else completion(tag, tokens, kept)

    def _probabilities(
        self, tokens: list[int], listed: list[dict[str, float] | None]
    ) -> NDArray[np.float64] | None:
        """Return the probabilities of the first token of each value, (A, K); None if one is not listed.

        They are NaN where the answer does not have the value, or the server's numbers are no log-probabilities.
        """
        table = self._decoding.table
        aspect_at = {int(state): aspect for aspect, state in enumerate(table.score_state)}
        kept = np.where(table.has_probabilities[:, None], np.nan, 0.0) * np.ones(table.score_token.shape)
        state = table.entry
        for token, found in zip(tokens, listed, strict=False):
            aspect = aspect_at.get(state)
            if aspect is not None and found and table.has_probabilities[aspect]:
                names = [f"token_id:{each}" for each in table.score_token[aspect] if each >= 0]
                if not found.keys() >= set(names):  # the server ignores the list of a request
                    return None
                chosen = np.array([found[name] for name in names])
                chosen = np.exp(np.where(chosen <= LARGEST_LOGPROB, chosen, np.nan))
                kept[aspect] = 0.0
                kept[aspect, : len(names)] = chosen / chosen.sum() if chosen.sum() > 0 else np.nan
            state = int(table.next_state[state, token])
        return kept
