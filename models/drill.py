"""Bare comparison, before whole rows: a few loose words, and what is left of them."""

from __future__ import annotations

from random import Random

from spoiling import Made
from world import Segment, World

FORM = "drill"


def drill(world: World, random: Random, longest: int) -> Made:
    """Up to `longest` loose words, and the same with some left out, swapped, added or moved."""
    known = [world.fact(random) for _ in range(max(2, longest // 3))]
    reference = [
        random.choice(world.words["common"])
        if random.random() < 0.35
        else random.choice(known)
        if random.random() < 0.25
        else world.fact(random)
        for _ in range(random.randint(2, longest))
    ]
    leave, swap, add = (random.choice([0, 0, share, 0.5, 0.9]) for share in (0.2, 0.15, 0.1))
    said, swaps = [], []
    for word in reference:
        if random.random() < leave:
            continue
        if world.is_fact(word) and random.random() < swap:
            said.append(Segment(world.fact(random), "swapped"))
            swaps.append((word, said[-1].text))
        else:
            said.append(Segment(word))
        if random.random() < add / 2:
            said.append(Segment(random.choice([world.fact(random), random.choice(world.words["common"])])))
    if random.random() < 0.3:
        place = random.randint(0, len(said))
        said = said[place:] + said[:place]
    segments = [part for segment in said for part in (Segment(" "), segment)][1:]
    if random.random() < 0.3 and segments:
        segments[0] = Segment(segments[0].text.capitalize(), segments[0].kind)
    return Made(FORM, "", " ".join(reference) + ".", (*segments, Segment(".")), tuple(swaps), ())
