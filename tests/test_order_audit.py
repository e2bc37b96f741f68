"""Tests of `audit --check options` and `--check aspects`: what another order of a prompt's lists changes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import Cli, StopIf, random_model, read_lines, write_rows
from scripted import ScriptedEngine

from localjudge import Judge, Row, Rubric, UsageError, read_rows
from localjudge.engines.protocol import Completion
from localjudge.prompts.task import until_stopped
from localjudge.report.order_tables import order_findings
from localjudge.rubrics.orders import with_aspects_in, with_values_in
from localjudge.rubrics.rubric_file import shipped_rubrics
from localjudge.runs.run_manifest import read_manifest
from localjudge.studies.audit.audit_run import drawn_rows
from localjudge.studies.audit.order_effects import OrderAudit, OrderEffect, read_orders
from localjudge.studies.audit.order_runs import OrderCheck, other_orders, run_orders

RUBRIC = """
name = "tone"
[aspects.tact]
scale = { lowest = 1, highest = 3 }
levels = { 1 = "none", 3 = "much" }
[aspects.grade]
choices = { A = "right", B = "wrong", C = "silent" }
[aspects.polite]
boolean = true
[prompt]
template = '''
Judge a response.
{$aspects}
Q: {$instruction}
R: {$candidate}
{$answer_format}'''
"""
Pick = Callable[[str, str, str, list[str]], str]
"""Picks a value of an aspect from the prompt, the response, the aspect and its values in the prompt's order."""


@pytest.fixture(scope="module")
def rubric(tmp_path_factory: pytest.TempPathFactory) -> Rubric:
    file = tmp_path_factory.mktemp("tone") / "tone.toml"
    file.write_text(RUBRIC)
    return Rubric.load(file)


def listed(prompt: str) -> dict[str, list[str]]:
    """The values of each aspect, in the order of the prompt's list."""
    found: dict[str, list[str]] = {}
    for name, values in re.findall(r"^- (\w+) \(([^)]*)\)", prompt, re.MULTILINE):
        if " to " in values:
            first, last = map(int, values.split(" to "))
            step = 1 if first < last else -1
            found[name] = [str(value) for value in range(first, last + step, step)]
        else:
            found[name] = values.split(" or ")
    return found


def judge_that_picks(model: Path, pick: Pick, *, failing: str = "never") -> Callable[[Rubric], Judge]:
    """Return a function that opens a judge with a rubric; it fails where the prompt has the text `failing`."""

    def opened(rubric: Rubric) -> Judge:
        judge = Judge(model, rubric=rubric, max_rationale_tokens=8)

        def distributions(prompt: str) -> list[list[float]]:
            response = re.search(r"^R: (.*)$", prompt, re.MULTILINE)[1]  # type: ignore[index]
            shares = []
            for name, values in listed(prompt).items():
                picked = pick(prompt, response, name, values)
                shares.append([float(text == picked) for text in rubric.aspects[name].values])
            return shares

        class Engine(ScriptedEngine):
            def complete(self, prompts):  # type: ignore[no-untyped-def]
                for prompt in until_stopped(prompts):
                    if prompt is None:
                        yield []
                        continue
                    text = b"".join(self._pieces.get(token, b"") for token in prompt.tokens).decode()
                    if failing in text:
                        yield [Completion(prompt.tag, error="the engine could not answer")]
                    else:
                        yield from super().complete([prompt])

        judge.engine = Engine(judge, distributions)
        return judge

    return opened


def first_listed(prompt: str, response: str, aspect: str, values: list[str]) -> str:
    return values[0]


def always_last_value(prompt: str, response: str, aspect: str, values: list[str]) -> str:
    return max(values)


def by_the_response(prompt: str, response: str, aspect: str, values: list[str]) -> str:
    """Its value depends on the response and on the name of the aspect, not on places."""
    return sorted(values)[(len(response) + len(aspect)) % len(values)]


def best_where_it_is_first(prompt: str, response: str, aspect: str, values: list[str]) -> str:
    """It gives the highest value to the aspect that the prompt names first, and the lowest to the others."""
    return max(values) if next(iter(listed(prompt))) == aspect else min(values)


