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
_ENCLOSED = [known for known in FORMATS if not known.is_channel]
_MARKS = [known.opens for known in _ENCLOSED] + [known.ends for known in _ENCLOSED]
KNOWN_MARKS = frozenset(mark for mark in _MARKS if mark)
"""The texts that can open or end a thought, apart from channels and from tags that are found by their names."""


def open_thought(text: str) -> ThoughtFormat | None:
    """Return the format of the thought in which a text ends; None if it ends in none."""
    formats = list(FORMATS) + _tagged(_TAG.findall(text))
    opened = [thought for thought in formats if thought.opens in text]
    if not opened:
        return None
    last = max(opened, key=lambda thought: text.rfind(thought.opens))
    after = text.rpartition(last.opens)[2]
    if last.ends:
        is_open = last.ends not in after
    else:
        is_open = not after.strip()
    return last if is_open else None


def has_thought_mark(text: str) -> bool:
    """Return whether a text opens or ends a thought."""
    if any(mark in text for mark in KNOWN_MARKS):
        return True
    if any(thought.opens in text for thought in FORMATS):
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
    for thought in _tagged(_TAG.findall(template)):
        is_setting = "effort" in thought.opens.lower()
        if thought.ends and thought.ends in template and not is_setting:
            return True
    return False


def own_channel(template: str, vocabulary: Collection[str]) -> ThoughtFormat | None:
    """Return the format of a model that opens the channel of its thoughts by itself; None for any other model.

    Args:
        template: the source of its chat template.
        vocabulary: the texts of its tokens.
    """
    for thought in FORMATS:
        if thought.token and thought.token in template and thought.token in vocabulary:
            return thought
    return None


def marks_of(tokens: Iterable[str], template: str) -> ThoughtFormat | None:
    """Return the format of a model's thoughts; None if nothing in its vocabulary or chat template ends one.

    Args:
        tokens: the texts of its added tokens.
        template: the source of its chat template.
    """
    added = set(tokens)
    tags = added.union(_TAG.findall(template))
    whole_tags = [tag for tag in tags if _TAG.fullmatch(tag)]
    formats = [thought for thought in _ENCLOSED + _tagged(whole_tags) if thought.ends]
    best = max(formats, key=lambda thought: (thought.ends in added, thought.ends in template))
    if best.ends in added or best.ends in template:
        return best
    return None


def split_thought(text: str) -> tuple[str, str]:
    """Return the thought with which a text begins, and what follows it: nothing if the thought does not end."""
    content = text.lstrip()
    formats = list(FORMATS)
    tag = _TAG.match(content)
    if tag is not None:
        formats += _tagged([tag[0]])
    for known in formats:
        opening = known.opens.lstrip()
        if known.ends and content.startswith(opening):
            thought, _, after = content.removeprefix(opening).partition(known.ends)
            return thought, after.removeprefix(known.then)
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
