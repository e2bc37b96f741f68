"""vLLM's real V2 model runner, which wants a GPU, on a CPU: its Triton kernels run in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from localjudge.models.model import Model


def test_answers_in_the_v2_runner_are_whole_and_those_of_the_plain_engine(close_values: Model) -> None:
    pytest.importorskip("triton")
    # As on a GPU, where asynchronous is what vLLM does; `synchronous` is the script's other choice.
    scheduling = "asynchronous"
    switches = {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("v2_on_a_cpu.py")), str(close_values.path), scheduling],
        env=os.environ | switches | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    report = json.loads(ended.stdout.splitlines()[-1])
    assert report["runner"] == "V2"
    assert report["asynchronous"]
    assert report["whole"] == report["asked"]
    assert report["same_tokens"] == report["greedy"]
    assert report["furthest_probability"] < 1e-4
    assert report["preemptions"] > 0
    # Of the scores of answers in bfloat16, whose last layer is in float32 in the second case.
    assert report["with_equal_values"]["model"] > 0
    assert report["with_equal_values"]["float32"] == 0
