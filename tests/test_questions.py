"""Answers whose questions stand in another file: the layouts of Arena-Hard v0.1 and of MT-Bench."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from one_row import checked_inputs

from localjudge import Failure, Row, Rubric, UsageError, read_rows
from localjudge.matching.judged_rows import read_scores
from localjudge.matching.labels import read_labels
from localjudge.runs.reader import read_outcomes, read_row_outcomes
from localjudge.runs.reread_texts import rows_again
from localjudge.runs.run_manifest import read_manifest

USED = ("instruction", "candidate")
TALK = ("instruction", "candidate", "conversation")


def write(file: Path, records: Iterable[dict[str, Any]]) -> str:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(file)


def arena_hard(folder: Path, systems: str = "mn", count: int = 3) -> list[str]:
    """Write files in the layout of Arena-Hard v0.1: one of answers for each system, and the questions."""
    questions = (
        {
            "question_id": f"q{n}",
            "category": "arena-hard-v0.1",
            "cluster": "Keyboards",
            "turns": [{"content": f"Question {n}?"}],
        }
        for n in range(1, count + 1)
    )
    answers = [
        write(
            folder / "model_answer" / f"{system}.jsonl",
            (
                {
                    "question_id": f"q{n}",
                    "answer_id": f"{system}-{n}",
                    "model_id": system,
                    "choices": [{"index": 0, "turns": [{"content": system * n, "token_len": n}]}],
                    "tstamp": 1711076906.65,
                }
                for n in range(1, count + 1)
            ),
        )
        for system in systems
    ]
    return [*answers, write(folder / "question.jsonl", questions)]


def mt_bench(folder: Path, turns: int = 2) -> list[str]:
    """Write a file of answers and one of questions in the layout of MT-Bench."""
    asked = ["Write a post.", "Rewrite it."][:turns]
    said = ["Aloha!", "Again."][:turns]
    question = {"question_id": 81, "category": "writing", "turns": asked, "reference": ["R1", "R2"][:turns]}
    answer = {
        "question_id": 81,
        "answer_id": "b3Yz",
        "model_id": "gpt",
        "choices": [{"index": 0, "turns": said}],
        "tstamp": 1,
    }
    return [write(folder / "gpt.jsonl", [answer]), write(folder / "question.jsonl", [question])]


def rows_of(files: list[str], used: tuple[str, ...] = USED) -> list[Row]:
    return [row for row in read_rows(files, used=used) if isinstance(row, Row)]


def test_an_answer_is_judged_with_the_question_that_it_names(tmp_path: Path) -> None:
    files = arena_hard(tmp_path)
    assert checked_inputs(files, {}, USED).empty == []
    for order in (files, files[::-1]):
        rows = sorted(rows_of(order), key=lambda row: row.source)
        assert [(row.system, row.id, row.instruction, row.candidate) for row in rows] == [
            (system, f"q{n}", f"Question {n}?", system * n) for system in "mn" for n in (1, 2, 3)
        ]
    assert rows[0].source == f"{files[0]}:1"
    assert (rows[0].columns["cluster"], rows[0].columns["answer_id"]) == ("Keyboards", "m-1")
    assert not {"turns", "choices"} & rows[0].columns.keys()


def test_a_run_of_answers_and_questions_continues_and_its_texts_are_found_again(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    files = arena_hard(tmp_path)
    how = ["--rubric", "no-reference", "--max-rationale-tokens", 3, "--model", model, "--out", tmp_path / "run"]
    for _ in range(2):
        assert cli("score", *files, *how).code == 0
    assert [(each.system, each.id) for each in read_outcomes(tmp_path / "run")] == [
        (system, f"q{n}") for system in "mn" for n in (1, 2, 3)
    ]
    problems: list[str] = []
    again = list(rows_again(read_manifest(tmp_path / "run"), [], problems))
    assert ([row.instruction for row in again], problems) == ([f"Question {n}?" for n in (1, 2, 3)] * 2, [])
    assert "Question 2?" in cli("show", tmp_path / "run", "--id", "q2").out


@pytest.mark.parametrize("text", ["", "question_id,level\n"])
def test_rows_joined_with_a_file_of_no_records_are_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.csv").write_text("instruction,output,question_id\nQ?,A.,1\n")
    (tmp_path / "level.csv").write_text(text)
    end = cli("prompt", tmp_path / "rows.csv", "--join", tmp_path / "level.csv", "--on", "question_id")
    assert end.code == 2
    assert "level.csv has the question_id '1'" in end.err


@pytest.mark.parametrize(("flags", "pairs"), [(["--pairs", "all"], "mn mo no"), (["--baseline", "n"], "mn on")])
def test_answers_form_pairs_as_they_come(
    cli: Cli, tmp_path: Path, model: Path, flags: list[str], pairs: str
) -> None:
    files = arena_hard(tmp_path, "mno", 1)
    how = ["--rubric", "pairwise", "--max-rationale-tokens", 3, "--model", model, "--out", tmp_path / "run"]
    assert cli("score", *files, *how, *flags).code == 0
    assert (
        sorted("".join(map(str, pair.systems)) for pair in read_row_outcomes(tmp_path / "run")) == pairs.split()
    )


def test_answers_without_their_questions_are_refused_before_a_model_is_looked_for(
    cli: Cli, tmp_path: Path
) -> None:
    *answers, questions = arena_hard(tmp_path)
    how = ("--rubric", "no-reference", "--model", tmp_path / "none", "--out", tmp_path / "run")
    end = cli("score", *answers, *how)
    problem = "m.jsonl: is an answer of MT-Bench or Arena-Hard without its"
    assert (end.code, problem in end.err) == (2, True)
    end = cli("score", questions, *how)
    assert (
        end.code,
        "question.jsonl: holds no responses, but what other files are joined with" in end.err,
    ) == (2, True)
    other = write(tmp_path / "other.jsonl", [{"question_id": "q9", "turns": ["?"]}])
    end = cli("score", *answers, other, *how)
    assert (end.code, f"no record in {other} has the question_id 'q1'" in end.err) == (2, True)


def test_an_answer_to_an_unknown_question_fails_by_itself(tmp_path: Path) -> None:
    files = arena_hard(tmp_path, "m")
    lines = Path(files[1]).read_text().splitlines()
    Path(files[1]).write_text("\n".join(lines[:2]))
    assert checked_inputs(files, {}, USED).empty == []
    *known, unknown = read_rows(files, used=USED)
    assert len(known) == 2
    assert isinstance(unknown, Failure)
    assert (unknown.id, unknown.system) == ("q3", "m")
    assert unknown.error == f"{files[0]}:3: no record in {files[1]} has the question_id 'q3'"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "question.jsonl:4: not JSON"),
        (
            '{"question_id": "q1", "turns": ["Another?"]}',
            "question.jsonl:4: another record has the question_id 'q1'",
        ),
    ],
)
def test_a_file_of_questions_that_is_not_whole_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    files = arena_hard(tmp_path)
    with Path(files[-1]).open("a") as stream:
        stream.write(line)
    with pytest.raises(UsageError, match=problem):
        checked_inputs(files, {}, USED)


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ([{"turns": ["a", "b"]}], "has 2 of the 1 turns of its question"),
        (
            [{"turns": [{"content": None}]}],
            "'turns + choices[*].turns', the conversation: turn 2 has content of type NoneType; it must be "
            "text or a list of parts",
        ),
    ],
)
def test_an_answer_that_cannot_be_judged_fails_with_its_reason(
    tmp_path: Path, choices: list[Any], problem: str
) -> None:
    files = arena_hard(tmp_path, "m", 1)
    write(Path(files[0]), [{"question_id": "q1", "model_id": "m", "choices": choices}])
    (failure,) = read_rows(files, used=USED)
    assert isinstance(failure, Failure)
    assert (failure.system, failure.error) == ("m", f"{files[0]}:1: {problem}")


def test_each_choice_of_an_answer_is_a_row(tmp_path: Path) -> None:
    files = arena_hard(tmp_path, "m", 1)
    choices = [{"turns": ["a"]}, {"turns": ["b"]}]
    write(Path(files[0]), [{"question_id": "q1", "model_id": "m", "choices": choices}])
    assert [(row.instruction, row.candidate) for row in rows_of(files)] == [
        ("Question 1?", "a"),
        ("Question 1?", "b"),
    ]


def test_the_turns_of_mt_bench_are_a_conversation_if_the_rubric_shows_one(tmp_path: Path) -> None:
    files = mt_bench(tmp_path)
    (last,) = rows_of(files, (*TALK, "reference"))
    assert (last.instruction, last.candidate, last.reference) == ("Rewrite it.", "Again.", "R2")
    assert (
        last.fields["conversation"] == "User:\n> Write a post.\n\nAssistant:\n> Aloha!\n\nUser:\n> Rewrite it."
    )
    (whole,) = rows_of(files, tuple(Rubric.load("conversation").fields))
    assert whole.candidate == last.fields["conversation"] + "\n\nAssistant:\n> Again."
    assert (whole.id, whole.system, whole.reference) == ("81", "gpt", "R1\n\nR2")


def test_several_turns_are_refused_by_a_rubric_that_shows_one(tmp_path: Path) -> None:
    files = mt_bench(tmp_path)
    with pytest.raises(
        UsageError, match=r"has turns that only {\$conversation} shows; judge it with --rubric conversation"
    ):
        checked_inputs(files, {}, USED)
    (row,) = rows_of(mt_bench(tmp_path, turns=1), (*USED, "reference"))
    assert (row.instruction, row.candidate, row.reference) == ("Write a post.", "Aloha!", "R1")


def test_conversations_that_differ_form_no_pairs(cli: Cli, tmp_path: Path) -> None:
    files = mt_bench(tmp_path)
    other = Path(files[0]).read_text().replace('"gpt"', '"other"').replace("Aloha!", "Hello!")
    (tmp_path / "other.jsonl").write_text(other)
    rubric = tmp_path / "talk.toml"
    rubric.write_text(
        'name = "talk"\n[aspects.better]\npreference = ["A", "tie", "B"]\n[prompt]\n'
        'template = "{$conversation} {$candidate_a} {$candidate_b} {$aspects} {$answer_format}"\n'
    )
    how = ("--rubric", rubric, "--pairs", "all", "--engine", "dry-run", "--out", tmp_path / "run")
    end = cli("score", *files, tmp_path / "other.jsonl", *how)
    assert (end.code, "--pairs: no two of these systems answer the same instruction" in end.err) == (2, True)


def test_a_judgement_of_mt_bench_labels_its_own_turn_and_none_that_could_not_be_read(
    cli: Cli, tmp_path: Path
) -> None:
    questions = [{"question_id": n, "turns": [f"Write about {n}.", "Rewrite it."]} for n in range(12)]
    answers = [
        {"question_id": n, "model_id": "vicuna", "choices": [{"turns": [f"Aloha {n}!", f"Again {n}."]}]}
        for n in range(12)
    ]
    judgements = [
        {
            "question_id": n,
            "model": "vicuna",
            "judge": ["gpt-4", "single-v1" + "-multi-turn" * (turn == 2)],
            "judgment": "Rating: [[7]]",
            "score": -1 if n == 3 else turn + n % 4,
            "turn": turn,
        }
        for n in range(12)
        for turn in (1, 2)
    ]
    rows = [write(tmp_path / "answers.jsonl", answers), write(tmp_path / "question.jsonl", questions)]
    labels = write(tmp_path / "gpt-4_single.jsonl", judgements)
    last = tmp_path / "last.toml"
    last.write_text(
        'name = "last"\n[aspects.quality]\nscale = { lowest = 1, highest = 10 }\n[prompt]\n'
        'template = "{$conversation} {$candidate} {$aspects} {$answer_format}"\n'
    )
    for rubric, aspect in ((last, "quality"), ("conversation", "coherence")):
        run = tmp_path / aspect
        assert cli("score", *rows, "--rubric", rubric, "--engine", "dry-run", "--out", run).code == 0
        scores = read_scores([run])
        found = read_labels([str(labels)], scores, {"score": aspect})
        assert found.annotators == ("gpt-4",)
        known, values = found.means(aspect)
        said = {scores.ids[row]: value for row, value in zip(known.tolist(), values.tolist(), strict=True)}
        assert said == {str(n): 2 + n % 4 for n in range(12) if n != 3}
        assert found.notes[0].startswith(
            "12 of 24 label records are of another turn than their row, and are not"
        )
        whole = "12 label records are of the last turn; the judge read whole conversations"
        assert (whole in found.notes) == (rubric == "conversation")


def test_a_column_of_questions_is_no_file_of_questions(tmp_path: Path) -> None:
    record = {"question_id": "q1", "turns": ["Hidden"], "prompt": "Shown", "output": "Answer"}
    (row,) = rows_of([write(tmp_path / "rows.jsonl", [record])])
    assert (row.instruction, row.candidate, row.columns) == ("Shown", "Answer", {"turns": ["Hidden"]})
