"""The columns of rows that hold two responses, by the names of the formats that people have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PAIR = ("candidate_a", "candidate_b")
"""The fields of a template that compares two responses."""
SYSTEMS = ("system_a", "system_b")
"""The systems that wrote them."""

PAIR_COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "candidate_a": (
        "candidate_a", "response_a", "response_A", "output_1", "response_1", "response1", "answer_a",
        "chosen",
    ),
    "candidate_b": (
        "candidate_b", "response_b", "response_B", "output_2", "response_2", "response2", "answer_b",
        "rejected",
    ),
    "system_a": ("system_a", "generator_1", "model_a", "model_1", "chosen_model"),
    "system_b": ("system_b", "generator_2", "model_b", "model_2", "rejected_model"),
}  # fmt: skip
"""Column names recognized for each field: those of LLMBar, JudgeBench, RewardBench, AlpacaEval and others."""


def compares_responses(used: Iterable[str]) -> bool:
    """Return whether a template with these fields compares two responses."""
    return set(PAIR) <= set(used)
