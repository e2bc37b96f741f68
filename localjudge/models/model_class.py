"""The class of transformers that loads a configuration.

It is chosen here alone: for the engine, for the check of a model's tensors, and for the number of its
parameters.

A model that also takes images, videos or sounds has encoders that read these. A judge of texts uses none of
them, so they are dropped when the model has been read.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from localjudge.models.foreign_window import remove_foreign_window


@dataclass(frozen=True, slots=True)
class ModelClass:
    """The class of transformers that loads a configuration; `ModelClass.of` chooses it.

    Attributes:
        auto: the class by which transformers finds it: `AutoModelForCausalLM` or `AutoModelForImageTextToText`.
        configuration: the whole configuration; the class may take its text part.
    """

    auto: Any
    configuration: Any

    @classmethod
    def of(cls, configuration: Any) -> ModelClass | None:
        """Return the class for this configuration; None if transformers has no language model for it.

        The class of causal language models comes first, then that of models that also take images.
        """
        from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

        for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
            if type(configuration) in auto._model_mapping:
                corrected = deepcopy(configuration)
                remove_foreign_window(corrected.get_text_config())
                return cls(auto, corrected)
        return None

    def without_weights(self) -> Any:
        """Return the whole model on the meta device, where a tensor has a shape but takes no memory."""
        import torch
        from transformers.initialization import no_init_weights

        configuration = deepcopy(self.configuration)  # building a model writes its attention into it
        with torch.device("meta"), no_init_weights():
            return self.auto.from_config(configuration, trust_remote_code=False, attn_implementation="eager")

    def load(self, folder: Path, *, attention: str | None, with_images: bool = False, **settings: Any) -> Any:
        """Return the model with the weights of a directory, in the memory of the processor.

        Args:
            folder: the directory.
            attention: the name of the attention; None for that which transformers prefers.
            with_images: whether the model keeps the encoders of images, videos and sounds.
            settings: further arguments of `from_pretrained`.
        """
        configuration = deepcopy(self.configuration)
        configuration._attn_implementation = attention  # not that of config.json
        model = self.auto.from_pretrained(
            folder,
            config=configuration,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            **settings,
        )
        if not with_images:
            drop_encoders(model)
        return model


def no_class(configuration: Any) -> str:
    """Return the sentence that `ModelClass.of` returned None."""
    return (
        f"transformers {version('transformers')} has no language model of model_type {configuration.model_type}"
    )


def drop_encoders(model: Any) -> None:
    """Set the encoders of images, videos and sounds to None, those that transformers itself finds in a model.

    What brings their results to the width of a token stays, and so does an encoder that transformers does not
    find. Both take memory, and a text does not reach them.
    """
    for modality in ("image", "audio"):  # videos are read by the encoder of images
        encoder = model.get_encoder(modality=modality)
        for parent in (model, model.base_model):
            for name, child in list(parent.named_children()):
                if child is encoder:
                    setattr(parent, name, None)
