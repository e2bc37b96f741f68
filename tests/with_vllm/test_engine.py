"""The batch engine on the real vLLM, on small models: whatever happens in it, every answer is whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("vllm")

from safetensors.torch import load_file, save_file
from small_tokenizers import model_with
from transformers import LlamaForCausalLM
from value_oracle import ASPECTS, total_variation, values_one_by_one
from vllm.inputs import TokensPrompt
from vllm.platforms.cpu import CpuPlatform
from vllm_on_a_cpu import check_and_then, schedule_asynchronously

from localjudge import EngineError, ModelError, Rubric, UsageError
from localjudge.constraint import value_paths
from localjudge.constraint.compiler import after_thinking, token_table
from localjudge.engines.engine_options import TransformersOptions
from localjudge.engines.protocol import Completion, Decoding
from localjudge.engines.transformers.transformers_engine import TransformersEngine
from localjudge.engines.vllm.engine_session import InFlightRequest
from localjudge.engines.vllm.vllm_engine import VllmEngine
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the warnings are vLLM's own

OpenEngine = Callable[..., Any]

STARVED = {"max_num_seqs": 64, "max_num_batched_tokens": 256, "num_gpu_blocks_override": 80}
"""64 rows at once, and a cache that holds about a third of them whole."""


def prompts(count: int, longest: int = 60) -> list[Prompt]:
    """Prompts of mixed lengths that share nothing."""
    return [Prompt(n, [11 + n % 900, *range(20, 21 + n * 37 % longest)], seed=n) for n in range(count)]


def complete(engine: Any, asked: Iterable[Prompt]) -> dict[int, Completion]:
    """Completions by tag; each prompt has exactly one."""
    answered: dict[int, Completion] = {}
    for finished in engine.complete(asked):
        for completion in finished:
            assert completion.tag not in answered
            answered[completion.tag] = completion
    return answered


def assert_whole(model: Model, rubric: Rubric, completion: Completion, limit: int) -> None:
    assert completion.error is None
    assert len(completion.tokens) <= limit
    answer = rubric.parse(rubric.answer_layout.opening + model.vocabulary.decode(completion.tokens))
    assert answer.texts["rationale"]
    assert completion.probabilities is not None
    np.testing.assert_allclose(completion.probabilities.sum(axis=1), 1)


class Mixed(VllmEngine):
    """Rows with limits and temperatures of their own, by their tags."""

    def temperature(self, tag: int) -> float:
        return (0.0, 0.7, 1.0, 5.0)[tag % 4]

    def limit(self, tag: int) -> int:
        return self._decoding.limit - tag % 7

    def sampling_params(self, request: InFlightRequest) -> Any:
        params = super().sampling_params(request)
        params.temperature = self.temperature(request.prompt.tag)
        if request.branch is None:
            params.max_tokens = self.limit(request.prompt.tag)
        return params


@pytest.fixture(scope="module")
def rich(decoding: Decoding, rubric: Rubric, model: Model) -> Decoding:
    """Room for rationales that differ in length by much."""
    return Decoding(decoding.table, 48, closing_margin=12)


@pytest.fixture(scope="module")
def starved(open_engine: OpenEngine, model: Model, rich: Decoding) -> Mixed:
    return open_engine(model, rich, Mixed, **STARVED)


@pytest.fixture(scope="module")
def engine(open_engine: OpenEngine, model: Model, decoding: Decoding) -> VllmEngine:
    return open_engine(model, decoding, max_num_seqs=16, logprobs_mode="processed_logprobs")


@pytest.mark.parametrize("form", ["Feedback: {rationale} [RESULT] {score}", "{score}\n{rationale}"])
def test_answers_in_a_form_are_whole_and_ended_by_the_model(
    open_engine: OpenEngine, model: Model, form: str
) -> None:
    rubric = Rubric.model_validate(
        {
            "name": "form",
            "aspects": {"score": {"scale": {"lowest": 1, "highest": 10}}},
            "answer": {"form": form},
            "prompt": {"template": "{$candidate} {$answer_format}"},
        }
    )
    table = token_table(rubric.answer_layout, model.vocabulary, model.prompts.spell)
    engine = open_engine(model, Decoding(table, 12, closing_margin=3), Mixed, max_num_seqs=16)
    for tag, completion in complete(engine, prompts(80)).items():
        assert_whole(model, rubric, completion, engine.limit(tag))
        assert table.is_complete(table.states(completion.tokens)[-1])
        assert completion.tokens[-1] in model.vocabulary.ends


def test_an_engine_that_is_reset_knows_no_prompt_and_has_fewer_in_progress(engine: VllmEngine) -> None:
    asked = prompts(40, longest=200)

    def completed() -> tuple[dict[int, Completion], int, int]:
        """Return the answers, the tokens that came from the prefix cache, and the most prompts in progress."""
        in_progress: list[int] = []

        def counted() -> Iterator[Prompt]:
            for prompt in asked:
                in_progress.append(engine.llm.llm_engine.get_num_unfinished_requests() + 1)
                yield prompt

        before = engine.statistics()["cached_prompt_tokens"]
        answers = complete(engine, counted())
        return answers, engine.statistics()["cached_prompt_tokens"] - before, max(in_progress)

    first, _, usual = completed()
    _, cached, _ = completed()
    assert cached > 0
    engine.reset(3)
    again, cached, fewer = completed()
    assert (cached, fewer) == (0, 3)
    assert usual > 16
    assert {tag: each.tokens for tag, each in again.items()} == {
        tag: each.tokens for tag, each in first.items()
    }
    engine.reset()
    assert completed()[1:] == (0, usual)


def test_every_answer_is_whole_though_rows_are_preempted(starved: Mixed, model: Model, rubric: Rubric) -> None:
    assert starved.info.details["runner"] == "V1"
    assert starved.in_flight > 64
    before = starved.statistics()["preemptions"]
    answered = complete(starved, prompts(400))
    preemptions = starved.statistics()["preemptions"] - before
    assert set(answered) == set(range(400))
    for tag, completion in answered.items():
        assert_whole(model, rubric, completion, starved.limit(tag))
    print(f"{len(answered)} answers, all whole, {preemptions} preemptions")
    assert preemptions > 0


def test_greedy_answers_and_their_scores_do_not_depend_on_preemptions(
    starved: Mixed, model: Model, rich: Decoding
) -> None:
    greedy = [prompt for prompt in prompts(400) if starved.temperature(prompt.tag) == 0]
    crowded, calm = complete(starved, prompts(400)), complete(starved, greedy[:12])
    assert len(calm) == 12
    for tag, alone in calm.items():
        assert crowded[tag].tokens == alone.tokens
        other = crowded[tag].probabilities
        assert alone.probabilities is not None
        assert other is not None
        np.testing.assert_allclose(other, alone.probabilities, atol=1e-4)


def test_answers_are_whole_at_the_smallest_limit(
    open_engine: OpenEngine, model: Model, decoding: Decoding, rubric: Rubric
) -> None:
    tight = Decoding(decoding.table, 1, temperature=1.0)
    for tag, completion in complete(open_engine(model, tight, max_num_seqs=32), prompts(70)).items():
        assert_whole(model, rubric, completion, tight.limit)
        assert tag >= 0


def test_answers_after_thinking_are_whole_and_keep_their_own_limit(
    open_engine: OpenEngine, model: Model, decoding: Decoding, rubric: Rubric
) -> None:
    budget, end = 12, 300
    table = after_thinking(decoding.table, model.vocabulary, opens=[], ends=end)
    thinking = Decoding(
        table, decoding.text_tokens, decoding.closing_margin, temperature=2.0, thinking_budget=budget
    )
    answered = complete(open_engine(model, thinking, **STARVED), prompts(100))
    assert len(answered) == 100
    thoughts = set[int]()
    for completion in answered.values():
        assert completion.error is None, completion.error
        thought, answer = table.split(completion.tokens)
        assert end not in thought
        thoughts.add(len(thought))
        whole = Completion(completion.tag, tuple(answer), completion.probabilities)
        assert_whole(model, rubric, whole, decoding.limit)
    assert max(thoughts) == budget


def test_a_model_of_nans_fails_its_rows_and_not_the_engine(
    open_engine: OpenEngine, model: Model, decoding: Decoding, tmp_path: Path
) -> None:
    shutil.copytree(model.path, tmp_path, dirs_exist_ok=True)
    network = LlamaForCausalLM.from_pretrained(model.path)
    torch.nn.init.constant_(network.lm_head.weight, torch.nan)
    network.save_pretrained(tmp_path)
    engine = open_engine(Model.find(tmp_path), decoding, Mixed, max_num_seqs=8)
    answered = complete(engine, prompts(8))
    assert len(answered) == 8
    assert all("not finite" in str(completion.error) for completion in answered.values())
    assert engine.statistics()["engine_restarts"] == 0


def test_answers_are_whole_under_asynchronous_scheduling(
    open_engine: OpenEngine, model: Model, rich: Decoding, rubric: Rubric
) -> None:
    """vLLM turns it off on a CPU: here it is turned on again, with stand-ins for the GPU's streams."""

    class Stream:
        def wait_stream(self, stream: object) -> None: ...
        def record(self, stream: object = None) -> None: ...
        def synchronize(self) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuPlatform, "check_and_update_config", check_and_then(schedule_asynchronously))
        for name in ("Event", "Stream", "current_stream"):
            patch.setattr(torch.cuda, name, lambda *_, **__: Stream())
        patch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        engine = open_engine(model, rich, Mixed, **STARVED)
        assert engine.llm.llm_engine.vllm_config.scheduler_config.async_scheduling
        answered = complete(engine, prompts(120))
    assert len(answered) == 120
    for tag, completion in answered.items():
        assert_whole(model, rubric, completion, engine.limit(tag))
    assert engine.statistics()["preemptions"] > 0


