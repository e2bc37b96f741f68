"""Pairs whose judge gives a score to each response: the preference follows from the two scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, random_model, row_lines
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import lines
from test_pairs import pair_rows, write

from localjudge import Judge, Rubric, RubricError, load_run
from localjudge.engines.answer_reader import Distribution, ReadAnswer
from localjudge.modes.pair import PairOutcome
from localjudge.records import Judgement
from localjudge.rubrics.answer import Answer

TEMPLATE = "{$instruction} {$candidate_a} {$candidate_b} {$aspects} {$answer_format}"
ONE = "{$candidate} {$aspects}"
FORM = "[[A]]: {quality_a}, [[B]]: {quality_b}\n{rationale}"


def rubric_of(answer: dict[str, Any] | None = None, **more: Any) -> Rubric:
    return Rubric.model_validate(
        {
            "name": "scores-of-both",
            "aspects": {"quality": {"each": {"lowest": 1, "highest": 10}}} | more,
            "answer": answer or {"form": FORM},
            "prompt": {"template": TEMPLATE},
        }
    )


shares = st.lists(st.floats(0, 1), min_size=10, max_size=10).filter(lambda each: sum(each) > 0.1)


@given(st.integers(1, 10), st.integers(1, 10), shares, shares)
def test_the_preference_is_that_of_two_independent_scores(
    one: int, other: int, first: list[float], second: list[float]
) -> None:
    first, second = ([each / sum(weights) for each in weights] for weights in (first, second))
    read = ReadAnswer(
        answer=Answer({"rationale": "So."}, {"quality_a": one, "quality_b": other}),
        rationale_cut=False,
        known={"quality_a": Distribution(first, 0.5, True), "quality_b": Distribution(second, 0.25, False)},
        thoughts="",
        output_tokens=9,
    ).joined(rubric_of().aspects)
    expected = {"A": 0.0, "tie": 0.0, "B": 0.0}
    for a in range(10):
        for b in range(10):
            expected["A" if a > b else "B" if b > a else "tie"] += first[a] * second[b]
    (shares, mass, likeliest), *others = read.known.values()
    assert (others, [*read.known], mass, likeliest) == ([], ["quality"], 0.125, False)
    assert shares == pytest.approx([*expected.values()])
    assert read.answer.scores == {"quality": "A" if one > other else "B" if other > one else "tie"}
    assert read.answer.texts == {"rationale": "So.", "quality_scores": f"{one} and {other}"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize(
    "answer",
    [
        {"form": FORM},
        {"scores": "", "aspects": {"quality_a": "score_1", "quality_b": "score_2"}},
        {"rationale_place": "each"},
    ],
)
def test_a_judge_scores_both_responses(small: Path, answer: dict[str, Any]) -> None:
    ranking = {} if "form" in answer else {"ranking": {"preference": ["A", "B"]}}
    rubric = rubric_of(answer, **ranking)
    found = list(Judge(small, rubric=rubric, max_rationale_tokens=4, temperature=1.0).score(pair_rows(4)))
    assert len(found) == 4
    for judged in found:
        assert isinstance(judged, Judgement)
        one, other = map(int, judged.texts["quality_scores"].split(" and "))
        assert judged.scores["quality"] == ("A" if one > other else "B" if other > one else "tie")
        assert judged.scores.keys() == rubric.aspects.keys()
        a, tie, b = judged.probabilities["quality"]
        assert a + tie + b == pytest.approx(1, abs=1e-5)
        assert judged.expected["quality"] == pytest.approx(a - b, abs=1e-3)
        assert 0 <= judged.mass["quality"] <= 1
        preference = PairOutcome.from_orders([judged], rubric.aspects).preferences["quality"]
        assert preference.value == pytest.approx(a + tie / 2, abs=1e-5)


def test_a_run_keeps_both_scores_of_each_order(small: Path, tmp_path: Path, cli: Cli) -> None:
    file, rows, run = tmp_path / "both.toml", write(tmp_path / "rows.jsonl", pair_rows(3)), tmp_path / "run"
    file.write_text(
        'name = "both"\n[aspects.quality]\neach = { lowest = 1, highest = 10 }\nlevels = { 10 = "perfect" }\n'
        f'[answer]\nform = "[[A]]: {{quality_a}}, [[B]]: {{quality_b}}"\n[prompt]\ntemplate = "{TEMPLATE}"\n'
    )
    checked = cli("rubrics", "check", file, "--model", small)
    assert (checked.code, "[[A]]: [1-10], [[B]]: [1-10]" in checked.out) == (0, True), checked.err
    assert cli("score", rows, "--rubric", file, "--model", small, "--out", run).code == 0
    assert all(" and " in line["quality_scores"] for line in lines(run, "judgements.jsonl"))
    assert all(" and " in line["quality_scores_ba"] for line in row_lines(run))
    assert '"each":' not in Rubric.load().model_dump_json(exclude_unset=True), "of other rubrics"
    assert [each.id for each in load_run(run).pairs] == ["p0", "p1", "p2"]
    assert cli("show", run, "--id", "p1").code == 0
    assert cli("rank", run).code == 0
    audited = cli("audit", rows, "--rubric", file, "--model", small, "--out", tmp_path / "audit")
    assert audited.code in (0, 3), audited.err


@pytest.mark.parametrize(
    ("aspects", "template", "said"),
    [
        ({"quality": {"each": {"lowest": 1, "highest": 5}}}, ONE, "is a preference; the template"),
        ({"quality": {"each": {"lowest": 5, "highest": 5}}}, TEMPLATE, "fewer than two values"),
        (
            {"quality": {"each": {"lowest": 1, "highest": 5}, "preference": ["x", "y"]}},
            TEMPLATE,
            "give one of preference and each",
        ),
        (
            {"quality": {"each": {"lowest": 1, "highest": 5}}, "quality_a": {"preference": ["A", "B"]}},
            TEMPLATE,
            "'quality_a' is the name of another column",
        ),
        (
            {"quality": {"each": {"lowest": 1, "highest": 5}, "levels": {"7": "perfect"}}},
            TEMPLATE,
            "levels: '7' is not one of the values 1, 2, 3, 4, 5",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_refused(aspects: dict[str, Any], template: str, said: str) -> None:
    with pytest.raises((RubricError, ValueError), match="(?s).*" + said.replace("(", r"\(")):
        Rubric.model_validate({"name": "both", "aspects": aspects, "prompt": {"template": template}})
