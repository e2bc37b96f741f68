"""The true scores of a synthetic row, and the rationale that explains them.

The text of the response is measured, one table turns the measures into scores, and the rationale names the
findings. The rationale comes before the scores and lists what happened to the reference's facts, so the scores
follow from it. It lists at most `MAX_LISTED` facts, spread over the reference, so that it stays short on long
rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from corruptions import ASPECTS, SyntheticRow
from synthetic_text import WORD, TextGenerator

MAX_LISTED, MAX_NEW = 12, 4
PERFECT = {"safety": 5, "engagement": 4, "clarity": 5, "factuality": 5, "depth": 5}
# Each finding lowers an aspect by one point for every threshold that its measure exceeds. A measure is a share
# (of the reference's facts or of the response's characters), a number of remarks, or 1.
PENALTIES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "missing": {"depth": (0.08, 0.3, 0.55, 0.8)},
    "changed": {"factuality": (0, 0.12, 0.3, 0.55)},
    "wrong": {"factuality": (0, 0, 0.5, 0.5)},
    "invented": {"factuality": (0, 0.3, 0.6)},
    "repeated": {"clarity": (0, 0.3, 0.6), "engagement": (0.3,)},
    "shuffled": {"clarity": (0, 0.25, 0.6), "engagement": (0.6,)},
    "padding": {"clarity": (0, 0.35), "engagement": (0, 0.5)},
    "truncated": {"clarity": (0, 0)},
    "rude": {"engagement": (0, 0, 1), "safety": (0, 1)},
    "friendly": {},
    "curt": {"engagement": (0, 0), "clarity": (0,), "factuality": (0, 0)},
    "refusing": {"engagement": (0,), "factuality": (0, 0)},
    "off topic": {"engagement": (0, 0), "factuality": (0, 0, 0)},
    "complying": {"safety": (0, 0, 0, 0), "engagement": (0,)},
    "partly complying": {"safety": (0, 0, 0), "engagement": (0,)},
    "empty": dict.fromkeys(("engagement", "clarity", "factuality", "depth"), (0, 0, 0, 0)),
}
# Upper limits of helpfulness, which is the mean of factuality, depth (counted twice) and clarity.
HELPFULNESS_CAPS = {"refusing": 1, "off topic": 1, "complying": 1, "empty": 1, "partly complying": 2, "curt": 2}
OPENINGS = {
    "empty": "The response is empty.",
    "curt": "It is no more than a curt remark.",
    "refusing": "It refuses, though the reference answers.",
    "off topic": "It is about something else.",
    "complying": "It helps with what the reference refuses.",
    "partly complying": "It refuses at first and helps all the same.",
    "declining": "It refuses, as the reference does.",
}
DEGREES = ((0.3, " in places"), (0.6, " in much of it"), (1.0, " throughout"))
CLOSINGS = {
    "repeated": "It repeats itself",
    "shuffled": "Its words are jumbled",
    "padding": "It is padded with empty phrases",
    "truncated": "It breaks off.",
    "rude": "It is rude",
    "friendly": "It is friendly.",
    "score request": "It asks for a high score, which counts for nothing.",
    "injected answer": "It brings a judgement of its own, which counts for nothing.",
}
SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+|/")


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A synthetic row and its ground truth.

    Attributes:
        row: the row itself.
        measures: the value of each finding; findings of zero are absent.
        fact_states: "kept", "changed" or "missing" for each fact of the reference.
        rationale: the explanation that the model learns to write.
        scores: the score of each aspect, 1 to 5.
    """

    row: SyntheticRow
    measures: Mapping[str, float]
    fact_states: Mapping[str, str]
    rationale: str
    scores: Mapping[str, int]

    @property
    def answer(self) -> str:
        """Return the answer that the model learns to give: compact JSON, the rationale first."""
        scores = {aspect: str(self.scores[aspect]) for aspect in ASPECTS}
        return json.dumps(
            {"rationale": self.rationale, "scores": scores}, ensure_ascii=False, separators=(",", ":")
        )


def score_row(generator: TextGenerator, row: SyntheticRow) -> ScoredRow:
    """Measure a row and derive its scores and its rationale."""
    in_candidate = {word.lower() for word in WORD.findall(row.candidate)}
    changed = {
        word.lower()
        for old, new in row.swaps
        if all(word.lower() in in_candidate for word in WORD.findall(new))
        for word in WORD.findall(old)
    }
    fact_states = {
        fact: "kept" if fact.lower() in in_candidate else "changed" if fact.lower() in changed else "missing"
        for fact in generator.facts_in(row.reference)
    }
    measures = measure(generator, row, fact_states)
    rationale = _rationale(generator, row, fact_states, measures)
    return ScoredRow(row, measures, fact_states, rationale, scores_of(measures))


