"""Tests of models: consistent profiles, and memory plans that agree with the real memory use."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from localjudge.errors import ModelError
from localjudge.models.capacity import CapacityPlan
from localjudge.models.catalogue import Profile, find_profile, profiles
from localjudge.models.dimensions import dimensions_of, read_dimensions
from localjudge.models.memory_needs import cpu_memory, gpu_requirements, refusal
from localjudge.models.planned_model import ModelSize, PlannedModel
from localjudge.models.weights import weights_in
from localjudge.prompts.rendered_turns import render
from localjudge.prompts.task_stream import BLOCK
from localjudge.system.machine import Machine
from localjudge.system.quantities import GIB

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXTURE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
DELTA = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
OWN: dict[str, dict[str, Any]] = {
    "deepseek_v3": {
        **LATENT,
        **MIXTURE,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    },
    "gemma2": {"head_dim": 16, "sliding_window": 8},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8},
    "gemma4_text": {
        **MIXTURE,
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 128,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "sliding_window": 8,
    },
    "glm4_moe": {**MIXTURE, "n_routed_experts": 4, "first_k_dense_replace": 2, "head_dim": 16},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8},
    "mistral": {"sliding_window": 8},
    "mixtral": {"num_local_experts": 4},
    "qwen3": {"head_dim": 32},
    "qwen3_5_moe_text": {**DELTA, **MIXTURE, "num_experts": 4, "shared_expert_intermediate_size": 48},
    "qwen3_5_text": DELTA,
    "qwen3_moe": {**MIXTURE, "num_experts": 4, "head_dim": 16, "mlp_only_layers": [1]},
}
H100 = 80 * GIB


def tiny(model_type: str, **others: Any) -> Any:
    """Return a small configuration of this type, completed by transformers."""
    return AutoConfig.for_model(model_type, **{**TINY, **OWN.get(model_type, {}), **others})


def as_file(config: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return document


def shipped(name: str) -> Profile:
    found = find_profile(name)
    assert found
    return found


def write(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


# Profiles.


def test_there_is_a_profile_for_each_size_of_machine() -> None:
    sizes = [profile.parameters for profile in profiles()]
    assert len(sizes) >= 15
    assert sizes == sorted(sizes)
    assert sizes[0] < 1
    assert any(60 < size < 80 for size in sizes)
    assert sum(profile.active_parameters is not None for profile in profiles()) >= 3
    assert len({profile.dimensions.model_type for profile in profiles()}) >= 8


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.name)
def test_a_profile_holds_together(profile: Profile) -> None:
    assert profile.name == profile.id.rpartition("/")[2].lower()
    assert (profile.thinking == "never") == (profile.thinking_end == "")
    assert profile.thinking != "optional" or profile.thinking_switch
    assert all(trap and "\n" not in trap for trap in profile.traps)
    assert profile.dimensions.context


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.name)
def test_a_profiles_weights_are_those_of_the_parameters_that_it_states(profile: Profile) -> None:
    assert profile.unpacked_bytes / profile.dimensions.element / 1e9 == pytest.approx(
        profile.parameters, rel=0.03
    )
    assert (profile.weight_bytes < profile.unpacked_bytes) == (profile.dimensions.quantization is not None)


@pytest.mark.slow
@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.name)
def test_a_profiles_weights_are_those_of_the_modelling_code(profile: Profile) -> None:
    config = {name: value for name, value in profile.config.items() if name != "quantization_config"}
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    numbers = sum(each.numel() for each in network.parameters())
    if profile.dimensions.quantization:
        assert numbers / 1e9 == pytest.approx(profile.parameters, rel=0.001)
    else:
        assert profile.weight_bytes == numbers * profile.dimensions.element


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("qwen3-0.6b", "Qwen-Qwen3-0.6B"),
        ("qwen3-8b", "Qwen-Qwen3-0.6B"),
        ("qwen3-32b", "Qwen-Qwen3-0.6B"),
        ("qwen3.5-27b", "Qwen3.5-4B"),
        ("llama-3.1-8b-instruct", "meta-llama-Llama-3.1-8B-Instruct"),
        ("llama-3.3-70b-instruct", "meta-llama-Llama-3.3-70B-Instruct"),
        ("gemma-4-31b-it", "google-gemma-4-31B-it"),
        ("gpt-oss-20b", "openai-gpt-oss-120b"),
        ("gpt-oss-120b", "openai-gpt-oss-120b"),
        ("glm-4.5-air", "GLM-4.6"),
        ("smollm3-3b", "HuggingFaceTB-SmolLM3-3B"),
        ("deepseek-r1-distill-llama-8b", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"),
    ],
)
def test_thinking_and_system_turn_are_as_the_published_template_has_them(
    shared: Path, name: str, template: str
) -> None:
    profile = shipped(name)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<bos>")
    document = json.loads((shared / "data" / "chat_templates.json").read_text())
    tokenizer.chat_template = document["templates"][template]
    user = [{"role": "user", "content": "what the user says"}]
    system = [{"role": "system", "content": "what the system says"}, *user]
    without, with_thoughts = (
        render(tokenizer, user, add_generation_prompt=True, thinking=thinking) for thinking in (False, True)
    )
    tail = without.rpartition("what the user says")[2]
    assert (without != with_thoughts) == (profile.thinking == "optional")
    if profile.thinking == "optional":
        assert tail.rstrip().endswith(profile.thinking_end)
    else:
        assert not (profile.thinking_end and profile.thinking_end in tail)
    said = render(tokenizer, system, add_generation_prompt=True)
    before, _, between = said.partition("what the user says")[0].partition("what the system says")
    assert before.strip(), "the system's text stands in a turn"
    assert bool(between.strip()) == profile.system_turn


# Shapes.


def test_the_shape_of_a_model_of_several_media_is_that_of_its_text_part() -> None:
    config = as_file(tiny("qwen3"))
    assert dimensions_of({"text_config": config}, "of several media") == dimensions_of(config, "of text")


@pytest.mark.parametrize(
    ("config", "bytes_a_token"),
    [
        (LLAMA, 131_072),
        (shipped("llama-3.3-70b-instruct").config, 327_680),
        (shipped("qwen3-8b").config, 147_456),  # its heads are wider than hidden_size / heads
        (shipped("qwen3.5-27b").config, 65_536),  # a quarter of its layers has a cache
        # Multi-query attention: Falcon-7B.
        (
            {
                "model_type": "falcon",
                "hidden_size": 4544,
                "num_hidden_layers": 32,
                "num_attention_heads": 71,
                "multi_query": True,
                "vocab_size": 65024,
            },
            8_192,
        ),
        # DeepSeek-V3: 61 latents of 512 + 64.
        (
            {
                "model_type": "deepseek_v3",
                "hidden_size": 7168,
                "intermediate_size": 18432,
                "num_hidden_layers": 61,
                "num_attention_heads": 128,
                "num_key_value_heads": 128,
                "kv_lora_rank": 512,
                "q_lora_rank": 1536,
                "qk_rope_head_dim": 64,
                "qk_nope_head_dim": 128,
                "v_head_dim": 128,
                "vocab_size": 129280,
            },
            70_272,
        ),
    ],
)
def test_the_cache_of_a_token_is_that_of_known_models(config: dict[str, Any], bytes_a_token: int) -> None:
    assert dimensions_of(config, "known").cached_values(1) * 2 == bytes_a_token


def test_the_quantised_weights_of_a_profile_are_those_of_its_files() -> None:
    # The published files of the two models have 13.8 and 65.2 GB.
    sizes = [shipped(f"gpt-oss-{size}").weight_bytes / 1e9 for size in ("20b", "120b")]
    assert sizes == pytest.approx([13.8, 65.2], rel=0.005)


def test_layers_of_an_unknown_kind_are_named() -> None:
    searched = dimensions_of({**LLAMA, "block_configs": [{}]}, "searched")
    subject = PlannedModel("searched", "here", searched, ModelSize(16 * GIB, 16 * GIB, 16 * GIB, "counted"))
    plan = CapacityPlan.make(subject, Machine((), None))
    assert "32 of 32 layers keep a state of unknown size" in plan.notes
    assert plan.needs.chosen
    assert plan.needs.chosen.gpus == 1


@pytest.mark.parametrize(
    ("quantization", "block"),
    [
        ({"quant_method": "fp8", "weight_block_size": [64, 128]}, 64),
        ({"quant_method": "fp8"}, 0),
        ({"quant_method": "awq", "bits": 4}, 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 0),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 0),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "type": "int"}}},
            },
            32,
        ),
    ],
)
def test_quantised_weights_share_a_scale_in_blocks(quantization: dict[str, Any], block: int) -> None:
    dimensions = dimensions_of({**LLAMA, "quantization_config": quantization}, "quantised")
    assert dimensions.quantization == quantization["quant_method"]
    assert dimensions.quantized_block == ((14336, block) if block else None)


@pytest.mark.slow
def test_a_directory_without_weights_is_counted_by_its_modelling_code_or_refused(tmp_path: Path) -> None:
    subject = PlannedModel.find(str(write(tmp_path, **LLAMA)))
    assert (subject.size.stored, subject.size.unpacked) == (16_060_522_496, 16_060_522_496)
    packed = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    with pytest.raises(ModelError, match="has no weights to count"):
        PlannedModel.find(str(write(tmp_path, **packed)))
    (tmp_path / "model.safetensors").write_bytes(bytes(1234))
    subject = PlannedModel.find(str(tmp_path))
    assert (subject.size.stored, subject.size.unpacked) == (1234, 16_060_522_496), "transformers unpacks them"
    subject = PlannedModel.find(str(write(tmp_path, **packed | {"model_type": "llama9"})))
    assert subject.size.unpacked == 1234, "transformers does not know this type"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": None}, "does not name num_hidden_layers"),
        ({"num_attention_heads": 0}, "says 0 for num_attention_heads"),
        ({"hidden_size": "wide"}, "has no whole number for hidden_size"),
        ({"num_key_value_heads": -1}, "has no whole number for num_key_value_heads"),
        ({"num_hidden_layers": 10**9}, "more than any model has"),
        ({"torch_dtype": "float128"}, "has the unknown dtype float128"),
        ({"quantization_config": {"bits": 4}}, "has no quant_method"),
        ({"quantization_config": [4]}, "has no quant_method"),
        ({"sliding_window": "wide"}, "cannot be used: invalid literal"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said) as raised:
        dimensions_of({**LLAMA, **change}, "odd")
    assert "\n" not in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
NAMES = [
    "attention_chunk_size", "dtype", "full_attention_interval", "head_dim", "hidden_size", "kv_lora_rank",
    "layer_types", "linear_num_key_heads", "model_type", "num_experts", "num_hidden_layers",
    "num_key_value_heads", "per_layer_config", "quantization_config", "sliding_window", "text_config",
    "vocab_size",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(NAMES), JSON, min_size=1))
def test_any_configuration_is_planned_or_refused(change: dict[str, Any]) -> None:
    try:
        dimensions = dimensions_of({**LLAMA, **change}, "any")
        plan = gpu_requirements(dimensions, 16 * GIB, gpu_memory=H100)
    except ModelError:
        return
    assert plan.chosen or plan.problem


# Real memory use.


@pytest.mark.parametrize(
    "model_type", ["deepseek_v3", "gemma3_text", "gpt_oss", "llama", "qwen3", "qwen3_5_text"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_directorys_plan_is_what_its_file_and_its_cache_really_take(
    tmp_path: Path, model_type: str, dtype: str
) -> None:
    config = tiny(model_type, dtype=dtype)
    network = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype)).eval()
    network.save_pretrained(tmp_path)
    dimensions = read_dimensions(tmp_path, "made here")
    file = tmp_path / "model.safetensors"
    assert weights_in(tmp_path) == file.stat().st_size
    prompt = 20
    with torch.inference_mode():
        cache = network(torch.full((3, prompt), 5), use_cache=True).past_key_values
    real = sum(each.nbytes for layer in cache.layers for each in _tensors(layer))
    assert 3 * (dimensions.cached_values(prompt) * dimensions.element + dimensions.state_bytes) == real
    more = cpu_memory(dimensions, 0, 0, rows=4) - cpu_memory(dimensions, 0, 0, rows=3)
    assert more == dimensions.cached_values(291) * dimensions.element + dimensions.state_bytes


def _tensors(layer: Any) -> list[torch.Tensor]:
    """Return the keys, values and states of a layer's cache."""
    held = [
        each
        for value in vars(layer).values()
        for each in (value.values() if isinstance(value, dict) else [value])
    ]
    return [each for each in held if isinstance(each, torch.Tensor) and each.numel() > 1]