def test_probabilities_are_those_that_vllm_itself_gives(engine: VllmEngine, decoding: Decoding) -> None:
    asked = prompts(20)
    answered = complete(engine, asked)
    table = decoding.table
    reference = reference_logprobs(engine, asked, table.score_token[0].tolist())
    for prompt in asked:
        completion, (tokens, logprobs) = answered[prompt.tag], reference[prompt.tag]
        assert list(completion.tokens) == tokens[: len(completion.tokens)]
        path = table.states(completion.tokens)
        at = [path.index(int(state)) for state in table.score_state]
        expected = [
            [np.exp(logprobs[step][int(token)].logprob) for token in table.score_token[0]] for step in at
        ]
        assert completion.probabilities is not None
        np.testing.assert_allclose(completion.probabilities, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("tokenizer_name", "unexplored"),
    [("bundled", 0.0), ("bundled", value_paths.UNEXPLORED), ("SentencePiece BPE", 0.0), ("unigram", 0.0)],
)
def test_values_that_share_tokens_have_the_probabilities_of_all_their_tokens(
    open_engine: OpenEngine,
    model: Model,
    tokenizer_name: str,
    unexplored: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if tokenizer_name != "bundled":
        model = Model.find(model_with(tokenizer_name, tmp_path))
    monkeypatch.setattr(value_paths, "UNEXPLORED", unexplored)
    layout = Rubric.model_validate(
        {
            "name": "shared-tokens",
            "aspects": ASPECTS,
            "prompt": {"template": "{$candidate} {$aspects} {$answer_format}"},
        }
    ).answer_layout
    table = token_table(layout, model.vocabulary, model.prompts.spell)
    engine = open_engine(model, Decoding(table, 12, closing_margin=3), Mixed, **STARVED)
    asked = prompts(60)
    answered = complete(engine, asked)
    assert len(answered) == len(asked)
    network = LlamaForCausalLM.from_pretrained(model.path, dtype=torch.float32).eval()
    for prompt in asked[:12]:

        @torch.inference_mode()
        def logits(before: Sequence[int], prompt: list[int] = prompt.tokens) -> torch.Tensor:
            said: torch.Tensor = network(torch.tensor([[*prompt, *before]])).logits[0, -1]
            return said

        completion = answered[prompt.tag]
        assert completion.probabilities is not None
        expected, mass = values_one_by_one(table, completion.tokens, logits)
        assert total_variation(completion.probabilities, expected) <= unexplored + 1e-4
        if not unexplored:
            assert completion.probabilities == pytest.approx(expected, abs=1e-4)
            assert completion.mass == pytest.approx(mass, abs=1e-4)


def reference_logprobs(
    engine: VllmEngine, asked: list[Prompt], scores: list[int]
) -> dict[int, tuple[list[int], list[Any]]]:
    """The same prompts, with the log probabilities after the mask that vLLM gives for the scores' tokens."""
    core, answered = engine.llm.llm_engine, {}
    for prompt in asked:
        params = engine.sampling_params(InFlightRequest(prompt, slot=prompt.tag))
        params.logprob_token_ids = scores
        core.add_request(str(prompt.tag), TokensPrompt(prompt_token_ids=prompt.tokens), params)
    while core.has_unfinished_requests():
        for output in core.step():
            answer = output.outputs[0]
            answered[int(output.request_id)] = (list(answer.token_ids), answer.logprobs)
    engine.take_scores(list(range(len(asked))))  # taken, so that no later test finds them
    return answered


@pytest.mark.parametrize("which", ["random", "bundled"])
def test_both_engines_give_the_same_greedy_answers(
    open_engine: OpenEngine, engine: VllmEngine, model: Model, decoding: Decoding, which: str
) -> None:
    if which == "bundled":
        model = Model.find()
        table = token_table(Rubric.load().answer_layout, model.vocabulary, model.prompts.spell)
        decoding = Decoding(table, 24, closing_margin=6)
        engine = open_engine(model, decoding, max_num_seqs=16)
        asked = [Prompt(n, model.prompts.encode(f"Question {n}? " + "word " * n), n) for n in range(12)]
    else:
        asked = prompts(24)
    options = TransformersOptions.parse({"dtype": "float32", "device": "cpu"})
    plain = TransformersEngine(model, decoding, options)
    ours, theirs = complete(engine, asked), complete(plain, asked)
    for prompt in asked:
        one, other = ours[prompt.tag], theirs[prompt.tag]
        if one.tokens != other.tokens:
            assert_tie(plain, decoding, prompt, one, other)
            continue
        assert one.probabilities is not None
        assert other.probabilities is not None
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-4)


