"""The token table and its limits as vLLM's processes get them: a file, and a part of vLLM's configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import VALUE_RULE
from localjudge.engines.protocol import Decoding
from localjudge.system.durable import replacing

KEY = "localjudge"
"""The name of a request's argument, and of our part of vLLM's configuration."""
STATE = "localjudge_state"
"""The name of a request's argument: the state of the table in which it begins, for a branch of an answer."""
Runner = Literal["V1", "V2"]
"""A model runner of vLLM."""


def table_digest(decoding: Decoding) -> str:
    """Return the digest of a table, its rule of values and the limits of its answers, 32 hex digits."""
    limits = decoding.closing_margin, decoding.text_tokens, decoding.thinking_budget
    return hashlib.sha256(json.dumps([VALUE_RULE, decoding.table.digest, *limits]).encode()).hexdigest()[:32]


def table_config(decoding: Decoding, table: Path, slots: int = 0) -> dict[str, Any]:
    """Return vLLM's `additional_config` for a table.

    Args:
        decoding: the limits of the answers.
        table: the file that holds the table.
        slots: the number of answers whose scores are kept at a time; a server keeps none.
    """
    limits = {name: getattr(decoding, name) for name in ("closing_margin", "text_tokens", "thinking_budget")}
    return {KEY: {"table": str(table), "slots": slots, **limits}}


def read_config(vllm_config: Any) -> tuple[Decoding, int]:
    """Return how answers are decoded, and the slots, of a configuration of vLLM that `table_config` made."""
    settings = dict(vllm_config.additional_config[KEY])
    table, slots = TokenTable.load(Path(settings.pop("table"))), settings.pop("slots")
    return Decoding(table, **settings), slots


def serve_flags(
    decoding: Decoding, table: Path, runner: Runner, hf_overrides: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the flags of `vllm serve` that put a table into its sampler; write the table to a file.

    Args:
        decoding: how answers are decoded.
        table: the file for the table; the server reads it when it starts.
        runner: the model runner that the server takes.
        hf_overrides: values of the model's configuration that the server replaces, if any.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(table) as scratch:
        decoding.table.save(scratch)
    processor = f"localjudge.engines.vllm.runners:{runner}_{table_digest(decoding)}"
    config = json.dumps(table_config(decoding, table), separators=(",", ":"))
    flags = ["--logits-processors", processor, "--additional-config", config]
    flags += ["--generation-config", "vllm", "--logprobs-mode", "raw_logprobs"]
    if hf_overrides:
        flags += ["--hf-overrides", json.dumps(dict(hf_overrides))]
    return flags
