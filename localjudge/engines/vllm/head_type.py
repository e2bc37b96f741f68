"""The type in which vLLM computes the last layer of a model.

vLLM reads it from `head_dtype` in the model's configuration, which its argument `hf_overrides` can set. It
applies to every token, so a text may change with it, too.

- On a GPU, the product of 16-bit numbers has a result in float32, without a copy of the weights.
- Elsewhere, all weights of the layer are converted to float32 at each step. For 49,152 tokens and a width of
  576, this takes 61 ms instead of 7 ms on a CPU.
- For a quantized layer, vLLM ends with an error at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localjudge.engines.engine_options import VllmOptions
from localjudge.errors import ModelError
from localjudge.models.last_layer import LastLayer, stored_last_layer
from localjudge.models.model import Model
from localjudge.models.tensor_check import quantization_method

# Methods of vLLM 0.32 that quantize a checkpoint while it is loaded. They quantize linear layers and experts,
# but not the last layer.
_WHILE_LOADING = frozenset(
    {
        "experts_int8", "fp8", "fp8_per_block", "fp8_per_channel", "fp8_per_tensor", "humming",
        "int8_per_channel_weight_only", "nvfp4_per_token", "online", "torchao",
    }
)  # fmt: skip
_SLOW = "head_dtype=float32 is slow on this device"


@dataclass(frozen=True, slots=True)
class HeadChoice:
    """What vLLM is told about the type of the last layer.

    Attributes:
        overrides: its part of `hf_overrides`; empty for the type in the model's configuration.
        remark: why `auto` does not choose float32, for people; empty if it does, or if a type was requested.
    """

    overrides: Mapping[str, str]
    remark: str = ""

    @property
    def is_float32(self) -> bool:
        return self.overrides.get("head_dtype") == "float32"


def choose_head(model: Model, options: VllmOptions, *, on_gpu: bool) -> HeadChoice:
    """Return the type of the last layer for a model whose weights have 16 bits in vLLM.

    Args:
        model: the model.
        options: the engine's options; their `head_dtype` is the requested type.
        on_gpu: whether vLLM runs on a GPU.

    Raises:
        ModelError: float32 was requested, and the layer is quantized.
    """
    if options.head_dtype == "model":
        return HeadChoice({"head_dtype": "model"})
    layer = last_layer(model, options.arguments)
    in_float32 = HeadChoice({"head_dtype": "float32"})
    if options.head_dtype == "float32":
        if layer is LastLayer.QUANTIZED:
            raise ModelError(
                f"model {model.name}: {layer.value}, and vLLM cannot compute it in float32; leave "
                "head_dtype=float32 out"
            )
        return in_float32
    if layer is not LastLayer.PLAIN:
        return HeadChoice({}, layer.value)
    return in_float32 if on_gpu else HeadChoice({}, _SLOW)


def last_layer(model: Model, arguments: Mapping[str, Any]) -> LastLayer:
    """Return whether vLLM has a quantized last layer for this model and these engine arguments."""
    overrides = arguments.get("hf_overrides", {})
    if "quantization_config" in overrides or arguments.get("load_format") == "bitsandbytes":
        return LastLayer.UNKNOWN
    stored = stored_last_layer(model)
    method = arguments.get("quantization")
    if method is None or method in _WHILE_LOADING or stored is LastLayer.QUANTIZED:
        return stored
    if quantization_method(model.configuration) is not None:  # the method of the checkpoint
        return stored
    return LastLayer.UNKNOWN
