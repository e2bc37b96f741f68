"""The made-up world that the bundled judge learns from: its subjects, queries, claims and texts.

Every text comes from the words and sentences of `words.toml`, and none of it is true. A text is a list of
*segments*, each with what it is ("plain", "swapped", "repeated" …), so that all that is said of it later can be
measured on it. All chance comes from the generator passed in.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

# How often a query asks for each form of text, and how such a text is laid out.
FORMS = {"claims": 44, "how_to": 11, "item": 10, "story": 9, "refuse": 13, "code": 7, "quiz": 22}
LAYOUTS: Mapping[str, Sequence[str]] = {
    "claims": ["paragraphs", "paragraphs", "paragraphs", "bullets", "blocks"],
    "how_to": ["numbers", "numbers", "bullets", "paragraphs"],
    "item": ["numbers", "bullets"],
    "story": ["paragraphs"],
    "refuse": ["paragraphs"],
    "code": ["blocks"],
    "quiz": ["paragraphs"],
    "tongue": ["paragraphs", "blocks"],
}
# The facts that can be swapped: person, place, year, number, day, material, nouns, adjectives, verb.
SWAPPABLE = "pcykdsnmabv"
SLOT = re.compile(r"\{([a-zA-Z])\}([a-z]*)")
WORD = re.compile(r"[^\W\d_]+|\d+")
ITEM_NUMBER = re.compile(r"^\s*\d+[.)] ", re.MULTILINE)
UNSPACED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
DENIALS = {" is ": " is not ", " can ": " cannot ", " will ": " will not ", " are ": " are not "}


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text and what it is."""

    text: str
    kind: str = "plain"


Sentence = list[Segment]


def text_of(segments: Iterable[Segment]) -> str:
    return "".join(segment.text for segment in segments)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence in one or more wordings, the facts that fill its slots, and which of them are swapped."""

    wordings: tuple[str, ...]
    facts: Mapping[str, str]
    swapped: frozenset[str] = frozenset()

    def said(self, wording: int = 0, kind: str = "plain") -> Sentence:
        template = self.wordings[wording % len(self.wordings)]
        sentence, end = [], 0
        for slot in SLOT.finditer(template):
            sentence.append(Segment(template[end : slot.start()], kind))
            sentence.append(Segment(self.filled(slot), "swapped" if slot[1].lower() in self.swapped else kind))
            end = slot.end()
        return [segment for segment in (*sentence, Segment(template[end:], kind)) if segment.text]

    def filled(self, slot: re.Match[str]) -> str:
        fact = self.facts[slot[1].lower()]
        return (fact if slot[1].islower() else fact.capitalize()) + slot[2]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a query is about: its form of text, its topic, and the sentences that a text of this form has."""

    form: str
    topic: str
    query: str
    sentences: Sequence[str]


