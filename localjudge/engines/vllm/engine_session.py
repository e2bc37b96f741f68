"""One session of a vLLM engine: from its start until all prompts are done or the engine dies.

Where values share tokens, the session requests the branches of an answer when the answer is finished. Each is a
request of one token. Its prompt, which is the row's prompt and the answer up to the branch, is in the prefix
cache.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from vllm.exceptions import VLLMValidationError
from vllm.inputs import TokensPrompt

from localjudge.constraint.value_paths import Branch, ValuePaths
from localjudge.engines.protocol import Completion, completion
from localjudge.prompts.task import Prompt
from localjudge.secret_texts import without_secrets

COLLECT = 64
"""Number of finished answers whose scores are fetched from the worker at a time."""

_COLLECT_SECONDS = 1.0
_REQUESTS = itertools.count()
"""Numbers of requests; no two sessions share one."""


@dataclass(slots=True)
class InFlightRequest:
    """A prompt in the engine, or a branch of its answer."""

    prompt: Prompt
    slot: int
    deaths_alone: int = 0
    branch: Branch | None = None


@dataclass(slots=True)
class _Answer:
    """An answer, what is kept of it, and the number of its branches that are still missing."""

    request: InFlightRequest
    tokens: list[int]
    kept: NDArray[np.float64]
    missing: int = 0

    def add(self, branch: Branch, kept: NDArray[np.float64], paths: ValuePaths) -> None:
        """Take over what is kept of a branch."""
        self.missing -= 1
        at = paths.column[branch.pick]
        at = at[at < paths.width]
        self.kept[at] = kept[at]
        self.kept[at[-1]] = np.nan_to_num(kept[at[-1]])  # computed, in any case


class EngineDiedError(Exception):
    """The engine died."""


class SessionEngine(Protocol):
    """What a session needs of its engine (`VllmEngine`).

    Attributes:
        llm: vLLM's `LLM`.
        slots: the number of answers whose scores the workers keep at a time.
        paths: the ways to the values of the answers.
    """

    llm: Any
    slots: int
    paths: ValuePaths

    @property
    def in_flight(self) -> int:
        """The most requests in progress at a time."""

    def check(self, prompt: Prompt) -> None:
        """Refuse a prompt whose answer would be cut at the end of the context, by a ValueError."""

    def sampling_params(self, request: InFlightRequest) -> Any:
        """Return vLLM's `SamplingParams` of a request."""

    def count(self, output: Any) -> None:
        """Add a finished request to the statistics."""

    def take_scores(self, slots: list[int]) -> NDArray[np.float64]:
        """Return and clear what is kept in these slots, (slots, `ValuePaths.width`)."""


class EngineSession:
    """One session of the engine: adds prompts as others finish, until none are left or the engine dies."""

    def __init__(self, engine: SessionEngine, prompts: Iterator[Prompt | None]) -> None:
        self._engine = engine
        self._prompts = prompts
        self._free = deque(range(engine.slots))
        self._flights: dict[str, InFlightRequest] = {}
        self._finished: list[tuple[InFlightRequest, list[int]]] = []
        self._answers: dict[int, _Answer] = {}
        self._branches: deque[tuple[_Answer, Branch]] = deque()
        self.refused: list[Completion] = []
        self._collected = time.monotonic()

    def run(self) -> Iterator[list[Completion]]:
        """Yield completions when their scores are fetched.

        Raises:
            EngineDiedError: the engine died; `abandoned` holds the prompts in flight.
        """
        core = self._engine.llm.llm_engine
        try:
            self._fill()
            while self._flights or self.refused:
                if self.refused:
                    refused, self.refused = self.refused, []
                    yield refused
                    self._fill()
                    continue
                try:
                    outputs = core.step()
                except Exception as error:  # any error that kills the engine
                    raise EngineDiedError(one_line(error)) from error
                for output in outputs:
                    if output.finished:
                        flight = self._flights.pop(output.request_id)
                        if flight.branch is None:
                            self._engine.count(output)
                        self._finished.append((flight, list(output.outputs[0].token_ids)))
                late = time.monotonic() - self._collected > _COLLECT_SECONDS
                if self._finished and (len(self._finished) >= COLLECT or late or not self._flights):
                    yield self._collect()
                self._fill()
        except GeneratorExit:
            # The caller stopped early: requests in flight must not appear in the next run.
            with suppress(Exception):
                core.abort_request(list(self._flights))
            raise

    def abandoned(self) -> list[InFlightRequest]:
        """Requests that were in flight when the engine died, or finished without their scores being fetched."""
        answered = [answer.request for answer in self._answers.values()]
        others = [*(flight for flight, _ in self._finished), *self._flights.values()]
        return [*answered, *(flight for flight in others if flight.branch is None)]

    def _fill(self) -> None:
        core = self._engine.llm.llm_engine
        while len(self._flights) < self._engine.in_flight and self._free:
            if self._branches:
                answer, branch = self._branches.popleft()
                prompt = answer.request.prompt
                flight = InFlightRequest(prompt, self._free.popleft(), branch=branch)
                tokens = [*prompt.tokens, *answer.tokens[: branch.begin], *branch.written]
            elif (following := next(self._prompts, None)) is None:
                return
            else:
                flight, tokens = InFlightRequest(following, self._free.popleft()), following.tokens
            request = str(next(_REQUESTS))
            self._flights[request] = flight
            try:
                if flight.branch is None:
                    self._engine.check(flight.prompt)
                core.add_request(
                    request,
                    TokensPrompt(prompt_token_ids=tokens),
                    self._engine.sampling_params(flight),
                )
            except (ValueError, VLLMValidationError) as error:  # a refused prompt: the engine continues
                if flight.branch is not None:
                    raise EngineDiedError(one_line(error)) from error
                del self._flights[request]
                self._free.append(flight.slot)
                self.refused.append(Completion(flight.prompt.tag, error=one_line(error)))
                if len(self.refused) >= COLLECT:
                    return
            except Exception as error:  # the engine may be dead already
                raise EngineDiedError(one_line(error)) from error

    def _collect(self) -> list[Completion]:
        self._collected = time.monotonic()
        finished, paths = self._finished, self._engine.paths
        slots = [flight.slot for flight, _ in finished]
        try:
            scores = self._engine.take_scores(slots)
        except Exception as error:  # as above
            raise EngineDiedError(one_line(error)) from error
        self._free.extend(slots)
        self._finished = []
        completions = []
        for (flight, tokens), kept in zip(finished, scores, strict=True):
            if flight.branch is None:
                answer = _Answer(flight, paths.table.whole(tokens), kept)
            else:
                answer = self._answers.pop(flight.prompt.tag)
                answer.add(flight.branch, kept, paths)
            if not answer.missing:
                more = paths.unexplored(answer.kept, answer.tokens)
                answer.missing = len(more)
                self._branches += [(answer, branch) for branch in more]
            if answer.missing:
                self._answers[flight.prompt.tag] = answer
            else:
                completions.append(completion(flight.prompt, answer.tokens, paths, answer.kept))
        return completions


def one_line(error: BaseException) -> str:
    """Return the last line of an error, without secrets; the name of its type without a message."""
    lines = without_secrets(str(error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
