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
    **dict.fromkeys(
        ("blip", "blip-2", "idefics", "instructblip", "instructblipvideo", "kosmos-2", "paligemma"),
        _READS_IMAGES,
    ),
    **dict.fromkeys(("deepseek_ocr2", "glm_ocr", "got_ocr2", "kosmos-2.5", "lighton_ocr"), _TRANSCRIBES),
    **dict.fromkeys(("granite_docling", "minicpm_ocr", "paddleocr_vl", "pp_chart2table"), _TRANSCRIBES),
    **dict.fromkeys(("qianfan_ocr", "unlimited_ocr"), _TRANSCRIBES),
    **dict.fromkeys(("florence2", "pix2struct", "pp_formulanet", "t5gemma2", "udop"), _WITH_AN_ENCODER),
    "diffusion_gemma": "which writes blocks of tokens by diffusion",
    "pi0": "which writes the actions of a robot",
    "shieldgemma2": "which classifies images",
    "vision-encoder-decoder": _WITH_AN_ENCODER,
}
"""What the models of a type do that are no causal language models, by `model_type`."""

_CHANGED = """
camembert cpmant data2vec-text moshi prophetnet roberta roberta-prelayernorm xlm xlm-roberta xlm-roberta-xl
xlnet xmod
"""
"""Types whose passes token by token differ from a pass over the whole text, also for a row alone.

`benchmarks/architectures.py` found them.
"""

_READERS = "bert bert-generation big_bird electra ernie megatron-bert rembert roc_bert roformer"
"""Types whose tokens see later ones unless the configuration has `is_decoder`."""


def why_no_judge(configuration: Any) -> str | None:
    """Return why a model of this configuration cannot judge texts, for people; None if it may."""
    reason = _reason(configuration)
    if reason is None:
        return None
    return f"it is of type {configuration.model_type}, {reason}"


def _reason(configuration: Any) -> str | None:
    kind = configuration.model_type
    if configuration.is_encoder_decoder:
        return _WITH_AN_ENCODER
    if kind in OTHER_WORK:
        return OTHER_WORK[kind]
    if kind in _CHANGED.split():
        return _WRITES_OTHERWISE
    if _sees_later_tokens(configuration.get_text_config()):
        return _SEES_LATER_TOKENS
    return None


def _sees_later_tokens(text: Any) -> bool:
    """Return whether a token of a text sees later ones, by the configuration of the text part."""
    if text.model_type in _READERS.split():
        return not text.is_decoder
    return getattr(text, "use_bidirectional_attention", None) in (True, "all")
