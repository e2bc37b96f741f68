"""Check that a directory's tensors match the architecture that `config.json` names.

transformers builds the model on the meta device, where a tensor has a shape but takes no memory, and loads
shapes into it by its own rules: prefixes, fused experts, tied embeddings, tensors that are omitted on purpose.
An engine would invent or ignore tensors that are then missing, extra or of another shape. Only the headers of
the weights are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from localjudge.errors import ModelError, in_one_line
from localjudge.models.digests import in_words
from localjudge.models.model import Model
from localjudge.models.model_class import ModelClass, no_class
from localjudge.models.weights import Tensor


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """The result of checking a model's tensors.

    Attributes:
        complete: True if every tensor of the architecture was checked with its shape.
        words: a description of what was checked, for people.
    """

    complete: bool
    words: str


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """Differences between tensors and an architecture, by the architecture's names.

    Attributes:
        missing: tensors of the architecture alone.
        unexpected: tensors of the files alone.
        shapes: for each tensor of another shape, both shapes in words.
    """

    missing: frozenset[str]
    unexpected: frozenset[str]
    shapes: Mapping[str, str]

    @property
    def words(self) -> str:
        """The differences in words; empty if there are none."""
        phrases = []
        if self.missing:
            phrases.append(f"missing {in_words(sorted(self.missing))}")
        if self.unexpected:
            phrases.append(f"not its own {in_words(sorted(self.unexpected))}")
        if self.shapes:
            different = [f"{name} {shapes}" for name, shapes in self.shapes.items()]
            phrases.append(f"of another shape {in_words(different)}")
        return "; ".join(phrases)


def check_tensors(model: Model) -> TensorCheck:
    """Check that the weights hold exactly the tensors of the model's architecture, with their shapes.

    A quantized checkpoint stores packed layers with names and shapes of its method. There, each layer must have
    some tensors, each tensor must belong to a layer, and a layer that is not packed must have its shape.

    Raises:
        ModelError: a tensor is missing, extra or of another shape, or a file of weights is damaged.
    """
    try:
        tensors = model.tensors
    except ModelError as error:
        raise ModelError(f"{error}; run localjudge models verify") from None
    network = _meta_model(model)
    if network is None:
        return TensorCheck(complete=False, words=f"not checked: {no_class(model.configuration)}")
    mismatch = _load_shapes(network, tensors)
    method = quantization_method(model.configuration)
    if method is not None:
        layers = {_layer_of(name) for name in network.state_dict()}
        mismatch = _without_packed(mismatch, layers)
    class_name = type(network).__name__
    architectures = model.configuration.architectures
    if architectures and class_name not in architectures:  # the network is the text part of a larger model
        mismatch = replace(mismatch, unexpected=frozenset())
    differences = mismatch.words
    if differences:
        raise ModelError(
            f"model {model.name}: its weights do not match the {class_name} that config.json describes: "
            f"{differences}; download the whole model again"
        )
    if method is not None:
        words = f"{class_name}, packed by {method}: every layer found; packed shapes not checked"
        return TensorCheck(complete=False, words=words)
    return TensorCheck(complete=True, words=f"{class_name}: {len(tensors)} tensors, all as expected")


def count_parameters(model: Model) -> int | None:
    """Return the number of a model's parameters by its modelling code; None if transformers has none for it.

    Raises:
        ModelError: the configuration does not describe a model that can be built.
    """
    network = _meta_model(model)
    if network is None:
        return None
    sizes: Iterator[int] = (parameter.numel() for parameter in network.parameters())
    return sum(sizes)


def _meta_model(model: Model) -> Any:
    """Return the model without weights; None if transformers has no class for this configuration.

    Raises:
        ModelError: the configuration does not describe a model that can be built, or a library is missing.
    """
    model_class = ModelClass.of(model.configuration)
    if model_class is None:
        return None
    try:
        return model_class.without_weights()
    except ImportError as error:
        raise ModelError(f"model {model.name}: {in_one_line(error)}") from None
    except Exception as error:  # a stranger's numbers can make the modelling code raise anything
        reason = in_one_line(error)
        raise ModelError(f"model {model.name}: config.json does not describe a model: {reason}") from None


def _load_shapes(network: Any, tensors: Mapping[str, Tensor]) -> _Mismatch:
    """Load shapes into a model on the meta device, as transformers loads tensors."""
    import torch
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_utils import LoadStateDictConfig
    from transformers.utils import logging

    shapes = {name: torch.empty(tensor.shape, device="meta") for name, tensor in tensors.items()}
    mapping = get_model_conversion_mapping(network)
    settings = LoadStateDictConfig(device_map={"": "meta"}, weight_mapping=mapping)
    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        loaded, _ = convert_and_load_state_dict_in_model(network, shapes, settings)
    finally:
        if shows_progress:
            logging.enable_progress_bar()
    network.tie_weights(missing_keys=loaded.missing_keys, recompute_mapping=False)
    network._adjust_missing_and_unexpected_keys(loaded)
    shapes_in_words: dict[str, str] = {}
    for name, stored_shape, shape in sorted(loaded.mismatched_keys):
        shapes_in_words[name] = f"{list(stored_shape)}, not {list(shape)}"
    return _Mismatch(
        # A tensor that cannot be converted lacks one of its parts.
        missing=frozenset(loaded.missing_keys) | frozenset(loaded.conversion_errors),
        unexpected=frozenset(loaded.unexpected_keys),
        shapes=shapes_in_words,
    )


def quantization_method(configuration: Any) -> str | None:
    """Return the method by which a checkpoint is quantized; None if it is not."""
    for config in (configuration, configuration.get_text_config()):
        quantization = getattr(config, "quantization_config", None)
        if not quantization:
            continue
        if isinstance(quantization, dict):
            method = quantization.get("quant_method")
        else:
            method = quantization.quant_method
        return str(getattr(method, "value", method))  # an enum of transformers, or a text
    return None


def _layer_of(name: str) -> str:
    """Return the layer of a tensor: its name without the last part."""
    return name.rpartition(".")[0]


def _without_packed(mismatch: _Mismatch, layers: set[str]) -> _Mismatch:
    """Return the differences outside packed layers, in which names and shapes depend on the method.

    Args:
        mismatch: all differences.
        layers: the names of the architecture's layers.
    """
    packed: set[str] = set()
    unexpected: set[str] = set()
    for name in mismatch.unexpected:
        containing = _prefixes(name) & layers
        if containing:
            packed |= containing
        else:
            unexpected.add(name)
    missing = frozenset(name for name in mismatch.missing if _layer_of(name) not in packed)
    shapes = {name: words for name, words in mismatch.shapes.items() if _layer_of(name) not in packed}
    return _Mismatch(missing=missing, unexpected=frozenset(unexpected), shapes=shapes)


def _prefixes(name: str) -> set[str]:
    """Return the names of all modules that contain a tensor, by its name."""
    return {name[:index] for index, letter in enumerate(name) if letter == "."}
