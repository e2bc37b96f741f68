"""A rubric says what it sends: the example of the guide, the included rubrics, and what looks wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows

from localjudge import Judge
from localjudge.constraint.compiler import token_table
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.rubric_file import shipped_rubrics

GUIDE = Path(__file__).parents[1] / "localjudge" / "cli" / "guide" / "rubrics.md"
TEMPLATE = "{$instruction} {$candidate} {$aspects} {$answer_format}"


@pytest.fixture
def rubric_of_the_guide(tmp_path: Path) -> Path:
    """Return the guide's rubric, copied as it stands."""
    (text,) = re.findall(r"```toml reply.toml\n(name = .*?)\n```", GUIDE.read_text(), re.DOTALL)
    file = tmp_path / "reply.toml"
    file.write_text(text)
    return file


def test_the_rubric_of_the_guide_sends_what_it_says(rubric_of_the_guide: Path) -> None:
    rubric = Rubric.load(rubric_of_the_guide)
    row = Row.from_response(instruction="Where is it?", candidate="On its way!", fields={"company": "Ann & Co"})
    said = rubric.text(row)
    for words in (
        "a customer of Ann & Co", "On its way!",
        "- warmth (1 to 10): how warm the reply sounds", "  - 1: cold or hostile", "- outcome (A or B or C)",
        "  - B: passed on", "- polite (no or yes)",
        '{"rationale":"[your rationale]","scores":{"warmth":"[1-10]","outcome":"[A/B/C]","polite":"[no/yes]"}}',
    ):  # fmt: skip
        assert words in said
    assert rubric.fields == ("company", "instruction", "candidate")


def test_the_rubric_of_the_readme_judges_rows(
    cli: Cli, rubric_of_the_guide: Path, model: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 3, company="Ann & Co")
    judge = ["--rubric", rubric_of_the_guide, "--model", model, "--max-rationale-tokens", "4"]
    assert cli("score", rows, "--out", tmp_path / "run", *judge).code == 0
    for line in read_lines(tmp_path / "run"):
        assert line["outcome"] in ("solved", "passed on", "ignored")
        assert line["polite"] in (True, False)
        assert 1 <= line["warmth"] <= 10
        assert len(line["outcome_probabilities"]) == 3
    assert {"warmth", "solved", "polite"} <= {*cli("show", tmp_path / "run").out.split()}


@pytest.mark.parametrize("name", shipped_rubrics())
def test_an_included_rubric_mentions_its_aspects_and_its_table_is_small(cli: Cli, name: str) -> None:
    end = cli("rubrics", "check", name)
    assert (end.code, "computed again for each row" in end.out) == (0, False)
    pieces = {token: bytes([token]) for token in range(256)}
    table = token_table(Rubric.load(name).answer_layout, Vocabulary(pieces, frozenset({256}), 152_064))
    assert table.next_state.nbytes < 64e6


@pytest.mark.parametrize("behind", [0, 200])
def test_text_that_all_rows_share_after_the_response_is_counted(
    cli: Cli, model: Path, tmp_path: Path, behind: int
) -> None:
    file = tmp_path / "tone.toml"
    rules = "The rules say so. " * behind
    file.write_text(
        'name = "tone"\naspects = ["tact"]\nscale = { lowest = 1, highest = 3 }\n'
        f"[prompt]\ntemplate = '''Judge the tact.\n{{$instruction}}\n{{$candidate}}\n{rules}From 1 to 3.'''\n"
    )
    judge = Judge(model, rubric=str(file))
    whole, none = (len(judge.prompts.encode(text)) for text in (f"\n{rules}From 1 to 3.", ""))
    counted, hint = (
        f"{whole - none} after the response",
        "tokens are computed again for each row; put them before",
    )
    end = cli("rubrics", "check", file, "--model", model)
    assert (end.code, counted in end.out) == (0, True)
    assert (f"{whole - none} {hint} {{$instruction}}" in end.out) == (behind > 0)
    rows = write_rows(tmp_path / "rows.jsonl", 4)
    dry = ["--engine", "dry-run", "--max-model-len", "4000", "--model", model]
    said = " ".join(cli("score", rows, "--rubric", file, "--out", tmp_path / "dry", *dry).out.split())
    mean = fmean(line["prompt_tokens"] for line in read_lines(tmp_path / "dry"))
    assert f"{whole - none:,} of the rubric after it" in said
    assert (f"{whole - none} of {mean:,.0f} {hint} {{$instruction}}" in said) == (behind > 0)