def sampled(folder: Path, count: int = 8) -> list[Row]:
    file = write_rows(folder / "rows.jsonl", count)
    return drawn_rows(read_rows([str(file)]), count, seed=0, rubric=Rubric.load("safety"))


def audited(
    folder: Path,
    rubric: Rubric,
    check: OrderCheck,
    open_judge: Callable[[Rubric], Judge],
    thresholds: Mapping[str, float] | None = None,
) -> OrderAudit:
    rows, out = sampled(folder), folder / "audit"
    orders = other_orders(rubric, check, seed=0)
    assert run_orders(rows, rubric, orders, open_judge, out, seed=0)
    return read_orders(out, rows, orders, check=check, seed=0, thresholds=thresholds or {})


def by_name(audit: OrderAudit) -> dict[str, OrderEffect]:
    return {order.name: order for order in audit.orders}


def changed(effect: OrderEffect) -> dict[str, float | None]:
    return {aspect: share.value for aspect, share in effect.changed.items()}


def test_a_judge_that_picks_the_first_value_of_the_list_changes_every_verdict_in_reverse(
    tmp_path: Path, rubric: Rubric, model: Path
) -> None:
    orders = by_name(audited(tmp_path, rubric, "options", judge_that_picks(model, first_listed)))
    assert list(orders) == ["again", "reversed", "shuffled"]
    assert changed(orders["again"]) == {"tact": 0, "grade": 0, "polite": 0}
    assert changed(orders["reversed"]) == {"tact": 1, "grade": 1, "polite": 1}
    shift = {name: estimate.value for name, estimate in orders["reversed"].shift.items()}
    assert shift == {"tact": 2, "grade=right": -1, "grade=wrong": 0, "grade=silent": 1, "polite": 1}
    assert orders["reversed"].kept == {"tact": 0, "grade": 0, "polite": 0}
    reverse = orders["reversed"].changed["tact"]
    assert reverse.low == pytest.approx(0.63, abs=0.15), "eight instructions of eight: exactly .63"
    assert reverse.high == 1


def test_a_shuffle_is_of_the_aspects_with_three_labels_or_more(rubric: Rubric) -> None:
    shuffled = {other_orders(rubric, "options", seed)[1].lists for seed in range(20)}
    own, backwards = ("grade: A or B or C",), ("grade: C or B or A",)
    assert own not in shuffled
    assert backwards not in shuffled
    assert len(shuffled) == 4, "each other order of three labels"
    assert other_orders(rubric, "options", 3) == other_orders(rubric, "options", 3)


@pytest.mark.parametrize("check", ["options", "aspects"])
@pytest.mark.parametrize("pick", [always_last_value, by_the_response])
def test_a_judge_that_reads_no_order_changes_nothing(
    tmp_path: Path, rubric: Rubric, model: Path, check: OrderCheck, pick: Pick
) -> None:
    audit = audited(tmp_path, rubric, check, judge_that_picks(model, pick), {"reversed": 1.0})
    for order in audit.orders:
        assert set(changed(order).values()) == {0}
        assert {estimate.value for estimate in order.shift.values()} == {0}
        assert set(order.kept.values()) == {1}
    assert audit.passed
    assert (audit.rows, audit.instructions) == (8, 8)


def test_scores_belong_to_an_aspect_by_its_name_wherever_it_stands(
    tmp_path: Path, rubric: Rubric, model: Path
) -> None:
    orders = by_name(audited(tmp_path, rubric, "aspects", judge_that_picks(model, best_where_it_is_first)))
    assert orders["reversed"].lists == ("polite, grade, tact",)
    assert changed(orders["reversed"]) == {"tact": 1, "grade": 0, "polite": 1}
    assert orders["reversed"].shift["tact"].value == -2
    assert orders["reversed"].shift["polite"].value == 1
    written = next(read_lines(tmp_path / "audit" / "aspects-reversed"))
    assert (written["tact"], written["grade"], written["polite"]) == (1, "right", True)


