"""The parts that both of vLLM's model runners need inside its workers: the table, and access to the scores.

vLLM creates logits processors itself, in its worker processes, from a class and its own configuration. So the
table is passed as a file, named in `additional_config`; a request names the slot of its scores in `extra_args`;
and `ScoreCollector`, which vLLM mixes into its worker, returns the scores. On a vLLM server a request names the
table instead (`localjudge.engines.vllm.served_table`), and no scores are kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import VALUE_RULE
from localjudge.engines.protocol import Decoding

KEY = "localjudge"
"""The name of a request's argument, and of our part of vLLM's configuration."""
STATE = "localjudge_state"
"""The name of a request's argument: the state of the table in which it begins, if not where an answer does."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings that a worker receives.

    Attributes:
        table: the file that holds the token table.
        closing_margin: as in `Decoding`.
        text_tokens, thinking_budget: as in `Decoding`.
        max_tokens: the most tokens of any answer, including the thinking before it.
        slots: the number of answers whose scores are kept at a time.
    """

    table: str
    closing_margin: int
    text_tokens: int
    thinking_budget: int | None
    max_tokens: int
    slots: int

    @classmethod
    def from_decoding(cls, decoding: Decoding, table: Path, slots: int = 0) -> Self:
        """Return the settings for this decoding and this file of the table; a server has 0 slots for scores."""
        return cls(
            table=str(table),
            closing_margin=decoding.closing_margin,
            text_tokens=decoding.text_tokens,
            thinking_budget=decoding.thinking_budget,
            max_tokens=decoding.max_tokens,
            slots=slots,
        )

    def digest(self, table: TokenTable) -> str:
        """Return the digest of a table, its rule of values and the limits of its answers, 32 hex digits."""
        identity = [
            VALUE_RULE,
            table.digest,
            self.closing_margin,
            self.text_tokens,
            self.thinking_budget,
            self.max_tokens,
        ]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    def as_config(self) -> dict[str, Any]:
        """Return the settings as vLLM's `additional_config`."""
        return {KEY: asdict(self)}

    @classmethod
    def from_vllm(cls, vllm_config: Any) -> TableSettings:
        return cls(**vllm_config.additional_config[KEY])


def slot_of(params: Any, slots: int) -> int | None:
    """Return the slot of a request's scores; None if the request is not an answer.

    Args:
        params: vLLM's parameters of the request.
        slots: the number of slots; also the slot of an answer whose scores nobody fetches.
    """
    slot = (params.extra_args or {}).get(KEY)
    if slot is None:
        return None
    return slot if isinstance(slot, int) and 0 <= slot < slots else slots


def entry_of(params: Any, table: TokenTable) -> int:
    """Return the state in which a request begins."""
    state = (params.extra_args or {}).get(STATE)
    return state if isinstance(state, int) and 0 <= state < len(table.distance) else table.entry


class TableHolder:
    """What the logits processors of both runners share."""

    is_localjudge = True

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request that asks for several answers."""
        if (sampling_params.extra_args or {}).get(KEY) is not None and sampling_params.n != 1:
            raise ValueError("localjudge: send n requests for n answers, so that each keeps its own scores")

    @classmethod
    def load_table(cls, settings: TableSettings) -> TokenTable:
        return TokenTable.load(Path(settings.table))


class ScoreCollector:
    """vLLM's worker extension."""

    model_runner: Any

    def localjudge_take_scores(self, slots: list[int]) -> bytes:
        """Return `ScoreBuffer.take` of these slots, as the bytes of a float64 array."""
        kept: bytes = self._localjudge_processor().scores.take(slots).tobytes()
        return kept

    def _localjudge_processor(self) -> Any:
        runner = self.model_runner
        of_v2 = getattr(getattr(runner, "sampler", None), "logits_processors", None)
        processors = of_v2 or runner.input_batch.logitsprocs.all
        return next(processor for processor in processors if getattr(processor, "is_localjudge", False))