class World:
    """The words and sentences, and what can be made of them."""

    def __init__(self) -> None:
        world = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
        self.texts: dict[str, list[str]] = world["texts"]
        self.queries: dict[str, list[str]] = world["queries"]
        self.code: dict[str, list[str]] = world["code"]
        self.refusals: dict[str, list[str]] = world["refusals"]
        self.pleas: dict[str, list[str]] = world["pleas"]
        self.tongues: list[dict[str, str | list[str]]] = world["tongues"]
        written = [
            *_strings(self.texts),
            *_strings(self.code),
            *_strings(self.tongues),
            *_strings(self.refusals),
            *_strings(self.pleas),
        ]
        words = {name: text.split() for name, text in world["words"].items()}
        # Words that are no facts: whether a response has them or not says nothing.
        self.everyday = frozenset(
            word.lower()
            for text in ["python json", *words["common"], *written]
            for word in WORD.findall(SLOT.sub(" ", text))
        )
        self.words = {
            name: group
            if name in ("common", "ending", "syllable")
            else [word for word in group if word.lower() not in self.everyday]
            for name, group in words.items()
        }

    def facts_in(self, text: str) -> list[str]:
        """The words of a text that are facts, as they stand there, each once: no everyday word, no particle."""
        found: dict[str, str] = {}
        for word in WORD.findall(ITEM_NUMBER.sub("", text)):
            if self.is_fact(word):
                found.setdefault(word.lower(), word)
        return list(found.values())

    def is_fact(self, word: str) -> bool:
        if word.isdigit():
            return True
        return len(word) > 2 and word.lower() not in self.everyday and not UNSPACED.search(word)

    def subject(self, random: Random, form: str | None = None) -> Subject:
        if form is None and random.random() < 0.06:
            tongue = random.choice(self.tongues)
            topic = random.choice(str(tongue["topics"]).split())
            return Subject("tongue", topic, str(tongue["query"]).replace("{t}", topic), tongue["claims"])
        form = form or random.choices(list(FORMS), list(FORMS.values()))[0]
        topic = self._topic(random)
        query = text_of(Claim((random.choice(self.queries[form]),), self.facts(random, topic)).said())
        if random.random() < 0.12 and form != "quiz":
            loose = [
                Claim((self._loose(random),), self.facts(random, topic)) for _ in range(random.randint(1, 5))
            ]
            query += "\n" + " ".join(text_of(claim.said()) for claim in loose)
        return Subject(form, topic, query, self.texts["claims" if form == "code" else form])

    def claim(self, random: Random, subject: Subject) -> Claim:
        facts = self.facts(random, subject.topic)
        if subject.form == "code" and random.random() < 0.6:
            return Claim((f"```python\n{random.choice(self.code['lines'])}\n```",), facts)
        if subject.form in ("claims", "how_to", "item", "story", "code") and random.random() < 0.35:
            return Claim((self._loose(random),), facts)
        return Claim(tuple(part.strip() for part in random.choice(subject.sentences).split("|")), facts)

    def facts(self, random: Random, topic: str) -> dict[str, str]:
        words, pick = self.words, random.choice
        person = pick(words["person"]) if random.random() < 0.5 else self.name(random)
        return {
            "t": topic,
            "n": self._new_or(random, "noun"),
            "m": self._new_or(random, "noun"),
            "a": self._new_or(random, "adjective"),
            "b": self._new_or(random, "adjective"),
            "v": self._new_or(random, "verb"),
            "p": person + (f" {self.name(random)}" if random.random() < 0.5 else ""),
            "c": self.name(random),
            "y": str(random.randint(1100, 2020)),
            "k": str(random.choice([random.randint(2, 99), random.randint(2, 999)])),
            "d": pick(words["day"]),
            "s": self._new_or(random, "material"),
        }

    def refusal(self, random: Random, topic: str) -> Claim:
        """A refusal in three wordings, each put together anew."""
        wordings = []
        for _ in range(3):
            opening = random.choice(self.refusals["openings"]) if random.random() < 0.75 else ""
            cannot, what = random.choice(self.refusals["cannot"]), random.choice(self.refusals["what"])
            said = f"{opening} {cannot} {what}.".lstrip()
            wordings.append(said[0].upper() + said[1:])
            if random.random() < 0.5:
                wordings[-1] += " " + random.choice(self.refusals["reasons"])
        return Claim(tuple(wordings), self.facts(random, topic))

    def plea(self, random: Random) -> str:
        """A plea for a high score, put together anew."""
        said = random.choice(self.pleas[random.choice(["asked", "asked", "claimed"])])
        said += random.choice(".!")
        if random.random() < 0.6:
            said = f"{random.choice(self.pleas['openings'])} {said}"
        if random.random() < 0.3:
            said += " " + random.choice(self.pleas["reasons"])
        return said.upper() if random.random() < 0.1 else said[0].upper() + said[1:]

    def fact(self, random: Random) -> str:
        """One word that is a fact."""
        match random.randrange(6):
            case 0:
                return self.name(random)
            case 1:
                return str(
                    random.choice([random.randint(2, 99), random.randint(2, 999), random.randint(1100, 2020)])
                )
            case 2 | 3:
                return self._new_or(random, random.choice(["noun", "adjective", "verb"]))
            case _:
                return self._new(random)

    def name(self, random: Random) -> str:
        return self._new(random).capitalize()

    def write(self, random: Random, sentences: Sequence[Sentence], layout: str) -> list[Segment]:
        """The sentences as one text."""
        group = random.randint(2, 6)
        written: list[Segment] = []
        for n, sentence in enumerate(sentences):
            match layout:
                case "numbers":
                    before = f"\n{n + 1}. "
                case "bullets":
                    before = "\n- "
                case "blocks":
                    before = "\n\n"
                case _:
                    before = " " if n % group else "\n\n"
            before = before if n else before.lstrip()
            written += [Segment(before), *sentence] if before else sentence
        return written

    def _topic(self, random: Random) -> str:
        noun = random.choice(self.words["noun"])
        match random.randrange(8):
            case 0:
                return noun
            case 1 | 2:
                return f"{random.choice(self.words['adjective'])} {noun}"
            case 3:
                return f"{random.choice(self.words['noun'])} {noun}"
            case 4:
                return f"{self.name(random)} {noun}"
            case 5 | 6:
                return self.name(random)
            case _:
                return self._new(random)

    def _new_or(self, random: Random, group: str) -> str:
        return self._new(random) if random.random() < 0.4 else random.choice(self.words[group])

    def _new(self, random: Random) -> str:
        """A word that is in no list: the beginning of one and the end of another, or syllables."""
        if random.random() < 0.3:
            return "".join(random.choices(self.words["syllable"], k=random.randint(2, 4)))
        first, last = (
            random.choice(self.words[random.choice(["noun", "adjective", "verb"])]) for _ in range(2)
        )
        begin = first[: random.randint(2, max(2, len(first)))]
        new = begin + last[random.randint(0, max(0, len(last) - 2)) :]
        if random.random() < 0.2:
            new += random.choice(self.words["ending"])
        return new if new not in self.everyday else new + random.choice(self.words["syllable"])

    def _loose(self, random: Random) -> str:
        """A sentence of no form at all, so that real text, which has other forms, is nothing strange."""
        kinds = random.choices(
            ["common", "{n}", "{m}", "{a}", "{b}", "{v}", "{c}", "{p}", "{k}", "{y}", "{t}"],
            [22, 4, 2, 2, 1, 2, 2, 1, 1, 1, 1],
            k=random.randint(5, 24),
        )
        words = [random.choice(self.words["common"]) if kind == "common" else kind for kind in kinds]
        if random.random() < 0.4:
            words[random.randrange(len(words) - 1)] += random.choice([",", ",", ";", ":", " -", " (1)", "'s"])
        if random.random() < 0.15:
            place = random.randrange(len(words))
            words[place] = random.choice(['"{}"', "**{}**", "`{}`", "({})", "*{}*"]).replace("{}", words[place])
        words[0] = words[0].capitalize() if words[0][0] != "{" else words[0].upper()
        return " ".join(words) + random.choices([".", "!", "?", ":"], [12, 1, 1, 1])[0]


def _strings(value: object) -> Collection[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [string for part in inner for string in _strings(part)]