def assert_tie(
    plain: TransformersEngine, decoding: Decoding, prompt: Prompt, one: Completion, other: Completion
) -> None:
    """Where two answers part, the model likes both tokens equally well, to float32's precision."""
    step = next(n for n, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)) if a != b)
    with torch.inference_mode():
        logits = plain._model(torch.tensor([[*prompt.tokens, *one.tokens[:step]]])).logits[0, -1]
    parted = logits[[one.tokens[step], other.tokens[step]]]
    print(f"prompt {prompt.tag} parts at token {step}, where the logits are {parted.tolist()}")
    assert abs(float(parted[0] - parted[1])) < 1e-4 * float(logits.abs().max())


def test_completions_come_out_before_all_prompts_went_in(engine: VllmEngine) -> None:
    pulled = []

    def endless() -> Iterator[Prompt]:
        for n in range(100_000):
            pulled.append(n)
            yield Prompt(n, [7 + n % 100] * 20, seed=n)

    done = 0
    for finished in engine.complete(endless()):
        done += len(finished)
        assert len(pulled) <= done + engine.in_flight
        if done > 100:
            break
    assert len(pulled) < 300


def test_a_run_that_is_left_early_leaves_nothing_behind(engine: VllmEngine) -> None:
    running = engine.complete(prompts(100))
    next(running)
    running.close()  # type: ignore[attr-defined]  # a generator
    assert engine.llm.llm_engine.get_num_unfinished_requests() == 0
    assert set(complete(engine, prompts(20))) == set(range(20))


