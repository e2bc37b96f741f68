"""Answers from vLLM's V2 model runner on a CPU; for `test_v2_runner.py`. Arguments: a model, the scheduling.

Triton has no CPU backend, but an interpreter. What else the runner wants of a GPU, streams, events and pinned
memory, has stand-ins here that do nothing: on a CPU everything happens in order.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch


class Stream:
    """A stream, or an event on it."""

    device = torch.device("cpu")

    def __init__(self, *_: object, **__: object) -> None: ...
    def record(self, *_: object) -> None: ...
    def synchronize(self) -> None: ...
    def wait(self, *_: object) -> None: ...
    def wait_event(self, *_: object) -> None: ...
    def wait_stream(self, *_: object) -> None: ...

    def query(self) -> bool:
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


def pretend_a_gpu() -> None:
    """Must come before vLLM is imported."""
    from triton.backends import backends

    backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)
    torch.Event = torch.cuda.Event = torch.cuda.Stream = Stream
    for name in ("current_stream", "default_stream"):
        setattr(torch.cuda, name, Stream)
    torch.cuda.stream = lambda stream: nullcontext()
    torch.cuda.set_stream = lambda stream: None
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.accelerator.synchronize = torch.accelerator.empty_cache = lambda *_, **__: None
    from vllm.v1.worker.cpu.buffer_utils import UvaBuffer
    from vllm.v1.worker.gpu import buffer_utils

    buffer_utils.UvaBuffer = UvaBuffer


def main() -> None:
    pretend_a_gpu()
    if sys.argv[2] == "asynchronous":
        from vllm.platforms.cpu import CpuPlatform
        from vllm_on_a_cpu import check_and_then, schedule_asynchronously

        CpuPlatform.check_and_update_config = check_and_then(schedule_asynchronously)
    import numpy as np

    from localjudge import Rubric
    from localjudge.constraint.compiler import token_table
    from localjudge.engines.engine_options import TransformersOptions, VllmOptions
    from localjudge.engines.protocol import Decoding
    from localjudge.engines.transformers.transformers_engine import TransformersEngine
    from localjudge.engines.vllm.vllm_engine import VllmEngine
    from localjudge.models.model import Model
    from localjudge.prompts.task import Prompt

    class Mixed(VllmEngine):
        """Every other row is sampled, and has a smaller limit."""

        def sampling_params(self, request: Any) -> Any:
            params = super().sampling_params(request)
            if request.prompt.tag % 2 and request.branch is None:
                params.temperature, params.max_tokens = 1.0, self._decoding.limit - 3
            return params

    model = Model.find(sys.argv[1])
    rubric = Rubric.model_validate(
        {
            "name": "shared-tokens",
            "aspects": {
                **{aspect: {"scale": {"lowest": 1, "highest": 5}} for aspect in Rubric.load().aspects},
                "depth": {"scale": {"lowest": 1, "highest": 10}},
            },
            "prompt": {"template": "{$candidate} {$aspects} {$answer_format}"},
        }
    )
    opening = rubric.answer_layout.opening
    table = token_table(rubric.answer_layout, model.vocabulary, model.prompts.spell)
    decoding = Decoding(table, 9, closing_margin=3)
    arguments = {
        "dtype": "float32",
        "enforce_eager": True,
        "block_size": 32,
        "max_model_len": 128,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 32,
        "num_gpu_blocks_override": 14,
        "enable_prefix_caching": False,
    }
    engine = Mixed(model, decoding, VllmOptions(arguments))
    asked = [Prompt(n, [11 + n] * (31 + n), seed=n) for n in range(20)]
    ours = {completion.tag: completion for finished in engine.complete(asked) for completion in finished}
    options = TransformersOptions.parse({"dtype": "float32", "device": "cpu"})
    plain = TransformersEngine(model, decoding, options)
    greedy = [prompt for prompt in asked if prompt.tag % 2 == 0]
    theirs = {completion.tag: completion for finished in plain.complete(greedy) for completion in finished}
    with_equal_values: dict[str, int] = {}
    for head in ("model", "float32"):
        rounded = VllmEngine(
            model, decoding, VllmOptions(arguments | {"dtype": "bfloat16", "num_gpu_blocks_override": 64}, head)
        )
        finished = [one for some in rounded.complete(asked[:6]) for one in some]
        scores = [shares for one in finished for shares in one.probabilities]
        # An aspect with fewer values than another has a probability of 0 in the places of the others.
        possible = [shares[shares > 0].tolist() for shares in scores]
        with_equal_values[head] = sum(len(set(shares)) < len(shares) for shares in possible)
        rounded.close()
    print(
        json.dumps(
            {
                "with_equal_values": with_equal_values,
                "runner": engine.info.details["runner"],
                "asynchronous": engine.llm.llm_engine.vllm_config.scheduler_config.async_scheduling,
                "preemptions": engine.statistics()["preemptions"],
                "asked": len(asked),
                "whole": sum(
                    bool(rubric.parse(opening + model.vocabulary.decode(completion.tokens)).texts["rationale"])
                    and len(completion.tokens) <= decoding.limit - 3 * (completion.tag % 2)
                    for completion in ours.values()
                ),
                "greedy": len(greedy),
                "same_tokens": sum(ours[tag].tokens == other.tokens for tag, other in theirs.items()),
                "furthest_probability": max(
                    float(np.abs(ours[tag].probabilities - other.probabilities).max())
                    for tag, other in theirs.items()
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
