"""Tests of the predicted speed: the roofline, the names of GPUs, `models plan --rows`, the end of a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from tokenizers import Tokenizer

from localjudge import Judge, Row, Rubric, read_rows
from localjudge.errors import UsageError
from localjudge.models.capacity.capacity_plan import PlannedModel
from localjudge.models.capacity.device import Device
from localjudge.models.capacity.forecast import Forecast
from localjudge.models.capacity.throughput import PADDING, AnswerTokens, Workload, throughput
from localjudge.models.shape import Shape
from localjudge.runs.run_plan import RunPlan
from localjudge.runs.workload import estimated_lengths

ANSWER = AnswerTokens(written=100, written_limit=200, fixed=20, scores=6)
ALMOST_NONE = AnswerTokens(written=1e-6, written_limit=1, fixed=0, scores=0)
WORK = Workload(rows=10_000, prompt_tokens=10**7, shared_tokens=0, squares=10**10, answer=ANSWER)
GPU = replace(Device.gpu("h100"), compute_efficiency=1, bandwidth_efficiency=1)
CPU = replace(GPU, is_gpu=False, memory=0)


@pytest.fixture(scope="module")
def llama() -> Shape:
    """Return the shape of Llama 3.1 8B, from a profile."""
    return PlannedModel.find("deepseek-r1-distill-llama-8b").shape


def seconds(shape: Shape, work: Workload, device: Device, batch: int = 16) -> float:
    predicted = throughput(shape, shape.weight_bytes, work, device, batch=batch)
    assert predicted is not None
    return predicted.seconds


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("h100", "h100"),
        ("H100 SXM", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("rtx_3090", "rtx-3090"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_a_gpu_is_known_by_the_names_people_type_and_the_driver_reports(name: str, known: str) -> None:
    assert Device.gpu(name).name == known


@pytest.mark.parametrize("name", ["", "h1000", "T4", "gpu", "nvidia"])
def test_an_unknown_gpu_is_one_line_with_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match=r"no rates are known for a GPU '.*'; known are a10, .*rtx-a6000$"):
        Device.gpu(name)


def test_prefill_is_two_operations_for_each_parameter_and_the_attention(llama: Shape) -> None:
    no_answer = replace(WORK, answer=ALMOST_NONE)
    head = llama.vocabulary * llama.hidden
    linear = 2 * (llama.active_parameters - head) * WORK.prompt_tokens + 2 * head * WORK.rows
    attention = 4 * 32 * 128 * 32 * WORK.squares / 2  # heads, width of a head, layers
    assert seconds(llama, no_answer, GPU) == pytest.approx((linear + attention) / GPU.operations)


def test_prompt_tokens_of_a_cached_prefix_are_not_computed(llama: Shape) -> None:
    prefill = replace(WORK, answer=ALMOST_NONE)
    half = replace(prefill, shared_tokens=WORK.prompt_tokens // 2)
    assert 0.5 < seconds(llama, half, GPU) / seconds(llama, prefill, GPU) < 0.52
    assert seconds(llama, half, CPU) < seconds(llama, prefill, CPU)


def test_every_step_reads_all_weights_and_each_rows_cache(llama: Shape) -> None:
    endless = replace(GPU, operations=math.inf)
    one = replace(WORK, rows=1, prompt_tokens=1000, squares=10**6)
    read = 2 * (llama.parameters - llama.hidden - llama.vocabulary * llama.hidden)  # not the embedding
    cache = 2 * llama.token_values * round(1000 + ANSWER.total / 2)
    assert seconds(llama, one, endless) == pytest.approx(ANSWER.total * (read + cache) / GPU.bandwidth)


def test_a_mixture_of_experts_reads_those_that_some_row_uses() -> None:
    mixture = PlannedModel.find("gpt-oss-20b").shape
    endless = replace(GPU, operations=math.inf)
    one, many = (replace(WORK, rows=rows, prompt_tokens=rows * 100, squares=rows * 10**4) for rows in (1, 64))
    whole = ANSWER.total * mixture.weight_bytes / GPU.bandwidth
    assert seconds(mixture, one, endless) < whole / 3
    assert seconds(mixture, many, endless) > whole / 2


def test_fixed_text_costs_steps_in_vllm_and_none_in_transformers(llama: Shape) -> None:
    work = replace(WORK, rows=1, prompt_tokens=100, squares=10**4, answer=replace(ANSWER, written=200))
    longer = replace(work, answer=replace(work.answer, fixed=120))
    endless = [replace(device, operations=math.inf) for device in (GPU, CPU)]
    on_gpu, on_cpu = (seconds(llama, longer, device) / seconds(llama, work, device) for device in endless)
    assert on_gpu == pytest.approx(326 / 226, rel=0.01)
    assert on_cpu == pytest.approx(1, rel=0.01)


def test_a_cpu_computes_padded_prompts_in_batches(llama: Shape) -> None:
    work = replace(WORK, answer=AnswerTokens(1, 1, 0, 1))
    endless = replace(CPU, operations=math.inf)
    assert seconds(llama, work, endless, batch=8) == pytest.approx(2 * seconds(llama, work, endless), rel=0.2)
    unpadded = seconds(llama, work, GPU)
    assert PADDING < seconds(llama, work, CPU) / unpadded < PADDING**2


def test_more_gpus_take_less_time_and_no_fewer_gpu_hours(llama: Shape) -> None:
    forecast = Forecast.make(llama, llama.weight_bytes, WORK, GPU)
    found = [each for each in forecast.expected.values() if each]
    assert [each.gpus for each in found] == [1, 2, 4, 8, 16, 32, 64]
    for fewer, more in pairwise(found):
        assert 1 <= fewer.seconds / more.seconds <= 2.0001
    assert found[-1].seconds < found[0].seconds / 40


def test_a_model_that_needs_several_gpus_is_split_over_them() -> None:
    large = PlannedModel.find("llama-3.3-70b-instruct").shape
    expected = Forecast.make(large, large.weight_bytes, WORK, GPU).expected
    assert expected[1] is None
    four = expected[4]
    assert four is not None
    assert four.split == 4


def test_rationales_at_their_limit_take_longer(llama: Shape) -> None:
    assert 1 < Forecast.make(llama, llama.weight_bytes, WORK, GPU).slowdown < 226 / 126


def test_the_plan_counts_the_tokens_that_the_prompt_before_has_too(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [
        {"instruction": f"Question {n // 4}?", "reference": "Yes. " * 40, "candidate": f"{n} " * n}
        for n in range(12)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]))
    judge = Judge(model, engine="dry-run")
    with RunPlan(judge, read_rows([str(file)])) as plan:
        tasks = plan.encode()
        tasks.finish()
    found = [row for row in read_rows([str(file)]) if isinstance(row, Row)]
    prompts = [judge.task_builder.task(row).tokens for row in found[:12]]
    shared = 0
    for before, prompt in pairwise(prompts):
        same = next(n for n in range(len(prompt)) if before[: n + 1] != prompt[: n + 1])
        shared += same // 16 * 16
    assert (tasks.prompts, tasks.tokens) == (12, sum(map(len, prompts))), "a duplicate row is judged once"
    assert (tasks.shared_tokens, tasks.squares) == (shared, sum(len(prompt) ** 2 for prompt in prompts))
    assert shared > 0.2 * tasks.tokens


def test_plan_predicts_the_hours_of_rows_without_weights(cli: Cli, tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "no-weights"
    folder.mkdir()
    for file in model.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    rows = write_rows(tmp_path / "a.jsonl", 20)
    end = cli("models", "plan", folder, "--rows", rows, "--gpu", "L4", "--max-rationale-tokens", 64)
    assert end.code == 0, end.err
    lines = end.out.splitlines()
    heading = next(number for number, line in enumerate(lines) if "GPU-hours" in line)
    assert lines[heading].split() == ["l4", "rows", "in", "flight", "rows/s", "hours", "GPU-hours"]
    assert [line.split()[0] for line in lines[heading + 2 : heading + 9]] == [
        "1",
        "2",
        "4",
        "8",
        "16",
        "32",
        "64",
    ]
    assert "20 prompts of" in lines[-1]
    assert "rationales of 32 tokens (at their limit of 64," in lines[-1]
    assert "63% of the data sheet's rates (measured with one model shape on one H200)" in lines[-1]
    asked = json.loads(cli("models", "plan", folder, "--rows", rows, "--gpu", "L4", "--json").out)
    assert asked["gpu_memory"] == 24 * 2**30
    assert asked["forecast"]["rows"] == 20
    assert asked["forecast"]["expected"][0]["rows_per_second"] > 0


def test_plan_predicts_for_this_cpu_where_no_gpu_is_named(cli: Cli, tmp_path: Path, model: Path) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 20)
    flags = ["--expected-rationale-tokens", 10]
    end = cli("models", "plan", model, "--rows", rows, *flags)
    assert "this CPU (1 thread, float32)" in end.out
    assert "rationales of 10 tokens" in end.out
    assert "of its rates, measured now" in end.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gpu", "h1000"], "no rates are known for a GPU 'h1000'; known are a10, "),
        (["--gpu", "h100", "--gpu-memory", "80"], "--gpu knows the memory of its GPU; leave out --gpu-memory"),
        (["--rows", "missing.jsonl"], "missing.jsonl"),
        (
            ["--rows", "examples", "--gpu", "l4", "--expected-rationale-tokens", "300"],
            "rationales of 300 tokens in the mean are longer than their limit, 256",
        ),
    ],
)
def test_plan_refuses_what_it_cannot_use(cli: Cli, model: Path, flags: list[str], said: str) -> None:
    end = cli("models", "plan", model, *flags)
    assert (end.code, said in end.err, end.err.count("\n")) == (2, True, 1), end.err


def planned(cli: Cli, *arguments: object) -> dict[str, Any]:
    end = cli("models", "plan", *arguments, "--gpu", "h100", "--json")
    assert end.code == 0, end.err
    found: dict[str, Any] = json.loads(end.out)["forecast"]
    return found


def test_hours_are_estimated_for_a_number_of_rows_before_a_tokenizer_is_here(cli: Cli) -> None:
    small = planned(cli, "llama-3.1-8b-instruct", "--rows", "20000", "--prompt-tokens", "900")
    large = planned(cli, "llama-3.3-70b-instruct", "--rows", "20000", "--prompt-tokens", "900")
    assert (small["rows"], small["prompt_tokens"]) == (20_000, 18_000_000)
    assert "ESTIMATE" in small["assumptions"]
    by_gpus = {each["gpus"]: each["hours"] for each in large["expected"]}
    assert by_gpus[1] is None, "70B in bfloat16 does not fit one GPU"
    assert by_gpus[2] > 3 * small["expected"][1]["hours"]
    twice = planned(cli, "llama-3.1-8b-instruct", "--rows", "40000", "--prompt-tokens", "900")
    assert twice["expected"][0]["hours"] == pytest.approx(2 * small["expected"][0]["hours"], rel=0.02)


def test_an_estimate_from_bytes_is_near_the_count_of_a_tokenizer_and_says_what_it_is(
    cli: Cli, shared: Path, tmp_path: Path
) -> None:
    end = cli("models", "plan", "qwen3-8b", "--rows", "examples", "--gpu", "h100")
    assert (end.code, "ESTIMATE: tokens of 4 bytes each" in end.out) == (0, True), end.err
    texts = [Rubric.load().text(row) for row in read_rows(["examples"]) if isinstance(row, Row)]
    for name in ("falcon", "phi-3-mini"):
        tokenizer = Tokenizer.from_file(str(shared / "tokenizers" / name / "tokenizer.json"))
        counted = sum(len(tokenizer.encode(text).ids) for text in texts)
        assert sum(estimated_lengths(["examples"], {}, "just-eval")) == pytest.approx(counted, rel=0.15)


def test_a_dry_run_predicts_its_time_on_a_gpu(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 20)
    flags = ["--model", model, "--rubric", short_rubric, "--engine", "dry-run", "--engine-arg"]
    end = cli("score", rows, "--out", tmp_path / "dry", *flags, "gpu=NVIDIA L4")
    said = " ".join(end.out.split())
    assert "seconds on 1 l4 (" in said
    assert "rows/s predicted)" in said
    end = cli("score", rows, "--out", tmp_path / "other", *flags, "gpu=l5")
    assert (end.code, "no rates are known for a GPU 'l5'" in end.err) == (2, True)


def test_a_run_says_at_its_end_how_it_did_against_the_prediction(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 4)
    flags = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 4]
    end = cli("score", rows, "--out", tmp_path / "short", *flags)
    assert "predicted" not in end.err, "a short run says nothing"
    monkeypatch.setattr("localjudge.runs.workload.SHORTEST_COMPARED", 0)
    end = cli("score", rows, "--out", tmp_path / "long", *flags)
    assert "predicted for this CPU (1 thread, float32) and answers of" in end.err
    end = cli("score", rows, "--out", tmp_path / "dry", *flags, "--engine", "dry-run")
    assert "predicted" not in end.err, "a dry run has no device"
