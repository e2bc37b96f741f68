"""The token table on a vLLM server: `vllm serve --logits-processors localjudge.engines.vllm.served_table:V1_…`.

The name of the class holds the digest of the table and of its limits, because vLLM validates a request where
only the class is known. A request asks for the table by this digest. If the server has another table, this
request alone gets an error: an error that a processor raised later would stop the server for all clients.
Requests that do not ask for a table are not changed.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from localjudge.constraint.token_table import TokenTable
from localjudge.engines.protocol import Decoding
from localjudge.engines.vllm.score_collector import KEY, TableSettings
from localjudge.system.durable import replacing

_NAME = re.compile(r"(V[12])_([0-9a-f]{32})")
# Parameters that can forbid the tokens that the table allows; the sampler has nothing to sample then.
_CONFLICTING = (
    "structured_outputs", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "thinking_token_budget",
)  # fmt: skip


Runner = Literal["V1", "V2"]
"""A model runner of vLLM."""


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
    return [
        "--logits-processors",
        f"{__name__}:{runner}_{settings.digest(decoding.table)}",
        "--additional-config",
        json.dumps(settings.as_config(), separators=(",", ":")),
        "--generation-config",
        "vllm",
        "--logprobs-mode",
        "raw_logprobs",
    ]


def __getattr__(name: str) -> type[Any]:
    found = _NAME.fullmatch(name)
    if found is None:
        raise AttributeError(f"module {__name__} has no {name}")
    return _processor(*found.groups())


@cache
def _processor(runner: str, digest: str) -> type[Any]:
    """Return the logits processor of a model runner for the table with this digest."""
    module = import_module(f"localjudge.engines.vllm.{runner.lower()}_runner")
    base: Any = module.TableProcessor

    class ServedTable(base):  # type: ignore[misc]
        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            refuse(sampling_params, digest)

        @classmethod
        def load_table(cls, settings: TableSettings) -> TokenTable:
            table: TokenTable = super().load_table(settings)
            if (there := settings.digest(table)) != digest:
                raise ValueError(
                    f"localjudge: {settings.table} holds the table {there}, and not {digest}; print the flags "
                    "again with localjudge serve --print-vllm-flags"
                )
            return table

    ServedTable.__name__ = ServedTable.__qualname__ = f"{runner}_{digest}"
    ServedTable.__module__ = __name__
    return ServedTable


def refuse(params: Any, digest: str) -> None:
    """Refuse a request for another table, with options that a table excludes, or that would crash the server.

    Args:
        params: vLLM's parameters of the request.
        digest: the digest of the server's table.

    Raises:
        ValueError: the request is refused; vLLM answers it with status 400.
    """
    if params.seed is not None and _is_on_cpu():
        raise ValueError("localjudge: the seed of a request crashes a vLLM on a CPU; leave it out")
    asked = (params.extra_args or {}).get(KEY)
    if asked is None:
        return
    if asked != digest:
        raise ValueError(
            f"localjudge: this server has the table {digest}; judge with the model, rubric and limits of its "
            "localjudge serve --print-vllm-flags"
        )
    if params.n != 1:
        raise ValueError("localjudge: send n requests for n answers")
    if conflicting := [name for name in _CONFLICTING if getattr(params, name, None)]:
        raise ValueError(f"localjudge: {conflicting[0]} cannot be combined with a token table; leave it out")


def _is_on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
