"""Whether a checkpoint's last layer is quantized, by its configuration and the headers of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.model import Model
from localjudge.models.tensor_check import quantization_method
from localjudge.models.weights import Tensor

_HEADS = frozenset({"lm_head"})
"""Names of the last layer."""
_EMBEDDINGS = frozenset({"embed_tokens", "embed_in", "word_embeddings", "tok_embeddings", "wte"})
"""Names of the embeddings, which are also the last layer of a model that ties both."""
_PLAIN_TYPES = frozenset({"F32", "F16", "BF16"})
_PLAIN_TENSORS = frozenset({"weight", "bias"})


class LastLayer(Enum):
    """What is known of the last layer; the value says it in words."""

    PLAIN = "its last layer is not quantized"
    QUANTIZED = "its last layer is quantized"
    UNKNOWN = "its last layer may be quantized"


def stored_last_layer(model: Model) -> LastLayer:
    """Return whether the last layer of a model is stored quantized.

    In a checkpoint without a quantization method, it is not. In another one, the layer is plain only if the
    headers show its weights as floating-point numbers of 16 or 32 bits.
    """
    configuration = model.configuration
    if quantization_method(configuration) is None:
        return LastLayer.PLAIN
    if _quantizes_head(configuration):
        return LastLayer.QUANTIZED
    try:
        tensors = model.tensors
    except ModelError:  # a directory without weights, such as that of a judge whose model is on a server
        return LastLayer.UNKNOWN
    layer_tensors = _tensors_of(tensors, _HEADS)
    if not layer_tensors and _ties_embeddings(configuration):
        layer_tensors = _tensors_of(tensors, _EMBEDDINGS)
    if not layer_tensors:
        return LastLayer.UNKNOWN
    if all(_is_plain(name, tensor) for name, tensor in layer_tensors.items()):
        return LastLayer.PLAIN
    return LastLayer.QUANTIZED


def _quantizes_head(configuration: Any) -> bool:
    """Return whether the quantization of GPTQ or AWQ includes the last layer: `lm_head` is true."""
    for config in (configuration, configuration.get_text_config()):
        quantization = getattr(config, "quantization_config", None)
        if quantization is None:
            continue
        settings = quantization if isinstance(quantization, dict) else quantization.to_dict()
        if settings.get("lm_head") is True:
            return True
    return False


def _ties_embeddings(configuration: Any) -> bool:
    """Return whether the embeddings are the last layer: the whole configuration or its text part says so."""
    parts = (configuration, configuration.get_text_config())
    return any(getattr(part, "tie_word_embeddings", False) for part in parts)


def _tensors_of(tensors: Mapping[str, Tensor], layers: frozenset[str]) -> dict[str, Tensor]:
    """Return the tensors of the layers with these names, wherever they are in the model."""
    return {name: tensor for name, tensor in tensors.items() if not layers.isdisjoint(name.split("."))}


def _is_plain(name: str, tensor: Tensor) -> bool:
    """Return whether a tensor is a weight or a bias as a floating-point number."""
    return name.rpartition(".")[2] in _PLAIN_TENSORS and tensor.dtype in _PLAIN_TYPES
