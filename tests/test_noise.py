"""Tests of the noise of a run: rows judged again in other batches, which are no rows of the run."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines, write_rows
from preloaded import KILL, Preloaded
from scripted import scripted_checks, scripted_comparison, scripted_judge
from scripted_server import WHOLE, Reply, chat, judge_on, serving
from test_run import HELD_PROGRAM
from test_shard import merge_killed_at_its_end

from localjudge import EngineError, Judge, RowSource, Rubric, score_run
from localjudge.engines.protocol import Completion
from localjudge.modes.row_outcome import RowOutcome
from localjudge.prompts.task import Prompt
from localjudge.runs.reader import read_repeated_rows, read_row_outcomes
from localjudge.runs.repeated_rows import RepeatedRow
from localjudge.runs.row_sample import RowSample
from localjudge.runs.run_files import NOISE
from localjudge.statistics.absolute_change import absolute_change

FLAGS = ["--max-rationale-tokens", 6, "--engine-arg", "batch_size=4"]


@pytest.fixture
def flags(model: Path, short_rubric: Path) -> list[object]:
    return ["--model", model, "--rubric", short_rubric, *FLAGS]


def noise_of(run: Path) -> Any:
    """Return the noise in the summary of a run."""
    return json.loads((run / "summary.json").read_text())["noise"]


def ids(rows: Iterable[RowOutcome] | Iterable[RepeatedRow]) -> list[str]:
    return [row.id for row in rows]


def sampled(rows: Iterable[RowOutcome], size: int) -> list[str]:
    sample = RowSample(size, seed=0)
    for row in rows:
        sample.add(row)
    return ids(sample.first(size))


# Which rows


def test_the_sample_depends_on_the_rows_alone_and_not_on_their_order(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 30)
    assert cli("score", rows, "--out", tmp_path / "run", *flags).code == 0
    outcomes = [*read_row_outcomes(tmp_path / "run")]
    chosen = sampled(outcomes, 7)
    assert len(set(chosen)) == 7
    assert chosen != sorted(chosen, key=ids(outcomes).index)
    for seed in range(3):
        shuffled = Random(seed).sample(outcomes, len(outcomes))
        assert sampled(shuffled, 7) == chosen
    assert sampled(outcomes, 3) == chosen[:3], "a smaller sample is a part of a larger one"
    assert len(sampled(outcomes, 99)) == 30


def test_rows_that_failed_are_not_judged_again_and_copies_are_once(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 6)
    lines = rows.read_text().splitlines()
    empty = json.dumps({**json.loads(lines[0]), "id": "empty", "candidate": ""})
    copy = json.dumps({**json.loads(lines[1]), "id": "copy"})
    rows.write_text("\n".join([*lines, empty, copy]) + "\n")
    assert cli("score", rows, "--out", tmp_path / "run", "--noise-rows", 50, *flags).code == 3
    assert sorted(ids(read_repeated_rows(tmp_path / "run"))) == [f"r{n}" for n in range(6)]
    assert noise_of(tmp_path / "run")["rows"] == 6


@pytest.mark.slow
def test_a_run_of_800_rows_judges_2_percent_again_and_a_smaller_one_none(tmp_path: Path, model: Path) -> None:
    make = scripted_judge(model, lambda reference, candidate, aspect, place, before: 3.0)
    rows = [{"id": str(n), "instruction": f"Q {n}?", "reference": "R", "candidate": "A"} for n in range(850)]
    judge = make(Rubric.load())
    for count, repeated in ((799, 0), (850, 17)):
        out = tmp_path / str(count)
        score_run(judge, RowSource.from_rows(rows[:count]), out, noise_rows=None)
        assert len(read_repeated_rows(out)) == repeated
        assert (out / NOISE).exists() == bool(repeated)
    score_run(judge, RowSource.from_rows(rows), tmp_path / "off", noise_rows=0)
    score_run(judge, RowSource.from_rows(rows), tmp_path / "python")
    assert noise_of(tmp_path / "off") is noise_of(tmp_path / "python") is None


def test_a_dry_run_judges_nothing_again(cli: Cli, tmp_path: Path, model: Path) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 10), tmp_path / "dry"
    ended = cli("score", rows, "--out", out, "--model", model, "--engine", "dry-run", "--noise-rows", 5)
    assert ended.code == 0
    assert noise_of(out) is None
    assert not (out / NOISE).exists()


# What it leaves as it is


def test_a_run_with_the_noise_has_the_lines_and_the_numbers_of_one_without(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 24)
    plain, measured = tmp_path / "plain", tmp_path / "measured"
    dtype = ["--engine-arg", "dtype=bfloat16"]
    assert cli("score", rows, "--out", plain, *flags, *dtype).code == 0
    ended = cli("score", rows, "--out", measured, *flags, *dtype, "--noise-rows", 10)
    assert ended.code == 0
    assert "24 judged, 0 failed" in ended.err
    assert (plain / "judgements.jsonl").read_bytes() == (measured / "judgements.jsonl").read_bytes()
    summaries = [json.loads((run / "summary.json").read_text()) for run in (plain, measured)]
    assert summaries[0].pop("noise") is None
    assert summaries[1].pop("noise")["rows"] == 10
    assert summaries[0] == summaries[1], "the tokens of the engine, too"
    assert not (plain / NOISE).exists()
    ranked = [json.loads(cli("rank", run, "--json").out)["systems"] for run in (plain, measured)]
    assert ranked[0] == ranked[1]
    assert [json.loads((run / "run.json").read_text())["settings"] for run in (plain, measured)].count(
        json.loads((plain / "run.json").read_text())["settings"]
    ) == 2


def test_a_model_in_float32_judges_one_row_at_a_time_the_same_again(
    cli: Cli, tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 12), tmp_path / "run"
    flags = ["--model", model, "--rubric", short_rubric, "--max-rationale-tokens", 6]
    exact = ["--engine-arg", "dtype=float32", "--engine-arg", "batch_size=1"]
    assert cli("score", rows, "--out", out, *flags, *exact, "--noise-rows", 12).code == 0
    noise = noise_of(out)
    assert (noise["rows"], noise["values"], noise["changed"]) == (12, 12, {"tact": 0, "wit": 0})
    for column in noise["columns"].values():
        assert (column["change"]["mean"]["value"], column["change"]["largest"]) == (0, 0)
        assert column["change"]["mean"]["low"] is None
    shown = " ".join(cli("show", out).out.split())
    assert "Noise: 12 rows judged again; no expected score moved; 0 of 24 written" in shown


def test_the_second_pass_has_half_the_batch_and_no_kept_beginning(
    tmp_path: Path, model: Path, short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localjudge.engines.transformers.transformers_engine import TransformersEngine

    generate = TransformersEngine._generate
    sizes: list[int] = []
    served: list[int] = []

    def noted(engine: TransformersEngine, batch: list[Prompt]) -> list[Completion]:
        sizes.append(len(batch))
        if len(sizes) in (1, 5):
            served.append(engine._beginnings.tokens)
        return generate(engine, batch)

    monkeypatch.setattr(TransformersEngine, "_generate", noted)
    rows = [{"instruction": "Q?", "reference": "R", "candidate": f"A {n}"} for n in range(24)]
    settings: dict[str, Any] = {"max_rationale_tokens": 4, "engine_args": {"batch_size": "6"}}
    with Judge(model, rubric=short_rubric, **settings) as judge:
        score_run(judge, RowSource.from_rows(rows, judge.rubric.fields), tmp_path / "run", noise_rows=12)
        assert sizes == [6, 6, 6, 6, 3, 3, 3, 3]
        assert served == [0, 0]
        list(judge.score(rows))
        assert sizes[8:] == [6, 6, 6, 6], "the judge goes on with whole batches"


# How far scores move


def wavering(model: Path, rows: int) -> Callable[[Rubric], Judge]:
    """Return a judge that scores higher by 0.2, only in depth, whatever it judges after this many rows."""

    def opinion(reference: str, candidate: str, aspect: str, place: int, before: int) -> float:
        base = 1.3 + int(candidate) % 4
        return base + (0.2 if aspect == "depth" and before >= rows else 0.0)

    return scripted_judge(model, opinion)


def numbered(count: int) -> list[dict[str, str]]:
    return [
        {"id": str(n), "system": "ab"[n % 2], "instruction": f"Q {n}?", "reference": "R", "candidate": str(n)}
        for n in range(count)
    ]


def test_the_noise_is_how_far_the_expected_scores_move_and_which_values_change(
    tmp_path: Path, model: Path, cli: Cli
) -> None:
    run = tmp_path / "run"
    judge = wavering(model, 40)(Rubric.load())
    score_run(judge, RowSource.from_rows(numbered(40)), run, noise_rows=20)
    noise = noise_of(run)
    assert (noise["rows"], noise["failed"], noise["instructions"], noise["values"]) == (20, 0, 20, 20)
    depth, clarity = noise["columns"]["depth"], noise["columns"]["clarity"]
    assert depth["expected"] is True
    assert depth["change"]["mean"]["value"] == pytest.approx(0.2, abs=1e-3)
    assert depth["change"]["largest"] == pytest.approx(0.2, abs=1e-3)
    assert (clarity["change"]["mean"]["value"], clarity["change"]["largest"]) == (0, 0)
    # 1.3 is written 1 and 1.5 is a tie of 1 and 2, of which the first is written
    assert noise["changed"]["clarity"] == 0
    assert noise["changed"]["depth"] == noise["changed_rows"]
    lines = read_repeated_rows(run)
    first = {line["id"]: line for line in read_lines(run)}
    for line in lines:
        assert line.expected["depth"][0] == first[line.id]["depth_expected"]
        assert line.keys == (first[line.id]["key"],)
        assert line.prompts[0].row == first[line.id]["row"]
    shown = " ".join(cli("show", run).out.split())
    assert "Noise: 20 rows judged again" in shown
    assert "most in depth, of 6 columns: by 0.2" in shown


def test_changes_have_an_interval_only_where_the_sample_bears_one() -> None:
    random = np.random.default_rng(0)
    group, start = np.arange(40), np.zeros(40)
    moved = absolute_change(start, np.where(group < 12, random.normal(0, 1, 40), 0), group, 4)
    assert moved.mean.low is not None
    assert moved.mean.high is not None
    assert moved.mean.low < moved.mean.value < moved.mean.high  # type: ignore[operator]
    few = absolute_change(start, np.where(group < 4, 1.0, 0.0), group, 4)
    assert (few.mean.value, few.mean.low, few.largest) == (0.1, None, 1)
    assert "fewer than 5" in few.mean.why
    tiny = absolute_change(start, random.normal(0, 0.01, 40), group, 4)
    assert (tiny.mean.low, bool(tiny.mean.why)) == (None, True), "a rare large change is not in the sample"
    none = absolute_change(start, start, group, 4)
    assert (none.mean.value, none.mean.low, none.largest, none.within) == (0, None, 0, 40)
    nothing = absolute_change(start[:0], start[:0], group[:0], 4)
    assert (nothing.mean.value, nothing.largest, nothing.bound, nothing.rows) == (None, None, None, 0)


def test_a_further_row_moves_beyond_the_bound_in_a_twentieth_of_the_cases() -> None:
    random = np.random.default_rng(0)
    for rows in (19, 50, 200):
        beyond = 0
        for _ in range(800):
            moves = random.exponential(size=rows + 1)
            known = absolute_change(np.zeros(rows), moves[:-1], np.arange(rows), 4)
            assert known.bound is not None
            assert known.within == int((moves[:-1] <= known.bound + 1e-6).sum()) >= 0.95 * rows
            beyond += moves[-1] > known.bound
        assert beyond / 800 <= 0.05 + 3 * (0.05 * 0.95 / 800) ** 0.5
    few = absolute_change(np.zeros(18), np.arange(18.0), np.arange(18), 20)
    assert (few.bound, few.within, few.largest) == (None, 0, 17), "18 rows have no such bound"
    enough = absolute_change(np.zeros(19), np.arange(19.0), np.arange(19), 20)
    assert (enough.bound, enough.within) == (18, 19)


def test_rows_that_fail_when_they_are_judged_again_are_counted_and_in_no_mean(
    tmp_path: Path, model: Path, cli: Cli
) -> None:
    run = tmp_path / "run"
    judge = wavering(model, 30)(Rubric.load())
    complete, given = judge.engine.complete, 0

    def failing(prompts: Iterable[Prompt | None]) -> Iterator[list[Any]]:
        nonlocal given
        for completions in complete(prompts):
            given += 1
            fails = given in (31, 35)
            yield [Completion(each.tag, error="no") if fails else each for each in completions]

    judge.engine.complete = failing  # type: ignore[method-assign, assignment]
    result = score_run(judge, RowSource.from_rows(numbered(30)), run, noise_rows=10)
    assert result.summary.failed == 0
    noise = noise_of(run)
    assert (noise["rows"], noise["failed"], noise["values"]) == (8, 2, 8)
    assert noise["columns"]["depth"]["change"]["rows"] == 8
    assert "2 rows failed then" in " ".join(cli("show", run).out.split())
    assert [row.failed for row in read_repeated_rows(run)].count(True) == 2


def test_a_pair_is_judged_again_in_both_orders_and_its_preference_is_compared(
    tmp_path: Path, model: Path
) -> None:
    met = 0

    def taste(first: str, second: str) -> float:
        nonlocal met
        met += 1
        return 0.7 if met <= 24 else 0.8  # in either order: the first response is better

    pairs = [
        {"id": f"p{n}", "instruction": f"Q {n}?", "candidate_a": f"yes {n}", "candidate_b": f"no {n}"}
        for n in range(12)
    ]
    judge = scripted_comparison(model, taste)
    source = RowSource.from_rows(pairs, judge.rubric.fields)
    score_run(judge, source, tmp_path / "run", noise_rows=5)
    lines = read_repeated_rows(tmp_path / "run")
    assert [len(line.prompts) for line in lines] == [2] * 5
    assert met == 24 + 10
    noise = noise_of(tmp_path / "run")
    assert (noise["rows"], noise["values"]) == (5, 10)
    (column,) = noise["columns"].values()
    # Both orders prefer their first response by .1 more, so the preference of the pair stays .5.
    assert column["change"]["largest"] == pytest.approx(0, abs=1e-6)
    assert set(lines[0].prompts[0].first) == set(noise["changed"])


def test_a_row_with_criteria_is_judged_again_by_all_of_them(tmp_path: Path, model: Path) -> None:
    asked: list[str] = []

    def met(response: str, criterion: str) -> float:
        asked.append(criterion)
        return 0.9 if len(asked) <= 24 else 0.6

    rows = [
        {
            "id": f"r{n}",
            "instruction": f"Q {n}?",
            "candidate": f"A {n}",
            "criteria": [{"criterion": f"is {name} {n}", "points": points} for name, points in weights.items()],
        }
        for n in range(8)
        for weights in ({"red": 2, "short": 1, "kind": 1},)
    ]
    judge = scripted_checks(model, met)
    source = RowSource.from_rows(rows, judge.rubric.fields)
    score_run(judge, source, tmp_path / "run", noise_rows=4)
    lines = read_repeated_rows(tmp_path / "run")
    assert [len(line.prompts) for line in lines] == [3] * 4
    assert len(asked) == 24 + 12
    noise = noise_of(tmp_path / "run")
    assert (noise["rows"], noise["values"]) == (4, 12)
    assert noise["columns"].keys() == {"score"}
    assert noise["columns"]["score"]["change"]["mean"]["value"] == pytest.approx(0.3, abs=1e-3)
    assert sum(noise["changed"].values()) == 0


# Stops and failures


def start_held(preloaded: Preloaded, *args: object, prompts: int) -> subprocess.Popen[bytes]:
    """Start `score`, whose engine gets this many prompts and the rest when standard input is closed."""
    return subprocess.Popen(
        [*preloaded.script(HELD_PROGRAM), str(prompts), "score", *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_for_the_pass(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until all rows of the run are done, and those of the noise are not."""
    while not (out / "summary.json").exists():
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        time.sleep(0.005)
    time.sleep(0.2)
    assert process.poll() is None


