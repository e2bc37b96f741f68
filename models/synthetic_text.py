"""The synthetic text that the bundled judge learns from: subjects, instructions, claims and whole texts.

Every text is built from the words and sentences of `words.toml`; none of it is true. A text is a list of
*segments*, and each segment has a kind ("plain", "swapped", "repeated" …), so that later steps can measure what
was done to it. All randomness comes from the `Random` that the caller passes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

# How often an instruction asks for each form of text (in percent), and the layouts of such a text.
FORMS = {"claims": 44, "how_to": 11, "item": 10, "story": 9, "refuse": 13, "code": 7, "quiz": 22}
LAYOUTS: Mapping[str, Sequence[str]] = {
    "claims": ["paragraphs", "paragraphs", "paragraphs", "bullets", "blocks"],
    "how_to": ["numbers", "numbers", "bullets", "paragraphs"],
    "item": ["numbers", "bullets"],
    "story": ["paragraphs"],
    "refuse": ["paragraphs"],
    "code": ["blocks"],
    "quiz": ["paragraphs"],
    "other language": ["paragraphs", "blocks"],
}
# Slots whose facts can be swapped: person, place, year, number, day, material, nouns, adjectives, verb.
SWAPPABLE = "pcykdsnmabv"
SLOT = re.compile(r"\{([a-zA-Z])\}([a-z]*)")
WORD = re.compile(r"[^\W\d_]+|\d+")
ITEM_NUMBER = re.compile(r"^\s*\d+[.)] ", re.MULTILINE)
UNSPACED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
NEGATIONS = {" is ": " is not ", " can ": " cannot ", " will ": " will not ", " are ": " are not "}


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text and its kind."""

    text: str
    kind: str = "plain"


Sentence = list[Segment]


def text_of(segments: Iterable[Segment]) -> str:
    return "".join(segment.text for segment in segments)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence in one or more wordings, the facts that fill its slots, and the slots that were swapped."""

    wordings: tuple[str, ...]
    facts: Mapping[str, str]
    swapped: frozenset[str] = frozenset()

    def sentence(self, wording: int = 0, kind: str = "plain") -> Sentence:
        """Write the claim in one of its wordings; swapped facts are segments of the kind "swapped"."""
        template = self.wordings[wording % len(self.wordings)]
        segments, end = [], 0
        for slot in SLOT.finditer(template):
            segments.append(Segment(template[end : slot.start()], kind))
            segments.append(Segment(self._fill(slot), "swapped" if slot[1].lower() in self.swapped else kind))
            end = slot.end()
        return [segment for segment in (*segments, Segment(template[end:], kind)) if segment.text]

    def _fill(self, slot: re.Match[str]) -> str:
        fact = self.facts[slot[1].lower()]
        return (fact if slot[1].islower() else fact.capitalize()) + slot[2]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an instruction: the form of text it asks for, its topic, and sentences for that form."""

    form: str
    topic: str
    instruction: str
    sentences: Sequence[str]


