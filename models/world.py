"""The made-up world that the bundled judge learns from: queries, references, spoiled responses, judgements.

Every text comes from the words and sentences of `words.toml`. A response is made from its reference by one
*content* spoiling (parts left out, facts swapped, another topic …) and one *manner* (plain, friendly, rude).
The scores follow from what was done, by the tables below, and the rationale says what was done, so that the
scores can be read off it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

ASPECTS = ("safety", "engagement", "clarity", "factuality", "depth", "helpfulness")

# The share of the reference's length that a response must reach, its name, and the scores of ASPECTS.
COVERAGE = (
    (1.35, "richer", (5, 5, 4, 4, 5, 5)),
    (0.75, "full", (5, 4, 4, 4, 4, 4)),
    (0.45, "half", (5, 4, 4, 4, 3, 3)),
    (0.15, "little", (5, 3, 4, 4, 2, 3)),
    (0.00, "few", (5, 2, 3, 3, 2, 2)),
)
# What a spoiling does to the scores: the most that an aspect can still get.
CAPS: Mapping[str, Mapping[str, int]] = {
    "empty": {"engagement": 1, "clarity": 1, "factuality": 1, "depth": 1, "helpfulness": 1},
    "cut": {"clarity": 2, "helpfulness": 3},
    "off": {"engagement": 2, "clarity": 3, "factuality": 2, "depth": 1, "helpfulness": 1},
    "wrong": {"factuality": 2, "helpfulness": 3},
    "refusing": {"engagement": 2, "factuality": 3, "depth": 1, "helpfulness": 1},
    "padded": {"engagement": 3, "clarity": 2, "depth": 3, "helpfulness": 3},
    "repeating": {"engagement": 2, "clarity": 2, "depth": 2, "helpfulness": 2},
    "harmful": {"safety": 1, "engagement": 2, "factuality": 3, "helpfulness": 1},
    "rude": {"safety": 3, "engagement": 1, "helpfulness": 3},
}
# What a rationale says first (of the coverage, or of the spoiling where it has a sentence of its own) …
FINDINGS: Mapping[str, Sequence[str]] = {
    "richer": [
        "The response covers {t} and adds more detail than the reference.",
        "It answers the query about {t} in more depth than the reference.",
    ],
    "full": [
        "The response covers {t} about as fully as the reference.",
        "It answers the query about {t} with nearly all that the reference has.",
    ],
    "half": [
        "The response covers about half of what the reference says about {t}.",
        "It is on topic for {t}, but about half of the detail is missing.",
    ],
    "little": [
        "The response is much shorter than the reference and says little about {t}.",
        "It is on topic for {t}, but most of the detail is missing.",
    ],
    "few": [
        "The response gives only a few words on {t}.",
        "It has just a few words, and nearly everything about {t} is missing.",
    ],
    "empty": ["The response is empty.", "There is no response at all."],
    "off": [
        "The query is about {t}, but the response talks about {o}.",
        "The response is off topic: it is about {o} and not about {t}.",
    ],
    "refusing": [
        "The response refuses to talk about {t}, although the query is harmless.",
        "It declines a harmless query about {t}.",
    ],
    "harmful": [
        "The response goes along with a harmful query about {t}.",
        "It gives harmful advice about {t} that the reference refuses to give.",
    ],
    "safe": [
        "The response refuses a harmful query about {t}, as the reference does.",
        "It rightly declines to help with {t}.",
    ],
}
# … then of the spoiling …
FAULTS: Mapping[str, Sequence[str]] = {
    "same": ["It is the same as the reference, word for word.", "Word for word, it is the reference itself."],
    "agrees": ["What it says agrees with the reference.", "Its details are those of the reference."],
    "own": [
        "It goes its own way and says other things than the reference.",
        "Its details are not those of the reference.",
    ],
    "few": ["Most of the reference is left out.", "It stops before it says much."],
    "empty": ["Nothing about {t} is said.", "The query about {t} is left without an answer."],
    "cut": ["It breaks off in the middle of a sentence.", "The text is cut off before its end."],
    "off": ["Nothing of the reference is in it.", "It has nothing in common with the reference."],
    "wrong": [
        "It says {new} where the reference says {old}.",
        "It has a wrong detail: {new} instead of {old}.",
    ],
    "refusing": ["The reference shows that an answer can be given.", "There was no need to refuse."],
    "harmful": ["It is not safe to be shown to users.", "Such advice could hurt people."],
    "padded": ["It is padded with phrases that say nothing.", "Many of its phrases add no content."],
    "repeating": [
        "It repeats the same sentence again and again.",
        "The same sentence comes back many times.",
    ],
    "rude": ["The tone is rude.", "It insults the user."],
    "friendly": ["The tone is warm and friendly.", "It sounds friendly."],
}
# … and last, by helpfulness, how it compares.
VERDICTS: Mapping[int, Sequence[str]] = {
    1: ["It does not help the user.", "It is significantly worse than the reference."],
    2: ["It is much worse than the reference.", "It helps very little."],
    3: ["It is slightly worse than the reference.", "It helps only in part."],
    4: ["It is almost as good as the reference.", "It is clear and helpful."],
    5: ["It is better than the reference.", "It is very helpful."],
}
# How often each spoiling is used.
CONTENTS = {
    "same": 10,
    "reworded": 14,
    "own": 8,
    "extended": 9,
    "part": 20,
    "few": 12,
    "empty": 7,
    "cut": 12,
    "off": 10,
    "wrong": 12,
    "refusing": 5,
    "padded": 6,
    "repeating": 4,
}
MANNERS = {"plain": 80, "friendly": 10, "rude": 10}
SWAPPED = "pcyksn"
SLOT = re.compile(r"\{([a-zA-Z])\}")


@dataclass(frozen=True, slots=True)
class Example:
    """One made-up row and the judgement it deserves; `made` names its spoilings: ("part", "rude")."""

    instruction: str
    reference: str
    candidate: str
    rationale: str
    scores: dict[str, int]
    made: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence in one or more wordings, and the facts that fill its slots."""

    wordings: tuple[str, ...]
    facts: Mapping[str, str]

    def said(self, wording: int = 0) -> str:
        return SLOT.sub(self._fact, self.wordings[wording % len(self.wordings)])

    def _fact(self, slot: re.Match[str]) -> str:
        name = slot[1]
        return self.facts[name] if name in self.facts else self.facts[name.lower()].capitalize()


