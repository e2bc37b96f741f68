"""The guide's notebook in a real Jupyter kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localjudge.cli.help import GUIDE

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")


@pytest.mark.slow
def test_a_kernel_runs_the_notebook_and_shows_the_progress(tmp_path: Path) -> None:
    notebook = nbformat.read((GUIDE / "notebook.ipynb"), as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert "Output()" in str(outputs), "the live line is a widget"
    assert "21 of 21 rows" in str(outputs)
    assert (tmp_path / "runs" / "notebook" / "run.json").is_file(), os.listdir(tmp_path)
