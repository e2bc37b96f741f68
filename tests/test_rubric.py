"""Tests of rubrics: the template, filled in one pass; the answer's schema; every error of a rubric file."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from localjudge import Row, Rubric, RubricError
from localjudge.records import Judgement
from localjudge.rubrics.aspect import Aspect, Scale
from localjudge.rubrics.rubric_file import shipped_rubrics
from localjudge.rubrics.score_column import averaged, overall, score_columns
from localjudge.rubrics.template import PLACEHOLDER

SHIPPED_DIGEST = "737b8ed0213c8bc73aca2a9371bbf732e9039eaa453d47247a25836e3e876569"

ORDERS = [Rubric.load(name) for name in ("just-eval", "just-eval-first")]
OF_A_RESPONSE = ("candidate", "candidate_a", "candidate_b", "conversation", "criterion")

TONE = """
name = "tone"
aspects = ["warmth", "tact"]
scale = { lowest = 1, highest = 10 }
[answer]
rationale = "why"
scores = "marks"
[answer.aspects]
warmth = "Wärme"
[prompt]
template = "{$instruction} / {$candidate}"
"""


def load(folder: Path, text: str | bytes) -> Rubric:
    file = folder / "rubric.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Rubric.load(file)


def answer(rubric: Rubric, score: str = "4") -> dict[str, Any]:
    scores = dict.fromkeys(rubric.answer.keys_of(rubric.aspects).values(), score)
    return {rubric.answer.rationale: "Fine.", rubric.answer.scores: scores}


def test_the_shipped_prompt_is_the_one_that_scores_are_compared_by() -> None:
    template = Rubric.load().prompt.template.encode()
    assert len(template) == 2340
    assert hashlib.sha256(template).hexdigest() == SHIPPED_DIGEST == Rubric.load().template_digest


def test_the_shipped_prompt_equals_the_original_byte_for_byte(shared: Path) -> None:
    assert Rubric.load().prompt.template.encode() == (shared / "judge-prompt.txt").read_bytes()


def test_just_eval_first_has_the_sentences_of_just_eval_in_another_order() -> None:
    lines = [sorted(filter(None, map(str.strip, rubric.prompt.template.split("\n")))) for rubric in ORDERS]
    assert lines[0] == lines[1]
    assert ORDERS[0].prompt.template != ORDERS[1].prompt.template
    assert ORDERS[0].aspects == ORDERS[1].aspects
    assert ORDERS[0].answer == ORDERS[1].answer


@pytest.mark.parametrize("name", sorted({*shipped_rubrics()} - {"just-eval"}))
def test_an_included_rubric_begins_with_what_all_rows_share_and_ends_with_a_short_line(name: str) -> None:
    text = Rubric.load(name)._template
    fields, pieces = PLACEHOLDER.findall(text), PLACEHOLDER.split(text)[::2]
    own = [field for field in fields if field in OF_A_RESPONSE]
    assert fields == [*(field for field in fields if field not in OF_A_RESPONSE), *own]
    assert own == sorted(own)  # candidate_b after candidate_a, and criteria after the candidate
    assert len(pieces[0]) > sum(map(len, pieces[1:]))
    assert len(pieces[-1]) < 150


def test_the_default_rubric_asks_for_a_reference_and_no_reference_for_none() -> None:
    with_reference, without = Rubric.load("just-eval"), Rubric.load("no-reference")
    assert with_reference.aspects == without.aspects
    names = ["safety", "engagement", "clarity", "factuality", "depth", "helpfulness"]
    assert [*with_reference.aspects] == names
    assert with_reference.needs_reference
    assert not without.needs_reference


texts = st.text() | st.lists(
    st.sampled_from(["{$instruction}", "{$reference}", "{$candidate}", "{$", "}", "\\1", "\\g<0>", "{", "a"])
).map("".join)


@given(instruction=texts.filter(str.strip), reference=texts, candidate=texts)
def test_a_field_stays_as_typed_whatever_it_holds(instruction: str, reference: str, candidate: str) -> None:
    rubric = Rubric.load()
    row = Row.from_response(instruction=instruction, reference=reference, candidate=candidate)
    parts = rubric.prompt.template.replace("{$instruction}", "\0").replace("{$reference}", "\0")
    first, second, third, last = parts.replace("{$candidate}", "\0").split("\0")
    assert rubric.text(row) == first + instruction + second + reference + third + candidate + last


def test_a_missing_reference_is_refused_by_a_rubric_that_asks_for_one_and_only_by_it() -> None:
    row = Row.from_response(instruction="a", candidate="b")
    with pytest.raises(ValueError, match="no reference, which the rubric just-eval needs"):
        Rubric.load().text(row)
    assert "b" in Rubric.load("no-reference").text(row)


def test_an_empty_candidate_is_a_response_unless_the_rubric_says_otherwise(tmp_path: Path) -> None:
    row = Row.from_response(instruction="a", candidate="")
    assert load(tmp_path, TONE).text(row) == "a / "
    strict = load(tmp_path, TONE.replace("[prompt]", '[prompt]\nempty_candidate = "fail"'))
    with pytest.raises(ValueError, match="empty candidate"):
        strict.text(row)


WRONG: dict[str, tuple[str | bytes, str]] = {
    "not UTF-8": (b'name = "\xff"', "not UTF-8 at byte 8"),
    "not TOML": ("name = ", "not TOML"),
    "empty file": ("", "name: is missing; add it"),
    "unknown placeholder": (
        TONE.replace("/", "{$an answer}"),
        "{$an answer} is not a placeholder; use {$column}",
    ),
    "misspelt placeholder": (TONE.replace("/", "{$ candidate }"), "{$ candidate } is not a placeholder"),
    "no candidate": (TONE.replace("{$candidate}", ""), "placeholder {$candidate} is missing"),
    "doubled aspect": (TONE.replace('"tact"', '"warmth"'), "aspects: 'warmth' occurs twice"),
    "no aspects": (TONE.replace('["warmth", "tact"]', "[]"), "name at least one aspect"),
    "aspects no list": (TONE.replace('["warmth", "tact"]', '"tact"'), "aspects: "),
    "long aspect": (
        TONE.replace('"tact"', f'"{"t" * 65}"'),
        "aspects: 'tttttttttttttttttttt'… has 65 characters; use",
    ),
    "long key": (
        TONE.replace("Wärme", "w" * 5000),
        "the key 'wwwwwwwwwwwwwwwwwwww'… has 5000 characters; use at",
    ),
    "long rationale key": (
        TONE.replace('"why"', f'"{"y" * 65}"'),
        "the key 'yyyyyyyyyyyyyyyyyyyy'… has 65 characters",
    ),
    "many aspects": (
        TONE.replace('"tact"', ", ".join(f'"tact{n}"' for n in range(100))),
        "103 keys and the text between them take 1222 bytes, more than 1000; use fewer aspects or shorter keys",
    ),
    "empty scale": (TONE.replace("highest = 10", "highest = 0"), "scale: 1 to 0 has fewer than two values"),
    "scale of one": (TONE.replace("highest = 10", "highest = 1"), "scale: 1 to 1 has fewer than two values"),
    "scale below zero": (TONE.replace("lowest = 1", "lowest = -9999999"), "use at most 1001 whole numbers"),
    "scale of fractions": (TONE.replace("highest = 10", "highest = 9.5"), "scale.highest: "),
    "scale of text": (TONE.replace("highest = 10", 'highest = "10"'), "scale.highest: "),
    "bad aspect name": (TONE.replace('"tact"', '"Good tact"'), "'Good tact' is not a column name"),
    "reserved name": (TONE.replace('"tact"', '"rationale"'), "'rationale' is the name of another column"),
    **{
        f"reserved {name}": (TONE.replace('"tact"', f'"{name}"'), f"{name!r} is the name of another column")
        for name in ("overall", "rows", "rank", "n", "failed", "annotator")
    },
    "scale as a list": (
        TONE.replace("{ lowest = 1, highest = 10 }", "[1, 10]"),
        "write scale = { lowest = 1, highest = 10 }",
    ),
    "no rationale": (
        TONE.replace('"why"', "false"),
        'write rationale_place = "none" in [answer]',
    ),
    "a rationale anywhere": ("rationale = true\n" + TONE, 'write rationale_place = "before" in [answer]'),
    "placeholder without a dollar sign": (
        TONE.replace("{$candidate}", "{candidate}"),
        "placeholder {$candidate} is missing; write {$candidate} for {candidate}",
    ),
    "system in the template": (
        TONE.replace("{$candidate}", "{$candidate} {$system}"),
        "{$system} tells the judge whose",
    ),
    "id in the template": (TONE.replace("{$candidate}", "{$candidate} {$id}"), "{$id} tells the judge whose"),
    "reserved ending": (TONE.replace('"tact"', '"tact_expected"'), "'tact_expected' is the name of another"),
    "unknown key": (TONE + 'tempo = "fast"', "prompt.tempo: unknown key"),
    "key of no aspect": (TONE.replace("warmth =", "wit ="), "answer.aspects: 'wit' is not one of the aspects"),
    "key clash": (TONE.replace('"Wärme"', '"tact"'), "answer.aspects: 'tact' occurs twice"),
    "top key clash": (TONE.replace('"marks"', '"why"'), "answer: 'why' occurs twice"),
    "quote in a key": (TONE.replace('"marks"', "'a\"b'"), "must be text without quotes"),
    "unknown empty_candidate": (TONE + 'empty_candidate = "skip"', "prompt.empty_candidate: "),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_way_a_rubric_can_be_wrong_is_one_clear_line(tmp_path: Path, wrong: str) -> None:
    text, message = WRONG[wrong]
    with pytest.raises(RubricError) as caught:
        load(tmp_path, text)
    line = str(caught.value)
    assert line.startswith(f"rubric {tmp_path}")
    assert message in line
    assert "\n" not in line


def test_a_rubric_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(
        RubricError, match=r"no such file.*one of .*correctness, .*just-eval, just-eval-first, no-reference"
    ):
        Rubric.load(tmp_path / "none.toml")
    with pytest.raises(RubricError, match="Is a directory"):
        Rubric.load(tmp_path)


def test_prompt_schema_and_answer_follow_from_a_users_own_file(tmp_path: Path) -> None:
    rubric = load(tmp_path, TONE)
    assert not rubric.needs_reference
    assert list(rubric.answer_layout.schema["properties"]) == ["why", "marks"]
    assert list(rubric.answer_layout.schema["properties"]["marks"]["properties"]) == ["Wärme", "tact"]
    text = json.dumps({"why": "Kind.", "marks": {"Wärme": "10", "tact": "1"}})
    Draft202012Validator(rubric.answer_layout.schema).validate(json.loads(text))
    assert rubric.parse(text).scores == {"warmth": 10, "tact": 1}
    assert rubric.parse(text).texts["rationale"] == "Kind."


@pytest.mark.parametrize("name", [name for name in shipped_rubrics() if Rubric.load(name).answer.form is None])
def test_the_schema_of_an_answer_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(Rubric.load(name).answer_layout.schema)


def _scores(**changes: Any) -> dict[str, Any]:
    return {**answer(Rubric.load()), "scores": {**answer(Rubric.load())["scores"], **changes}}


@pytest.mark.parametrize(
    "document",
    [
        [],
        7,
        None,
        {},
        {"rationale": "x"},
        {"scores": _scores()["scores"]},
        {"rationale": "x", "scores": "444444"},
        {**_scores(), "rationale": ""},
        {**_scores(), "rationale": 5},
        {**_scores(), "more": "x"},
        _scores(more="4"),
        _scores(depth="0"),
        _scores(depth="6"),
        _scores(depth=4),
        _scores(depth=4.7),
        _scores(depth=True),
        _scores(depth=None),
        _scores(depth=["4"]),
        _scores(depth=" 4"),
        _scores(depth="٤"),
    ],
)
def test_what_the_schema_refuses_is_no_answer(document: Any) -> None:
    rubric = Rubric.load()
    assert not Draft202012Validator(rubric.answer_layout.schema).is_valid(document)
    with pytest.raises(ValueError, match=r"\w"):
        rubric.parse(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", '{"rationale":"x', "[" * 100_000, '{"rationale": "\ud800"}'])
def test_text_that_is_no_json_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Rubric.load().parse(text)


@pytest.mark.parametrize("kind", ["choices", "preference"])
def test_the_order_of_labels_is_part_of_the_digest(kind: str) -> None:
    """It is the order in the prompt, and that of the numbers of the labels."""
    document = Rubric.load("pairwise" if kind == "preference" else "safety").model_dump()
    (aspect,) = document["aspects"]
    digest = Rubric.model_validate(document).digest
    aspect[kind] = dict(reversed(aspect[kind].items()))
    assert Rubric.model_validate(document).digest != digest


def test_the_digest_follows_what_can_move_a_score_and_nothing_else(tmp_path: Path) -> None:
    digest = load(tmp_path, TONE).digest
    assert load(tmp_path, TONE.replace('name = "tone"', 'name = "renamed"')).digest == digest
    for change in (("10", "9"), ("/", "|"), ("Wärme", "heat"), ('["warmth", "tact"]', '["tact", "warmth"]')):
        assert load(tmp_path, TONE.replace(*change)).digest != digest


def test_the_starting_rubric_is_accepted_as_it_is_and_never_written_over(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    end = cli("rubrics", "init", "mine.toml")
    assert (end.code, end.out) == (0, "")
    rubric = Rubric.load("mine.toml")
    assert rubric.needs_reference
    row = Row.from_response(instruction="a", reference="b", candidate="c")
    (asked,) = (json.loads(line) for line in rubric.text(row).splitlines() if line.startswith("{"))
    assert list(asked) == [rubric.answer.rationale, rubric.answer.scores]
    assert list(asked["scores"]) == list(rubric.aspects)
    assert Rubric.load("mine.toml", guard=True).prompt.guard
    assert cli("prompt", "examples", "--rubric", "mine.toml", "--limit", 1).code == 0
    offered = re.sub(r"(?m)^# (?=\[|\w+ = )", "", Path("mine.toml").read_text())
    Path("all.toml").write_text(offered)
    whole = Rubric.load("all.toml")
    assert (len(whole.aspects), whole.prompt.system) == (3, "You are a fair judge.")
    Path("mine.toml").write_text("mine")
    end = cli("rubrics", "init", "mine.toml")
    assert (end.code, end.err) == (2, "localjudge: mine.toml: exists already; give the name of a new file\n")
    assert Path("mine.toml").read_text() == "mine"
    assert cli("rubrics", "init", "six.toml", "--from", "six-aspects").code == 0
    assert Rubric.load("six.toml").digest == Rubric.load("six-aspects").digest
    end = cli("rubrics", "init", "none/mine.toml")
    assert (end.code, end.err) == (
        2,
        "localjudge: none/mine.toml: cannot be written: No such file or directory\n",
    )


def test_a_rubric_can_be_looked_at(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tone.toml").write_text(TONE)
    for name, rubric in (("just-eval", Rubric.load()), (tmp_path / "tone.toml", load(tmp_path, TONE))):
        end = cli("rubrics", "show", name)
        assert end.code == 0
        assert end.out.endswith(f"\ntemplate\n{rubric.prompt.template}\n")
        for said in (rubric.digest, "; ".join(f"{name} ({aspect})" for name, aspect in rubric.aspects.items())):
            assert said in end.out
        assert json.loads(cli("rubrics", "show", name, "--json").out)["digest"] == rubric.digest
    end = cli("rubrics", "show", "none")
    assert (end.code, end.out) == (2, "")
    assert end.err.startswith("localjudge: rubric none: no such file")


def test_the_list_has_two_lines_for_each_rubric(cli: Cli) -> None:
    lines = cli("rubrics", "list").out.splitlines()
    rubrics = [Rubric.load(name) for name in shipped_rubrics()]
    assert len(lines) == 2 * len(rubrics)
    for rubric, first, second in zip(rubrics, lines[::2], lines[1::2], strict=True):
        assert first.split("  ", 1)[0] == rubric.name
        assert first.endswith(", ".join(rubric.aspects))
        assert rubric.description in second
        assert ("Needs a reference." in second) == rubric.needs_reference
    assert max(map(len, lines[::2])) <= 80


def test_all_problems_of_a_rubric_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(
        'nome = "r"\n[aspects.wit]\nscale = { lowest = 1, highest = 3 }\n[prompt]\ntemplat = "{$candidate}"\n'
    )
    with pytest.raises(RubricError) as caught:
        Rubric.load(str(file))
    said = str(caught.value)
    assert all(
        each in said for each in ("nome: unknown key", "name: is missing", "prompt.templat: unknown key")
    )
    assert "\n" not in said


def test_a_placeholder_with_a_space_says_how_to_name_its_column(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(
        'name = "r"\n[aspects.wit]\nscale = { lowest = 1, highest = 3 }\n'
        '[prompt]\ntemplate = "{$gold answer} {$candidate} {$aspects} {$answer_format}"\n'
    )
    with pytest.raises(RubricError, match=r"write {.gold_answer}, and give --column .gold_answer=gold answer"):
        Rubric.load(str(file))


def test_an_overall_score_needs_ordered_aspects_with_the_same_values() -> None:
    wit, tact = Aspect(scale=Scale(lowest=1, highest=5), weight=3), Aspect(scale=Scale(lowest=1, highest=5))
    grade = Aspect(choices={"A": "right", "B": "wrong"})
    good, warm = (
        Aspect(choices=dict(zip("AB", labels, strict=True)), ordered=True)
        for labels in (("no", "yes"), ("cold", "warm"))
    )
    short, polite = Aspect(scale=Scale(lowest=0, highest=1)), Aspect(boolean=True)
    for aspects, found in (
        ((grade, wit, tact), "12"), ((wit,), "0"), ((polite, polite), "01"), ((grade,), ""),
        ((wit, polite), ""), ((wit, short), ""), ((short, polite), ""), ((good, warm), ""),
        ((good, polite), ""),
    ):  # fmt: skip
        columns = score_columns({str(place): aspect for place, aspect in enumerate(aspects)})
        assert "".join(column.name for column in averaged(columns)) == found
    judgement = Judgement(
        id="r", key="k", texts={}, scores={"wit": 5, "tact": 2}, expected={"wit": 3.0}, rationale_cut=False,
        prompt_tokens=1, output_tokens=1,
    )  # fmt: skip
    assert overall(judgement, score_columns({"wit": wit, "tact": tact})) == (3 * 3 + 2) / 4
    assert overall(judgement, score_columns({"wit": wit})) == 3
