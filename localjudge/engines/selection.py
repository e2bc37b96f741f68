"""Choose and open an engine by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from localjudge.engines.cluster import Cluster
from localjudge.engines.protocol import Decoding, Engine, check_engine
from localjudge.models.model import Model
from localjudge.system.requirements import installed

ENGINES = ("auto", "transformers", "vllm", "dry-run")


def open_engine(
    name: str,
    model: Model,
    decoding: Decoding,
    options: Mapping[str, str],
    *,
    context: int | None = None,
    log: Path | None = None,
    cluster: Cluster | None = None,
) -> Engine:
    """The engine of this name, with the model loaded.

    Args:
        name: one of `ENGINES`; `auto` is vLLM where it is installed and there is a GPU.
        model: the model.
        decoding: how answers are decoded.
        options: the engine's own options, normalized.
        context: the tokens that the longest prompt and its answer take, where that is known.
        log: a file for what the engine's libraries have to say.
        cluster: a cluster whose workers have such an engine each; None for one in this process.

    Raises:
        UsageError: no such engine, or an option that it does not know.
        ModelError: the model cannot be loaded.
        EngineError: the cluster has no worker to offer.
    """
    check_engine(name, options, cluster)
    if cluster is not None:
        from localjudge.engines.ray.ray_engine import RayEngine

        return RayEngine(name, model, decoding, options, cluster, context=context, log=log)
    if name == "dry-run":
        from localjudge.engines.dry_run import DryRunEngine

        return DryRunEngine(model, decoding, options)
    if name == "vllm" or (name == "auto" and _has_vllm_and_gpu()):
        from localjudge.engines.output import output_to

        with output_to(log):  # vLLM speaks up as soon as it is imported
            from localjudge.engines.vllm.vllm_engine import VllmEngine

        return VllmEngine(model, decoding, options, context=context, log=log)
    from localjudge.engines.transformers import TransformersEngine

    return TransformersEngine(model, decoding, options)


def _has_vllm_and_gpu() -> bool:
    if installed("vllm") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
