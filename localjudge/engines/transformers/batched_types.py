"""The model types whose rows can share a batch: a row gets what it gets alone.

`benchmarks/architectures.py` established this with transformers 5.19.0 and 5.24.0, for the types that each of
them has. A small model of each type, with random weights and without the encoders of images, completed answers
of rows of different lengths in one batch, after another batch, with the attention and the layers of this
package. The log-probabilities at each pick differed by less than 0.001 from those of the row alone. They
differed as little from one pass of the whole model over the whole text, with its own eager attention. Only
those of nemotron_h and nemotron_h_omni differed by up to 0.0015, in a batch and alone. Types with a sliding
window had rows longer than it. The type is that of the whole model, also where only its text part judges.

A type that is not listed, such as one of a later version of transformers, is judged row by row with its own
eager attention.
"""

from __future__ import annotations

_BATCHED = """
afmoe apertus apertus1p5_text arcee aria aria_text axk1 aya_vision bamba beam bert bert-generation big_bird
biogpt bitnet bloom chameleon codegen cohere cohere2 cohere2_moe cohere2_vision cosmos3_edge cosmos3_omni ctrl
cwm dbrx deepseek_v2 deepseek_v3 deepseek_v4 deepseek_vl deepseek_vl_hybrid diffllama doge dots1 electra emu3
ernie ernie4_5 ernie4_5_moe ernie4_5_vl_moe exaone exaone4 exaone4_5 exaone_moe falcon falcon_h1 falcon_mamba
flex_olmo flint fuyu gemma gemma2 gemma3 gemma3_text gemma3n_text gemma4 gemma4_text gemma4_unified
gemma4_unified_text git glm glm4 glm46v glm4_moe glm4_moe_lite glm4v glm4v_moe glm5_next glmga gpt-sw3 gpt2
gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa granitemoe granitemoe_swa
granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl hy_v3 hy_v4
hy_v4_vl hyperclovax hyperclovax_vision_v2 idefics2 idefics3 inkling2 inkling2_loop inkling2_loop_text
inkling2_text inkling_mm_model inkling_text internlm3 internvl iquestcoder jais2 jamba janus jetmoe kimi_k25
kimi_linear kolibri1 laguna lara_mini lfm2 lfm2_moe lfm2_vl lfm3 lfm3_vl llama llama4 llama4_text llava
llava_next llava_next_video llava_onevision longcat_flash mamba mamba2 megatron-bert mellum mimo_v2_flash
minicpm3 minicpmv4_6 minicpmv4_7 minimax minimax_m2 minimax_m3_vl minimax_m3_vl_text ministral ministral3
mistral mistral3 mistral4 mixtral mllama modernbert-decoder molmo2 mpt muse_glimmer muse_spark nanochat
nemotron nemotron_h nemotron_h_omni olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt ovis2 persimmon phi phi3
phi4_multimodal phimoe qwen2 qwen2_5_omni_thinker qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe
qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe rembert
roc_bert sarvam_mla sarvam_moe seed_oss smollm3 smolvlm solar_open stablelm starcoder2 step3p7 vaultgemma
video_llama_3 video_llava vipllava xglm youtu zamba zaya
"""


def judged_alone(model_type: str) -> str | None:
    """Return the remark that such a model is judged row by row; None if its rows can share a batch."""
    return None if model_type in _BATCHED.split() else f"model type {model_type}: judged row by row; slower"
