"""The vLLM engine, kept full, with the token table inside its sampler.

Its input and output are token ids. A bounded number of prompts is in flight, and a new one enters when one
finishes. If the engine dies, it is started again, and the prompts in flight are sent one by one to find a
prompt that kills the engine.
"""

from __future__ import annotations

import atexit
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import vllm
from numpy.typing import NDArray
from vllm import LLM, EngineArgs, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError

from localjudge.constraint.value_paths import ValuePaths
from localjudge.engines.engine_log import output_to
from localjudge.engines.engine_options import VllmOptions, batch_invariance
from localjudge.engines.protocol import BEGINNINGS, KEPT, Completion, Decoding, EngineInfo, types_in_words
from localjudge.engines.vllm.engine_session import (
    COLLECT,
    EngineDiedError,
    EngineSession,
    InFlightRequest,
    one_line,
)
from localjudge.engines.vllm.head_type import HeadChoice, choose_head
from localjudge.engines.vllm.table_settings import KEY, STATE, table_config
from localjudge.errors import EngineError, ModelError, UsageError
from localjudge.models.model import Model
from localjudge.models.tensor_check import check_tensors
from localjudge.prompts.task import Prompt, until_stopped

_HEAD_REFUSED = "A head_dtype different from the model dtype"
"""The beginning of vLLM's error for a last layer that it cannot compute in another type."""

_MOST_DEATHS = 3
"""Consecutive deaths, without a finished row between them, after which the engine gives up."""


