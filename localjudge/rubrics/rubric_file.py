"""The file of a rubric: one of the package, by its name, or a TOML file; and its problems in words."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from localjudge.errors import RubricError
from localjudge.modes.mode import Mode
from localjudge.records.outcome_columns import INTERVAL, LIKELIEST, MASS
from localjudge.rubrics.answer_keys import LONGEST_NAME, AnswerKeys
from localjudge.rubrics.aspect import Aspect, unmentioned
from localjudge.rubrics.template import BARE, Template

_SHIPPED = files("localjudge") / "rubrics"


def read_document(name_or_file: str | Path) -> dict[str, Any]:
    """Return the content of the included rubric of this name, or of this TOML file.

    Raises:
        RubricError: there is no such rubric, or the file cannot be read.
    """
    where = str(name_or_file)
    try:
        if where in shipped_rubrics():
            raw = (_SHIPPED / f"{where}.toml").read_bytes()
        else:
            raw = Path(name_or_file).read_bytes()
        return tomllib.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        raise RubricError(
            f"rubric {where}: no such file, and no included rubric of this name; "
            f"give a TOML file or one of {', '.join(shipped_rubrics())}"
        ) from None
    except OSError as error:
        raise RubricError(f"rubric {where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RubricError(f"rubric {where}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RubricError(f"rubric {where}: not TOML: {error}") from None


def shipped_rubrics() -> list[str]:
    """Return the names of the rubrics in the package."""
    return sorted(entry.name[:-5] for entry in _SHIPPED.iterdir() if entry.name.endswith(".toml"))


_ASPECT = re.compile(r"[a-z][a-z0-9_]*")
_MOST_PROBLEMS = 5
"""Largest number of problems of a rubric that a message names."""


def problems_of(error: ValidationError) -> str:
    """Return the first problems of a rubric in words, each with its place."""
    problems = list(dict.fromkeys(_problem(detail) for detail in error.errors()))
    text = "; ".join(problems[:_MOST_PROBLEMS])
    more = len(problems) - _MOST_PROBLEMS
    if more > 0:
        text += f"; and {more} more"
    return text


def _problem(detail: Any) -> str:
    """Return one of pydantic's errors: the path of the key, what is wrong, and what to write."""
    path = ".".join(str(part) for part in detail["loc"])
    message = _MESSAGES.get(detail["type"])
    if message is None:
        message = str(detail["msg"]).removeprefix("Value error, ")
    advice = _advice(path.rpartition(".")[2], detail["input"])
    if not path:
        return message + advice
    return f"{path}: {message}{advice}"


_MESSAGES = {
    "extra_forbidden": "unknown key; remove it or correct its name",
    "missing": "is missing; add it",
}
"""What is said in place of pydantic's own message, by the type of its error."""


def _advice(key: str, value: Any) -> str:
    """Return what to write instead of a value that people often write for this key; empty for other values."""
    if key == "scale" and isinstance(value, list) and len(value) == 2:
        return f"; write scale = {{ lowest = {value[0]}, highest = {value[1]} }}"
    if key == "rationale" and isinstance(value, bool):
        place = "before" if value else "none"
        return f'; it is the key of a text: write rationale_place = "{place}" in [answer]'
    return ""


def check_aspects(aspects: Mapping[str, Aspect], mode: Mode[Any]) -> None:
    """Check the names and the kinds of a rubric's aspects.

    Raises:
        ValueError: one of them is wrong; the message says which.
    """
    if not aspects:
        raise ValueError("aspects: name at least one aspect")
    columns_of_aspects = set[str]()
    for name in aspects:
        columns_of_aspects.update((name + MASS, name + LIKELIEST, name + INTERVAL))
    for name, aspect in aspects.items():
        if len(name) > LONGEST_NAME:
            raise ValueError(f"aspects: {name[:20]!r}… has {len(name)} characters; use at most {LONGEST_NAME}")
        if not _ASPECT.fullmatch(name):
            raise ValueError(f"aspects: {name!r} is not a column name; use a-z, 0-9, _, a letter first")
        if mode.reserves(name) or name in columns_of_aspects:
            raise ValueError(
                f"aspects: {name!r} is the name of another column; choose another, such as {name}_score"
            )
        refusal = mode.refusal(aspect)
        if refusal is not None:
            raise ValueError(f"aspects: {name} {refusal}")
    if len(aspects) > mode.most_aspects:
        raise ValueError(f"aspects: a rubric that {mode.judges} has {mode.most_aspects}; remove the others")


def prompt_problems(
    prompt: Template, text: str, aspects: Mapping[str, Aspect], answer: AnswerKeys
) -> list[str]:
    """Return in words what looks wrong in a prompt.

    Args:
        prompt: the prompt.
        text: all its texts, with the aspects and the form of the answer in their places.
        aspects: the aspects.
        answer: the keys of the answer.
    """
    problems = []
    missing = unmentioned(text, aspects, answer.keys_of(aspects))
    if answer.form is not None and len(aspects) == 1:  # in a form, the value of the only aspect needs no name
        missing = [name for name in missing if name not in aspects]
    if missing:
        problems.append(
            f"the template never mentions {', '.join(missing)}, so the judge cannot know what is asked; "
            "add {$aspects} and {$answer_format} to the template"
        )
    bare = BARE.search(prompt.text)
    if bare is not None:
        name = bare[1]
        problems.append(f"{{{name}}} in the template is not a placeholder; write {{${name}}} for the column")
    return problems
