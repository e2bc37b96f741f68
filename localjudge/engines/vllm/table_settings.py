"""The token table and its limits as vLLM's processes get them: a file, and a part of vLLM's configuration."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import VALUE_RULE
from localjudge.engines.protocol import Decoding
from localjudge.system.durable import replacing

KEY = "localjudge"
"""The name of a request's argument, and of our part of vLLM's configuration."""
STATE = "localjudge_state"
"""The name of a request's argument: the state of the table in which it begins, if not where an answer does."""
Runner = Literal["V1", "V2"]
"""A model runner of vLLM."""


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
        margin, budget = decoding.closing_margin, decoding.thinking_budget
        return cls(str(table), margin, decoding.text_tokens, budget, decoding.max_tokens, slots)

    def digest(self, table: TokenTable) -> str:
        """Return the digest of a table, its rule of values and the limits of its answers, 32 hex digits."""
        limits = self.closing_margin, self.text_tokens, self.thinking_budget, self.max_tokens
        return hashlib.sha256(json.dumps([VALUE_RULE, table.digest, *limits]).encode()).hexdigest()[:32]

    def as_config(self) -> dict[str, Any]:
        """Return the settings as vLLM's `additional_config`."""
        return {KEY: asdict(self)}

    @classmethod
    def from_vllm(cls, vllm_config: Any) -> TableSettings:
        return cls(**vllm_config.additional_config[KEY])


def serve_flags(decoding: Decoding, table: Path, runner: Runner) -> list[str]:
    """Return the flags of `vllm serve` that put a table into its sampler; write the table to a file.

    Args:
        decoding: how answers are decoded.
        table: the file for the table; the server reads it when it starts.
        runner: the model runner that the server takes.

    Raises:
        OSError: the file cannot be written.
    """
    settings = TableSettings.from_decoding(decoding, table)
    with replacing(table) as scratch:
        decoding.table.save(scratch)
    processor = f"localjudge.engines.vllm.runners:{runner}_{settings.digest(decoding.table)}"
    config = json.dumps(settings.as_config(), separators=(",", ":"))
    others = ["--generation-config", "vllm", "--logprobs-mode", "raw_logprobs"]
    return ["--logits-processors", processor, "--additional-config", config, *others]
