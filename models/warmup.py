"""Warm-up rows: lists of single words, for the first steps of the training."""

from __future__ import annotations

from random import Random

from corruptions import SyntheticRow
from synthetic_text import Segment, TextGenerator

WARMUP_FORM = "warmup"


def warmup_row(generator: TextGenerator, random: Random, longest: int) -> SyntheticRow:
    """Draw a row of up to `longest` single words, some of them dropped, swapped, added or moved."""
    known = [generator.fact(random) for _ in range(max(2, longest // 3))]
    reference = [
        random.choice(generator.words["common"])
        if random.random() < 0.35
        else random.choice(known)
        if random.random() < 0.25
        else generator.fact(random)
        for _ in range(random.randint(2, longest))
    ]
    omit, swap, add = (random.choice([0, 0, share, 0.5, 0.9]) for share in (0.2, 0.15, 0.1))
    words: list[Segment] = []
    swaps = []
    for word in reference:
        if random.random() < omit:
            continue
        if generator.is_fact(word) and random.random() < swap:
            words.append(Segment(generator.fact(random), "swapped"))
            swaps.append((word, words[-1].text))
        else:
            words.append(Segment(word))
        if random.random() < add / 2:
            words.append(
                Segment(random.choice([generator.fact(random), random.choice(generator.words["common"])]))
            )
    if random.random() < 0.3:
        place = random.randint(0, len(words))
        words = words[place:] + words[:place]
    segments = [part for word in words for part in (Segment(" "), word)][1:]
    if random.random() < 0.3 and segments:
        segments[0] = Segment(segments[0].text.capitalize(), segments[0].kind)
    return SyntheticRow(
        WARMUP_FORM, "-", " ".join(reference) + ".", (*segments, Segment(".")), tuple(swaps), ()
    )