def test_the_cache_planned_for_an_h200_is_the_one_that_vllm_found_there() -> None:
    # vLLM 0.24 with Qwen3-8B in bfloat16, max_num_seqs 256 instead of 1024: benchmarks/results/gpu.json.
    memory, found = 143_771 * 2**20, 781_776
    judge = shipped("qwen3-8b")
    plan = gpu_requirements(judge.dimensions, judge.weight_bytes, gpu_memory=memory, gpus=1)
    assert plan.chosen
    cache = plan.chosen.cache + 12 * (1024 - 256) * judge.dimensions.vocabulary
    assert cache / (2 * judge.dimensions.cached_values(1)) == pytest.approx(found, rel=0.01)


# Splitting.


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("qwen3-8b", 1),
        ("gpt-oss-120b", 1),
        ("qwen3-32b", 2),  # on one GPU ten rows
        ("llama-3.3-70b-instruct", 4),
        ("glm-4.5-air", 4),
    ],
)
def test_the_tensor_parallel_size_is_the_smallest_with_room_for_a_useful_number_of_rows(
    name: str, gpus: int
) -> None:
    judge = shipped(name)
    plan = gpu_requirements(judge.dimensions, judge.weight_bytes, gpu_memory=H100)
    assert plan.chosen
    assert (plan.chosen.gpus, plan.problem) == (gpus, "")
    for fewer in plan.tried[: plan.tried.index(plan.chosen)]:
        assert fewer.rows < 64
    for each in plan.tried:
        used = each.weights + each.overhead + each.cache
        assert used == int(H100 * 0.9)
        assert each.rows * each.row <= max(0, each.cache)


