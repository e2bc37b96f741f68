"""One session of a vLLM engine: from its start until all prompts are done or the engine dies."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.exceptions import VLLMValidationError
from vllm.inputs import TokensPrompt

from localjudge.engines.protocol import Completion, completion
from localjudge.prompts.task import Prompt

if TYPE_CHECKING:
    from localjudge.engines.vllm.vllm_engine import VllmEngine

COLLECT = 64
"""Number of finished answers whose scores are fetched from the worker at a time."""

_COLLECT_SECONDS = 1.0
_REQUESTS = itertools.count()
"""Numbers of requests; no two sessions share one."""


@dataclass(slots=True)
class InFlightRequest:
    """A prompt in the engine."""

    prompt: Prompt
    slot: int
    deaths_alone: int = 0


class EngineDiedError(Exception):
    """The engine died."""


class EngineSession:
    """One session of the engine: adds prompts as others finish, until none are left or the engine dies."""

    def __init__(self, engine: VllmEngine, prompts: Iterator[Prompt | None]) -> None:
        self._engine = engine
        self._prompts = prompts
        self._free = deque(range(engine.slots))
        self._flights: dict[str, InFlightRequest] = {}
        self._finished: list[tuple[InFlightRequest, list[int]]] = []
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
                        self._engine.count(output)
                        tokens = list(output.outputs[0].token_ids)
                        self._finished.append((self._flights.pop(output.request_id), tokens))
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
        return [*(flight for flight, _ in self._finished), *self._flights.values()]

    def _fill(self) -> None:
        core = self._engine.llm.llm_engine
        while len(self._flights) < self._engine.in_flight and self._free:
            prompt = next(self._prompts, None)
            if prompt is None:
                return
            flight = InFlightRequest(prompt, self._free.popleft())
            request = str(next(_REQUESTS))
            self._flights[request] = flight
            try:
                self._engine.check(prompt)
                core.add_request(
                    request,
                    TokensPrompt(prompt_token_ids=prompt.tokens),
                    self._engine.sampling_params(flight),
                    lora_request=self._engine.adapter,
                )
            except (ValueError, VLLMValidationError) as error:  # a refused prompt: the engine continues
                del self._flights[request]
                self._free.append(flight.slot)
                self.refused.append(Completion(prompt.tag, error=one_line(error)))
                if len(self.refused) >= COLLECT:
                    return
            except Exception as error:  # the engine may be dead already
                raise EngineDiedError(one_line(error)) from error

    def _collect(self) -> list[Completion]:
        self._collected = time.monotonic()
        finished = self._finished
        slots = [flight.slot for flight, _ in finished]
        try:
            scores = self._engine.take_scores(slots)
        except Exception as error:  # as above
            raise EngineDiedError(one_line(error)) from error
        self._free.extend(slots)
        self._finished = []
        return [
            completion(flight.prompt.tag, self._engine.answer(tokens), kept)
            for (flight, tokens), kept in zip(finished, scores, strict=True)
        ]


def one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
