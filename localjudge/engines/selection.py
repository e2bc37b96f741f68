"""Choose and open an engine by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from localjudge.engines.cluster import Cluster
from localjudge.engines.protocol import Decoding, Engine
from localjudge.errors import SettingError
from localjudge.models.model import Model
from localjudge.system.requirements import installed, require

ENGINES = ("auto", "transformers", "vllm", "dry-run")


def engine_extras(name: str, cluster: Cluster | None = None) -> list[str]:
    """Return the extras that an engine needs in this process.

    Raises:
        UsageError: there is no such engine.
    """
    if name not in ENGINES:
        raise SettingError("engine", name, f"give one of {', '.join(ENGINES)}")
    if cluster is not None:
        return ["ray"]
    if name == "vllm":
        return ["vllm"]
    return ["cpu"] if name == "transformers" or (name == "auto" and installed("vllm") is None) else []


def check_engine(name: str, options: Mapping[str, str], cluster: Cluster | None = None) -> None:
    """Check an engine's name, packages and options before a model is loaded.

    Args:
        name: one of `ENGINES`.
        options: the engine's own options, normalized.
        cluster: the cluster whose workers each have such an engine, if any.

    Raises:
        UsageError: there is no such engine, its packages are not installed, or it does not know an option.
    """
    extras = engine_extras(name, cluster)
    require("--ray" if cluster else f"--engine {name}", *extras)
    if options and name == "dry-run":
        from localjudge.engines.dry_run import parse_rate

        parse_rate(options)
    elif options and extras == ["cpu"]:
        from localjudge.engines.transformers import TransformersOptions

        TransformersOptions.parse(options)


def open_engine(
    name: str,
    model: Model,
    decoding: Decoding,
    options: Mapping[str, str],
    *,
    context: int | None = None,
    log: Path | None = None,
) -> Engine:
    """Open the engine of this name in this process, with the model loaded.

    Args:
        name: one of `ENGINES`; `auto` is vLLM if it is installed and there is a GPU.
        model: the model.
        decoding: how answers are decoded.
        options: the engine's own options, normalized.
        context: the tokens of the longest prompt and its answer, if known.
        log: a file for the output of the engine's libraries.

    Raises:
        UsageError: the engine is not installed, or does not know an option.
        ModelError: the model cannot be loaded.
    """
    check_engine(name, options)
    if name == "dry-run":
        from localjudge.engines.dry_run import DryRunEngine

        return DryRunEngine(model, decoding, options)
    if name == "vllm" or (name == "auto" and _has_vllm_and_gpu()):
        from localjudge.engines.engine_log import output_to

        with output_to(log):  # vLLM prints messages as soon as it is imported
            from localjudge.engines.vllm.vllm_engine import VllmEngine

        return VllmEngine(model, decoding, options, context=context, log=log)
    from localjudge.engines.transformers import TransformersEngine

    return TransformersEngine(model, decoding, options)


def _has_vllm_and_gpu() -> bool:
    if installed("vllm") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