def test_prompts_that_begin_alike_are_computed_once(engine: VllmEngine) -> None:
    assert engine.info.details["shared_beginnings"] == "kept"
    before = engine.statistics()
    complete(engine, [Prompt(n, [*range(900, 1100), 30 + n], seed=n) for n in range(40)])
    after = engine.statistics()
    prompt_tokens = after["prompt_tokens"] - before["prompt_tokens"]
    cached = after["cached_prompt_tokens"] - before["cached_prompt_tokens"]
    assert prompt_tokens == 40 * 201
    assert cached >= 39 * 192 * 0.9, "whole blocks of 32, for all but the first"


def test_a_prompt_that_vllm_would_cut_or_refuse_fails_alone(engine: VllmEngine, decoding: Decoding) -> None:
    context, restarts = engine.info.context, engine.statistics()["engine_restarts"]
    fits = Prompt(0, [5] * (context - decoding.limit), seed=0)
    too_long = Prompt(1, [5] * (context - decoding.limit + 1), seed=0)
    answered = complete(engine, [too_long, fits, Prompt(2, [], seed=0)])
    assert answered[0].error is None
    assert str(context) in str(answered[1].error)
    assert answered[2].error
    assert engine.statistics()["engine_restarts"] == restarts


def test_weights_that_lack_tensors_are_refused_unless_none_are_to_be_loaded(
    open_engine: OpenEngine, model: Model, decoding: Decoding, tmp_path: Path
) -> None:
    shutil.copytree(model.path, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.0.mlp.down_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"missing model\.layers\.0\.mlp\.down_proj\.weight; download the whole model"
    ):
        open_engine(Model.find(tmp_path), decoding)
    engine = open_engine(Model.find(tmp_path), decoding, load_format="dummy")
    assert all(answer.error is None for answer in complete(engine, prompts(2)).values())