@pytest.mark.slow
def test_a_pass_that_is_killed_begins_again_with_the_same_command_and_the_run_stays(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, flags: list[object]
) -> None:
    rows, out, whole = write_rows(tmp_path / "a.jsonl", 24), tmp_path / "out", tmp_path / "whole"
    command = [rows, "--out", out, *flags, "--noise-rows", 12]
    with start_held(preloaded, *command, prompts=30) as process:
        wait_for_the_pass(out, process)
        lines = (out / "judgements.jsonl").read_bytes()
        process.send_signal(KILL)
    assert process.returncode == -9
    assert json.loads((out / "summary.json").read_text())["complete"] is True
    assert noise_of(out) is None
    assert not (out / NOISE).exists()
    assert "Noise" not in cli("show", out).out
    ended = cli("score", *command)
    assert ended.code == 0
    assert "24 rows are done already, 0 are to do" in ended.err
    assert (out / "judgements.jsonl").read_bytes() == lines
    assert cli("score", rows, "--out", whole, *flags, "--noise-rows", 12).code == 0
    assert noise_of(out) == noise_of(whole)
    assert (out / NOISE).read_bytes() == (whole / NOISE).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_in_the_pass_leaves_a_complete_run_and_says_how_to_measure_its_noise(
    cli: Cli, preloaded: Preloaded, tmp_path: Path, flags: list[object], number: signal.Signals, code: int
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 24), tmp_path / "out"
    command = [rows, "--out", out, *flags, "--noise-rows", 12]
    with start_held(preloaded, *command, prompts=30) as process:
        wait_for_the_pass(out, process)
        process.send_signal(number)
        assert process.stdin
        assert process.stderr
        said = b""
        while b"stopping" not in said:
            said += process.stderr.readline()
        process.stdin.close()
        said += process.stderr.read()
    assert process.returncode == code
    assert b"the run is complete, but its noise was not measured" in said
    assert f"score {rows} --out {out}".encode() in said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["complete"], summary["noise"]) == (True, None)
    assert cli("score", *command).code == 0
    assert noise_of(out)["rows"] == 12