def test_a_template_that_never_mentions_its_aspects_is_reported(cli: Cli, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "tone.toml"
    file.write_text(
        'name = "tone"\naspects = ["warmth", "tact"]\nscale = { lowest = 1, highest = 10 }\n'
        '[prompt]\ntemplate = "Judge the tact: {$instruction} {$candidate}"\n'
    )
    end = cli("rubrics", "check", file)
    assert (end.code, "the template never mentions warmth, 1, 10, so" in end.out) == (1, True)
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    end = cli("score", rows, "--out", tmp_path / "run", "--rubric", file, "--model", model)
    assert (end.code, "prompt: the template never mentions warmth, 1, 10" in end.out) == (0, True)


def test_a_rationale_can_be_left_out_where_the_template_follows_the_answer(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    judge = ["--rubric", "six-aspects", "--model", model]
    assert cli("score", rows, "--out", tmp_path / "run", "--rationale", "none", *judge).code == 0
    assert all("rationale" not in line for line in read_lines(tmp_path / "run"))
    end = cli("score", rows, "--out", tmp_path / "run", *judge)
    assert (end.code, "differs in rubric" in end.err) == (2, True), "where it stands is part of the rubric"
    end = cli("score", rows, "--out", tmp_path / "other", "--rationale", "none", "--model", model)
    assert (end.code, "rubric just-eval: --rationale none: its prompt shows the answer" in end.err) == (2, True)


def test_a_rationale_for_each_aspect_has_a_column_of_its_own(cli: Cli, model: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    judge = ["--rubric", "six-aspects", "--model", model, "--rationale", "each", "--max-rationale-tokens", "3"]
    assert cli("score", rows, "--out", tmp_path / "run", *judge).code == 0
    for line in read_lines(tmp_path / "run"):
        assert line["safety_rationale"]
        assert line["helpfulness_rationale"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"aspects": {"a": {}}},
            "aspects.a: has no values; give it a scale, choices, a preference or boolean = true",
        ),
        ({"aspects": {"a": {"boolean": True, "choices": ["x", "y"]}}}, "aspects.a: give one of scale, choices"),
        ({"aspects": {"a": {"choices": ["x"]}}}, "aspects.a: choices: give two or more labels"),
        (
            {"aspects": {"a": {"choices": {"A": "x", "B": "x"}}}},
            "choices: the label 'x' occurs twice; remove one",
        ),
        ({"aspects": {"a": {"choices": [" x", "y"]}}}, "choices: ' x' must be text of 1 to 40 characters"),
        ({"aspects": {"a": {"boolean": True, "ordered": True}}}, "aspects.a: ordered: belongs to choices"),
        (
            {"aspects": {"a": {"boolean": True, "levels": {"maybe": "?"}}}},
            "levels: 'maybe' is not one of the values",
        ),
        (
            {"aspects": {"a": {"boolean": True, "weight": 0}}},
            "aspects.a.weight: Input should be greater than 0",
        ),
        (
            {"aspects": {"a": {"boolean": True, "description": "as in {$b}"}}},
            "has a placeholder; write it without",
        ),
        ({"aspects": {"a": {"boolean": True, "kind": "x"}}}, "aspects.a.kind: Extra inputs are not permitted"),
        ({"aspects": {"a_rationale": {"boolean": True}}}, "'a_rationale' is the name of another column"),
        ({"answer": {"rationale_place": "above"}}, "answer.rationale_place: Input should be 'before', 'after'"),
        ({"answer": {"scores": "", "rationale": "a"}}, "answer: 'a' occurs twice"),
        (
            {"answer": {"rationale": "score", "rationale_place": "each"}},
            "'score' is the key of the score beside",
        ),
    ],
)
def test_a_rubric_that_cannot_be_is_one_line(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    from pydantic import ValidationError

    document = {"name": "odd", "aspects": {"a": {"boolean": True}}, "prompt": {"template": TEMPLATE}} | changed
    with pytest.raises(ValidationError) as refused:
        Rubric.model_validate(document)
    first = refused.value.errors()[0]
    place = ".".join(map(str, first["loc"]))
    assert words in f"{place}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def test_weights_count_in_the_mean_and_change_no_judgement() -> None:
    document = {"name": "w", "aspects": {"a": {"boolean": True}}, "prompt": {"template": TEMPLATE}}
    heavy = json.loads(json.dumps(document))
    heavy["aspects"]["a"]["weight"] = 3
    one, other = Rubric.model_validate(document), Rubric.model_validate(heavy)
    assert one.digest == other.digest
    assert (one.score_columns[0].weight, other.score_columns[0].weight) == (1, 3)


def test_the_order_of_the_aspects_is_part_of_the_rubric() -> None:
    aspects = {"a": {"boolean": True}, "b": {"boolean": True}}
    forward, backward = (
        Rubric.model_validate({"name": "w", "aspects": dict(each), "prompt": {"template": TEMPLATE}})
        for each in (aspects.items(), reversed(aspects.items()))
    )
    assert forward.digest != backward.digest
    again = Rubric.model_validate(json.loads(json.dumps(backward.model_dump(mode="json"), sort_keys=True)))
    assert [*again.aspects] == ["b", "a"]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{$candidate} {policy} {$aspects}", "{policy} in the template is not a placeholder; write {$policy}"),
        (
            "{$candidate} {$answer_format}",
            "never mentions right, wrong, the description of grade, the level A of",
        ),
        ('{$candidate} {"grade": {"x": 1}} {$aspects}', None),
        ("{$candidate} {$aspects} {$answer_format}", None),
    ],
)
def test_what_looks_wrong_in_a_prompt_is_said(template: str, words: str | None) -> None:
    grade = {
        "description": "whether it holds",
        "choices": {"A": "right", "B": "wrong"},
        "levels": {"A": "it does"},
    }
    rubric = Rubric.model_validate({"name": "g", "aspects": {"grade": grade}, "prompt": {"template": template}})
    said = " ".join(rubric.problems)
    assert words in said if words else not said


def test_texts_of_further_columns_are_shown_and_exported(cli: Cli, model: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2, context="Paris is in France.")
    judge = ["--rubric", "groundedness", "--model", model, "--max-rationale-tokens", "3"]
    assert cli("score", rows, "--out", tmp_path / "run", *judge).code == 0
    shown = cli("show", tmp_path / "run", "--id", "r0").out
    assert "context\n  Paris is in France." in shown
    end = cli("export", tmp_path / "run", "--to", "jsonl", "--out", tmp_path / "run.jsonl", "--with-texts")
    assert end.code == 0
    (first, *_) = (tmp_path / "run.jsonl").read_text().splitlines()
    assert json.loads(first)["context"] == "Paris is in France."
