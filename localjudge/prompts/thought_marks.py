"""Find the marks of thoughts: in a prompt that ends inside one, a template, a vocabulary and an answer.

Most are tags whose names say so, such as `<think>` and `</think>`; `thought_formats` lists the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from localjudge.prompts.thought_formats import CLOSING_WORDS, FORMATS, ThoughtFormat

# A quote or a parenthesis is of a template's program: message['reasoning_content'].
_TAG = re.compile(
    r"[<\[◁](?!/)[^<>\[\]◁▷\s'\"()]*(?:think|thought|reason)[^<>\[\]◁▷\s'\"()]*[>\]▷]", re.IGNORECASE
)
_CLOSES = re.compile(r"(?<![a-z])(?:end|close|suffix)", re.IGNORECASE)
_ENCLOSED = [each for each in FORMATS if not each.is_channel]
_MARKS = [each.opens for each in _ENCLOSED] + [each.ends for each in _ENCLOSED]
KNOWN_MARKS = frozenset(mark for mark in _MARKS if mark)
"""The texts that can open or end a thought, apart from channels and from tags that are found by their names."""


def open_thought(text: str) -> ThoughtFormat | None:
    """Return the format of the thought in which a text ends; None if it ends in none."""
    known = FORMATS + tuple(_tagged(_TAG.findall(text)))
    found = [each for each in known if each.opens in text]
    if not found:
        return None
    last = max(found, key=lambda each: text.rfind(each.opens))
    rest = text.rpartition(last.opens)[2]
    is_open = last.ends not in rest if last.ends else not rest.strip()
    return last if is_open else None


def has_thought_mark(text: str) -> bool:
    """Return whether a text opens or ends a thought."""
    if any(mark in text for mark in KNOWN_MARKS):
        return True
    if any(each.opens in text for each in FORMATS):
        return True
    # Without its slash, a closing tag is found as an opening one is.
    return _TAG.search(text.replace("/", "")) is not None


def names_thoughts(template: str) -> bool:
    """Return whether the source of a chat template names the marks of a thought.

    A tag that is not in `FORMATS` counts if the source has the tag that closes it, too; alone it may be a
    setting.
    """
    if any(mark in template for mark in KNOWN_MARKS):
        return True
    tagged = _tagged(_TAG.findall(template))
    return any(each.ends in template for each in tagged if each.ends and "effort" not in each.opens.lower())


def own_channel(template: str, vocabulary: Collection[str]) -> ThoughtFormat | None:
    """Return the format of a model that opens the channel of its thoughts by itself; None for any other model.

    Args:
        template: the source of its chat template.
        vocabulary: the texts of its tokens.
    """
    for each in FORMATS:
        if each.token and each.token in template and each.token in vocabulary:
            return each
    return None


def marks_of(tokens: Iterable[str], template: str) -> ThoughtFormat | None:
    """Return the format of a model's thoughts; None if nothing in its vocabulary or chat template ends one.

    Args:
        tokens: the texts of its added tokens.
        template: the source of its chat template.
    """
    added = set(tokens)
    tags = added.union(_TAG.findall(template))
    known = _ENCLOSED + _tagged(filter(_TAG.fullmatch, tags))
    found = [each for each in known if each.ends]
    best = max(found, key=lambda each: (each.ends in added, each.ends in template))
    return best if best.ends in added or best.ends in template else None


def split_thought(text: str) -> tuple[str, str]:
    """Return the thought with which a text begins, and what follows it: nothing if the thought does not end."""
    begins = text.lstrip()
    tag = _TAG.match(begins)
    known = FORMATS + tuple(_tagged([tag[0]] if tag else []))
    for each in known:
        if each.ends and begins.startswith(each.opens.lstrip()):
            inside = begins.removeprefix(each.opens.lstrip())
            thought, _, rest = inside.partition(each.ends)
            return thought, rest.removeprefix(each.then)
    return "", text


def _tagged(tags: Iterable[str]) -> list[ThoughtFormat]:
    """Return the format of each tag that opens a thought."""
    return [_format_of_tag(tag) for tag in sorted(set(tags)) if not _CLOSES.search(tag)]


def _format_of_tag(tag: str) -> ThoughtFormat:
    """Return the format whose opening tag this is; `ends` is empty if the tag does not say how it closes."""
    for opening, closing in CLOSING_WORDS.items():
        if opening in tag:
            return ThoughtFormat(opens=tag, ends=tag.replace(opening, closing))
    if tag.startswith("<|"):
        return ThoughtFormat(opens=tag, ends="")
    return ThoughtFormat(opens=tag, ends=f"{tag[0]}/{tag[1:]}")
