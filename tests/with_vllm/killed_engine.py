"""Kills vLLM's processes in the middle of runs; for `test_engine.py`. Arguments: a model, a log file."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import psutil
from vllm.platforms.cpu import CpuPlatform
from vllm_on_a_cpu import check_and_then, fork, frozen_imports

from localjudge import Rubric
from localjudge.constraint.compiler import token_table
from localjudge.engines.engine_options import VllmOptions
from localjudge.engines.protocol import Decoding
from localjudge.engines.vllm.vllm_engine import VllmEngine
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

OPTIONS = {"dtype": "float32", "enforce_eager": "true", "block_size": "32", "max_model_len": "512"}


def main() -> None:
    CpuPlatform.check_and_update_config = check_and_then(fork)
    model = Model.find(sys.argv[1])
    rubric = Rubric.model_validate(
        {
            "name": "branches",  # which are asked for when an answer has come, and may be lost with the engine
            "aspects": {"percent": {"scale": {"lowest": 0, "highest": 100}}},
            "prompt": {"template": "{$candidate} {$aspects} {$answer_format}"},
        }
    )
    opening = rubric.answer_layout.opening
    table = token_table(rubric.answer_layout, model.vocabulary, model.prompts.spell)
    decoding = Decoding(table, 24, closing_margin=4, temperature=1.0)
    options = VllmOptions.parse(OPTIONS | {"max_num_seqs": "16", "num_gpu_blocks_override": "1024"})
    engine = VllmEngine(model, decoding, options, log=Path(sys.argv[2]))
    report = {}
    for victim in ("EngineCore", "Worker"):
        before = engine.statistics()["engine_restarts"]
        asked, answers = 100, list[int]()
        whole, is_killed = 0, False
        for finished in engine.complete(Prompt(n, [11 + n] * 40, seed=n) for n in range(asked)):
            if not is_killed:  # what comes then can be without an answer
                kill(victim)
                is_killed = True
            for completion in finished:
                answers.append(completion.tag)
                whole += bool(
                    rubric.parse(opening + model.vocabulary.decode(completion.tokens)).texts["rationale"]
                )
        report[victim] = {
            "asked": asked,
            "whole": whole,
            "twice": len(answers) - len(set(answers)),
            "engine_restarts": engine.statistics()["engine_restarts"] - before,
        }
    print(json.dumps(report))


def kill(name: str) -> None:
    for process in psutil.Process().children(recursive=True):
        if name in process.name():
            os.kill(process.pid, signal.SIGKILL)
            return
    raise LookupError(name)


if __name__ == "__main__":
    with frozen_imports():
        main()