def test_an_engine_that_dies_in_the_pass_does_not_make_the_run_fail(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from localjudge.runs.run_observer import RunObserver

    class Warnings(RunObserver):
        def __init__(self) -> None:
            self.said: list[str] = []

        def warn(self, text: str, *, always: bool = False) -> None:
            self.said.append(text)

    run, observer = tmp_path / "run", Warnings()
    judge = wavering(model, 30)(Rubric.load())
    complete, given = judge.engine.complete, 0

    def dying(prompts: Iterable[Prompt | None]) -> Iterator[list[Any]]:
        nonlocal given
        for completions in complete(prompts):
            given += 1
            if given == 33:
                raise EngineError("the engine died")
            yield completions

    judge.engine.complete = dying  # type: ignore[method-assign, assignment]
    result = score_run(judge, RowSource.from_rows(numbered(30)), run, noise_rows=10, observer=observer)
    assert (result.complete, result.summary.failed, result.summary.noise) == (True, 0, None)
    assert any("the engine died" in text and "noise" in text for text in observer.said)
    assert noise_of(run) is None
    judge.engine.complete = complete  # type: ignore[method-assign]
    score_run(judge, RowSource.from_rows(numbered(30)), run, noise_rows=10)
    assert noise_of(run)["rows"] == 10


# Rows that come and go


def test_noise_is_measured_once_and_again_only_if_the_rows_are_others(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 20), tmp_path / "out"
    command = ["score", rows, "--out", out, *flags]
    assert cli(*command, "--noise-rows", 8).code == 0
    stamp = (out / NOISE).stat().st_mtime_ns
    for again in (["--noise-rows", 8], ["--noise-rows", 5], ["--noise-rows", 0], []):
        assert cli(*command, *again).code == 0
        assert noise_of(out)["rows"] == 8
    assert (out / NOISE).stat().st_mtime_ns == stamp
    assert cli(*command, "--noise-rows", 12).code == 0
    assert noise_of(out)["rows"] == 12
    write_rows(rows, 30)
    assert cli(*command, "--noise-rows", 12).code == 0
    wanted = sampled(read_row_outcomes(out), 12)
    assert ids(read_repeated_rows(out)) == wanted
    fewer = [line for line in rows.read_text().splitlines() if json.loads(line)["id"] != wanted[0]]
    rows.write_text("\n".join(fewer) + "\n")
    assert cli(*command).code == 0
    assert noise_of(out) is None, "it was that of a row that is gone"
    assert not (out / NOISE).exists()


def test_a_damaged_file_is_named_and_measured_again(cli: Cli, tmp_path: Path, flags: list[object]) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 8), tmp_path / "out"
    command = ["score", rows, "--out", out, *flags, "--noise-rows", 4]
    assert cli(*command).code == 0
    whole = (out / NOISE).read_bytes()
    (out / NOISE).write_bytes(whole[:-30])
    ended = cli("show", out)
    assert ended.code == 2
    assert f"{out / NOISE}:4" in ended.err
    assert cli(*command).code == 0
    assert (out / NOISE).read_bytes() == whole


