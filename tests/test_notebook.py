"""The guide's notebook, whose cells run here in order."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from localjudge.cli.help import GUIDE

CELLS = json.loads((GUIDE / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]


def displayed(cells: list[dict[str, Any]]) -> list[Any]:
    """Run code cells as Jupyter does, and return the value of the last expression of each."""
    names: dict[str, Any] = {}
    found = []
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop()
        assert isinstance(last, ast.Expr)
        exec(compile(tree, "cell", "exec"), names)
        found.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    return found


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs_and_shows_what_its_text_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scores, error, notices, means = displayed([cell for cell in CELLS if cell["cell_type"] == "code"])
    assert [*scores] == ["safety", "engagement", "clarity", "factuality", "depth", "helpfulness"]
    assert "no candidate" in error
    assert "bundled model: it only compares words" in notices[0]
    assert all(re.fullmatch(r"\d\.\d\d \(.* to .*\)", mean) for mean in means.values())