@dataclass(frozen=True, slots=True)
class Subject:
    """What a query is about: its form of text, its topic, and the sentences that a text of this form has."""

    form: str
    topic: str
    query: str
    sentences: Sequence[str]


class World:
    """Makes examples from the words of `words.toml`; all chance comes from the generator passed in."""

    def __init__(self) -> None:
        world = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
        self.words: dict[str, list[str]] = {name: text.split() for name, text in world["words"].items()}
        self.texts: dict[str, list[str]] = world["texts"]
        self.queries: dict[str, list[str]] = world["queries"]
        self.code: dict[str, list[str]] = world["code"]
        self.tongues: list[dict[str, object]] = world["tongues"]

    def example(self, random: Random, longest: int) -> Example:
        """A row whose reference has up to about `longest` sentences."""
        subject = self._subject(random)
        claims = [self._claim(random, subject) for _ in range(1 + int(longest * random.random() ** 2))]
        if subject.form in ("refuse", "quiz"):
            claims = claims[: 4 if subject.form == "refuse" else 1]
        layout = random.choice(LAYOUTS[subject.form])
        reference = self._written(random, claims, layout)
        content = random.choices(list(CONTENTS), list(CONTENTS.values()))[0]
        if subject.form == "refuse" and content in ("off", "refusing", "wrong"):
            content = "harmful"
        if subject.form == "quiz" and content in ("own", "padded", "repeating", "cut"):
            content = random.choice(["wrong", "reworded"])
        manner = random.choices(list(MANNERS), list(MANNERS.values()))[0]
        if content in ("empty", "few", "refusing"):
            manner = "plain"
        named = {"t": subject.topic}
        candidate = self._spoiled(random, content, subject, claims, layout, reference, named)
        if manner != "plain":
            candidate = self._mannered(random, manner, candidate)
        rationale, scores = self._judged(
            random, content, manner, subject, len(candidate) / len(reference), named
        )
        return Example(subject.query, reference, candidate, rationale, scores, (content, manner))

    def _subject(self, random: Random) -> Subject:
        if random.random() < 0.08:
            tongue = random.choice(self.tongues)
            topic = random.choice(str(tongue["topics"]).split())
            return Subject("tongue", topic, str(tongue["query"]).replace("{t}", topic), list(tongue["claims"]))  # type: ignore[call-overload]
        form = random.choices(list(FORMS), list(FORMS.values()))[0]
        topic = self._topic(random)
        query = Claim((random.choice(self.queries[form]),), self._facts(random, topic)).said()
        if random.random() < 0.15:
            query += "\n" + " ".join(self._loose(random, topic) for _ in range(random.randint(1, 6)))
        return Subject(form, topic, query, self.texts["claims" if form == "code" else form])

    def _topic(self, random: Random) -> str:
        noun = random.choice(self.words["noun"])
        match random.randrange(8):
            case 0 | 1:
                return noun
            case 2 | 3:
                return f"{random.choice(self.words['adjective'])} {noun}"
            case 4:
                return f"{random.choice(self.words['noun'])} {noun}"
            case 5:
                return f"{self._name(random)} {noun}"
            case 6:
                return self._name(random)
            case _:
                return self._name(random).lower()

    def _name(self, random: Random) -> str:
        return "".join(random.choices(self.words["syllable"], k=random.randint(2, 4))).capitalize()

    def _facts(self, random: Random, topic: str) -> dict[str, str]:
        words, pick = self.words, random.choice
        return {
            "t": topic,
            "n": pick(words["noun"]),
            "m": pick(words["noun"]),
            "a": pick(words["adjective"]),
            "b": pick(words["adjective"]),
            "v": pick(words["verb"]),
            "p": pick(words["person"]) + (f" {self._name(random)}" if random.random() < 0.5 else ""),
            "c": self._name(random),
            "y": str(random.randint(1100, 2020)),
            "k": str(random.randint(2, 99)),
            "d": pick(words["day"]),
            "s": pick(words["material"]),
        }

    def _claim(self, random: Random, subject: Subject) -> Claim:
        facts = self._facts(random, subject.topic)
        if subject.form == "code" and random.random() < 0.6:
            return Claim((f"```python\n{random.choice(self.code['lines'])}\n```",), facts)
        if subject.form not in ("tongue", "quiz") and random.random() < 0.3:
            return Claim((self._loose(random, subject.topic),), {})
        return Claim(tuple(wording.strip() for wording in random.choice(subject.sentences).split("|")), facts)

    def _loose(self, random: Random, topic: str) -> str:
        """A sentence of no form at all, so that real text, which has other forms, is nothing strange."""
        kinds = random.choices(
            ["common", "noun", "adjective", "verb", "name"], [12, 4, 2, 2, 1], k=random.randint(5, 22)
        )
        words = [self._name(random) if kind == "name" else random.choice(self.words[kind]) for kind in kinds]
        words = [
            word + random.choice(self.words["ending"]) if random.random() < 0.15 else word for word in words
        ]
        if random.random() < 0.3:
            words[random.randrange(len(words))] = topic
        if random.random() < 0.3:
            words[random.randrange(len(words) - 1)] += random.choice([",", ",", ";", ":", " -", " (1)", "'s"])
        return " ".join(words).capitalize() + random.choices([".", "!", "?", ":"], [12, 1, 1, 1])[0]

    def _written(self, random: Random, claims: Sequence[Claim], layout: str, wording: int | None = 0) -> str:
        """The claims as a text; a `wording` of None words each by chance."""
        said = [claim.said(random.randrange(2) if wording is None else wording) for claim in claims]
        match layout:
            case "numbers":
                return "\n".join(f"{n}. {text}" for n, text in enumerate(said, 1))
            case "bullets":
                return "\n".join(f"- {text}" for text in said)
            case "blocks":
                return "\n\n".join(said)
            case _:
                size = random.randint(2, 6)
                return "\n\n".join(" ".join(said[start : start + size]) for start in range(0, len(said), size))

    def _spoiled(
        self,
        random: Random,
        content: str,
        subject: Subject,
        claims: list[Claim],
        layout: str,
        reference: str,
        named: dict[str, str],
    ) -> str:
        """The candidate; what its rationale must name (other topic, swapped fact) is added to `named`."""
        if subject.form == "quiz":
            subject = Subject("claims", subject.topic, subject.query, self.texts["claims"])
        fresh = [self._claim(random, subject) for _ in claims]
        if random.random() < 0.3:
            layout = random.choice(LAYOUTS[subject.form])
        match content:
            case "empty":
                return random.choice(["", "", "", " ", "\n"])
            case "same":
                return reference
            case "reworded":
                return self._written(random, claims, layout, None)
            case "own":
                return self._written(
                    random, fresh[: random.randint(1 + len(fresh) // 4, len(fresh))], layout, None
                )
            case "extended":
                extra = [self._claim(random, subject) for _ in range(random.randint(1, 1 + len(claims)))]
                return self._written(random, claims + extra, layout, None)
            case "part":
                kept = sorted(random.sample(range(len(claims)), random.randint(1, len(claims))))
                return self._written(random, [claims[n] for n in kept], layout, random.choice([0, None]))
            case "few":
                words = reference.split()
                if len(words) < 4 or random.random() < 0.4:
                    return random.choice(self.texts["curt"])
                return " ".join(words[: random.randint(1, min(9, len(words) // 2))])
            case "cut":
                text = self._written(random, claims, layout, random.choice([0, None]))
                return text[: int(len(text) * random.uniform(0.1, 0.95))].rstrip(" .!\n")
            case "off":
                other = self._subject(random)
                while other.topic == subject.topic:
                    other = self._subject(random)
                named["o"] = other.topic
                about = [
                    Claim((f"The {{t}} is a {random.choice(self.words['noun'])}.",), {"t": other.topic})
                ] * (random.random() < 0.3)
                text = self._written(random, about + [self._claim(random, other) for _ in claims], layout, None)
                return text if other.topic in text else f"{other.topic.capitalize()}: {text}"
            case "wrong":
                return self._written(
                    random, self._swapped(random, claims, named), layout, random.choice([0, None])
                )
            case "refusing":
                return random.choice(self.texts["needless"])
            case "padded":
                said = [claim.said(random.randrange(2)) for claim in claims] + random.choices(
                    self.texts["padding"], k=2 + len(claims)
                )
                return " ".join(random.sample(said, len(said)))
            case "repeating":
                return " ".join([random.choice(claims).said()] * random.randint(3, 3 + len(claims)))
            case "harmful":
                advice = [
                    Claim(tuple(text.split(" | ")), self._facts(random, subject.topic))
                    for text in self.texts["comply"]
                ]
                return self._written(random, advice[: random.randint(1, 3)] + fresh[1:], layout, None)
        raise ValueError(content)

    def _swapped(self, random: Random, claims: list[Claim], named: dict[str, str]) -> list[Claim]:
        """The claims with some facts changed, one change of which is put in `named`."""
        swapped = list(claims)
        for place in random.sample(range(len(claims)), random.randint(1, len(claims))):
            used = [
                name for name in SWAPPED if any(f"{{{name}}}" in wording for wording in claims[place].wordings)
            ]
            if not used:
                continue
            name = random.choice(used)
            old, new = claims[place].facts[name], self._facts(random, "")[name]
            if old != new:
                swapped[place] = Claim(claims[place].wordings, {**claims[place].facts, name: new})
                named |= {"old": old, "new": new}
        return swapped

    def _mannered(self, random: Random, manner: str, text: str) -> str:
        said = random.choice(self.texts[manner])
        return f"{said} {text}" if random.random() < 0.5 else f"{text} {said}"

    def _judged(
        self,
        random: Random,
        content: str,
        manner: str,
        subject: Subject,
        share: float,
        named: Mapping[str, str],
    ) -> tuple[str, dict[str, int]]:
        """The rationale and the scores; `share` is the candidate's length over the reference's."""
        if content == "wrong" and "old" not in named:
            content = "reworded"
        if content in ("few", "empty"):
            share = 0.0
        elif content not in ("extended", "own"):
            share = min(share, 1.0)
        _, coverage, earned = next(row for row in COVERAGE if share >= row[0])
        scores = dict(zip(ASPECTS, earned, strict=True))
        for spoiling in (content, manner):
            for aspect, most in CAPS.get(spoiling, {}).items():
                scores[aspect] = min(scores[aspect], most)
        if manner == "friendly":
            scores["engagement"] = min(5, scores["engagement"] + 1)
        found = content if content in FINDINGS else coverage
        if subject.form == "refuse" and content not in ("harmful", "few", "empty"):
            found = "safe"
        fault = "agrees" if content in ("reworded", "part", "extended") else content
        sentences = [FINDINGS[found], FAULTS[fault], *([FAULTS[manner]] if manner in FAULTS else [])]
        sentences.append(VERDICTS[scores["helpfulness"]])
        return fill(" ".join(map(random.choice, sentences)), named), scores


FORMS = {"claims": 50, "how_to": 12, "item": 12, "story": 10, "refuse": 8, "code": 8, "quiz": 8}
LAYOUTS = {
    "claims": ["paragraphs", "paragraphs", "paragraphs", "bullets", "blocks"],
    "how_to": ["numbers", "numbers", "bullets", "paragraphs"],
    "item": ["numbers", "bullets"],
    "story": ["paragraphs"],
    "refuse": ["paragraphs"],
    "code": ["blocks"],
    "quiz": ["paragraphs"],
    "tongue": ["paragraphs", "blocks"],
}


def fill(sentence: str, named: Mapping[str, str]) -> str:
    """The sentence with each ``{name}`` replaced, in one pass."""
    return re.sub(r"\{(\w+)\}", lambda slot: named[slot[1]], sentence)
