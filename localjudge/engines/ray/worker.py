"""One worker of a cluster: an engine that new chunks of prompts keep full."""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ray

from localjudge import __version__
from localjudge.engines.protocol import Completion, Decoding, EngineInfo, TableEngine
from localjudge.engines.selection import engine_options, open_engine
from localjudge.errors import EngineError, LocalJudgeError, ModelError, SettingError, UsageError
from localjudge.given_template import GivenTemplate
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt
from localjudge.secret_texts import without_secrets


@dataclass(frozen=True, slots=True)
class RayWorkerSettings:
    """Settings that a worker receives.

    Attributes:
        engine: the engine's name and its `options`, as for `engine_options`.
        context: the most tokens of a prompt and its answer, if known.
        model: the path or id of the model on the worker's node.
        template_args: variables of its chat template, which decides what ends a turn.
        given_template: the chat template that replaces the model's own; None for its own.
        digests: what must be equal there: the version of localjudge, and the digest of the model.
        environment: variables of the driver, used if the node does not set them.
    """

    engine: str
    options: Mapping[str, str] = field(repr=False)
    context: int | None
    model: str
    template_args: Mapping[str, Any]
    given_template: GivenTemplate | None
    digests: Mapping[str, str]
    decoding: Decoding
    environment: Mapping[str, str] = field(repr=False)


def digests_of(model: Model) -> dict[str, str]:
    """Return what decides a judgement and must be equal on all nodes, by name."""
    return {"localjudge": __version__, "model": model.digest}


@dataclass(slots=True)
class _Chunk:
    """A chunk in the engine, and its answers so far."""

    prompts: list[Prompt]
    completions: list[Completion]
    answered: Future[None]


class Worker:
    """The Ray actor. Its calls run concurrently, each in a thread of its own.

    A failed call raises a `LocalJudgeError` of one line; the driver then replaces the worker.
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[list[Prompt]] = SimpleQueue()
        self._places: dict[int, tuple[_Chunk, int]] = {}
        self._tags = count()
        self._broken: EngineError | None = None
        self._lock = threading.Lock()

    def where(self) -> str:
        """Return the node and process of this worker."""
        return f"node {ray.util.get_node_ip_address()}, process {os.getpid()}"

    def open(self, settings: RayWorkerSettings, at_once: int | None = None) -> EngineInfo:
        """Open the engine and return its description.

        Args:
            settings: the settings of the worker.
            at_once: as for `reset`.

        Raises:
            UsageError, ModelError, EngineError: the engine cannot be opened.
        """
        try:
            self._engine = self._open(settings)
            if at_once is not None:
                self._engine.reset(at_once)
            info = self._engine.info
            in_batches = info.batch_size is not None
            threading.Thread(
                target=self._work, args=(in_batches,), daemon=True, name="localjudge-engine"
            ).start()
        except BaseException as error:
            raise _explained(error) from None
        return info

    def reset(self, at_once: int | None) -> None:
        """Reset the engine, which has no prompt in flight, as `Engine.reset` says.

        Raises:
            EngineError: the engine has died.
        """
        try:
            self._engine.reset(at_once)
        except BaseException as error:
            raise _explained(error) from None

    def answer(self, prompts: list[Prompt]) -> tuple[list[Completion], Mapping[str, Any]]:
        """Return the answers to a chunk, in the order they finished, and the engine's counts so far.

        Raises:
            EngineError: the engine failed.
        """
        chunk = _Chunk(prompts, [], Future())
        # The driver's tags restart with each run, and chunks of an abandoned run may still be here.
        tagged = [replace(prompt, tag=next(self._tags)) for prompt in prompts]
        with self._lock:
            if self._broken:
                raise self._broken
            self._places |= {prompt.tag: (chunk, place) for place, prompt in enumerate(tagged)}
        self._inbox.put(tagged)
        chunk.answered.result()
        return chunk.completions, dict(self._engine.statistics())

    def _open(self, settings: RayWorkerSettings) -> TableEngine:
        for name, value in settings.environment.items():
            os.environ.setdefault(name, value)
        options = engine_options(settings.engine, settings.options)
        model = replace(
            Model.find(settings.model),
            template_args=settings.template_args,
            given_template=settings.given_template,
        )
        for what, here in digests_of(model).items():
            if here != (there := settings.digests[what]):
                name = f" {model.name}" * (what == "model")
                where = f"the {what} where the run was started"
                raise ModelError(
                    f"{what}{name}: differs from {where}: {here[:12]} here, and {there[:12]} there"
                )
        return open_engine(options, model, settings.decoding, context=settings.context)

    def _work(self, in_batches: bool) -> None:
        """Keep the engine busy. An engine that computes batches gets one chunk at a time: each chunk is a batch
        and must not be mixed with another."""
        try:
            while True:
                prompts = self._inbox.get()
                for completions in self._engine.complete(prompts if in_batches else self._arriving(prompts)):
                    for completion in completions:
                        self._hand_out(completion)
        except BaseException as error:
            broken = _explained(error)
            with self._lock:
                self._broken = broken if isinstance(broken, EngineError) else EngineError(str(broken))
                chunks = {id(chunk): chunk for chunk, _ in self._places.values()}
            for chunk in chunks.values():
                chunk.answered.set_exception(self._broken)

    def _arriving(self, prompts: list[Prompt]) -> Iterator[Prompt | None]:
        """Yield these prompts and those that arrive later, and None whenever there are none, so that an engine
        that asks at every step, such as vLLM, stays full across chunks."""
        while True:
            yield from prompts
            try:
                prompts = self._inbox.get_nowait()
            except Empty:
                prompts = []
                yield None

    def _hand_out(self, completion: Completion) -> None:
        with self._lock:
            chunk, place = self._places.pop(completion.tag)
        chunk.completions.append(replace(completion, tag=chunk.prompts[place].tag))
        if len(chunk.completions) == len(chunk.prompts):
            chunk.answered.set_result(None)


def _explained(error: BaseException) -> LocalJudgeError:
    """Return the error as a `LocalJudgeError` without secrets, with the last error in this process's log."""
    print(without_secrets("".join(traceback.format_exception(error))), file=sys.stderr, end="", flush=True)
    kind: type[LocalJudgeError] = EngineError
    reason = traceback.format_exception_only(error)[0].splitlines()[0]
    if isinstance(error, LocalJudgeError):
        kind, reason = UsageError if isinstance(error, SettingError) else type(error), str(error).strip()
    logged = _last_error_logged()
    return kind(without_secrets(reason if logged in reason else f"{reason} ({logged})"))


def _last_error_logged() -> str:
    """Return the last error that this process or a child printed to its Ray log; empty if there is none."""
    found = [""]
    for log in (Path(f"/proc/self/fd/{stream}").resolve() for stream in (1, 2)):
        if log.is_file():
            tail = log.read_bytes()[-65536:].decode(errors="replace")
            found += re.findall(r"\b(?:\w+\.)*\w*(?:Error|Exception): .+", tail)
    return found[-1]
