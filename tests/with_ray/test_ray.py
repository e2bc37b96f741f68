"""Tests of the Ray engine with real nodes and workers that end, with transformers on a CPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conversation_rows import long_trajectories

from localjudge import Judge, Judgement, ModelError, RowSource, Rubric, UsageError, score_run
from localjudge.engines.engine_options import Cluster
from localjudge.integrations.judge_service import JudgeService
from localjudge.modes.checklist import ChecklistOutcome
from localjudge.modes.pair import PairOutcome
from localjudge.prompts.task import Prompt
from localjudge.records import Outcome, Row
from localjudge.records.outcome_columns import from_line

pytest.importorskip("ray")

pytestmark = pytest.mark.slow

JudgeOn = Callable[..., Judge]


def row(n: int) -> dict[str, str]:
    return {
        "id": str(n),
        "instruction": f"Question {n}?",
        "reference": "Yes.",
        "candidate": "word " * (n * 37 % 200),
    }


def rows(count: int) -> list[dict[str, str]]:
    return [row(n) for n in range(count)]


def rows_until(enough: Callable[[], bool]) -> Iterator[dict[str, str]]:
    """Yield rows until the test has enough; then yield 40 more, enough for all workers.

    `enough` must stay true, because it is not asked for every row: on a slow machine two workers can become
    ready between two rows."""
    n, end = 0, time.monotonic() + 400
    while not enough():
        assert time.monotonic() < end, f"not enough after {n} rows"
        n += 1
        yield row(n)
    yield from map(row, range(n + 1, n + 41))


def by_id(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """Return the outcomes by id; assert that each id occurs once."""
    outcomes = list(outcomes)
    assert len({outcome.id for outcome in outcomes}) == len(outcomes)
    return {outcome.id: outcome for outcome in outcomes}


def assert_alike(found: Iterable[Outcome], expected: Iterable[Outcome]) -> None:
    """Assert equal judgements of equal rows; probabilities may differ by rounding in other batches."""
    ours, theirs = by_id(found), by_id(expected)
    assert ours.keys() == theirs.keys()
    rounds = {"probabilities", "expected"}
    for row_id, outcome in ours.items():
        other = theirs[row_id]
        assert outcome.model_dump(exclude=rounds) == other.model_dump(exclude=rounds)
        assert isinstance(outcome, Judgement)
        assert isinstance(other, Judgement)
        for aspect, values in (outcome.probabilities or {}).items():
            assert values == pytest.approx((other.probabilities or {})[aspect], abs=1e-4)


def ready(log: Path) -> list[int]:
    """Return the processes of the workers, in the order in which they were ready."""
    return [int(process) for process in re.findall(r"process (\d+): ready", log.read_text())]


def replaced(log: Path) -> bool:
    """Return whether a worker was lost, and another one became ready after that."""
    _, lost, after = log.read_text().rpartition(": lost: ")
    return bool(lost) and ": ready" in after


def test_workers_that_are_killed_are_replaced_and_every_row_is_judged_once(
    nodes: Any, judge_on: JudgeOn, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    judge = judge_on(Cluster(nodes.address, (2, 2)))
    outcomes = []
    for outcome in judge.score(rows_until(lambda: judge.engine.statistics()["workers_lost"] >= 3), "finished"):
        outcomes.append(outcome)
        if len(outcomes) in (8, 40, 80):
            os.kill(next(worker for worker in ready(log) if Path(f"/proc/{worker}").exists()), signal.SIGKILL)
    assert judge.engine.statistics()["workers_lost"] >= 3
    assert_alike(outcomes, judge_on(None).score(rows(len(outcomes) + 1)[1:]))


def test_pairs_have_the_same_outcomes_on_two_workers_as_in_one_process(
    nodes: Any, model: Path, tmp_path: Path
) -> None:
    pairs = [
        {"id": str(n), "instruction": f"Question {n}?", "candidate_a": "word " * n, "candidate_b": "words " * 9}
        for n in range(20)
    ]
    found: list[dict[str, PairOutcome]] = []
    for cluster in (Cluster(nodes.address, (2, 2)), None):
        options = {"dtype": "float32", "batch_size": "4"}
        settings: Any = {"engine": "transformers", "engine_args": options, "max_rationale_tokens": 8}
        with Judge(model, cluster=cluster, rubric="pairwise", **settings) as judge:
            judge.configure_engine(None, tmp_path / "engine.log")
            found.append({pair.id: pair for pair in judge.compare(pairs)})
    there, here = found
    assert len(there) == 20
    assert there.keys() == here.keys()
    for name, pair in there.items():
        ours, theirs = pair.preferences["better"], here[name].preferences["better"]
        assert (ours.winner, ours.agree) == (theirs.winner, theirs.agree)
        assert ours.value == pytest.approx(theirs.value, abs=1e-4)


def test_rows_with_criteria_have_the_same_scores_on_two_workers_as_in_one_process(
    nodes: Any, model: Path, tmp_path: Path
) -> None:
    asked = [
        {"id": str(n), "instruction": f"Question {n}?", "candidate": "word " * n,
         "criteria": [{"criterion": f"Says {part}", "points": part - 1} for part in range(1 + n % 5)]}
        for n in range(12)
    ]  # fmt: skip
    found: list[dict[str, ChecklistOutcome]] = []
    for cluster in (Cluster(nodes.address, (2, 2)), None):
        options = {"dtype": "float32", "batch_size": "4"}
        settings: Any = {"engine": "transformers", "engine_args": options, "max_rationale_tokens": 8}
        with Judge(model, cluster=cluster, rubric="checklist", **settings) as judge:
            judge.configure_engine(None, tmp_path / "engine.log")
            found.append({row.id: row for row in judge.check(asked)})
    there, here = found
    assert there.keys() == here.keys() == {str(n) for n in range(12)}
    for name, row in there.items():
        assert [each.value for each in row.results] == [each.value for each in here[name].results]
        assert [each.probability for each in row.results] == pytest.approx(
            [each.probability for each in here[name].results], abs=1e-4
        )


def test_a_run_with_cut_results_has_the_same_bytes_on_two_workers_as_in_one_process(
    nodes: Any, model: Path, tmp_path: Path
) -> None:
    lines = list[bytes]()
    (tmp_path / "trip.toml").write_text(
        'name = "trip"\naspects = ["goal"]\nscale = { lowest = 1, highest = 5 }\n[prompt]\n'
        "template = 'Goal, 1 to 5: {$conversation}'"
    )
    settings: Any = {
        "rubric": tmp_path / "trip.toml", "engine": "transformers", "max_rationale_tokens": 3,
        "engine_args": {"dtype": "float32", "batch_size": "1"},
        "max_result_tokens": 20,
    }  # fmt: skip
    for cluster in (Cluster(nodes.address, (2, 2)), None):
        out = tmp_path / f"run-{cluster is None}"
        with Judge(model, cluster=cluster, **settings) as judge:
            source = RowSource.from_rows(long_trajectories(3), judge.rubric.fields)
            assert score_run(judge, source, out).complete
        lines.append((out / "judgements.jsonl").read_bytes())
    assert lines[0] == lines[1]
    assert [(json.loads(line)["candidate_cut"] or 0) > 0 for line in lines[0].splitlines()].count(True) > 5


def test_workers_judge_a_model_without_a_chat_template_by_the_given_one(
    nodes: Any, model: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    source = (bare / "chat_template.jinja").rename(tmp_path / "given.jinja")
    found: list[list[Outcome]] = []
    for cluster in (Cluster(nodes.address, (1, 1)), None):
        options = {"dtype": "float32", "batch_size": "4"}
        settings: Any = {"engine": "transformers", "engine_args": options, "max_rationale_tokens": 8}
        with Judge(bare, cluster=cluster, chat_template=source, **settings) as judge:
            judge.configure_engine(None, tmp_path / "engine.log")
            found.append(list(judge.score(rows(6))))
    assert_alike(*found)
    with pytest.raises(ModelError, match="`chat_template` none"):
        Judge(bare, cluster=Cluster(nodes.address, (1, 1)), engine="transformers")


def test_the_noise_is_measured_on_the_workers_in_half_as_large_batches(
    nodes: Any, judge_on: JudgeOn, tmp_path: Path
) -> None:
    lines, noise = list[bytes](), list[Any]()
    for cluster in (Cluster(nodes.address, (2, 2)), None):
        out, judge = tmp_path / f"run-{cluster is None}", judge_on(cluster)
        source = RowSource.from_rows(rows(24), judge.rubric.fields)
        assert score_run(judge, source, out, noise_rows=12).complete
        lines.append((out / "noise.jsonl").read_bytes())
        noise.append(json.loads((out / "summary.json").read_text())["noise"])
    repeated = [[json.loads(line)["id"] for line in each.splitlines()] for each in lines]
    assert repeated[0] == repeated[1], "the same rows"
    for found in noise:
        assert (found["rows"], found["failed"], found["changed_rows"]) == (12, 0, 0)
        assert all(column["change"]["largest"] < 1e-3 for column in found["columns"].values())


def test_a_reset_reaches_every_worker_and_passes_over_one_that_is_lost(
    nodes: Any, judge_on: JudgeOn, tmp_path: Path
) -> None:
    judge = judge_on(Cluster(nodes.address, (2, 2)))
    before = by_id(judge.score(rows(8)))
    judge.engine.reset(1)
    os.kill(ready(tmp_path / "engine.log")[0], signal.SIGKILL)
    judge.engine.reset(2)
    assert_alike(judge.score(rows(8)), before.values())
    judge.engine.reset()
    assert judge.engine.statistics()["workers_lost"] == 1


def test_a_cluster_is_described_as_the_engine_that_its_workers_have(nodes: Any, judge_on: JudgeOn) -> None:
    alone, judge = judge_on(None), judge_on(Cluster(nodes.address, (1, 1)))
    assert judge.settings == alone.settings
    engine, described = judge.engine.info, dict(judge.engine.info.details)
    assert described.pop("ray") == {
        "version": described_version(),
        "address": nodes.address,
        "workers": [1, 1],
        "cpus_per_worker": 1.0,
        "gpus_per_worker": 0.0,
    }
    of_one = alone.engine.info
    assert engine.model_copy(update={"details": described, "headline": of_one.headline}) == of_one
    assert "1 worker(s) of 1 CPU" in judge.engine.info.headline


def test_the_same_engine_judges_again_after_a_run_that_was_given_up(nodes: Any, judge_on: JudgeOn) -> None:
    judge = judge_on(Cluster(nodes.address, (1, 1)))
    begun = judge.score(rows(40))
    next(begun)
    begun.close()  # type: ignore[attr-defined]  # a generator
    assert_alike(judge.score(rows(10)), judge_on(None).score(rows(10)))


def test_workers_are_added_within_their_bounds_while_there_is_work(
    nodes: Any, judge_on: JudgeOn, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    judge = judge_on(Cluster(nodes.address, (1, 2)))
    assert "1 to 2 worker(s)" in judge.engine.info.headline
    assert len(ready(log)) == 1
    by_id(judge.score(rows_until(lambda: len(ready(log)) >= 2), "finished"))


def test_an_option_that_the_engine_does_not_know_is_refused_before_a_cluster_is_joined(
    judge_on: JudgeOn,
) -> None:
    with pytest.raises(UsageError, match=r"^`engine_args` batch_size=zero: give a whole number, 1 or more$"):
        judge_on(Cluster("127.0.0.1:1"), batch_size="zero")


def test_a_worker_that_cannot_start_says_why(nodes: Any, judge_on: JudgeOn) -> None:
    judge = judge_on(Cluster(nodes.address, (2, 2)), "auto", batch_size="zero")
    with pytest.raises(UsageError, match=r"worker on node .+ cannot start: `engine_args` batch_size=zero"):
        list(judge.score(rows(1)))


def test_a_node_that_has_another_model_says_so(nodes: Any, judge_on: JudgeOn) -> None:
    judge = judge_on(Cluster(nodes.address, (2, 2)))
    vars(judge.model)["files"] = judge.model.files | {"config.json": "of another model"}
    with pytest.raises(
        ModelError, match=r"worker on node .+ cannot start: model .+: differs from the model where"
    ):
        list(judge.score(rows(1)))


def test_a_node_goes_and_another_comes_and_all_is_as_in_one_process(
    nodes: Any, judge_on: JudgeOn, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    judge = judge_on(Cluster(nodes.address, (2, 2)))
    outcomes = []
    for outcome in judge.score(rows_until(lambda: replaced(log)), "finished"):
        outcomes.append(outcome)
        if len(outcomes) == 8:
            nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        if len(outcomes) == 24:
            nodes.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    assert_alike(outcomes, judge_on(None).score(rows(len(outcomes) + 1)[1:]))


def test_a_cluster_that_is_not_there_is_a_mistake(judge_on: JudgeOn) -> None:
    with pytest.raises(UsageError, match=r"`ray` 127\.0\.0\.1:1: there is no cluster at this address"):
        list(judge_on(Cluster("127.0.0.1:1")).score(rows(1)))


def test_a_run_on_this_machine_is_the_run_of_one_process_and_leaves_nothing_behind(
    model: Path, tmp_path: Path
) -> None:
    """The run is stopped by Ctrl-C in the middle, and continued."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in rows(150)))
    command: list[str | Path] = ["score", file, "--model", model, "--engine", "transformers"]
    command += ["--engine-arg", "dtype=float32", "--engine-arg", "batch_size=4", "--max-rationale-tokens", "24"]
    alone, there = tmp_path / "alone", tmp_path / "there"
    program: list[str | Path] = [sys.executable, "-m", "localjudge"]
    subprocess.run([*program, *command, "--out", alone], check=True, capture_output=True)

    command += ["--ray", "local", "--num-workers", "2", "--out", there]
    mark = {"LOCALJUDGE_TEST": str(tmp_path)}
    # The first start gets 100 of the 150 prompts, more than the workers hold at a time, before it is stopped.
    held: list[str | Path] = [sys.executable, Path(__file__).parents[1] / "held_program.py", "100"]
    first = subprocess.Popen(
        [*held, *command],
        env=os.environ | mark,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    judgements = there / "judgements.jsonl"
    while first.poll() is None and not (judgements.exists() and judgements.stat().st_size):
        time.sleep(0.1)
    processes = marked(mark).values()
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert any("raylet" in each and "--node_ip_address=127.0.0.1" in each for each in processes)
    assert not any("dashboard.py" in each for each in processes)
    assert not marked(mark)
    assert len(judgements.read_bytes().splitlines()) <= 100

    second = subprocess.run([*program, *command], env=os.environ | mark, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert "continuing" in second.stderr
    assert "ray" not in (second.stdout + out).lower()
    assert not marked(mark)
    assert_alike(outcomes_of(there), outcomes_of(alone))


def test_a_run_whose_raylet_dies_ends_with_one_line_and_continues(model: Path, tmp_path: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"
    rows_file.write_text("".join(json.dumps(each) + "\n" for each in rows(150)))
    out, mark = tmp_path / "out", {"LOCALJUDGE_TEST": str(tmp_path)}
    command: list[str | Path] = [
        "score",
        rows_file,
        "--model",
        model,
        "--out",
        out,
        "--max-rationale-tokens",
        "24",
    ]
    command += [
        "--engine",
        "transformers",
        "--engine-arg",
        "batch_size=4",
        "--ray",
        "local",
        "--num-workers",
        "1",
    ]
    held: list[str | Path] = [sys.executable, Path(__file__).parents[1] / "held_program.py", "100"]
    messages = tmp_path / "messages"
    with (
        messages.open("w") as stderr,
        subprocess.Popen(
            [*held, *command], env=os.environ | mark, stdin=subprocess.PIPE, stderr=stderr
        ) as first,
    ):
        judgements = out / "judgements.jsonl"
        while first.poll() is None and not (judgements.exists() and judgements.stat().st_size):
            time.sleep(0.1)
        for process, its_command in marked(mark).items():
            if its_command.split()[0].endswith("/raylet"):
                os.kill(process, signal.SIGKILL)
        assert first.wait(timeout=120) != 0
    while marked(mark):  # Ray's other processes, and the one that says what happened
        time.sleep(0.1)
    assert messages.read_text().splitlines()[-1].startswith("localjudge: ended by Ray"), messages.read_text()

    second = subprocess.run(
        [sys.executable, "-m", "localjudge", *command], env=os.environ | mark, capture_output=True, text=True
    )
    assert second.returncode == 0, second.stderr
    assert "continuing" in second.stderr
    assert len(judgements.read_bytes().splitlines()) == 150
    assert not marked(mark)


def outcomes_of(run: Path) -> list[Outcome]:
    lines = (run / "judgements.jsonl").read_text("utf-8").split("\n")[:-1]
    return [from_line(json.loads(line), Rubric.load().columns) for line in lines]


def marked(mark: dict[str, str]) -> dict[int, str]:
    """Return the running processes that have this in their environment, each with its command."""
    (wanted,) = (f"{name}={value}".encode() for name, value in mark.items())
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def described_version() -> str:
    import ray

    return str(ray.__version__)


def test_prompts_that_come_while_others_are_answered_are_answered_too(judge_on: JudgeOn, nodes: Any) -> None:
    judge = judge_on(Cluster(nodes.address, workers=(2, 2)))
    tokens = [judge.task_builder.task(Row.from_response(**row(n))).tokens for n in range(3)]

    def arriving() -> Iterator[Prompt | None]:
        for n in range(3):
            yield Prompt(n, tokens[n], seed=0)
            yield None

    found = [each.tag for answers in judge.engine.complete(arriving()) for each in answers]
    assert sorted(found) == [0, 1, 2]


def test_an_endpoint_judges_on_the_workers_of_a_cluster(judge_on: JudgeOn, nodes: Any) -> None:
    judge, alone = judge_on(Cluster(nodes.address, workers=(2, 2))), judge_on(None)
    with JudgeService(judge) as service, ThreadPoolExecutor(2) as clients:
        parts = [[Row.from_response(**each) for each in rows(24)[place::2]] for place in range(2)]
        found = clients.map(lambda part: [future.result() for future in service.submit(part)], parts)
        served = [outcome for part in found for outcome in part]
    own = {"row", "source"}  # numbers of the service
    expected = {outcome.id: outcome for outcome in alone.score(rows(24))}
    assert_alike(
        [outcome.model_copy(update=dict.fromkeys(own)) for outcome in served],
        [expected[outcome.id].model_copy(update=dict.fromkeys(own)) for outcome in served],
    )
