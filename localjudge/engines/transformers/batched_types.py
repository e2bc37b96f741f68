"""The model types whose rows can share a batch: a row gets what it gets alone.

`benchmarks/architectures.py` established this with transformers 5.19.0. A small model of each type, with random
weights, completed answers of rows of different lengths in one batch, with the attention and the layers of this
package. The log-probabilities at each pick differed by less than 0.001 from those of the model's own eager
attention on the row alone, without a cache; types with a sliding window had rows longer than it. The type is
that of the whole model, also where only its text part judges. Ten of the types, with each kind of cache, were
the same with transformers 5.24.0.

A type that is not listed, such as one of a later version of transformers, is judged row by row with its own
eager attention.
"""

from __future__ import annotations

_BATCHED = """
afmoe apertus arcee aria_text axk1 bamba bert bert-generation big_bird biogpt bitnet bloom codegen cohere
cohere2 cohere2_moe ctrl cwm dbrx deepseek_v2 deepseek_v3 deepseek_v4 diffllama doge dots1 electra emu3
ernie ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon falcon_h1 falcon_mamba flex_olmo fuyu gemma gemma2
gemma3 gemma3_text gemma3n_text gemma4 gemma4_text gemma4_unified gemma4_unified_text git glm glm4 glm4_moe
glm4_moe_lite got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa
granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe
hy_v3 hy_v4 hyperclovax inkling_text jais2 jamba jetmoe kimi_linear laguna lfm2 lfm2_moe llama llama4
llama4_text longcat_flash mamba mamba2 megatron-bert mellum mimo_v2_flash minicpm3 minimax minimax_m2
minimax_m3_vl_text ministral ministral3 mistral mixtral mllama modernbert-decoder mpt nanochat nemotron
nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt persimmon phi phi3 phi4_multimodal phimoe qwen2
qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next rembert roc_bert
seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma xglm youtu zamba zaya
"""

_CHANGED = """
camembert cpmant data2vec-text moshi prophetnet roberta roberta-prelayernorm xlm xlm-roberta xlm-roberta-xl
xlnet xmod
"""
"""Types whose passes token by token differ from a pass over the whole text, also for a row alone."""


def writes_otherwise(model_type: str) -> bool:
    """Return whether a model of this type scores a text that it writes otherwise than one that it reads."""
    return model_type in _CHANGED.split()


def judged_alone(model_type: str) -> str | None:
    """Return the remark that such a model is judged row by row; None if its rows can share a batch."""
    return None if model_type in _BATCHED.split() else f"model type {model_type}: judged row by row; slower"
