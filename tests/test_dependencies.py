"""Tests of dependencies: pyproject.toml declares every package that the code imports, and no other."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The module of each distribution whose name differs from its module's.
MODULES = {
    "cyclonedx-python-lib": "cyclonedx",
    "inspect-ai": "inspect_ai",
    "lm-eval": "lm_eval",
    "outlines-core": "outlines_core",
    "packageurl-python": "packageurl",
    "scikit-learn": "sklearn",
}
# Not imported by name: the type checker, the linter, and the workers of pytest.
TOOLS = {"mypy", "pytest-xdist", "ruff"}
# Imported by transformers if a tokenizer consists only of a tokenizer.model.
FOR_TRANSFORMERS = {"protobuf", "sentencepiece"}
# Imported, but installed by a declared package that requires a matching version.
BROUGHT = {
    "annotated_types": "pydantic",
    "anyio": "httpx2",
    "huggingface_hub": "transformers",
    "mistral_common": "vllm",
    "psutil": "vllm",
    "safetensors": "transformers",
    "tokenizers": "transformers",
    "triton": "vllm",
    "yaml": "transformers",
}

# Programs of others that take what localjudge gives: their tests run where they are installed.
TAKERS = {"datasets", "kubernetes_validate", "nbclient", "nbformat", "trl"}


def modules(requirements: list[str]) -> set[str]:
    names = [re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements]
    unseen = TOOLS | FOR_TRANSFORMERS | {"localjudge-eval"}
    found = {name[0] for name in names if name} - unseen
    return {MODULES.get(name, name) for name in found}


EXTRAS = {name: modules(requirements) for name, requirements in PROJECT["optional-dependencies"].items()}
NEEDED = modules(PROJECT["dependencies"])


def imported(*folders: str) -> set[str]:
    """Return the third-party modules that the code in a folder imports."""
    # `written_files/write.py` runs the tools whose files the tests read, in environments of their own.
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py") if file.name != "write.py"]
    assert files
    found: set[str] = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            found.add(str(ast.literal_eval(node.args[0])).partition(".")[0])
    scripts = {
        file.stem for folder in ("tests", "benchmarks", "models") for file in (ROOT / folder).rglob("*.py")
    }
    return found - scripts - {"localjudge"} - sys.stdlib_module_names


def test_every_requirement_of_a_user_is_imported_by_the_package() -> None:
    asked = NEEDED.union(*(EXTRAS[extra] for extra in EXTRAS if extra not in ("test", "dev")))
    assert asked - imported("localjudge") == set()


def test_every_requirement_of_the_tests_is_imported_by_them_or_by_what_they_test() -> None:
    assert EXTRAS["test"] | EXTRAS["dev"], "the tests need something"
    assert (EXTRAS["test"] | EXTRAS["dev"]) - imported("tests", "benchmarks", "models", "localjudge") == set()


@pytest.mark.parametrize("folder", ["localjudge", "tests", "benchmarks", "models"])
def test_every_import_is_declared(folder: str) -> None:
    for_users = [extra for extra in EXTRAS if folder != "localjudge" or extra not in ("test", "dev")]
    declared = NEEDED.union(*(EXTRAS[extra] for extra in for_users))
    brought = {module for module, by in BROUGHT.items() if by in declared}
    takers = TAKERS if folder == "tests" else set()
    assert imported(folder) - declared - brought - FOR_TRANSFORMERS - takers == set()


def test_no_exception_is_kept_for_what_is_gone() -> None:
    everywhere = imported("localjudge", "tests", "benchmarks", "models")
    assert set(BROUGHT) <= everywhere
    assert set(MODULES.values()) <= NEEDED.union(*EXTRAS.values())