def test_merge_pools_the_rows_of_all_shards(cli: Cli, tmp_path: Path, flags: list[object]) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 30)
    shards = [tmp_path / f"s{index}" for index in (1, 2, 3)]
    sizes: Sequence[int] = (4, 6, 0)
    for index, (shard, size) in enumerate(zip(shards, sizes, strict=True), 1):
        part = ["--shard", f"{index}/3", "--noise-rows", size]
        assert cli("score", rows, "--out", shard, *part, *flags).code == 0
    ended = cli("merge", *shards, "--out", tmp_path / "whole")
    assert ended.code == 0
    assert str(shards[2]) in ended.err
    pooled = read_repeated_rows(tmp_path / "whole")
    of_shards = [row for shard in shards for row in read_repeated_rows(shard)]
    assert len(pooled) == 10
    assert {row.id: row for row in pooled} == {row.id: row for row in of_shards}
    assert [row.prompts[0].row for row in pooled] == sorted(row.prompts[0].row or 0 for row in of_shards)
    assert noise_of(tmp_path / "whole")["rows"] == 10
    assert "Noise: 10 rows" in cli("show", *shards).out
    assert len([*read_lines(tmp_path / "whole")]) == 30


def test_the_noise_that_a_killed_merge_has_left_is_not_that_of_shards_without_noise(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 8), tmp_path / "out"

    def shards(name: str, noise_rows: int) -> list[Path]:
        folders = [tmp_path / f"{name}{index}" for index in (1, 2)]
        for index, folder in enumerate(folders, 1):
            part = ["--shard", f"{index}/2", "--noise-rows", noise_rows]
            assert cli("score", rows, "--out", folder, *part, *flags).code == 0
        return folders

    merge_killed_at_its_end(shards("with-noise", 2), out)
    assert (out / NOISE).exists()
    assert cli("merge", *shards("without-noise", 0), "--out", out).code == 0
    assert noise_of(out) is None
    assert not (out / NOISE).exists()


