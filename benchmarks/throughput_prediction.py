"""The efficiencies of `models/capacity/device.py`: fitted on two shapes of a model, and checked on a third.

    python benchmarks/throughput_prediction.py [--rows 16] [--also DIR]

On this CPU: the transformers engine judges the same rows with models of random weights in three shapes, in
bfloat16, with short and with long rationales. The efficiencies of compute and bandwidth that fit the first two
shapes best must predict the third. The rates of the CPU are measured beside each model, and the best count. One
thread works, and its own CPU time is the time, so that other programs on the machine disturb it little. With
`--also`, one more model that is not in the fit is predicted, such as a real one. A case runs `--rounds` times;
the shortest time counts.

On a GPU: `results/gpu.json` has one shape on one H200. One measurement gives one number, so the same efficiency
is fitted for compute and for bandwidth, and no other shape checks it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import results_table

from localjudge.models.capacity.device import Device
from localjudge.models.capacity.throughput import AnswerTokens, Workload, throughput

SHAPES = {
    # hidden size, layers, feed-forward size
    "small": (512, 12, 2048),
    "large": (1024, 12, 4096),
    "third": (768, 16, 2304),
}
"""Three shapes; the first two are for the fit."""
LIMITS = (8, 96)
"""Tokens of a rationale; a model with random weights writes up to its limit."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, its work, and the seconds that it took; `device` has the rates that were measured beside it."""

    shape: str
    limit: int
    model: Any
    work: Workload
    device: Device
    seconds: float

    def predicted(self, compute: float, bandwidth: float) -> float:
        """Return the predicted seconds with these efficiencies."""
        device = replace(self.device, compute_efficiency=compute, bandwidth_efficiency=bandwidth)
        found = throughput(self.model.shape, self.model.weights, self.work, device)
        assert found is not None
        return found.seconds


def main() -> None:
    options = _options()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as name:
        rows = write_rows(Path(name) / "rows.jsonl", options.rows, options.words)
        folders = {shape: write_model(Path(name) / shape, shape) for shape in SHAPES}
        folders |= {folder.name: folder for folder in options.also}
        for shape, folder in folders.items():
            for limit in LIMITS:
                cases.append(measure(shape, folder, rows, limit, options.rounds))
                print(f"{shape}, {limit}: {cases[-1].seconds:.1f} s", flush=True)
    results_table.write("throughput_prediction", findings(cases, options.gpu), options.results)


def findings(cases: list[Case], gpu_result: Path) -> dict[str, Any]:
    """Fit the efficiencies, predict all cases, print and return them."""
    operations = max(case.device.operations for case in cases)
    bandwidth = max(case.device.bandwidth for case in cases)
    cases = [
        replace(case, device=replace(case.device, operations=operations, bandwidth=bandwidth)) for case in cases
    ]
    fitted = list(SHAPES)[:2]
    efficiencies = fit([case for case in cases if case.shape in fitted])
    found = [
        {
            "shape": case.shape,
            "in_the_fit": case.shape in fitted,
            "parameters": case.model.shape.parameters,
            "rationale_tokens": case.limit,
            "rows": case.work.rows,
            "prompt_tokens": case.work.prompt_tokens,
            "answer_tokens": case.work.answer.total,
            "seconds": round(case.seconds, 3),
            "predicted_seconds": round(case.predicted(*efficiencies), 3),
            "predicted_to_measured": round(case.predicted(*efficiencies) / case.seconds, 3),
        }
        for case in cases
    ]
    columns = [
        "shape",
        "in_the_fit",
        "rationale_tokens",
        "seconds",
        "predicted_seconds",
        "predicted_to_measured",
    ]
    results_table.table(
        f"CPU: {efficiencies[0]:.2f} of the compute, {efficiencies[1]:.2f} of the bandwidth",
        columns,
        [
            [str(case[column]) if column == "in_the_fit" else case[column] for column in columns]
            for case in found
        ],
    )
    gpu = gpu_efficiency(gpu_result)
    print(f"\nH200, one shape: {gpu:.2f} of the data sheet's rates")
    return {
        "cpu": {
            "threads": 1,
            "operations_per_second": operations,
            "bytes_per_second": bandwidth,
            "compute_efficiency": round(efficiencies[0], 3),
            "bandwidth_efficiency": round(efficiencies[1], 3),
            "cases": found,
            "worst_outside_the_fit": max(
                (case["predicted_to_measured"] for case in found if not case["in_the_fit"]),
                key=lambda ratio: abs(math.log(ratio)),
            ),
        },
        "gpu": {"efficiency": round(gpu, 3), "from": gpu_result.name, "shapes_measured": 1},
    }


