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
    problems = list(dict.fromkeys(map(_problem, error.errors())))
    more = f"; and {len(problems) - _MOST_PROBLEMS} more" * (len(problems) > _MOST_PROBLEMS)
    return "; ".join(problems[:_MOST_PROBLEMS]) + more


def _problem(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    known = {"extra_forbidden": "unknown key; remove it or correct its name", "missing": "is missing; add it"}
    message = known.get(error["type"], error["msg"].removeprefix("Value error, "))
    return f"{place + ': ' if place else ''}{message}{_advice(place.rpartition('.')[2], error['input'])}"


def _advice(key: str, given: Any) -> str:
    """Return what to write instead of a value that people often write for this key; empty for other values."""
    if key == "scale" and isinstance(given, list) and len(given) == 2:
        return f"; write scale = {{ lowest = {given[0]}, highest = {given[1]} }}"
    if key == "rationale" and isinstance(given, bool):
        place = "before" if given else "none"
        return f'; it is the key of a text: write rationale_place = "{place}" in [answer]'
    return ""


def check_aspects(aspects: Mapping[str, Aspect], mode: Mode[Any]) -> None:
    """Check the names and the kinds of a rubric's aspects.

    Raises:
        ValueError: one of them is wrong; the message says which.
    """
    if not aspects:
        raise ValueError("aspects: name at least one aspect")
    beside = {name + suffix for name in aspects for suffix in (MASS, LIKELIEST, INTERVAL)}
    for name, aspect in aspects.items():
        if len(name) > LONGEST_NAME:
            raise ValueError(f"aspects: {name[:20]!r}… has {len(name)} characters; use at most {LONGEST_NAME}")
        if not _ASPECT.fullmatch(name):
            raise ValueError(f"aspects: {name!r} is not a column name; use a-z, 0-9, _, a letter first")
        if mode.reserves(name) or name in beside:
            raise ValueError(
                f"aspects: {name!r} is the name of another column; choose another, such as {name}_score"
            )
        if problem := mode.refusal(aspect):
            raise ValueError(f"aspects: {name} {problem}")
    if len(aspects) > mode.most_aspects:
        raise ValueError(f"aspects: a rubric that {mode.judges} has {mode.most_aspects}; remove the others")


def prompt_problems(
    prompt: Template, text: str, aspects: Mapping[str, Aspect], answer: AnswerKeys, *, single: bool
) -> list[str]:
    """Return in words what looks wrong in a prompt.

    Args:
        prompt: the prompt.
        text: all its texts, with the aspects and the form of the answer in their places.
        aspects: the aspects.
        answer: the keys of the answer.
        single: whether the rubric has only one aspect.
    """
    found = []
    # In a form, the value of an only aspect needs no name.
    nameless = [*aspects] if answer.form is not None and single else []
    missing = [each for each in unmentioned(text, aspects, answer.keys_of(aspects)) if each not in nameless]
    if missing:
        found.append(
            f"the template never mentions {', '.join(missing)}, so the judge cannot know what is asked; "
            "add {$aspects} and {$answer_format} to the template"
        )
    if bare := BARE.findall(prompt.text):
        found.append(f"{{{bare[0]}}} in the template is not a placeholder; write {{${bare[0]}}} for the column")
    return found