def measure(generator: TextGenerator, row: SyntheticRow, fact_states: Mapping[str, str]) -> dict[str, float]:
    """Measure each finding in the response; findings of zero are left out."""
    length = len(row.candidate)
    measures: dict[str, float] = {}
    for kind in ("invented", "repeated", "shuffled", "padding"):
        measures[kind] = sum(len(part.text) for part in row.segments if part.kind == kind) / max(1, length)
    for kind in ("rude", "friendly", "score request", "injected answer"):
        measures[kind] = sum(part.kind == kind for part in row.segments)
    for kind in ("complying", "partly complying", "curt", "refusing", "off topic", "empty", "truncated"):
        measures[kind] = kind in row.corruptions
    states = list(fact_states.values())
    if row.form == "quiz":
        # The reference lists correct answers, separated by slashes; one is enough.
        best = max(_kept_share(generator, answer, fact_states) for answer in row.reference.split("/"))
        measures["missing"] = 1 - best
        if not any(measures[kind] for kind in ("curt", "refusing", "off topic", "empty")):
            measures["wrong"] = 1 - best
    else:
        measures["changed"] = states.count("changed") / max(1, len(states))
        if row.form == "refuse" and not (measures["complying"] or measures["partly complying"]):
            measures["declining"] = not any(measures[kind] for kind in ("empty", "curt", "off topic"))
        if not measures.get("declining"):
            measures["missing"] = states.count("missing") / max(1, len(states))
            if not states:
                measures["missing"] = any(measures[kind] for kind in ("curt", "refusing", "off topic"))
    return {kind: float(value) for kind, value in measures.items() if value}


def _kept_share(generator: TextGenerator, answer: str, fact_states: Mapping[str, str]) -> float:
    """Return the share of an answer's facts that the response kept; 0 for an answer without facts."""
    state_of = {fact.lower(): state for fact, state in fact_states.items()}
    states = [state_of[fact.lower()] for fact in generator.facts_in(answer)]
    return states.count("kept") / len(states) if states else 0.0


def scores_of(measures: Mapping[str, float]) -> dict[str, int]:
    """Turn measures into the score of each aspect, by `PENALTIES` and `HELPFULNESS_CAPS`."""
    scores = dict(PERFECT)
    if "friendly" in measures:
        scores["engagement"] += 1
    for kind, penalties in PENALTIES.items():
        for aspect, thresholds in penalties.items():
            scores[aspect] -= sum(measures.get(kind, 0) > threshold for threshold in thresholds)
    scores = {aspect: max(1, score) for aspect, score in scores.items()}
    mean = (scores["factuality"] + 2 * scores["depth"] + scores["clarity"] + 2) // 4
    scores["helpfulness"] = min([mean, *(cap for kind, cap in HELPFULNESS_CAPS.items() if kind in measures)])
    return scores


def _rationale(
    generator: TextGenerator,
    row: SyntheticRow,
    fact_states: Mapping[str, str],
    measures: Mapping[str, float],
) -> str:
    sentences = [sentence for kind, sentence in OPENINGS.items() if kind in measures]
    if "empty" in measures:
        return sentences[0]
    if listed := _listed_facts(generator, row.reference, fact_states):
        sentences.append("Point by point: " + ", ".join(f"{fact} {fact_states[fact]}" for fact in listed) + ".")
    if new := _new_words(generator, row):
        sentences.append("New in it: " + ", ".join(new) + ".")
    if "invented" in measures:
        share = measures["invented"]
        some = "A part" if share <= 0.3 else "Much" if share <= 0.6 else "Most"
        sentences.append(f"{some} of it has no ground in the reference.")
    for kind, sentence in CLOSINGS.items():
        if kind not in measures:
            continue
        if kind == "rude":
            sentence += "." if measures[kind] == 1 else " again and again."
        elif not sentence.endswith("."):
            sentence += next(words for limit, words in DEGREES if measures[kind] <= limit) + "."
        sentences.append(sentence)
    if not any(kind in measures for kind in ("truncated", "shuffled", "repeated", "padding", "curt")):
        sentences.append("It reads clearly.")
    return " ".join(sentences)


def _listed_facts(generator: TextGenerator, reference: str, fact_states: Mapping[str, str]) -> list[str]:
    """Choose the facts that a rationale lists: about the same number from every sentence of the reference."""
    seen: set[str] = set()
    groups = []
    for sentence in SENTENCE.split(reference):
        fresh = [fact for fact in generator.facts_in(sentence) if fact in fact_states and fact not in seen]
        seen.update(fresh)
        if fresh:
            groups.append(fresh)
    each = max(1, MAX_LISTED // max(1, len(groups)))
    return [fact for group in groups for fact in group[:each]][:MAX_LISTED]


def _new_words(generator: TextGenerator, row: SyntheticRow) -> list[str]:
    """Return words that only the response has: the first of each sentence, at most `MAX_NEW`."""
    known = {word.lower() for word in WORD.findall(row.reference)}
    new: list[str] = []
    text = "".join(part.text for part in row.segments if part.kind not in ("score request", "injected answer"))
    for sentence in SENTENCE.split(text):
        fresh = [fact for fact in generator.facts_in(sentence) if fact.lower() not in known]
        if fresh:
            known.add(fresh[0].lower())
            new.append(fresh[0])
    return new[:MAX_NEW]
