"""What the tables of agreement have for each aspect, with and without an order, and for pairs."""

from __future__ import annotations

from collections.abc import Iterator

from localjudge.statistics import Estimate
from localjudge.system.quantities import counted


def aspect_title(aspect: str, compared: str, *, instructions: int, annotators: int) -> str:
    """Return the title of the statistics of an aspect.

    Args:
        aspect: the aspect.
        compared: what is compared, with its number: rows or pairs.
        instructions: number of their instructions.
        annotators: number of annotators.
    """
    counts = f"{compared}, {counted(instructions, 'instruction')}, {counted(annotators, 'annotator')}"
    return f"{aspect} · {counts}"


def alpha_lines(level: str, alpha: Estimate) -> Iterator[str]:
    """Yield the agreement among the annotators, if it is defined.

    Args:
        level: the level of measurement of the labels, "ordinal" or "nominal".
        alpha: Krippendorff's alpha.
    """
    if alpha.value is not None:
        yield (
            "Agreement among the annotators, which does not limit a judge: Krippendorff's "
            f"{level} alpha {alpha.in_words()}"
        )