# Two runs


def test_compare_says_which_rows_move_no_further_than_the_noise(cli: Cli, tmp_path: Path, model: Path) -> None:
    """Depth wavers by .2; in NEW, 5 of 40 rows have another response, which scores 1 higher in all aspects."""
    runs = [tmp_path / "old", tmp_path / "new"]
    rubric = Rubric.load()
    for place, run in enumerate(runs):
        rows = numbered(40)
        for row in rows[:5] if place else ():
            row["candidate"] = str(int(row["candidate"]) + (1 if int(row["candidate"]) % 4 < 3 else -1))
        judge = wavering(model, 40 if place == 0 else 20)(rubric)
        score_run(judge, RowSource.from_rows(rows), run, noise_rows=20 if place == 0 else 0)
    found = json.loads(cli("compare", *runs, "--json").out)["noise"]
    depth = found["depth"]
    assert (depth["run"], depth["repeated"], depth["within"], depth["compared"]) == ("old", 20, 20, 40)
    assert depth["bound"] == pytest.approx(0.2, abs=1e-3)
    assert (depth["moved"], depth["below"]) == (25, 20)
    assert (found["clarity"]["bound"], found["clarity"]["moved"], found["clarity"]["below"]) == (0, 5, 0)
    assert "overall" not in found
    said = " ".join(cli("compare", *runs).out.split())
    assert "depth: 20 of 25 that moved, by 0.2 or less (20 rows of old judged again)" in said
    assert "clarity: " not in said.partition("Single rows within the noise")[2]
    integers = json.loads(cli("compare", *runs, "--scores", "integer", "--json").out)["noise"]
    assert integers["clarity"]["bound"] == 0