def test_heads_and_quantised_blocks_decide_what_can_be_split() -> None:
    phi = shipped("phi-4").dimensions
    assert [gpus for gpus in (1, 2, 4, 5, 8, 10) if not refusal(phi, gpus)] == [1, 2, 5, 10]
    assert "the number of key-value heads, 10, is not divisible by 4" in refusal(phi, 4)
    assert "the number of attention heads, 64, is not divisible by 3" in refusal(
        shipped("qwen3-32b").dimensions, 3
    )
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    mixture = dimensions_of(
        {**shipped("qwen3-30b-a3b-instruct-2507").config, "quantization_config": blocks}, "in fp8"
    )
    assert [gpus for gpus in (1, 2, 4, 8) if not refusal(mixture, gpus)] == [1, 2]
    assert "not a whole number of quantised blocks of 128" in refusal(mixture, 4)


def test_key_value_heads_are_copied_where_there_are_fewer_than_gpus() -> None:
    dimensions = dimensions_of({**LLAMA, "num_key_value_heads": 2}, "two heads")
    shares = [dimensions.cached_values(1000, gpus) for gpus in (1, 2, 4, 8)]
    assert shares == [shares[0], shares[0] // 2, shares[0] // 2, shares[0] // 2]
    latent = dimensions_of({**as_file(tiny("deepseek_v3"))}, "latent")
    assert latent.cached_values(10, 4) == latent.cached_values(10), "a latent is on every GPU"


def test_a_window_bounds_what_its_layers_keep() -> None:
    dimensions = shipped("gemma-3-27b-it").dimensions
    full, sliding = (
        sum(each.values for each in dimensions.layers if each.kind == kind) for kind in ("full", "sliding")
    )
    assert dimensions.cached_values(100) == 100 * (full + sliding)
    assert dimensions.cached_values(9000) == 9000 * full + 1023 * sliding
    assert dimensions.cached_values(9000, 1, BLOCK) == 9008 * full + (1024 + BLOCK) * sliding


def test_where_there_is_little_room_the_plan_says_so_and_where_there_is_none_it_chooses_nothing() -> None:
    judge = shipped("qwen3-32b")
    tight = gpu_requirements(judge.dimensions, judge.weight_bytes, gpu_memory=H100, gpus=1)
    assert tight.chosen
    assert tight.chosen.gpus == 1
    assert f"room for only {tight.chosen.rows} rows at once" in tight.problem
    none = gpu_requirements(judge.dimensions, judge.weight_bytes, gpu_memory=24 * GIB, gpus=2)
    assert none.chosen is None
    assert none.problem == "it does not fit 2 GPUs of 24.0 GiB"


# The command line.


def test_models_lists_the_profiles_with_what_each_needs(cli: Cli) -> None:
    end = cli("models", "list")
    assert end.code == 0
    for profile in profiles():
        assert profile.id in end.out
        assert f"{profile.name}: {profile.traps[0]}" in end.out
    listed = json.loads(cli("models", "list", "--json").out)
    assert [each["name"] for each in listed] == [profile.name for profile in profiles()]
    assert {each["name"]: each["gpus_of_80"] for each in listed}["llama-3.3-70b-instruct"] == 4
    assert all(each["weight_bytes"] > 1e8 for each in listed)


def test_plan_takes_a_name_an_id_a_directory_and_bundled(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, **LLAMA)
    by_name, by_id, by_folder = (
        json.loads(cli("models", "plan", model, "--json").out)
        for model in ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct", tmp_path)
    )
    assert by_name == by_id
    for key in ("weights", "row_tokens", "gpus", "tensor_parallel_size", "fits_here", "how"):
        assert by_folder[key] == by_name[key], "a directory without weights is counted by its modelling code"
    assert by_name["gpus"][0]["row"] == 1792 * 131_072, "whole blocks of 16 tokens"
    assert by_name["tensor_parallel_size"] == 1
    bundled = json.loads(cli("models", "plan", "bundled", "--json").out)
    assert bundled["how_counted"] == "counted from its files"
    assert bundled["fits_here"] is True


def test_plan_prints_the_flag_of_the_run_that_was_planned(cli: Cli) -> None:
    end = cli("models", "plan", "deepseek-r1-distill-llama-8b", "--gpu-memory", 24, "--prompt-tokens", 2400)
    assert end.code == 0
    assert "2,691 tokens (2,400 of the prompt, 291 of the answer)" in end.out
    assert "--model deepseek-ai/DeepSeek-R1-Distill-Llama-8B --tensor-parallel-size 2\n" in end.out
    assert "note: thinks always" in end.out


def test_plan_says_what_fits_this_machine() -> None:
    subject = PlannedModel.find("qwen3-8b")

    def said(machine: Machine) -> tuple[bool, str]:
        plan = CapacityPlan.make(subject, machine)
        return plan.fits_here, plan.how

    assert said(Machine((("Fast GPU", H100),) * 2, 64 * GIB)) == (
        True, "yes, on 1 of 2 GPUs (Fast GPU, 80.0 GiB), 209 rows at a time",
    )  # fmt: skip
    small = Machine((("Small GPU", 8 * GIB),), 64 * GIB)
    assert said(small) == (False, "no: it does not fit 1 GPU of 8.0 GiB (Small GPU)")
    fits, how = said(Machine((), 64 * GIB))
    assert (fits, "on the CPU: " in how) == (True, True)
    fits, how = said(Machine((), 20 * GIB))
    assert (fits, "--engine-arg batch_size=" in how) == (True, True)
    assert said(Machine((), 8 * GIB)) == (False, "no: no GPU, and on the CPU it needs 16.8 GiB of 8.0 GiB")
    assert not said(Machine((), None))[0]


def test_this_machine_has_memory() -> None:
    here = Machine.here()
    assert here.memory
    assert here.memory > GIB
    assert len(here.gpus) == torch.cuda.device_count()


def test_weights_are_those_that_the_index_names_and_a_missing_one_is_named(tmp_path: Path) -> None:
    for name, size in (("a", 100), ("b", 50), ("consolidated", 1000)):
        (tmp_path / f"{name}.safetensors").write_bytes(bytes(size))
    assert weights_in(tmp_path) == 150, "the weights are not counted twice"
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "a.safetensors"}}))
    assert weights_in(tmp_path) == 100
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "c.safetensors"}}))
    with pytest.raises(ModelError, match=r"lacks c.safetensors of its index; 1 of 2 files are missing"):
        weights_in(tmp_path)
    index.write_text('{"weight_map": []}')
    with pytest.raises(ModelError, match="weight_map must name a file"):
        weights_in(tmp_path)


