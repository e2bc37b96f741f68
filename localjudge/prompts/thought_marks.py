"""The texts that models write around a thought, and whether a prompt ends inside one.

Most are tags whose names say so, such as `<think>` and `</think>`; the others are listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TAG = re.compile(r"[<\[◁](?!/)[^<>\[\]◁▷\s]*(?:think|thought|reason)[^<>\[\]◁▷\s]*[>\]▷]", re.IGNORECASE)
_CLOSES = re.compile(r"(?<![a-z])(?:end|close|suffix)", re.IGNORECASE)
# How the name of a tag that has no slash changes from the opening to the closing tag.
_OPPOSITES = (("begin", "end"), ("start", "end"), ("START", "END"), ("open", "close"), ("prefix", "suffix"))


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """The texts around a thought.

    Attributes:
        opens: the text that opens a thought.
        ends: the text that ends it; empty if that is not known.
        then: what follows before the answer.
    """

    opens: str
    ends: str
    then: str = ""

    @classmethod
    def from_tag(cls, tag: str) -> ThoughtMarks:
        """Return the marks whose opening tag this is; `ends` is empty if the tag does not say how it closes."""
        for opens, closes in _OPPOSITES:
            if opens in tag:
                return cls(tag, tag.replace(opens, closes))
        return cls(tag, "" if tag.startswith("<|") else f"{tag[0]}/{tag[1:]}")


HARMONY = ThoughtMarks(
    "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"
)
"""OpenAI's harmony format: a thought is a message in a channel of its own."""
_TAGS = "<think>", "[THINK]", "<seed:think>", "<thought>", "<|START_THINKING|>"
_KNOWN = (
    *map(ThoughtMarks.from_tag, _TAGS),
    ThoughtMarks("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ThoughtMarks("<|channel>thought\n", "<channel|>"),  # Gemma 4
    ThoughtMarks("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),  # Apriel
)
KNOWN_MARKS = frozenset(text for marks in _KNOWN for text in (marks.opens, marks.ends))
"""The texts that can open or end a thought, apart from tags that are found by their names."""


def open_thought(text: str) -> ThoughtMarks | None:
    """Return the marks of the thought in which a text ends; None if it ends in none."""
    found = [marks for marks in (*_KNOWN, HARMONY, *_tagged(_TAG.findall(text))) if marks.opens in text]
    if not found:
        return None
    last = max(found, key=lambda marks: text.rfind(marks.opens))
    rest = text.rpartition(last.opens)[2]
    is_open = last.ends not in rest if last.ends else not rest.strip()
    return last if is_open else None


def has_thought_mark(text: str) -> bool:
    """Return whether a text opens or ends a thought."""
    known = (*KNOWN_MARKS, HARMONY.opens)
    if any(mark in text for mark in known if mark):
        return True
    # Without its slash, a closing tag is found as an opening one is.
    return _TAG.search(text.replace("/", "")) is not None


def marks_of(tokens: Iterable[str], template: str) -> ThoughtMarks | None:
    """Return the marks of a model's thoughts; None if nothing in its vocabulary or chat template ends one.

    Args:
        tokens: the texts of its added tokens.
        template: the source of its chat template.
    """
    added = set(tokens)
    tags = filter(_TAG.fullmatch, {*added, *_TAG.findall(template)})
    found = [marks for marks in (*_KNOWN, *_tagged(tags)) if marks.ends]
    best = max(found, key=lambda marks: (marks.ends in added, marks.ends in template))
    return best if best.ends in added or best.ends in template else None


def split_thought(text: str) -> tuple[str, str]:
    """Return the thought with which a text begins, and what follows it: nothing if the thought does not end."""
    begins = text.lstrip()
    tag = _TAG.match(begins)
    for marks in (*_KNOWN, *_tagged([tag[0]] if tag else [])):
        if marks.ends and begins.startswith(marks.opens):
            thought, _, rest = begins.removeprefix(marks.opens).partition(marks.ends)
            return thought, rest
    return "", text


def _tagged(tags: Iterable[str]) -> list[ThoughtMarks]:
    """Return the marks of each tag that opens a thought."""
    return [ThoughtMarks.from_tag(tag) for tag in sorted(set(tags)) if not _CLOSES.search(tag)]