def write_rows(file: Path, count: int, words: int) -> Path:
    """Write rows that differ in a number at their end, so that they fill batches of one length."""
    text = " ".join(("river", "method", "light", "answer", "people", "history")[n % 6] for n in range(words))
    rows = [
        {"instruction": text, "reference": text, "candidate": f"{text} {number}"}
        for number in range(10, 10 + count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_model(folder: Path, shape: str) -> Path:
    """Write a Llama with random weights and the vocabulary of the bundled judge."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from localjudge.models.model import Model

    tokenizer = AutoTokenizer.from_pretrained(Model.find(None).path, local_files_only=True)
    hidden, layers, intermediate = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128,
        max_position_embeddings=8192,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    tokenizer.save_pretrained(folder)
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    return folder


def measure(shape: str, folder: Path, rows: Path, limit: int, rounds: int) -> Case:
    """Judge the rows and return the shortest time in seconds."""
    from localjudge import Judge, read_rows
    from localjudge.models.capacity.capacity_plan import PlannedModel
    from localjudge.records import Judgement, numbered
    from localjudge.runs.run_plan import RunPlan
    from localjudge.runs.workload import workload

    with Judge(folder, engine="transformers", max_rationale_tokens=limit) as judge:
        found = list(numbered(read_rows([str(rows)])))
        with RunPlan(judge, found) as plan:
            tasks = plan.encode()
            tasks.finish()
            work = workload(judge, tasks)
        device = Device.cpu(judge.engine.info.dtype)
        encoded = list(judge.task_builder.tasks(found))
        seconds = []
        for _ in range(rounds):
            begin = time.process_time()
            outcomes = [outcome for some in judge.judged(encoded) for _, outcome in some]
            seconds.append(time.process_time() - begin)
    tokens = [outcome.output_tokens for outcome in outcomes if isinstance(outcome, Judgement)]
    answer: AnswerTokens = work.answer
    written = sum(tokens) / len(tokens) - answer.fixed - answer.scores
    work = replace(work, answer=replace(answer, written=written))
    return Case(shape, limit, PlannedModel.find(str(folder)), work, device, min(seconds))


def fit(cases: list[Case]) -> tuple[float, float]:
    """Return the efficiencies of compute and bandwidth with the smallest squared error of the logarithms."""
    grid = [math.exp(step / 50) for step in range(-150, 26)]

    def error(pair: tuple[float, float]) -> float:
        return sum(math.log(case.predicted(*pair) / case.seconds) ** 2 for case in cases)

    return min(itertools.product(grid, grid), key=error)


def gpu_efficiency(file: Path) -> float:
    """Return the share of the H200's data sheet that the run in a result of `gpu.py` reached."""
    from gpu import SHAPES as GPU_SHAPES

    from localjudge.models.configuration import read_shape

    measured = json.loads(file.read_text())
    ours, rows = measured["contenders"]["ours"], measured["rows"]
    with tempfile.TemporaryDirectory() as name:
        Path(name, "config.json").write_text(json.dumps(GPU_SHAPES[measured["shape"]]))
        shape = read_shape(Path(name), measured["shape"])
    tokens, written = measured["prompt_tokens"], ours["output_tokens"] / rows
    work = Workload(
        rows,
        tokens,
        round(tokens * ours["cached_prompt_share"]),
        tokens**2 // rows,  # the file has no lengths; attention is a small share of the work
        AnswerTokens(written, measured["limit"], 0, 0),
    )
    device = replace(Device.gpu("h200"), compute_efficiency=1.0, bandwidth_efficiency=1.0)
    ideal = throughput(shape, shape.weight_bytes, work, device, max_num_seqs=measured["engine"]["max_num_seqs"])
    assert ideal is not None
    return ours["rows_per_second"] / ideal.rows_per_second


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument(
        "--words", type=int, default=60, help="words of an instruction, a reference, a candidate"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--also", type=Path, action="append", default=[], help="one more model to predict")
    parser.add_argument(
        "--gpu", type=Path, default=results_table.RESULTS / "gpu.json", help="a result of gpu.py"
    )
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