def test_a_real_model_that_sees_one_token_at_a_time_changes_nothing_in_float32(
    cli: Cli, tmp_path: Path
) -> None:
    """Without attention a score depends on the last token alone, so no order can reach it."""
    model = random_model(tmp_path / "model")
    _without_attention(model)
    rows = write_rows(tmp_path / "rows.jsonl", 6)
    (tmp_path / "tone.toml").write_text(RUBRIC)
    for check in ("options", "aspects"):
        end = cli(
            "audit", rows, "--check", check, "--out", tmp_path / "audit", "--model", model, "--json",
            "--rubric", tmp_path / "tone.toml", "--max-rationale-tokens", 2,
            "--engine-arg", "batch_size=1", "--engine-arg", "dtype=float32",
        )  # fmt: skip
        assert end.code == 0, end.err
        orders = json.loads(end.out)["orders"]
        assert [order["name"] for order in orders] == ["again", "reversed", "shuffled"]
        for order in orders:
            assert {share["value"] for share in order["changed"].values()} == {0}
            assert {shift["value"] for shift in order["shift"].values()} == {0}
    folders = {folder.name for folder in (tmp_path / "audit").iterdir() if folder.is_dir()}
    assert folders == {
        "own", "again", "options-reversed", "options-shuffled", "aspects-reversed", "aspects-shuffled",
    }  # fmt: skip


def test_the_own_order_is_judged_again_in_batches_of_half_the_size(
    tmp_path: Path, rubric: Rubric, model: Path
) -> None:
    limits: list[int | None] = []
    """The largest number of prompts in a batch, for each prompt; None for that of the engine."""

    class Engine(ScriptedEngine):
        info = ScriptedEngine.info.model_copy(update={"batch_size": 8})
        limit: int | None = None

        def reset(self, at_once: int | None = None) -> None:
            self.limit = at_once

    def open_judge(rubric: Rubric) -> Judge:
        judge = Judge(model, rubric=rubric, max_rationale_tokens=8)

        def distributions(prompt: str) -> list[list[float]]:
            limits.append(engine.limit)
            return [[1.0] + [0.0] * (len(aspect.values) - 1) for aspect in rubric.aspects.values()]

        engine = Engine(judge, distributions)
        judge.engine = engine
        return judge

    rows, out = sampled(tmp_path, 12), tmp_path / "audit"
    orders = other_orders(rubric, "aspects", seed=0)
    assert run_orders(rows, rubric, orders, open_judge, out, seed=0)
    assert limits == [None] * 12 + [4] * 12 + [None] * 24


