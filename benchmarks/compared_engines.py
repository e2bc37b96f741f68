"""The engines that are compared: localjudge's vLLM engine and vLLM alone, also in separate processes.

All are driven in the same way: token ids in, token ids out, a limited number of prompts in flight.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineRun:
    """The result of one run.

    Attributes:
        answers: the tokens of each answer, in the order of the prompts; None where a prompt has no answer.
        seconds: time from the first prompt to the last answer.
        cached: number of prompt tokens from the prefix cache.
        preemptions: number of times that a row was preempted and computed again.
    """

    answers: list[list[int] | None]
    seconds: float
    cached: int = 0
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, filter(None, self.answers)))

    @property
    def speed(self) -> float:
        """Number of output tokens per second."""
        return self.tokens / self.seconds


class LocaljudgeEngine:
    """localjudge's engine, with a separate limit and temperature for each row.

    Args:
        folder: the model.
        options: vLLM's engine arguments, as `--engine-arg` spells them.
        limit: largest token limit of all answers.
        probabilities: whether the probabilities of the scores are kept.
    """

    def __init__(
        self, folder: Path, options: dict[str, Any], limit: int, *, probabilities: bool = True
    ) -> None:
        import numpy as np

        from localjudge import Rubric
        from localjudge.config import normalize_engine_args
        from localjudge.constraint.compiler import token_table
        from localjudge.engines.engine_options import VllmOptions
        from localjudge.engines.protocol import Decoding
        from localjudge.engines.vllm.vllm_engine import VllmEngine
        from localjudge.models.model import Model

        class AnyLimit(VllmEngine):  # type: ignore[misc]
            limits: Sequence[int] = ()
            temperatures: Sequence[float] | None = None

            def sampling_params(self, request: Any) -> Any:
                params = super().sampling_params(request)
                params.max_tokens = self.limits[request.prompt.tag]
                if self.temperatures is not None:
                    params.temperature = self.temperatures[request.prompt.tag]
                return params

        self.model = Model(folder.name, folder)
        self.table = token_table(
            Rubric.load().answer_layout, self.model.vocabulary, self.model.prompts.spell, decodes_opening=True
        )
        table = self.table
        if not probabilities:
            nothing = np.zeros(0, np.int16)
            table = replace(
                table,
                score_state=nothing,
                value_token=nothing.reshape(0, 1, 1).astype(np.int32),
            )
        decoding = Decoding(table, limit - table.smallest_limit + 1, closing_margin=32)
        self.engine = AnyLimit(self.model, decoding, VllmOptions.parse(normalize_engine_args(options)))

    @property
    def llm(self) -> Any:
        return self.engine.llm

    def run(
        self, prompts: list[list[int]], limits: Sequence[int], temperatures: Sequence[float] | None = None
    ) -> EngineRun:
        from localjudge.prompts.task import Prompt

        self.engine.limits, self.engine.temperatures = limits, temperatures
        self.llm.reset_prefix_cache()
        before = dict(self.engine.statistics())
        answers: list[list[int] | None] = [None] * len(prompts)
        begin = time.perf_counter()
        for completions in self.engine.complete(Prompt(tag, tokens, tag) for tag, tokens in enumerate(prompts)):
            for completion in completions:
                if completion.error:
                    raise RuntimeError(completion.error)
                answers[completion.tag] = list(completion.tokens)
        seconds = time.perf_counter() - begin
        after = self.engine.statistics()
        return EngineRun(
            answers,
            seconds,
            after["cached_prompt_tokens"] - before["cached_prompt_tokens"],
            after["preemptions"] - before["preemptions"],
        )

    def close(self) -> None:
        """Shut the engine down, so that another one can be started in this process."""
        self.llm.llm_engine.engine_core.shutdown()


class VllmAlone:
    """vLLM without localjudge: unconstrained, or with its own structured output.

    Args:
        folder: the model.
        options: vLLM's engine arguments.
        backend: `xgrammar`, `outlines` or `guidance`; None for no constraint.
        idle: whether vLLM calls a logits processor that does nothing.
        in_flight: prompts in the engine at a time; None for a quarter more than it computes at once.
        llm: an existing engine, instead of a new one from the options.
    """

    def __init__(
        self,
        folder: Path,
        options: dict[str, Any],
        backend: str | None = None,
        *,
        idle: bool = False,
        in_flight: int | None = None,
        llm: Any = None,
    ) -> None:
        from vllm import LLM

        from localjudge import Rubric

        structured = {"structured_outputs_config": structured_outputs(backend)} if backend else {}
        processors = {"logits_processors": [_idle_processor()]} if idle else {}
        self.llm = llm or LLM(
            model=str(folder), generation_config="vllm", **structured, **processors, **options
        )
        most = self.llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
        self._in_flight = in_flight or most + max(8, most // 4)
        self._backend = backend
        self._schema = Rubric.load().answer_layout.schema

    def run(self, prompts: list[list[int]], limits: Sequence[int]) -> EngineRun:
        from vllm.inputs import TokensPrompt

        engine = self.llm.llm_engine
        self.llm.reset_prefix_cache()
        answers: list[list[int] | None] = [None] * len(prompts)
        waiting, in_flight, cached, preemptions = iter(enumerate(prompts)), 0, 0, 0
        begin = time.perf_counter()
        while True:
            while in_flight < self._in_flight and (following := next(waiting, None)) is not None:
                tag, tokens = following
                engine.add_request(str(tag), TokensPrompt(prompt_token_ids=tokens), self._params(limits[tag]))
                in_flight += 1
            if not in_flight:
                break
            for output in engine.step():
                if output.finished:
                    in_flight -= 1
                    answers[int(output.request_id)] = list(output.outputs[0].token_ids)
                    cached += output.num_cached_tokens or 0
                    preemptions += getattr(output.metrics, "num_preemptions", 0) or 0
        return EngineRun(answers, time.perf_counter() - begin, cached, preemptions)

    def close(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()

    def _params(self, limit: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        structured = None
        if self._backend:
            # No white space between the parts, as in localjudge's answers: the fastest setting of each backend.
            compact = (
                {"whitespace_pattern": ""} if self._backend == "outlines" else {"disable_any_whitespace": True}
            )
            structured = StructuredOutputsParams(json=self._schema, **compact)
        return SamplingParams(
            temperature=0,
            max_tokens=limit,
            ignore_eos=self._backend is None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
            structured_outputs=structured,
        )


def _idle_processor() -> type:
    """Return a logits processor that does nothing: it costs what vLLM spends on having one."""
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class Idle(LogitsProcessor):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
            pass

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: Any) -> None:
            pass

        def apply(self, logits: Any) -> Any:
            return logits

    return Idle


def structured_outputs(backend: str) -> dict[str, Any]:
    """Return vLLM's setting for a backend; answers have no white space where the backend supports that."""
    compact = {"disable_any_whitespace": True} if backend in ("xgrammar", "guidance") else {}
    return {"backend": backend, **compact}


