"""The LoRA adapters beside the linear layers of a loaded model, one of which is in use."""

from __future__ import annotations

from typing import Any

from peft import LoraConfig, PeftModel, set_peft_model_state_dict
from safetensors.torch import load_file

from localjudge.models.adapter import WEIGHTS, Adapter


class LoadedAdapters:
    """Adds matrices to the layers of a model in place.

    The configuration for PEFT names exactly the modules that an adapter's weights have. The adapter's own
    configuration is not handed over, because it can name modules to import.

    Args:
        network: the model, which is changed.
        first: the adapter in use.

    Raises:
        ValueError: PEFT finds no place for a matrix.
    """

    def __init__(self, network: Any, first: Adapter) -> None:
        self._names = {first.digest: _name(0)}
        self._model = PeftModel(network, _configuration(first), _name(0), autocast_adapter_dtype=False)
        self._fill(first)

    def use(self, adapter: Adapter) -> None:
        """Compute with this adapter from now on; load it if it is not here.

        Raises:
            ValueError: as for the first.
        """
        if adapter.digest not in self._names:
            self._names[adapter.digest] = _name(len(self._names))
            self._model.add_adapter(
                self._names[adapter.digest], _configuration(adapter), autocast_adapter_dtype=False
            )
            self._fill(adapter)
        self._model.set_adapter(self._names[adapter.digest])
        self._model.eval()

    def _fill(self, adapter: Adapter) -> None:
        matrices = load_file(adapter.path / WEIGHTS)
        found = set_peft_model_state_dict(self._model, matrices, self._names[adapter.digest])
        if found.unexpected_keys:
            raise ValueError(f"PEFT finds no place for {found.unexpected_keys[0]} of {adapter.name}")


def _configuration(adapter: Adapter) -> LoraConfig:
    return LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        use_rslora=adapter.rank_stabilized,
        target_modules=sorted(adapter.modules),
        inference_mode=True,
    )


def _name(number: int) -> str:
    return f"adapter{number}"
