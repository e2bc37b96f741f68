"""Tests of the engine of one worker with several chunks in flight, in this process and without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("ray")

from localjudge.engines.protocol import Completion, EngineInfo
from localjudge.engines.ray.worker import RayWorkerSettings, Worker
from localjudge.errors import EngineError, LocalJudgeError
from localjudge.prompts.task import Prompt, until_stopped


class Stepwise:
    """An engine that holds two prompts and requests more after each step, as the vLLM engine does.

    It answers the oldest prompt first. `begun` has one list for each call of `complete`: the tokens of its
    prompts.
    """

    def __init__(self, batch_size: int | None, step: Callable[[int], None]) -> None:
        self.info = EngineInfo(
            name="stepwise",
            dtype="float32",
            device="cpu",
            versions={},
            applies_table=True,
            batch_size=batch_size,
            headline="stepwise",
        )
        self._step = step
        self.begun: list[list[tuple[int, ...]]] = []

    def reset(self, at_once: int | None = None) -> None:
        self.at_once = at_once

    def statistics(self) -> dict[str, Any]:
        return {"prompt_tokens": sum(map(len, self.begun))}

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        waiting = until_stopped(prompts)
        in_hand: list[Prompt] = []
        self.begun.append([])
        while True:
            while len(in_hand) < 2 and (prompt := next(waiting, None)):
                in_hand.append(prompt)
                self.begun[-1].append(tuple(prompt.tokens))
            if not in_hand:
                return
            self._step(len(in_hand))
            yield [Completion((prompt := in_hand.pop(0)).tag, tuple(prompt.tokens))]


@pytest.fixture
def worker_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stepwise], Worker]:
    def worker(engine: Stepwise) -> Worker:
        worker = Worker()
        monkeypatch.setattr(worker, "_open", lambda _: engine, raising=True)
        worker.open(None)  # type: ignore[arg-type]
        return worker

    return worker


def chunk(*numbers: int) -> list[Prompt]:
    """Return prompts with different tokens; each chunk has the same tags, as in runs of one driver."""
    return [Prompt(tag, [number], seed=0) for tag, number in enumerate(numbers)]


def test_an_engine_that_asks_at_every_step_goes_on_with_the_chunks_that_have_come_since(
    worker_with: Callable[[Stepwise], Worker],
) -> None:
    at_first_step, second_is_there = threading.Event(), threading.Event()

    def step(in_hand: int) -> None:
        at_first_step.set()
        assert second_is_there.wait(10)

    worker = worker_with(engine := Stepwise(None, step))
    with ThreadPoolExecutor() as calls:
        first = calls.submit(worker.answer, chunk(1))
        assert at_first_step.wait(10)  # it requested a second prompt, and there was none
        second = calls.submit(worker.answer, chunk(2, 3))
        while worker._inbox.empty():
            pass
        second_is_there.set()
        assert [each.tokens for each in first.result(10)[0]] == [(1,)]
        answers, _ = second.result(10)
    assert [(each.tag, each.tokens) for each in answers] == [(0, (2,)), (1, (3,))]
    assert engine.begun == [[(1,), (2,), (3,)]]


def test_an_engine_that_computes_batches_gets_each_chunk_by_itself(
    worker_with: Callable[[Stepwise], Worker],
) -> None:
    worker = worker_with(engine := Stepwise(2, lambda _: None))
    with ThreadPoolExecutor() as calls:
        answers = list(calls.map(worker.answer, [chunk(1), chunk(2, 3), chunk(4)]))
    assert sorted(engine.begun) == [[(1,)], [(2,), (3,)], [(4,)]]
    assert [[each.tokens for each in completions] for completions, _ in answers] == [
        [(1,)],
        [(2,), (3,)],
        [(4,)],
    ]


def test_an_engine_that_breaks_says_why_to_every_chunk(worker_with: Callable[[Stepwise], Worker]) -> None:
    both_are_there = threading.Barrier(2)

    def step(in_hand: int) -> None:
        both_are_there.wait(10)
        raise RuntimeError("no memory\nand much more")

    worker = worker_with(Stepwise(None, step))
    with ThreadPoolExecutor() as calls:
        asked = [calls.submit(worker.answer, chunk(number)) for number in range(2)]
        while len(worker._places) < 2:
            pass
        both_are_there.wait(10)
        for answer in asked:
            with pytest.raises(EngineError, match=r"^RuntimeError: no memory"):
                answer.result(10)
    with pytest.raises(EngineError, match=r"^RuntimeError: no memory"):
        worker.answer(chunk(3))


def test_an_engine_that_cannot_open_says_why_without_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    secret = "hf_NotForTheLogOfRay"
    given = RayWorkerSettings(
        engine="dry-run",
        options={"hf_token": secret},
        context=None,
        model=f"no/model-{secret}",
        template_args={},
        given_template=None,
        digests={},
        decoding=None,  # type: ignore[arg-type]
        environment={},
    )
    with pytest.raises(LocalJudgeError) as refusal:
        Worker().open(given)
    assert "***" in str(refusal.value)
    assert secret not in str(refusal.value) + "".join(capfd.readouterr())
    assert "hf_token" not in repr(given)


def test_no_key_of_the_driver_is_sent_to_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    from localjudge.engines.ray.ray_engine import forwarded_environment

    for name in ("LOCALJUDGE_SERVER_KEY", "LOCALJUDGE_TOKEN", "VLLM_API_KEY", "VLLM_USE_V1"):
        monkeypatch.setenv(name, "1")
    assert (
        forwarded_environment().keys() & {"LOCALJUDGE_SERVER_KEY", "LOCALJUDGE_TOKEN", "VLLM_API_KEY"} == set()
    )
    assert "VLLM_USE_V1" in forwarded_environment()