def test_an_index_without_metadata_is_enough_for_vllm(
    open_engine: OpenEngine, model: Model, decoding: Decoding, tmp_path: Path
) -> None:
    shutil.copytree(model.path, tmp_path, dirs_exist_ok=True)
    shard = "model-00001-of-00001.safetensors"
    (tmp_path / "model.safetensors").rename(tmp_path / shard)
    index = {"weight_map": dict.fromkeys(load_file(tmp_path / shard), shard)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    engine = open_engine(Model.find(tmp_path), decoding)
    assert all(answer.error is None for answer in complete(engine, prompts(2)).values())


def test_what_vllm_cannot_be_asked_for_is_a_mistake_of_the_user(
    open_engine: OpenEngine, model: Model, decoding: Decoding
) -> None:
    with pytest.raises(UsageError, match=r"`engine_args`: .*max_sequences"):
        open_engine(model, decoding, max_sequences=3)
    with pytest.raises(UsageError, match="temperature"):
        open_engine(model, replace(decoding, temperature=5.0))


# When the engine dies


class Fragile(VllmEngine):
    """An engine in this process that dies of some prompts."""

    deadly: frozenset[int] = frozenset()

    def _start(self) -> Any:
        llm = super()._start()
        core, add_request, step = llm.llm_engine, llm.llm_engine.add_request, llm.llm_engine.step
        deadly_requests = set()

        def add(request: str, *arguments: Any, **named: Any) -> Any:
            if self._coming in self.deadly:
                deadly_requests.add(request)
            return add_request(request, *arguments, **named)

        def dies() -> Any:
            if deadly_requests & set(core.output_processor.external_req_ids):
                raise RuntimeError("out of something")
            return step()

        core.add_request, core.step = add, dies
        return llm

    def check(self, prompt: Prompt) -> None:
        self._coming = prompt.tag
        super().check(prompt)


def deadly(*tags: int) -> type[Fragile]:
    return type("Deadly", (Fragile,), {"deadly": frozenset(tags)})


def test_a_prompt_that_kills_the_engine_fails_and_the_others_are_answered(
    open_engine: OpenEngine, model: Model, decoding: Decoding, rubric: Rubric
) -> None:
    engine = open_engine(model, decoding, deadly(9), max_num_seqs=8)
    answered = complete(engine, prompts(40))
    assert set(answered) == set(range(40))
    assert "out of something" in str(answered.pop(9).error)
    for completion in answered.values():
        assert_whole(model, rubric, completion, decoding.limit)
    assert engine.statistics()["engine_restarts"] == 3, "once among others, twice alone"


def test_an_engine_that_dies_of_everything_is_given_up(
    open_engine: OpenEngine, model: Model, decoding: Decoding
) -> None:
    engine = open_engine(model, decoding, deadly(*range(40)), max_num_seqs=8)
    with pytest.raises(EngineError, match=r"3 times.*out of something"):
        complete(engine, prompts(40))


def test_a_killed_engine_is_started_again_and_nothing_is_lost(model: Model, tmp_path: Path) -> None:
    """In processes of their own, killed in the middle of a run: first the engine's, then its worker's."""
    script = Path(__file__).with_name("killed_engine.py")
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "PYTHONPATH": path}
    ended = subprocess.run(
        [sys.executable, str(script), str(model.path), str(tmp_path / "vllm.log")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    for killed in ("EngineCore", "Worker"):
        report = json.loads(ended.stdout.splitlines()[-1])[killed]
        assert report["engine_restarts"] == 1, report
        assert report["whole"] == report["asked"] > 64, report
        assert report["twice"] == 0, report


# On a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("runner", ["0", "1"])
def test_answers_on_a_gpu_are_whole_in_both_runners(
    open_engine: OpenEngine,
    model: Model,
    decoding: Decoding,
    rubric: Rubric,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
    temperature: float,
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    engine = open_engine(
        model, replace(decoding, temperature=temperature), dtype="bfloat16", gpu_memory_utilization=0.2
    )
    assert engine.info.details["runner"] == ("V2" if runner == "1" else "V1")
    for completion in complete(engine, prompts(200)).values():
        assert_whole(model, rubric, completion, decoding.limit)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_batch_invariant_engine_has_no_noise(tmp_path: Path, model: Model) -> None:
    """In a process of its own: vLLM reads the variable when it is imported."""
    rows = tmp_path / "rows.jsonl"
    given_rows = [
        {"instruction": f"Question {n}?", "reference": "Yes.", "candidate": "word " * (1 + n * 37 % 100)}
        for n in range(64)
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in given_rows))
    options = {"dtype": "bfloat16", "gpu_memory_utilization": "0.2", "max_num_seqs": "32"}
    given = [part for name, value in options.items() for part in ("--engine-arg", f"{name}={value}")]
    flags = ["--model", str(model.path), "--engine", "vllm", "--deterministic", "--noise-rows", "48", *given]
    out = tmp_path / "run"
    command = [sys.executable, "-m", "localjudge", "score", str(rows), "--out", str(out), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    engine = json.loads((out / "run.json").read_text())["starts"][-1]["engine"]
    if not engine["batch_invariant"]:
        pytest.skip("this GPU does not promise it")
    noise = json.loads((out / "summary.json").read_text())["noise"]
    assert (noise["rows"], noise["changed_rows"]) == (48, 0)
    assert all(column["change"]["largest"] == 0 for column in noise["columns"].values())
