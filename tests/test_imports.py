"""Tests of the imports inside the package: no circle, and no file that is taken for another."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import localjudge

PACKAGE = Path(localjudge.__file__).parent


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in PACKAGE.rglob("*.py")}


def imports(module: str) -> Iterator[str]:
    """Yield the modules of the package that a module imports, also inside functions and only for types."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each if each in MODULES else node.module for each in named)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


# The package itself names what it exports for type checkers alone, and gives others its version.
GRAPH = {
    module: {name for name in imports(module) if name in MODULES} - {module, PACKAGE.name}
    for module in MODULES
    if module != PACKAGE.name
}


def test_no_import_leads_back_to_its_own_module() -> None:
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as circle:
        raise AssertionError(" imports ".join(reversed(circle.args[1]))) from None


def test_each_folder_imports_only_from_those_above_it_in_contributing() -> None:
    table = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| owns |")[2]
    first = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    row_of = {name.strip(" `/"): row for row, cell in enumerate(first) for name in cell.split(",")}
    assert set(row_of) == {module.split(".")[1] for module in MODULES if "." in module} - {"__main__"}
    for module, used in GRAPH.items():
        for other in used:
            here, there = (f"{each}.".split(".")[1] for each in (module, other))
            if here in row_of and there in row_of:
                assert row_of[there] <= row_of[here], f"{module} imports {other}"


def test_a_name_of_a_file_is_that_of_one_file() -> None:
    names = Counter(file.name for file in PACKAGE.rglob("*.py") if PACKAGE / "cli" not in file.parents)
    assert {name for name, count in names.items() if count > 1} == {"__init__.py"}
