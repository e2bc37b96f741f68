"""The guide's notebook, whose cells run here in order, and what results show of themselves there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from localjudge import Failure, Judge
from localjudge.cli.help import GUIDE

CELLS = json.loads((GUIDE / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]


def displayed(cells: list[dict[str, Any]]) -> list[str]:
    """Run code cells as Jupyter does, and return the HTML of the last expression of each."""
    names: dict[str, Any] = {}
    found = []
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        exec(compile(tree, "cell", "exec"), names)
        found.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names)._repr_html_())
    return found


def texts(html: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", html, re.DOTALL)


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs_and_shows_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome, failure, run, ranking = displayed([cell for cell in CELLS if cell["cell_type"] == "code"])
    assert texts(outcome, "th") == ["aspect", "score", "expected", "mass"]
    assert "no candidate" in texts(failure, "td")[2]
    assert len(texts(run, "tr")) == 1 + 20
    assert "the first 20 lines" in run
    assert "bundled model: it only compares words" in run, "a warning about the judge stands above its scores"
    assert re.fullmatch(r"\d\.\d\d \[.*, .*\]", texts(ranking, "td")[2])


def test_texts_of_a_row_never_become_markup_or_a_formula() -> None:
    hostile = "<script>alert(1)</script>\" onload='x' $x^2$ & more"
    shown = Failure(id=hostile, key="", system=hostile, error=hostile)._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#x27;x&#x27; $x^2$ &amp; more") == 3
    assert "mathjax_ignore" in shown


@pytest.mark.slow
def test_a_judgement_shows_the_text_of_its_rationale_as_text(model: Path, short_rubric: Path) -> None:
    with Judge(model, rubric=short_rubric, max_rationale_tokens=6) as judge:
        [outcome] = judge.score([{"id": "<b>", "instruction": "?", "reference": "Yes.", "candidate": "No."}])
    shown = outcome._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
