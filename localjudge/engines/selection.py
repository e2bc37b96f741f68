"""Choose an engine by its name, read its options, and open it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from localjudge.engines.engine_options import (
    Cluster,
    DryRunOptions,
    ServerOptions,
    TableServerOptions,
    TransformersOptions,
    VllmOptions,
)
from localjudge.errors import SettingError
from localjudge.secret_options import secrets_of
from localjudge.secret_texts import remember_secret
from localjudge.system.requirements import installed, require

if TYPE_CHECKING:
    from localjudge.engines.protocol import Decoding, TableEngine
    from localjudge.models.model import Model

_EXTRAS = {"vllm": ["vllm"], "transformers": ["cpu"], "server": ["server"]}
"""The extras of the package that an engine needs; the others need none."""

EngineOptions = DryRunOptions | ServerOptions | TableServerOptions | TransformersOptions | VllmOptions


def choose_engine(name: str) -> tuple[str, str]:
    """Return the engine that a name stands for on this machine, and the reason.

    `auto` stands for vLLM if it is installed and there is a GPU, and for transformers otherwise.
    """
    if name != "auto":
        return name, "as requested"
    if installed("vllm") is None:
        return "transformers", "because vLLM is not installed"
    with suppress(ImportError, OSError):  # the engine that is chosen reports it
        import torch

        if torch.cuda.is_available():
            return "vllm", "because there is a GPU"
    return "transformers", "because there is no GPU for vLLM"


def engine_extras(name: str, cluster: Cluster | None = None) -> list[str]:
    """Return the extras that an engine needs in this process.

    Args:
        name: the engine's name.
        cluster: the cluster whose workers have such an engine, if any.
    """
    if cluster is not None:
        return ["ray"]
    engine, _ = choose_engine(name)
    return _EXTRAS.get(engine, [])


def engine_options(name: str, options: Mapping[str, str], cluster: Cluster | None = None) -> EngineOptions:
    """Check an engine's packages and read its options, before a model is looked for.

    The secrets in the options are hidden from now on in all that this process prints.

    Args:
        name: one of `localjudge.config.EngineName`.
        options: the engine's own options, normalized.
        cluster: the cluster whose workers each have such an engine, if any. There, each worker decides what
            `auto` stands for; here, its options are read as vLLM's, which accepts any.

    Raises:
        UsageError: packages are not installed, or the engine does not know an option.
    """
    if name == "server" and cluster is not None:
        raise SettingError("engine", name, "a server has workers of its own; leave `ray` out")
    for secret in secrets_of(options):
        remember_secret(secret)
    purpose = "a Ray cluster" if cluster else f"engine {name}"
    require(purpose, *engine_extras(name, cluster))
    if cluster is None:
        name, _ = choose_engine(name)
    if name == "server":
        return _server_options(options)
    if name == "dry-run":
        return DryRunOptions.parse(options)
    if name == "transformers":
        return TransformersOptions.parse(options)
    return VllmOptions.parse(options)


def _server_options(options: Mapping[str, str]) -> ServerOptions | TableServerOptions:
    """Read the options of a server of the kind that they name."""
    others = dict(options)
    kind = others.pop("server_kind", "unverified")
    if kind == "table":
        return TableServerOptions.parse(others)
    if kind == "unverified":
        return ServerOptions.parse(others)
    raise SettingError("server_kind", kind, "give unverified or table")


def open_engine(
    options: EngineOptions,
    model: Model,
    decoding: Decoding,
    *,
    context: int | None = None,
    log: Path | None = None,
) -> TableEngine:
    """Open the engine of these options in this process, with the model loaded.

    Args:
        options: the result of `engine_options`.
        model: the model.
        decoding: how answers are decoded.
        context: the most tokens of a prompt and its answer, if known.
        log: a file for the output of the engine's libraries.

    Raises:
        UsageError: the engine does not know an option.
        ModelError: the model cannot be loaded.
    """
    match options:
        case ServerOptions():
            raise SettingError("engine", "server", "a server answers with text, and applies no token table")
        case TableServerOptions():
            from localjudge.engines.server.table_server import TableServer

            return TableServer(model, decoding, options)
        case DryRunOptions():
            from localjudge.engines.dry_run import DryRunEngine

            return DryRunEngine(model, decoding, options)
        case TransformersOptions():
            from localjudge.engines.transformers.transformers_engine import TransformersEngine

            return TransformersEngine(model, decoding, options)
        case VllmOptions():
            from localjudge.engines.engine_log import output_to

            with output_to(log):  # vLLM prints messages as soon as it is imported
                from localjudge.engines.vllm.vllm_engine import VllmEngine

            return VllmEngine(model, decoding, options, context=context, log=log)
