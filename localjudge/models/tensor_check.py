"""Check that a directory's tensors match the architecture that `config.json` names.

transformers builds the model on the meta device, where a tensor has a shape but takes no memory, and loads
shapes into it by its own rules: prefixes, fused experts, tied embeddings, tensors that are omitted on purpose.
An engine would invent or ignore tensors that are then missing, extra or of another shape. Only the headers of
the weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Differences between tensors and an architecture, by the architecture's names."""

    missing: frozenset[str]
    unexpected: frozenset[str]
    shapes: Mapping[str, str]

    @property
    def words(self) -> str:
        """The differences in words; empty if there are none."""
        shapes = [f"{name} {said}" for name, said in self.shapes.items()]
        parts = {
            "missing": sorted(self.missing),
            "not its own": sorted(self.unexpected),
            "of another shape": shapes,
        }
        return "; ".join(f"{what} {in_words(names)}" for what, names in parts.items() if names)


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
    found = _load_shapes(network, tensors)
    method = quantization_method(model.configuration)
    if method:
        found = _without_packed(found, {name.rpartition(".")[0] for name in network.state_dict()})
    about = type(network).__name__
    if about not in (model.configuration.architectures or [about]):  # the text part of a larger model
        found = replace(found, unexpected=frozenset())
    if found.words:
        raise ModelError(
            f"model {model.name}: its weights do not match the {about} that config.json describes: "
            f"{found.words}; download the whole model again"
        )
    if method:
        return TensorCheck(False, f"{about}, packed by {method}: every layer found; packed shapes not checked")
    return TensorCheck(True, f"{about}: {len(tensors)} tensors, all as expected")


def count_parameters(model: Model) -> int | None:
    """Return the number of a model's parameters by its modelling code; None if transformers has none for it.

    Raises:
        ModelError: the configuration does not describe a model that can be built.
    """
    network = _meta_model(model)
    return None if network is None else sum(each.numel() for each in network.parameters())


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
        said = in_one_line(error)
        raise ModelError(f"model {model.name}: config.json does not describe a model: {said}") from None


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
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        loaded, _ = convert_and_load_state_dict_in_model(network, shapes, settings)
    finally:
        if shown:
            logging.enable_progress_bar()
    network.tie_weights(missing_keys=loaded.missing_keys, recompute_mapping=False)
    network._adjust_missing_and_unexpected_keys(loaded)
    return _Mismatch(
        # A tensor that cannot be converted lacks one of its parts.
        frozenset(loaded.missing_keys) | frozenset(loaded.conversion_errors),
        frozenset(loaded.unexpected_keys),
        {name: f"{list(held)}, not {list(own)}" for name, held, own in sorted(loaded.mismatched_keys)},
    )


def quantization_method(configuration: Any) -> str | None:
    """Return the method by which a checkpoint is quantized; None if it is not."""
    for config in (configuration, configuration.get_text_config()):
        if named := getattr(config, "quantization_config", None):
            method = named.get("quant_method") if isinstance(named, dict) else named.quant_method
            return str(getattr(method, "value", method))
    return None


def _without_packed(found: _Mismatch, layers: set[str]) -> _Mismatch:
    """Return the mismatches outside packed layers, whose names and shapes depend on the method."""
    packed: set[str] = set()
    unexpected: set[str] = set()
    for name in found.unexpected:
        own = {name[:place] for place, letter in enumerate(name) if letter == "."} & layers
        packed |= own
        unexpected |= set() if own else {name}
    missing, shapes = (
        {name for name in names if name.rpartition(".")[0] not in packed}
        for names in (found.missing, found.shapes)
    )
    return _Mismatch(
        frozenset(missing), frozenset(unexpected), {name: found.shapes[name] for name in sorted(shapes)}
    )
