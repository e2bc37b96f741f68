"""The text of a template about the aspects: their description, the form of the answer, and what is missing.

A template with `{$aspects}` and `{$answer_format}` cannot disagree with the answer that the judge must give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from localjudge.rubrics.answer import AnswerLayout
from localjudge.rubrics.aspect import Aspect

ASPECTS, ANSWER_FORMAT = "aspects", "answer_format"
"""The placeholders that a rubric fills by itself."""


def aspects_text(aspects: Mapping[str, Aspect]) -> str:
    """Return a list of the aspects for the prompt: values, description, and the meaning of each value."""
    return "\n".join(line for name, aspect in aspects.items() for line in _described(name, aspect))


def _described(name: str, aspect: Aspect) -> Iterator[str]:
    yield f"- {name} ({_values(aspect)}){': ' + aspect.description if aspect.description else ''}"
    for text, value in aspect.values.items():
        meanings = [str(value)] * (aspect.labels is not None and text != value)
        meanings += [aspect.levels[text]] if text in aspect.levels else []
        if meanings:
            yield f"  - {text}: {': '.join(meanings)}"


def _values(aspect: Aspect) -> str:
    return str(aspect.scale) if aspect.scale is not None else " or ".join(aspect.values)


def answer_format(layout: AnswerLayout, aspects: Mapping[str, Aspect]) -> str:
    """Return the form of the answer with a placeholder in brackets for each field."""
    texts = {
        text.name: f"[your {text.name.replace('_', ' ') if text.raw else 'rationale'}]" for text in layout.texts
    }
    return layout.write(texts | {field.name: f"[{_short(aspects[field.name])}]" for field in layout.values})


def _short(aspect: Aspect) -> str:
    """Return the values: "1-5", "-2 to 2", "A/B/C"."""
    if aspect.scale is None:
        return "/".join(aspect.values)
    return str(aspect.scale) if aspect.scale.lowest < 0 else f"{aspect.scale.lowest}-{aspect.scale.highest}"


def _ends(aspect: Aspect) -> list[str]:
    """Return the values that a prompt must name: the ends of a scale, and each choice."""
    texts = [*aspect.values]
    return texts if aspect.scale is None else [texts[0], texts[-1]]


def unmentioned(template: str, aspects: Mapping[str, Aspect], keys: Mapping[str, str]) -> list[str]:
    """Return the names, values and descriptions of aspects that a template never mentions.

    Args:
        template: the template, with the text about the aspects.
        aspects: the aspects.
        keys: the key of each aspect in the answer.
    """
    written = re.findall(r"\w+", template.casefold().replace("_", " "))
    known = " ".join(written)

    def says(text: str) -> bool:
        words = " ".join(re.findall(r"\w+", text.casefold().replace("_", " ")))
        return f" {words} " in f" {known} "

    missing = [name for name in aspects if not (says(name) or says(keys[name]))]
    for name, aspect in aspects.items():
        missing += [text for text in (*_ends(aspect), *(aspect.labels or {}).values()) if not says(text)]
        missing += [f"the description of {name}"] if aspect.description and not says(aspect.description) else []
        missing += [f"the level {text} of {name}" for text, said in aspect.levels.items() if not says(said)]
    return list(dict.fromkeys(missing))