def test_a_profiles_model_in_the_local_cache_is_planned_by_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "models--microsoft--phi-4" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    write(snapshot, **LLAMA)
    (snapshot / "model.safetensors").write_bytes(bytes(1234))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    subject = PlannedModel.find("phi-4")
    assert (subject.size.stored, subject.name) == (1234, "microsoft/phi-4")
    assert "model.safetensors" in subject.size.how_counted, "its header cannot be read"
    assert subject.profile == find_profile("phi-4")


def test_without_the_hubs_library_profiles_and_directories_still_have_plans(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert cli("models", "list").code == 0
    assert cli("models", "plan", "phi-4").code == 0
    assert cli("models", "plan", write(tmp_path, **LLAMA)).code == 0
    end = cli("models", "plan", "nothing/here")
    assert (end.code, "no local cache without huggingface_hub" in end.err) == (2, True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["nothing/here"], "not in the local cache"),
        (["nothing"], "`localjudge models list` lists all profiles"),
        (["phi-4", "--gpu-memory", "0"], "--gpu-memory 0: give the GiB of one GPU"),
        (["phi-4", "--gpu-memory", "nan"], "--gpu-memory nan: give the GiB of one GPU"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(cli: Cli, flags: list[str], said: str) -> None:
    end = cli("models", "plan", *flags)
    assert (end.code, end.out) == (2, "")
    assert said in end.err
    assert end.err.count("\n") == 1


def test_what_a_configuration_says_cannot_steer_the_terminal(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, **{**LLAMA, "model_type": "\x1b[31mllama", "dtype": "float32"})
    (tmp_path / "model.safetensors").write_bytes(bytes(1234))
    end = cli("models", "plan", tmp_path)
    assert (end.code, "\x1b" in end.out, r"\u001b[31mllama" in end.out) == (0, False, True)
    write(tmp_path, **{**LLAMA, "dtype": "\x1b[31m"})
    end = cli("models", "plan", tmp_path)
    assert (end.code, "\x1b" in end.err) == (2, False)
    (tmp_path / "config.json").write_text("[" * 10)
    assert "not JSON" in cli("models", "plan", tmp_path).err
    (tmp_path / "config.json").unlink()
    assert "has no config.json" in cli("models", "plan", tmp_path).err