def _without_attention(model: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    for name in weights:
        if name.endswith("o_proj.weight"):
            weights[name] = weights[name] * 0
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


def test_rows_that_fail_in_an_order_are_counted_and_are_in_no_mean(
    tmp_path: Path, rubric: Rubric, model: Path
) -> None:
    pick = judge_that_picks(model, always_last_value, failing="Question 3?")
    audit = audited(tmp_path, rubric, "options", pick, {"reversed": 0.9})
    reverse = by_name(audit)["reversed"]
    assert (audit.rows, reverse.rows, reverse.failed) == (8, 7, 1)
    assert changed(reverse) == {"tact": 0, "grade": 0, "polite": 0}
    assert reverse.kept["tact"] == 7 / 8, "a row without a verdict did not keep it"
    assert reverse.below == {"tact": 7 / 8, "grade": 7 / 8, "polite": 7 / 8}
    assert not audit.passed
    assert "1 further row not judged in both" in " ".join(order_findings(audit).answer)


def test_an_audit_without_a_judged_row_is_refused(tmp_path: Path, rubric: Rubric, model: Path) -> None:
    with pytest.raises(UsageError, match="no row of the sample could be judged"):
        audited(tmp_path, rubric, "options", judge_that_picks(model, first_listed, failing="Question"))


def test_one_instruction_has_no_interval(tmp_path: Path, rubric: Rubric, model: Path) -> None:
    rows, out = sampled(tmp_path, 1), tmp_path / "audit"
    orders = other_orders(rubric, "options", seed=0)
    run_orders(rows, rubric, orders, judge_that_picks(model, first_listed), out, seed=0)
    found = read_orders(out, rows, orders, check="options", seed=0, thresholds={})
    tact = found.orders[1].changed["tact"]
    assert (tact.value, tact.low, tact.high) == (1, None, None)


@pytest.mark.parametrize("stopped_after", [1, 7, 12, 20, 30])
def test_an_audit_that_was_stopped_is_continued_to_the_same_numbers(
    tmp_path: Path, rubric: Rubric, model: Path, stopped_after: int
) -> None:
    rows, out = sampled(tmp_path), tmp_path / "audit"
    orders = other_orders(rubric, "aspects", seed=0)
    open_judge = judge_that_picks(model, best_where_it_is_first)
    assert run_orders(rows, rubric, orders, open_judge, out, seed=0)
    found = read_orders(out, rows, orders, check="aspects", seed=0, thresholds={})
    whole = out.rename(tmp_path / "whole")
    asked = iter(range(1, 1000))
    stop = StopIf(lambda: next(asked) > stopped_after)
    assert not run_orders(rows, rubric, orders, open_judge, out, seed=0, stopping=stop)
    assert run_orders(rows, rubric, orders, open_judge, out, seed=0)
    assert read_orders(out, rows, orders, check="aspects", seed=0, thresholds={}) == found
    for folder in ("own", "again", "aspects-reversed", "aspects-shuffled"):
        lines = (out / folder / "judgements.jsonl").read_bytes()
        assert lines == (whole / folder / "judgements.jsonl").read_bytes()


def test_each_order_is_a_run_that_names_it(tmp_path: Path, rubric: Rubric, model: Path) -> None:
    audited(tmp_path, rubric, "options", judge_that_picks(model, first_listed))
    names = {
        folder: read_manifest(tmp_path / "audit" / folder).rubric.name
        for folder in ("own", "again", "options-reversed")
    }
    assert names == {"own": "tone", "again": "tone", "options-reversed": "tone (values reversed)"}


def test_other_rows_another_seed_and_another_audit_are_refused_and_nothing_is_lost(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 6)
    given = ("--rubric", "safety", "--engine", "dry-run", "--model", model, "--out", tmp_path / "audit")
    assert cli("audit", rows, "--check", "options", *given, "--sample", 4).code == 0
    kept = _files(tmp_path / "audit")
    refused = {
        "other rows": ("--check", "options", "--sample", 5),
        "another seed": ("--check", "options", "--sample", 4, "--seed", 1),
        "another rubric": ("--check", "options", "--sample", 4, "--rubric", "correctness"),
    }
    for what, flags in refused.items():
        end = cli("audit", rows, *given, *flags)
        assert (end.code, what, str(tmp_path / "audit") in end.err) == (2, what, True), end.err
        assert _files(tmp_path / "audit") == kept, what
    assert cli("audit", rows, *given, "--out", tmp_path / "other", "--sample", 4).code == 0
    kept = _files(tmp_path / "other")
    end = cli("audit", rows, "--check", "options", *given, "--out", tmp_path / "other", "--sample", 4)
    assert (end.code, "rows.jsonl" in end.err) == (2, True)
    assert _files(tmp_path / "other") == kept


def test_a_folder_whose_rows_were_not_written_by_an_audit_is_refused(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    own = rows.read_bytes()
    end = cli("audit", rows, "--check", "options", "--rubric", "safety", "--model", model, "--out", tmp_path)
    assert (end.code, str(tmp_path) in end.err) == (2, True)
    assert rows.read_bytes() == own


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_folder_of_a_run_that_was_stopped_at_once_is_filled(
    tmp_path: Path, rubric: Rubric, model: Path
) -> None:
    whole = audited(tmp_path, rubric, "options", judge_that_picks(model, first_listed))
    shutil.rmtree(tmp_path / "audit" / "options-reversed")
    (tmp_path / "audit" / "options-reversed").mkdir()
    assert audited(tmp_path, rubric, "options", judge_that_picks(model, first_listed)) == whole


def test_the_command_ends_with_3_where_fewer_verdicts_stayed(cli: Cli, tmp_path: Path, model: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 12)
    given = ("audit", rows, "--check", "options", "--rubric", "correctness", "--engine", "dry-run")
    out = ("--out", tmp_path / "audit", "--model", model)
    end = cli(*given, *out)
    assert end.code == 0, end.err
    assert "4 runs of 12 rows each" in end.err
    end = cli(*given, *out, "--threshold", "reversed=1", "--json")
    assert end.code == 3
    assert "below its threshold: reversed" in end.err
    assert "grade" in end.err
    found = json.loads(end.out)
    assert [order["threshold"] for order in found["orders"]] == [None, 1.0, None]
    end = cli(*given, *out, "--threshold", "half=1")
    assert (end.code, "--threshold half=1" in end.err) == (2, True)


def test_pairs_are_judged_in_both_orders_of_their_responses(cli: Cli, tmp_path: Path, model: Path) -> None:
    lines = [
        {"id": f"p{n}", "instruction": f"Question {n}?", "candidate_a": "Yes. " * (n + 1), "candidate_b": "No."}
        for n in range(6)
    ]
    rows = tmp_path / "pairs.jsonl"
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for check, rubric in (("options", "pairwise"), ("aspects", "pairwise-aspects")):
        end = cli(
            "audit", rows, "--check", check, "--rubric", rubric, "--engine", "dry-run", "--model", model,
            "--out", tmp_path / check, "--json",
        )  # fmt: skip
        assert end.code == 0, end.err
        found = json.loads(end.out)
        assert (found["item"], found["rows"], found["orders"][1]["rows"]) == ("pair", 6, 6)
        assert set(found["of"].values()) == {"preference"}
        assert sum(1 for _ in read_lines(tmp_path / check / f"{check}-reversed")) == 12


@pytest.mark.parametrize(
    ("check", "rubric"),
    [
        ("options", "just-eval"),
        ("options", "just-eval-first"),
        ("options", "six-aspects"),
        ("options", "no-reference"),
        ("options", "pairwise-aspects"),
        ("aspects", "just-eval"),
        ("aspects", "no-reference"),
        ("aspects", "safety"),
        ("aspects", "pairwise"),
    ],
)
def test_a_rubric_with_a_list_of_its_own_or_one_order_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, check: str, rubric: str
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    end = cli("audit", rows, "--check", check, "--rubric", rubric, "--out", tmp_path / "audit")
    assert end.code == 2
    assert len(end.err.strip().splitlines()) == 1
    assert f"--check {check}" in end.err
    assert f"the rubric {rubric} " in end.err
    assert not (tmp_path / "audit").exists()


def test_another_order_of_values_changes_the_prompt_alone() -> None:
    taken = []
    for name in shipped_rubrics():
        rubric = Rubric.load(name)
        orders = {aspect: [*each.values][::-1] for aspect, each in rubric.aspects.items()}
        try:
            other = with_values_in(rubric, orders, "other")
        except UsageError:
            continue
        taken.append(name)
        assert other.answer_layout == rubric.answer_layout
        assert other.aspects == rubric.aspects
        assert other.fields == rubric.fields
        assert other.digest != rubric.digest
        assert sorted(other._template) == sorted(rubric._template), "the same characters in another order"
        same = with_values_in(
            rubric, {aspect: [*each.values] for aspect, each in rubric.aspects.items()}, "same"
        )
        assert same._template == rubric._template
    assert taken == [
        "agent", "conversation", "correctness", "criteria", "groundedness", "pairwise", "pairwise-reference",
        "safety",
    ]  # fmt: skip


def test_another_order_of_aspects_is_that_of_the_answer_too() -> None:
    rubric = Rubric.load("six-aspects", rationale="each")
    other = with_aspects_in(rubric, [*rubric.aspects][::-1], "other")
    assert [field.name for field in other.answer_layout.values] == [*rubric.aspects][::-1]
    assert other.answer_layout.texts[0].name == "helpfulness_rationale"
    assert other._template.index("- helpfulness (") < other._template.index("- safety (")
    assert other._template.index('"helpfulness":') < other._template.index('"safety":')


@pytest.mark.parametrize(
    "words",
    [
        "Rate it from 1 to 3.",
        "Scores: 3-1.",
        "- 3: good\n- 2: so so\n- 1: bad",
        "1 = bad\n3 = good",
        "**1** bad\n**3** good",
    ],
)
def test_words_that_list_the_numbers_of_a_scale_are_found(words: str) -> None:
    rubric = _with_words(words)
    with pytest.raises(UsageError, match="the values of tact"):
        with_values_in(rubric, {"tact": ["3", "2", "1"]}, "other")


@pytest.mark.parametrize(
    "words",
    [
        "Is it right (A), wrong (B) or neither (C)?",
        "A: right\nB: wrong\nC: silent",
        "Write A, B or C.",
        "Write C, B, or A.",
        'Write "A" if it is right, "B" if it is wrong, and "C" otherwise.',
        "Write [[A]]/[[B]]/[[C]].",
    ],
)
def test_words_that_list_labels_are_found(words: str) -> None:
    with pytest.raises(UsageError, match="the values of grade"):
        with_values_in(_with_words(words, LABELS), {"grade": ["C", "B", "A"]}, "other")


@pytest.mark.parametrize(
    "words",
    ["Response A:\nResponse B:\nResponse C:", "Is response A as good as response B, or is response C better?"],
)
def test_words_that_only_have_labels_in_names_are_no_list(words: str) -> None:
    other = with_values_in(_with_words(words, LABELS), {"grade": ["C", "B", "A"]}, "other")
    assert "- grade (C or B or A)" in other._template


@pytest.mark.parametrize("words", ["Judge 3 things.", "1. Read it.\n2. Judge it.", "In 1 to 30 words."])
def test_words_that_only_have_numbers_are_no_list(words: str) -> None:
    other = with_values_in(_with_words(words), {"tact": ["3", "2", "1"]}, "other")
    assert "- tact (3 to 1)" in other._template


SCALES = {"aspects": ["tact", "wit"], "scale": {"lowest": 1, "highest": 3}}
LABELS = {"aspects": {"grade": {"choices": {"A": "right", "B": "wrong", "C": "silent"}}}}


def _with_words(words: str, aspects: Mapping[str, object] = SCALES) -> Rubric:
    return Rubric.model_validate(
        {
            "name": "words",
            **aspects,
            "prompt": {
                "template": f"{words}\n{{$aspects}}\n{{$instruction}} {{$candidate}} {{$answer_format}}"
            },
        }
    )


def test_a_form_of_the_answer_says_the_order_of_its_aspects() -> None:
    rubric = Rubric.model_validate(
        {
            "name": "form",
            "aspects": ["tact", "wit"],
            "scale": {"lowest": 1, "highest": 3},
            "answer": {"form": "Tact: {tact} Wit: {wit}."},
            "prompt": {"template": "{$aspects}\n{$instruction} {$candidate} {$answer_format}"},
        }
    )
    with pytest.raises(UsageError, match="form"):
        other_orders(rubric, "aspects", 0)
    assert "[3-1]" in with_values_in(rubric, {"tact": ["3", "2", "1"]}, "other")._template


def test_a_system_prompt_has_the_other_order_too() -> None:
    rubric = Rubric.model_validate(
        {
            "name": "system",
            "aspects": ["tact", "wit"],
            "scale": {"lowest": 1, "highest": 3},
            "prompt": {"system": "{$aspects}", "template": "{$instruction} {$candidate} {$answer_format}"},
        }
    )
    assert "- tact (3 to 1)" in with_values_in(rubric, {"tact": ["3", "2", "1"]}, "other").system
    assert with_aspects_in(rubric, ["wit", "tact"], "other").system.startswith("- wit")
