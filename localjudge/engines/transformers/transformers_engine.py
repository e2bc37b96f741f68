"""The engine: loads a model and completes batches of prompts with it."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import GenerationConfig

from localjudge.constraint.masking import HostTable
from localjudge.engines.engine_options import TransformersOptions, batch_invariance
from localjudge.engines.prompt_batches import batches, rotates_by_batch
from localjudge.engines.protocol import (
    BEGINNINGS,
    KEPT,
    Completion,
    Decoding,
    EngineInfo,
    completion,
    types_in_words,
)
from localjudge.engines.transformers.batched_types import judged_alone
from localjudge.engines.transformers.fast_layers import pack, use_grouped_attention
from localjudge.engines.transformers.float32_head import head_dtype, use_float32_head
from localjudge.engines.transformers.generation import (
    BatchAnswers,
    can_write,
    generate,
    why_prompts_are_computed_whole,
)
from localjudge.engines.transformers.kept_beginnings import KeptBeginnings
from localjudge.errors import EngineError, ModelError, in_one_line
from localjudge.models.model import Model
from localjudge.models.model_class import ModelClass, no_class
from localjudge.models.refused_types import INSTEAD
from localjudge.models.tensor_check import check_tensors
from localjudge.models.weights import INDEX
from localjudge.prompts.task import Prompt
from localjudge.system.machine import has_bfloat16


class TransformersEngine:
    """Completes batches of up to `batch_size` prompts of similar length (`batches`).

    A run that continues computes the same batches as an uninterrupted run.

    A bfloat16 model runs in float32 on a processor without bfloat16 instructions, unless the options give a
    `dtype`.
    """

    def __init__(self, model: Model, decoding: Decoding, options: TransformersOptions) -> None:
        self._device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._remark = judged_alone(model.configuration.model_type)
        most = options.batch_size or (16 if self._device.type == "cpu" else 64)
        self._batch_size = self._at_once = 1 if self._remark else most
        self._decoding = decoding
        self._prompt_tokens = self._finished_tokens = 0
        self._answers: BatchAnswers | None = None
        self._beginnings = KeptBeginnings()
        widened = False
        self._mixed = not rotates_by_batch(model.config)
        check_tensors(model)
        model_class = ModelClass.of(model.configuration)
        if model_class is None:
            raise ModelError(f"model {model.name}: {no_class(model.configuration)}; {INSTEAD}")
        try:
            with _loadable(model.path) as folder:
                self._model = model_class.load(
                    folder,
                    attention="eager" if self._remark else None,
                    dtype=options.dtype,
                    # The generation defaults of the model (temperature, penalties …) are not used.
                    generation_config=GenerationConfig(),
                )
            if options.dtype == "auto" and self._device.type == "cpu" and self._model.dtype == torch.bfloat16:
                widened = not (has_bfloat16() or hasattr(self._model, "hf_quantizer"))
            if widened:
                self._model = self._model.float()
            if self._remark is None:
                use_grouped_attention(self._model)
            if self._device.type == "cpu":
                # glibc keeps freed blocks, such as outputs of layers, up to the size of the largest one freed
                # so far, at most 32 MiB. Each 4 KiB that it gives back to the system costs a page fault later.
                torch.empty(31 << 20, dtype=torch.uint8)
            self._model = self._model.to(self._device).eval()
            self._head = use_float32_head(self._model) if options.head_dtype != "model" else None
            if self._remark is None and self._device.type == "cpu":
                pack(self._model)
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"model {model.name}: {in_one_line(error)}; run localjudge models verify"
            ) from None
        except KeyError as error:
            missing = f"its files have no {in_one_line(error)}"
            raise ModelError(f"model {model.name}: {missing}; run localjudge models verify") from None
        except (ImportError, ValueError, RuntimeError) as error:  # of this machine, not of the files
            raise ModelError(f"model {model.name}: {in_one_line(error)}") from None
        if not can_write(self._model):
            kind = model.configuration.model_type
            raise ModelError(
                f"model {model.name}: it is of type {kind}, which with this configuration cannot write token "
                "by token: its tokens see later ones, or its cache or positions are not those of the whole "
                f"text; {INSTEAD}"
            )
        not_kept = why_prompts_are_computed_whole(self._model)
        if self._remark is not None:
            not_kept = "its rows are judged one by one"
        self._table = HostTable(decoding.table, decoding.closing_margin, self._device, self._batch_size)
        device, dtype = _device_name(self._device), str(self._model.dtype).removeprefix("torch.")
        last_layer = "float32"
        if self._head is None:
            last_layer = str(head_dtype(self._model)).removeprefix("torch.")
        if options.head_dtype == "float32" and last_layer != "float32":
            raise ModelError(
                f"model {model.name}: its last layer is quantized or of another kind and cannot be computed in "
                "float32; leave head_dtype=float32 out"
            )
        why = " (the processor has no bfloat16 instructions; dtype=bfloat16 uses it anyway)" * widened
        self.info = EngineInfo(
            name="transformers",
            dtype=dtype,
            head_dtype=last_layer,
            device=device,
            versions={
                "torch": torch.__version__,
                "transformers": version("transformers"),
            },
            applies_table=True,
            context=options.context(model),
            batch_size=self._batch_size,
            batch_invariant=batch_invariance(supported=False),
            details={**self._table.paths.described, BEGINNINGS: not_kept or KEPT},
            headline=f"engine transformers · {device} · {types_in_words(dtype, last_layer)}{why} · "
            + (self._remark or f"batches of {self._batch_size}"),
        )

    def statistics(self) -> Mapping[str, Any]:
        return {"prompt_tokens": self._prompt_tokens, "cached_prompt_tokens": self._beginnings.served}

    @property
    def answer_tokens(self) -> int:
        """Number of tokens of all answers so far, also of those in progress; another thread may ask."""
        answers = self._answers
        return self._finished_tokens + (sum(map(len, answers.tokens)) if answers else 0)

    def reset(self, at_once: int | None = None) -> None:
        self._beginnings.clear()
        self._at_once = self._batch_size if at_once is None else min(at_once, self._batch_size)

    def close(self) -> None:
        del self._model
        self._beginnings.clear()

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for batch in batches(prompts, self._at_once, mixed=self._mixed):
            yield self._generate(batch)

    def _generate(self, batch: list[Prompt]) -> list[Completion]:
        lengths = [len(prompt.tokens) for prompt in batch]
        answers = self._answers = BatchAnswers(self._table, self._decoding, batch)
        try:
            with torch.inference_mode():
                generate(
                    self._model,
                    batch,
                    answers,
                    self._beginnings,
                    batched=self._remark is None,
                    head=self._head,
                )
        except torch.OutOfMemoryError:
            raise EngineError(
                f"not enough memory for {len(batch)} prompts of up to {max(lengths)} tokens; "
                f"try `engine_args` batch_size={max(1, len(batch) // 2)}"
            ) from None
        except RuntimeError as error:
            raise EngineError(f"the engine failed: {error}") from error
        self._prompt_tokens += sum(lengths)
        self._finished_tokens, self._answers = self.answer_tokens, None
        probabilities = self._table.scores.take(list(range(len(batch))))
        return [
            completion(prompt, answer, self._table.paths, kept)
            for prompt, answer, kept in zip(batch, answers.tokens, probabilities, strict=True)
        ]


def _device_name(device: torch.device) -> str:
    on_host = f"{device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else on_host


@contextmanager
def _loadable(folder: Path) -> Iterator[Path]:
    """Yield a directory that transformers can load: it requires `metadata` in an index, which may lack it."""
    index = folder / INDEX
    content = json.loads(index.read_bytes()) if index.is_file() else {"metadata": {}}
    if isinstance(content.get("metadata"), dict):
        yield folder
        return
    with TemporaryDirectory(prefix="localjudge-") as scratch:
        for file in folder.iterdir():
            Path(scratch, file.name).symlink_to(file)
        Path(scratch, INDEX).unlink()
        Path(scratch, INDEX).write_text(json.dumps(content | {"metadata": {}}), encoding="utf-8")
        yield Path(scratch)