class VllmEngine:
    """Completes prompts with vLLM's engine loop.

    Args:
        model: the model.
        decoding: how answers are decoded.
        options: vLLM's own engine arguments, and the type of the last layer.
        context: the most tokens of a prompt and its answer, if known: vLLM's `max_model_len` unless an
            option gives it.
        log: a file for vLLM's output; None does not redirect it.

    Attributes:
        llm: vLLM's `LLM`; another one after a restart.
        in_flight: the limit of prompts in the engine: a few more than it works on, so that it never waits, or
            the number that `reset` has set.
        slots: the number of answers whose scores the workers can keep.
        paths: the ways to the values of an answer.
    """

    def __init__(
        self,
        model: Model,
        decoding: Decoding,
        options: VllmOptions,
        *,
        context: int | None = None,
        log: Path | None = None,
    ) -> None:
        try:
            SamplingParams(temperature=decoding.temperature, top_p=decoding.top_p)
        except (ValueError, VLLMValidationError) as error:  # vLLM accepts no temperature above 2
            raise UsageError(f"vLLM {vllm.__version__} says: {one_line(error)}") from None
        self._model = model
        self._decoding = decoding
        self._options = options
        self.paths = ValuePaths(decoding.table)
        self._log = log
        self._at_once: int | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="localjudge-")
        self._arguments: dict[str, Any] = {
            "model": str(model.path),
            "skip_tokenizer_init": True,
            # The processor of images, which a model may have, needs a tokenizer, and its encoder needs memory.
            "language_model_only": True,
            "enable_prefix_caching": True,
            "generation_config": "vllm",
            "disable_log_stats": False,
            "worker_extension_cls": "localjudge.engines.vllm.runners.ScoreCollector",
            **({"max_model_len": context} if context else {}),
            **options.arguments,
        }
        if self._arguments.get("load_format") != "dummy":
            check_tensors(model)  # vLLM does not report tensors that it does not find
        with output_to(log):
            self.llm = self._start()
        atexit.register(self.close)
        self._prompt_tokens = self._cached_tokens = self._preemptions = self._restarts = 0

    @property
    def info(self) -> EngineInfo:
        config = self._config
        device = config.device_config.device_type
        dtype = _name(config.model_config.dtype)
        head_dtype = _name(config.model_config.head_dtype)
        types = types_in_words(dtype, head_dtype)
        if head_dtype == dtype and self._head.remark:
            types += f", values too ({self._head.remark})"
        kv_cache_tokens = getattr(config.cache_config, "kv_cache_size_tokens", None)
        context, most = config.model_config.max_model_len, config.scheduler_config.max_num_seqs
        return EngineInfo(
            name="vllm",
            dtype=dtype,
            head_dtype=head_dtype,
            device=device,
            versions={name: version(name) for name in ("torch", "transformers")} | {"vllm": vllm.__version__},
            applies_table=True,
            context=context,
            max_num_seqs=most,
            batch_invariant=batch_invariance(  # NVIDIA, Hopper or later
                supported=current_platform.is_cuda() and current_platform.has_device_capability(90)
            ),
            details={
                "runner": self._runner,
                "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
                "kv_cache_tokens": kv_cache_tokens,
                BEGINNINGS: self._beginnings,
                **self.paths.described,
            },
            headline=f"engine vllm {vllm.__version__} · {device} · {types} · runner {self._runner} · "
            f"KV cache {kv_cache_tokens} tokens · up to {most} rows at once · context {context}",
        )

    @property
    def _beginnings(self) -> str:
        """Whether the beginnings that prompts share are kept, or why not."""
        if not self._config.cache_config.enable_prefix_caching:
            return "prefix caching is off"
        model = self._config.model_config
        if model.is_hybrid or model.is_attention_free:
            return "vLLM keeps the states of recurrent layers only at the end of a step"
        return KEPT

    def statistics(self) -> Mapping[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "cached_prompt_tokens": self._cached_tokens,
            "preemptions": self._preemptions,
            "engine_restarts": self._restarts,
        }

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        waiting = until_stopped(prompts)
        suspects: deque[InFlightRequest] = deque()
        deaths = 0
        while True:
            alone = suspects.popleft() if suspects else None
            life = EngineSession(self, iter([alone.prompt]) if alone else waiting)
            died = ""
            try:
                for completions in life.run():
                    deaths = 0
                    yield completions
            except EngineDiedError as death:
                died = str(death)  # a reference to the error would keep the dead engine's memory
            if not died:
                if alone is None and not suspects:
                    return
                continue
            deaths += 1
            if life.refused:
                yield life.refused
            in_flight = [alone] if alone else life.abandoned()
            if len(in_flight) == 1:
                # A prompt that was alone in flight when the engine died is the most likely cause.
                in_flight[0].deaths_alone += 1
                if in_flight[0].deaths_alone >= 2:
                    yield [Completion(in_flight.pop().prompt.tag, error=f"it kills the engine: {died}")]
                    deaths = 0
            suspects.extend(in_flight)
            if deaths >= _MOST_DEATHS:
                raise EngineError(
                    f"vLLM died {deaths} times without finishing a row: {died}. "
                    f"{f'Its log is {self._log}. ' if self._log else ''}"
                    "The memory is often too small: try `engine_args` max_num_seqs=64 "
                    "or gpu_memory_utilization=0.8"
                )
            self._restart()

    @property
    def in_flight(self) -> int:
        if self._at_once is None:
            return self._most_in_flight
        return min(self._at_once, self._most_in_flight)

    def reset(self, at_once: int | None = None) -> None:
        self._at_once = at_once
        try:
            is_empty = self.llm.reset_prefix_cache()
        except Exception as error:  # any error of an engine that has died
            raise EngineError(f"vLLM died: {one_line(error)}") from None
        if not is_empty:
            raise EngineError("vLLM did not empty its prefix cache")

    @property
    def _config(self) -> Any:
        return self.llm.llm_engine.vllm_config

    def _start(self) -> Any:
        arguments = dict(self._arguments)
        try:
            config = EngineArgs(**arguments).create_engine_config()
            self._runner = "V2" if getattr(config, "use_v2_model_runner", False) else "V1"
            most = config.scheduler_config.max_num_seqs
        except TypeError as error:
            raise UsageError(f"`engine_args`: vLLM {vllm.__version__} says: {one_line(error)}") from None
        except ValueError as error:
            raise ModelError(f"model {self._model.name}: vLLM says: {one_line(error)}") from None
        self._head = self._choose_head(config)
        if self._head.overrides:
            arguments["hf_overrides"] = {**arguments.get("hf_overrides", {}), **self._head.overrides}
        table = Path(self._folder.name) / "table.npz"
        self._most_in_flight = int(most + max(8, most // 4))
        self.slots = 2 * self._most_in_flight + 2 * COLLECT
        self._decoding.table.save(table)
        ours = table_config(self._decoding, table, self.slots)
        arguments["logits_processors"] = [f"localjudge.engines.vllm.runners:{self._runner}Processor"]
        arguments["additional_config"] = {**arguments.get("additional_config", {}), **ours}
        try:
            llm = LLM(**arguments)
        except (ValueError, RuntimeError, OSError) as error:
            hint = f"; its log is {self._log}" if self._log else ""
            if self._head.is_float32 and self._names_head_type(error):
                hint += "; give head_dtype=model, because vLLM cannot compute its last layer in float32"
            raise ModelError(
                f"model {self._model.name}: vLLM cannot load it: {one_line(error)}{hint}"
            ) from None
        _guard(llm.llm_engine.engine_core)
        return llm

    def _choose_head(self, config: Any) -> HeadChoice:
        """Return what vLLM is told about the type of the last layer, before it starts."""
        if config.model_config.dtype == torch.float32:
            return HeadChoice({})
        on_gpu = config.device_config.device_type == "cuda"
        return choose_head(self._model, self._options, on_gpu=on_gpu)

    def _names_head_type(self, error: Exception) -> bool:
        """Return whether vLLM failed because of the type of the last layer, by the error or its log."""
        text = str(error)
        if self._log is not None and self._log.is_file():
            text += self._log.read_text(encoding="utf-8", errors="replace")
        return _HEAD_REFUSED in text

    def _restart(self) -> None:
        self._restarts += 1
        self.close()
        del self.llm
        with output_to(self._log):
            try:
                self.llm = self._start()
            except (ModelError, UsageError) as error:
                raise EngineError(f"vLLM died and did not start again: {error}") from None

    def check(self, prompt: Prompt) -> None:
        """Refuse a prompt whose answer vLLM would cut silently at the end of the context."""
        context = self._config.model_config.max_model_len
        answer = self._decoding.max_tokens
        if len(prompt.tokens) + answer > context:
            raise ValueError(
                f"a prompt of {len(prompt.tokens)} tokens and an answer of up to {answer} "
                f"do not fit the engine's context of {context}"
            )

    def sampling_params(self, request: InFlightRequest) -> SamplingParams:
        """Return how vLLM decodes the answer, or the one token after a branch of it."""
        prompt, branch = request.prompt, request.branch
        decoding = self._decoding
        # vLLM seeds each row separately; on a CPU it cannot do so with chunked prefill.
        seeded = decoding.temperature > 0 and self._config.device_config.device_type != "cpu"
        return SamplingParams(
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            seed=prompt.seed % 2**63 if seeded else None,
            max_tokens=decoding.max_tokens if branch is None else 1,
            stop_token_ids=sorted(self._model.vocabulary.ends),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
            extra_args={KEY: request.slot} | ({} if branch is None else {STATE: branch.state}),
        )

    def count(self, output: Any) -> None:
        """Add a finished request to the statistics."""
        self._prompt_tokens += len(output.prompt_token_ids)
        self._cached_tokens += output.num_cached_tokens or 0
        self._preemptions += getattr(output.metrics, "num_preemptions", 0) or 0

    def take_scores(self, slots: list[int]) -> NDArray[np.float64]:
        """Return and clear what is kept in these slots, as `ScoreBuffer.take` does.

        A slot that no worker has kept is NaN.
        """
        shape = len(slots), self.paths.width
        parts = [
            np.frombuffer(part, np.float64).reshape(shape)
            for part in self.llm.collective_rpc("localjudge_take_scores", args=(slots,))
        ]
        merged = parts[0].copy()
        for part in parts[1:]:
            np.copyto(merged, part, where=np.isnan(merged))
        return merged

    def close(self) -> None:
        """Shut the engine down."""
        with output_to(self._log), suppress(Exception):  # any error of a dead or partly built engine
            self.llm.llm_engine.engine_core.shutdown()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _guard(engine_core: Any) -> None:
    """Make a dead engine raise an error; otherwise vLLM's client waits forever on an empty queue."""
    if not hasattr(engine_core, "resources"):
        return  # the engine runs in this process and dies with it

    def watch() -> None:
        while not engine_core.resources.engine_dead:
            time.sleep(0.2)
        engine_core.outputs_queue.put(EngineDeadError())
        for result in list(engine_core.utility_results.values()):
            if not result.done():
                result.set_exception(EngineDeadError())

    threading.Thread(target=watch, daemon=True, name="localjudge-guard").start()
