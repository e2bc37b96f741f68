"""Each way of judging is one file of `localjudge/modes`: no other file asks which mode it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import localjudge

PACKAGE = Path(localjudge.__file__).parent
FILES = {"response", "pair", "checklist"}
"""The files of `modes/` that are one mode each."""
NAMES = {"RESPONSE", "PAIRWISE", "CHECKLIST", "ResponseOutcome", "PairOutcome", "ChecklistOutcome"}
"""The modes, and the outcomes of their rows."""
QUESTIONS = {"name", "item", "judges"}
"""What a mode says of itself: whoever compares it, or looks it up in a table, asks which mode it is."""
LEFT = {
    "judge.py",  # the types of what `compare` and `check` yield
}
"""The files that still do. The list must only become shorter."""


def questions(tree: ast.AST) -> Iterator[str]:
    """Yield each place of a source where it names a mode or asks for one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localjudge.modes"):
            own = (node.module or "").rpartition(".")[2] in FILES
            yield from (f"imports {each.name}" for each in node.names if own or each.name in NAMES)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            kinds = ast.unparse(node.args[1])
            yield from (f"isinstance of {name}" for name in NAMES if name in kinds)
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Match):
            parts = [node.subject]
        for part in parts:
            if isinstance(part, ast.Attribute) and part.attr in QUESTIONS and _is_mode(part.value):
                yield f"asks for {ast.unparse(part)}"
        if isinstance(node, ast.Compare) and _compares_with_a_constant(node):
            yield f"asks for {ast.unparse(node)}"


def _compares_with_a_constant(node: ast.Compare) -> bool:
    """Whether an attribute of a mode, or the number of its responses, is compared with a text or a number."""
    sides = [node.left, *node.comparators]
    attributes = [side.args[0] if _is_length(side) else side for side in sides]
    of_modes = [side for side in attributes if isinstance(side, ast.Attribute) and _is_mode(side.value)]
    constants = [side.value for side in sides if isinstance(side, ast.Constant)]
    return bool(of_modes) and any(isinstance(constant, str | int) for constant in constants)


def _is_length(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "len"


def _is_mode(value: ast.expr) -> bool:
    return re.search(r"\bmode$", ast.unparse(value)) is not None


def asking() -> dict[str, list[str]]:
    """Return what each file outside `modes/` asks."""
    found = {
        file.relative_to(PACKAGE).as_posix(): [*questions(ast.parse(file.read_text(encoding="utf-8")))]
        for file in PACKAGE.rglob("*.py")
        if file.parent != PACKAGE / "modes"
    }
    return {name: places for name, places in found.items() if places}


def test_no_other_file_asks_which_mode_it_is() -> None:
    found = asking()
    assert {name: places for name, places in found.items() if name not in LEFT} == {}
    assert found.keys() == LEFT, "a file that asks no longer leaves the list"


def test_a_question_is_found_however_it_is_asked() -> None:
    for source in (
        "from localjudge.modes import PAIRWISE",
        "from localjudge.modes.pair import anything",
        "isinstance(row, PairOutcome | Judgement)",
        "rubric.mode.name == 'pairwise'",
        "{'pair': 1}[self.rubric.mode.name]",
        "match mode.item:\n    case 'pair': pass",
        "len(rubric.mode.responses) > 1",
        "'criteria' in self.rubric.mode.features",
    ):
        assert [*questions(ast.parse(source))], source
    assert not [*questions(ast.parse("rubric.mode.pairs is not None"))]


def test_each_mode_is_one_file() -> None:
    assert {file.stem for file in (PACKAGE / "modes").glob("*.py")} >= FILES
    for one in FILES:
        others = FILES - {one} - ({"response"} if one == "checklist" else set())
        source = (PACKAGE / "modes" / f"{one}.py").read_text(encoding="utf-8")
        assert not [other for other in others if f"localjudge.modes.{other} " in source]
