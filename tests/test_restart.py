"""Tests of restarts: a failed start leaves no files, and a restart counts exactly the finished rows."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, StopIf, read_lines, write_rows
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localjudge import Failure, Judge, Row, UsageError, read_rows
from localjudge.errors import EngineError
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import MARK
from localjudge.runs.run_plan import RunPlan


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return list(read_lines(folder)) if folder.exists() else []


def test_a_start_without_rows_leaves_nothing_behind(cli: Cli, tmp_path: Path, short_rubric: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.touch()
    flags = ["--rubric", short_rubric, "--engine", "dry-run"]
    end = cli("score", rows, "--out", tmp_path / "new" / "deep" / "run", *flags)
    assert (end.code, "holds no rows" in end.err) == (2, True)
    assert list(tmp_path.iterdir()) == [rows]


def test_an_engine_that_breaks_leaves_the_lines_that_are_done_and_nothing_where_there_are_none(
    tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 9), tmp_path / "new" / "run"
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=6, engine_args={"batch_size": "3"})
    complete = judge.engine.complete

    def breaking_after(batches: int) -> Callable[[Iterable[Any]], Iterable[Any]]:
        def broken(prompts: Iterable[Any]) -> Iterable[Any]:
            yield from islice(complete(prompts), batches)
            raise EngineError("broken")

        return broken

    def go(batches: int) -> None:
        judge.engine.complete = breaking_after(batches)  # type: ignore[method-assign, assignment]
        with RunDirectory(out) as run, RunPlan(judge, read_rows([str(rows)])) as plan:
            run.begin(judge, plan)
            run.score()

    with pytest.raises(EngineError):
        go(0)
    assert list(tmp_path.iterdir()) == [rows]
    with pytest.raises(EngineError):
        go(1)
    before = lines_of(out)
    assert 0 < len(before) < 9
    with pytest.raises(EngineError):
        go(0)
    assert lines_of(out) == before


def test_a_run_that_breaks_after_each_batch_computes_the_batches_of_one_that_does_not(
    tmp_path: Path, model: Path, short_rubric: Path
) -> None:
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=6, engine_args={"batch_size": "3"})
    rows = list(read_rows([str(write_rows(tmp_path / "a.jsonl", 20))]))
    complete = judge.engine.complete

    def one_batch(prompts: Iterable[Any]) -> Iterator[Any]:
        yield next(complete(prompts))
        raise EngineError("broken")

    def batches(folder: Path) -> list[list[str]]:
        found: list[list[str]] = []
        with suppress(EngineError), RunDirectory(folder) as run, RunPlan(judge, rows) as plan:
            run.begin(judge, plan)
            run.score(lambda outcomes, _: found.append([each.id for each in outcomes]))
        return found

    unbroken = batches(tmp_path / "unbroken")
    assert [len(batch) for batch in unbroken] == [3, 3, 3, 3, 3, 3, 2]
    judge.engine.complete = one_batch  # type: ignore[method-assign]
    assert [batches(tmp_path / "broken") for _ in unbroken] == [[batch] for batch in unbroken]
    judge.engine.complete = complete  # type: ignore[method-assign]
    assert batches(tmp_path / "broken") == []
    ends = [(tmp_path / name / "judgements.jsonl").read_bytes() for name in ("unbroken", "broken")]
    assert ends[0] == ends[1]


def test_a_folder_that_was_there_keeps_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with RunDirectory(tmp_path / "out"):
        (tmp_path / "out" / "engine.log").write_text("why it broke")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [MARK, "engine.log"]
    with RunDirectory(tmp_path / "out"):
        pass
    assert (tmp_path / "out" / "engine.log").read_text() == "why it broke"


def test_a_disk_without_room_is_found_on_entering_and_nothing_is_left_there(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from localjudge.runs.run_directory import RunDirectory; "
        "RunDirectory(Path('new/run')).__enter__()"
    )
    end = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
    )
    assert end.stderr.splitlines()[-1].endswith(
        "RunBrokenError: `out` new/run: File too large; free some space, or choose another folder"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["/dev/null/run", "/proc/run"])
def test_a_folder_that_cannot_be_written_is_found_on_entering(place: str) -> None:
    with (
        pytest.raises(UsageError, match=f"`out` {place}: .*; choose another folder"),
        RunDirectory(Path(place)),
    ):
        pass


def test_lines_of_rows_that_have_left_the_input_are_set_aside_and_do_not_count(
    cli: Cli, tmp_path: Path, short_rubric: Path
) -> None:
    rows, out = tmp_path / "a.jsonl", tmp_path / "out"
    odd = [{"q": f"Question {n}?", "ref": "Yes.", "cand": f"Answer {n}."} for n in range(15)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in odd))
    flags = ["--rubric", short_rubric, "--engine", "dry-run", "--column=instruction=q"]
    mixed_up = ["--column=reference=cand", "--column=candidate=ref"]
    assert cli("score", rows, "--out", out, *flags, *mixed_up).code == 0
    flags += ["--column=reference=ref", "--column=candidate=cand"]
    for limit, aside, done in ((7, 15, 0), (15, 0, 7), (4, 11, 4), (15, 0, 15)):
        end = cli("score", rows, "--limit", limit, "--out", out, *flags)
        assert end.code == 0, end.err
        kept = f"they are kept in {out / 'set-aside.jsonl'}\n"
        said = f"{aside} earlier lines belong to no row of this input; {kept}"
        assert (said in end.err) == (aside > 0), end.err
        continuing = f"continuing: {done} rows are done already, {limit - done} are to do\n"
        assert (continuing in end.err) == (done > 0), end.err
        assert (f"{limit - done} of {limit - done} rows · " in end.err) == (limit > done), end.err
        assert [line["row"] for line in read_lines(out)] == list(range(1, limit + 1))


def test_lines_that_a_start_had_set_aside_before_it_ended_are_not_set_aside_twice(
    cli: Cli, tmp_path: Path, short_rubric: Path
) -> None:
    rows, out = write_rows(tmp_path / "a.jsonl", 6), tmp_path / "out"
    command = ("score", rows, "--out", out, "--rubric", short_rubric, "--engine", "dry-run")
    assert cli(*command).code == 0
    left = (out / "judgements.jsonl").read_bytes().splitlines(keepends=True)[4:]
    (out / "set-aside.jsonl").write_bytes(b"".join(left))  # the journal could not be replaced
    assert cli(*command, "--limit", 4).code == 0
    assert (out / "set-aside.jsonl").read_bytes().splitlines(keepends=True) == left
    assert cli(*command).code == 0
    assert [line["row"] for line in read_lines(out)] == list(range(1, 7))


def test_another_input_and_new_weights_are_said_even_if_quiet_and_the_run_has_the_new_weights(
    cli: Cli, tmp_path: Path
) -> None:
    rubric, rows, out = tmp_path / "two.toml", write_rows(tmp_path / "a.jsonl", 4), tmp_path / "out"
    text = (
        'name = "two"\n[aspects.wit]\nscale = {lowest = 1, highest = 3}\nweight = 1\n[aspects.tact]\n'
        'scale = {lowest = 1, highest = 3}\n[prompt]\ntemplate = "{$candidate} {$aspects} {$answer_format}"\n'
    )
    rubric.write_text(text)
    command = ("score", rows, "--rubric", rubric, "--out", out, "--engine", "dry-run", "--quiet")
    assert "weights" not in cli(*command).err + cli(*command).err
    rubric.write_text(text.replace("weight = 1", "weight = 99"))
    end = cli(*command, "--limit", 3)
    assert (end.code, [line for line in end.err.splitlines() if str(out) in line]) == (
        0,
        [
            f"1 earlier lines belong to no row of this input; they are kept in {out / 'set-aside.jsonl'}",
            f"{out}: means now use the weights and the best labels of this rubric: wit 99 instead of 1",
        ],
    )
    assert json.loads((out / "run.json").read_text())["rubric"]["aspects"][0]["weight"] == 99


def test_the_lines_of_a_run_that_was_stopped_are_those_that_its_summary_counts(
    tmp_path: Path, short_rubric: Path
) -> None:
    out, judge = tmp_path / "out", Judge(engine="dry-run", rubric=short_rubric)
    rows = [
        Row.from_response(instruction=f"Q{n}?", candidate=f"A{n}", reference="R", id=str(n))
        if n % 3
        else Failure(id=str(n), key=str(n), error="e")
        for n in range(12)
    ]
    with RunDirectory(out) as run, RunPlan(judge, rows[:10]) as plan:
        run.begin(judge, plan)
        run.score()
    with RunDirectory(out) as run, RunPlan(judge, rows[5:]) as plan:
        assert run.begin(judge, plan, retry_failed=True) == 3, "5, 7 and 8"
        summary = run.score(stopping=StopIf(lambda: True))
        assert not run.complete
    assert summary.judged + summary.failed == len(lines_of(out)) == 3
    found = json.loads((out / "summary.json").read_text())
    assert (found["complete"], found["rows"], found["planned"]) == (False, 3, 7)


@pytest.mark.parametrize("retry", [False, True])
def test_a_start_that_continues_encodes_only_the_rows_that_are_left(
    tmp_path: Path, model: Path, short_rubric: Path, monkeypatch: pytest.MonkeyPatch, retry: bool
) -> None:
    judge = Judge(model, rubric=short_rubric, max_rationale_tokens=1)
    rows = [
        Row.from_response(
            instruction=f"Question {n}?", candidate=f"A{n}.", reference="word " * 9000 if n == 2 else "R"
        )
        for n in range(9)
    ]
    with RunDirectory(tmp_path / "out") as run, RunPlan(judge, rows[:5]) as plan:
        run.begin(judge, plan)
        run.score()
    encoded: list[str] = []
    encode_all = judge.prompts.encode_all

    def noted(texts: list[str], *beginnings: Any) -> list[Any]:
        encoded.extend(texts)
        return encode_all(texts, *beginnings)

    monkeypatch.setattr(judge.prompts, "encode_all", noted)
    with RunDirectory(tmp_path / "out") as run, RunPlan(judge, rows + rows) as plan:
        run.begin(judge, plan, retry_failed=retry)
        run.score()
    left = [*([2] if retry else []), 5, 6, 7, 8]
    assert encoded == [judge.rubric.text(rows[n]) for n in left]
    failed = [n for n, line in enumerate(lines_of(tmp_path / "out")) if line["status"] == "failed"]
    assert failed == [2, 11]


STARTS = st.tuples(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 8), st.booleans())


@given(st.lists(STARTS, max_size=5))
@example([([1, 2, 3], 99, False), ([1], 99, False), ([3, 3, 0, 2], 1, False), ([0], 99, True)])
@example([([0, 0], 1, False), ([0], 0, False)])
@settings(max_examples=30)
def test_in_every_restart_the_rows_done_are_those_of_the_input_that_have_a_line(
    short_rubric: Path, starts: list[tuple[list[int], int, bool]]
) -> None:
    judge = Judge(engine="dry-run", rubric=short_rubric)
    kept: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for numbers, stop_after, retry in [*starts, ([*range(10)], 99, False)]:
            rows = [
                Row.from_response(instruction=f"Q{n}?", candidate=f"A{n}", reference="R", id=str(n))
                if n % 4
                else Failure(id=str(n), key=str(n), error="e")
                for n in numbers
            ]
            told: list[int] = []

            def report(outcomes: object, more: int, told: list[int] = told) -> None:
                told.append(more)

            def stop(told: list[int] = told, most: int = stop_after) -> bool:
                return sum(told) >= most

            with RunDirectory(out) as run, RunPlan(judge, rows) as plan:
                done = run.begin(judge, plan, retry_failed=retry)
                assert done == sum(n in kept and not (retry and n % 4 == 0) for n in numbers)
                run.score(report, StopIf(stop))
                assert 0 <= done <= done + sum(told) == run.done <= plan.rows == len(numbers)
                assert run.done == plan.rows or not run.complete
            lines = lines_of(out)
            assert len(lines) <= len(numbers)
            assert {int(line["id"]) for line in lines} <= set(numbers)
            kept = kept - set(numbers) | {int(line["id"]) for line in lines}
        assert kept == set(range(10))