def test_the_noise_of_one_judge_says_nothing_about_another(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 20)
    old, new = tmp_path / "old", tmp_path / "new"
    other = ["--max-rationale-tokens", 5]
    assert cli("score", rows, "--out", old, *flags, "--noise-rows", 20).code == 0
    assert cli("score", rows, "--out", new, *flags, *other).code == 0
    assert json.loads(cli("compare", old, new, "--json").out)["noise"] == {}
    assert cli("score", rows, "--out", new, *flags, *other, "--noise-rows", 20).code == 0
    assert json.loads(cli("compare", old, new, "--json").out)["noise"].keys() == {"tact", "wit"}


def test_fewer_than_19_rows_judged_again_say_nothing_about_single_rows(
    cli: Cli, tmp_path: Path, flags: list[object]
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 20)
    old, new = tmp_path / "old", tmp_path / "new"
    assert cli("score", rows, "--out", old, *flags, "--noise-rows", 20).code == 0
    assert cli("score", rows, "--out", new, *flags, "--noise-rows", 18).code == 0
    assert json.loads(cli("compare", old, new, "--json").out)["noise"] == {}


# Engines


def test_a_server_is_asked_again_only_if_that_is_wanted_and_then_for_half_as_much_at_once(
    tmp_path: Path, short_rubric: Path
) -> None:
    lock, asked, in_flight = threading.Lock(), list[str](), 0
    largest: list[int] = [0]

    def script(text: str, before: int) -> Reply:
        nonlocal in_flight
        with lock:
            asked.append(text)
            in_flight += 1
            largest[-1] = max(largest[-1], in_flight)
        time.sleep(0.002)
        with lock:
            in_flight -= 1
        return chat(WHOLE)

    rows = [
        {"id": f"r{n}", "instruction": f"Q{n}?", "candidate": f"C{n}", "reference": "R"} for n in range(820)
    ]
    source, out = RowSource.from_rows(rows, Rubric.load(str(short_rubric)).fields), tmp_path / "run"
    with (
        serving(script) as server,
        judge_on(server, short_rubric, engine_args={"max_num_seqs": "6"}) as judge,
    ):
        score_run(judge, source, out, noise_rows=None)
        assert len(asked) == len(rows)
        assert noise_of(out) is None
        largest.append(0)
        again = RowSource.from_rows(rows, judge.rubric.fields)
        score_run(judge, again, out, noise_rows=30)
    assert len(asked) == len(rows) + 30
    assert largest[1] <= 3 < largest[0] <= 6
    assert noise_of(out)["rows"] == 30
    assert noise_of(out)["changed"] == {"tact": 0, "wit": 0}
    assert noise_of(out)["columns"]["tact"]["expected"] is False, "this server gives no probabilities"


@pytest.mark.slow
@pytest.mark.real_model
def test_a_real_model_wavers_in_bfloat16_batches_and_not_alone(
    cli: Cli, tmp_path: Path, real_model: Path
) -> None:
    rows = write_rows(tmp_path / "a.jsonl", 24)
    moved = {}
    for dtype, batch in (("bfloat16", 16), ("float32", 16), ("bfloat16", 1)):
        out = tmp_path / f"{dtype}-{batch}"
        engine = ["--engine-arg", f"dtype={dtype}", "--engine-arg", f"batch_size={batch}"]
        flags = ["--model", real_model, "--max-rationale-tokens", 8, "--noise-rows", 16, *engine]
        assert cli("score", rows, "--out", out, *flags).code == 0
        columns = noise_of(out)["columns"].values()
        moved[dtype, batch] = max(column["change"]["largest"] for column in columns)
    assert moved["bfloat16", 1] == 0
    assert moved["float32", 16] < 0.01 < moved["bfloat16", 16]