class SeparateProcess:
    """An object in a separate process, so that two engines share nothing but the machine.

    Args:
        make: creates the object, in that process.
        log: receives what that process prints.
    """

    def __init__(self, log: Path, make: Callable[..., Any], *args: Any, **named: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, log, make, args, named))
        self._process.start()
        theirs.close()
        self._answer()

    def call(self, method: str, *args: Any, **named: Any) -> Any:
        """Call a method of the object and return its result.

        Raises:
            RuntimeError: the method raised; the message is its traceback.
        """
        self._pipe.send((method, args, named))
        return self._answer()

    def close(self) -> None:
        """Close the object and end its process."""
        self._pipe.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.terminate()

    def _answer(self) -> Any:
        try:
            succeeded, result = self._pipe.recv()
        except EOFError:
            raise RuntimeError("the process of this engine died; see its log") from None
        if not succeeded:
            raise RuntimeError(result)
        return result


def _serve(pipe: Any, log: Path, make: Callable[..., Any], args: Any, named: Any) -> None:
    with log.open("ab") as stream:
        for target in (1, 2):
            os.dup2(stream.fileno(), target)
    served: Any = None
    while True:
        try:
            if served is None:
                served, result = make(*args, **named), None
            else:
                method, args, named = pipe.recv()
                result = getattr(served, method)(*args, **named)
            pipe.send((True, result))
        except EOFError:  # the parent has ended: vLLM's own processes must end too
            if served is not None:
                served.close()
            os._exit(0)
        except Exception:  # the parent process raises every error
            pipe.send((False, traceback.format_exc()))
            if served is None:
                return
