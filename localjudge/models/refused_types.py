"""The types of models that cannot judge texts, and what they do instead.

A model is refused by its configuration, before its weights are read, so that every command says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INSTEAD = "give a causal language model"
"""What to do about such a model."""

_WITH_AN_ENCODER = "which reads with an encoder and writes with a decoder"
_READS_IMAGES = "which writes only about an image"
_TRANSCRIBES = "which only transcribes images of text (OCR)"
_SEES_LATER_TOKENS = "which with this configuration cannot write token by token: its tokens see later ones"
_WRITES_OTHERWISE = (
    "which cannot write token by token: with its cache or positions it scores a text that it writes otherwise "
    "than one that it reads"
)
OTHER_WORK: Mapping[str, str] = {
    "blip": _READS_IMAGES,
    "blip-2": _READS_IMAGES,
    "idefics": _READS_IMAGES,
    "instructblip": _READS_IMAGES,
    "instructblipvideo": _READS_IMAGES,
    "kosmos-2": _READS_IMAGES,
    "paligemma": _READS_IMAGES,
    "deepseek_ocr2": _TRANSCRIBES,
    "glm_ocr": _TRANSCRIBES,
    "got_ocr2": _TRANSCRIBES,
    "kosmos-2.5": _TRANSCRIBES,
    "lighton_ocr": _TRANSCRIBES,
    "granite_docling": _TRANSCRIBES,
    "minicpm_ocr": _TRANSCRIBES,
    "paddleocr_vl": _TRANSCRIBES,
    "pp_chart2table": _TRANSCRIBES,
    "qianfan_ocr": _TRANSCRIBES,
    "unlimited_ocr": _TRANSCRIBES,
    "florence2": _WITH_AN_ENCODER,
    "pix2struct": _WITH_AN_ENCODER,
    "pp_formulanet": _WITH_AN_ENCODER,
    "t5gemma2": _WITH_AN_ENCODER,
    "udop": _WITH_AN_ENCODER,
    "vision-encoder-decoder": _WITH_AN_ENCODER,
    "diffusion_gemma": "which writes blocks of tokens by diffusion",
    "pi0": "which writes the actions of a robot",
    "shieldgemma2": "which classifies images",
}
"""What the models of a type do that are no causal language models, by `model_type`."""

_WRITES_OTHERWISE_TYPES = (
    "camembert",
    "cpmant",
    "data2vec-text",
    "moshi",
    "prophetnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xlnet",
    "xmod",
)
"""Types whose passes token by token differ from a pass over the whole text, also for a row alone.

`benchmarks/architectures.py` found them.
"""

_ENCODER_TYPES = (
    "bert",
    "bert-generation",
    "big_bird",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roc_bert",
    "roformer",
)
"""Types whose tokens see later ones unless the configuration has `is_decoder`."""


def why_no_judge(configuration: Any) -> str | None:
    """Return why a model of this configuration cannot judge texts, for people; None if it may."""
    other_work = _other_work(configuration)
    if other_work is None:
        return None
    return f"it is of type {configuration.model_type}, {other_work}"


def _other_work(configuration: Any) -> str | None:
    """Return what a model of this configuration does instead of judging texts; None if it may judge them."""
    model_type = configuration.model_type
    if configuration.is_encoder_decoder:
        return _WITH_AN_ENCODER
    if model_type in OTHER_WORK:
        return OTHER_WORK[model_type]
    if model_type in _WRITES_OTHERWISE_TYPES:
        return _WRITES_OTHERWISE
    if _sees_later_tokens(configuration.get_text_config()):
        return _SEES_LATER_TOKENS
    return None


def _sees_later_tokens(text_config: Any) -> bool:
    """Return whether a token of a text sees later ones, by the configuration of the text part."""
    if text_config.model_type in _ENCODER_TYPES:
        return not text_config.is_decoder
    return getattr(text_config, "use_bidirectional_attention", None) in (True, "all")