class TextGenerator:
    """A generator of synthetic text from the words and sentences of `words.toml`."""

    def __init__(self) -> None:
        source = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
        self.templates: dict[str, list[str]] = source["templates"]
        self.instructions: dict[str, list[str]] = source["instructions"]
        self.code: dict[str, list[str]] = source["code"]
        self.refusals: dict[str, list[str]] = source["refusals"]
        self.score_requests: dict[str, list[str]] = source["score_requests"]
        self.languages: list[dict[str, str | list[str]]] = source["languages"]
        written = [
            *_strings(self.templates),
            *_strings(self.code),
            *_strings(self.languages),
            *_strings(self.refusals),
            *_strings(self.score_requests),
        ]
        words = {name: text.split() for name, text in source["words"].items()}
        # Words that are not facts: it does not matter whether a response has them.
        self.stopwords = frozenset(
            word.lower()
            for text in ["python json", *words["common"], *written]
            for word in WORD.findall(SLOT.sub(" ", text))
        )
        self.words = {
            name: group
            if name in ("common", "ending", "syllable")
            else [word for word in group if word.lower() not in self.stopwords]
            for name, group in words.items()
        }

    def facts_in(self, text: str) -> list[str]:
        """Return the facts of a text, each once: numbers, and words that are not stopwords."""
        found: dict[str, str] = {}
        for word in WORD.findall(ITEM_NUMBER.sub("", text)):
            if self.is_fact(word):
                found.setdefault(word.lower(), word)
        return list(found.values())

    def is_fact(self, word: str) -> bool:
        if word.isdigit():
            return True
        return len(word) > 2 and word.lower() not in self.stopwords and not UNSPACED.search(word)

    def subject(self, random: Random, form: str | None = None) -> Subject:
        """Draw a subject; without `form`, of a random form or in another language."""
        if form is None and random.random() < 0.06:
            language = random.choice(self.languages)
            topic = random.choice(str(language["topics"]).split())
            return Subject(
                "other language", topic, str(language["instruction"]).replace("{t}", topic), language["claims"]
            )
        form = form or random.choices(list(FORMS), list(FORMS.values()))[0]
        topic = self._topic(random)
        instruction = text_of(
            Claim((random.choice(self.instructions[form]),), self.facts(random, topic)).sentence()
        )
        if random.random() < 0.12 and form != "quiz":
            extra = [
                Claim((self._free_sentence(random),), self.facts(random, topic))
                for _ in range(random.randint(1, 5))
            ]
            instruction += "\n" + " ".join(text_of(claim.sentence()) for claim in extra)
        return Subject(form, topic, instruction, self.templates["claims" if form == "code" else form])

    def claim(self, random: Random, subject: Subject) -> Claim:
        """Draw a claim about a subject."""
        facts = self.facts(random, subject.topic)
        if subject.form == "code" and random.random() < 0.6:
            return Claim((f"```python\n{random.choice(self.code['lines'])}\n```",), facts)
        if subject.form in ("claims", "how_to", "item", "story", "code") and random.random() < 0.35:
            return Claim((self._free_sentence(random),), facts)
        return Claim(tuple(part.strip() for part in random.choice(subject.sentences).split("|")), facts)

    def facts(self, random: Random, topic: str) -> dict[str, str]:
        """Draw a fact for every slot; the letters are explained in `words.toml`."""
        words, pick = self.words, random.choice
        person = pick(words["person"]) if random.random() < 0.5 else self.name(random)
        return {
            "t": topic,
            "n": self._new_word_or(random, "noun"),
            "m": self._new_word_or(random, "noun"),
            "a": self._new_word_or(random, "adjective"),
            "b": self._new_word_or(random, "adjective"),
            "v": self._new_word_or(random, "verb"),
            "p": person + (f" {self.name(random)}" if random.random() < 0.5 else ""),
            "c": self.name(random),
            "y": str(random.randint(1100, 2020)),
            "k": str(random.choice([random.randint(2, 99), random.randint(2, 999)])),
            "d": pick(words["day"]),
            "s": self._new_word_or(random, "material"),
        }

    def refusal(self, random: Random, topic: str) -> Claim:
        """Draw a refusal in three wordings, each assembled from random parts."""
        wordings = []
        for _ in range(3):
            opening = random.choice(self.refusals["openings"]) if random.random() < 0.75 else ""
            cannot, what = random.choice(self.refusals["cannot"]), random.choice(self.refusals["what"])
            sentence = f"{opening} {cannot} {what}.".lstrip()
            wordings.append(sentence[0].upper() + sentence[1:])
            if random.random() < 0.5:
                wordings[-1] += " " + random.choice(self.refusals["reasons"])
        return Claim(tuple(wordings), self.facts(random, topic))

    def score_request(self, random: Random) -> str:
        """Draw a request for a high score, assembled from random parts."""
        request = random.choice(self.score_requests[random.choice(["asked", "asked", "claimed"])])
        request += random.choice(".!")
        if random.random() < 0.6:
            request = f"{random.choice(self.score_requests['openings'])} {request}"
        if random.random() < 0.3:
            request += " " + random.choice(self.score_requests["reasons"])
        return request.upper() if random.random() < 0.1 else request[0].upper() + request[1:]

    def fact(self, random: Random) -> str:
        """Draw one word that is a fact."""
        match random.randrange(6):
            case 0:
                return self.name(random)
            case 1:
                return str(
                    random.choice([random.randint(2, 99), random.randint(2, 999), random.randint(1100, 2020)])
                )
            case 2 | 3:
                return self._new_word_or(random, random.choice(["noun", "adjective", "verb"]))
            case _:
                return self._new_word(random)

    def name(self, random: Random) -> str:
        return self._new_word(random).capitalize()

    def write(self, random: Random, sentences: Sequence[Sentence], layout: str) -> list[Segment]:
        """Join sentences into one text with this layout."""
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
                return self._new_word(random)

    def _new_word_or(self, random: Random, group: str) -> str:
        return self._new_word(random) if random.random() < 0.4 else random.choice(self.words[group])

    def _new_word(self, random: Random) -> str:
        """Invent a word that is in no list: the beginning of one word and the end of another, or syllables."""
        if random.random() < 0.3:
            return "".join(random.choices(self.words["syllable"], k=random.randint(2, 4)))
        first, last = (
            random.choice(self.words[random.choice(["noun", "adjective", "verb"])]) for _ in range(2)
        )
        beginning = first[: random.randint(2, max(2, len(first)))]
        new = beginning + last[random.randint(0, max(0, len(last) - 2)) :]
        if random.random() < 0.2:
            new += random.choice(self.words["ending"])
        return new if new not in self.stopwords else new + random.choice(self.words["syllable"])

    def _free_sentence(self, random: Random) -> str:
        """Draw a sentence of random words without a template, because real text follows none."""
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
