"""What becomes of each model type of transformers, and whether a row's results depend on the rows beside it.

    python benchmarks/architectures.py [TYPE …] [--seconds 60] [--name NAME]

The types are those of transformers' causal language models and of its models that also take images.

A small model of each type with random weights completes scripted answers of five rows through the loop of the
transformers engine: texts, fixed text, values and branches beside them. The logits of each pick are compared
with those of the model's own eager attention on that row alone, without a cache. `in a batch` has all rows
together, with the engine's attention and layers; `alone`, if that is not equal, has the model's own, a row at a
time; `between` is their largest difference. The batch follows another one, which leaves its beginnings. Types
that have a sliding window run with one of 16 tokens, which the rows exceed, and without.

`localjudge.engines.transformers.batched_types` lists the types that are equal in a batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import results_table
import torch
from transformers import AutoConfig, GenerationConfig, PreTrainedModel
from transformers import __version__ as transformers_version
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from transformers.utils import logging

from localjudge.engines.transformers import generation
from localjudge.engines.transformers.batched_types import judged_alone
from localjudge.engines.transformers.fast_layers import pack, use_grouped_attention
from localjudge.engines.transformers.kept_beginnings import KeptBeginnings
from localjudge.errors import in_one_line
from localjudge.models.model_class import ModelClass, drop_encoders, no_class
from localjudge.models.refused_types import OTHER_WORK, why_no_judge
from localjudge.prompts.task import Prompt

VOCABULARY = 128
# float32: the largest difference of log-probabilities between the orders in which sums are computed.
EQUAL = 1e-3
# A recurrent_gemma takes a prompt of one token for the next token of the row before it; no row of a run is so
# short. So the first row has it.
PROMPT_LENGTHS = (1, 5, 40, 41, 22)
REFUSED = "refused"
COLUMNS = ("type", "variant", "class", "left out", "path", "in a batch", "alone", "between")
SHARED = 15
"""Number of tokens with which the long prompts begin alike."""
MOST_PARAMETERS = 150_000_000

WINDOW = 16
WINDOWS: dict[str, dict[str, Any]] = {
    "window": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    "no window": {"sliding_window": None, "use_sliding_window": False},
}
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "is_decoder": True,
    "is_encoder_decoder": False,
    # The size of layers.
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "embedding_size"), 64),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 3),
    **dict.fromkeys(("decoder_layers", "encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 512),
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rotary_dim": 8,
    # Experts.
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("n_shared_experts", "first_k_dense_replace", "n_group", "topk_group"), 1),
    # Compressed keys and values.
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_topk": 8,
    "index_n_heads": 16,
    "index_head_dim": 16,
    # Recurrent and linear layers.
    **dict.fromkeys(("chunk_size", "mamba_chunk_size"), 16),
    "linear_num_heads": 2,
    "linear_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_ssm": 128,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "attention_chunk_size": 16,
    # Embeddings of each layer.
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
    # Small enough that they change the scores of these models.
    "attn_logit_softcapping": 2.0,
}
"""Settings of every type that has them."""
ROTATION = {"rope_type": "default", "rope_theta": 10000.0}
POSITIONS: dict[str, Any] = ROTATION | {"mrope_section": [2, 3, 3]}
TOWER: dict[str, Any] = {
    "embed_dim": 64,
    "depth": 2,
    "num_heads": 4,
    **dict.fromkeys(("out_hidden_size", "projection_dim", "output_dim", "text_hidden_size"), 64),
}
"""Settings of the parts that read what is not text."""
OWN: dict[str, dict[str, Any]] = {
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "exaone4": {"sliding_window_pattern": 2},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
    },
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"]},
    "gpt_neo": {"num_hidden_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "laguna": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "mellum": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "recurrent_gemma": {"lru_width": 64, "attention_window_size": WINDOW},
    "reformer": {"axial_pos_embds": False, "attention_head_size": 16},
    "rwkv": {"attention_hidden_size": 64},
    **{
        name: {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
        for name in ("kimi_linear", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
    },
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * 2, "num_hidden_layers": 4, "num_mem_blocks": 1},
    "zaya": {"num_experts_per_tok": 1},
    # The width of a head has parts for the position in time, height and width.
    **{
        name: {"text_config": {"rope_parameters": POSITIONS}}
        for name in ("cosmos3_edge", "glm46v", "glm4v", "glmga", "hunyuan_vl", "qwen2_5_vl", "qwen2_vl")
    },
    **{
        name: {
            "text_config": {"rope_parameters": POSITIONS},
            "vision_start_token_id": 3,
            "audio_start_token_id": 4,
        }
        for name in ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")
    },
    **{
        name: {"text_config": {"rope_parameters": POSITIONS | {"mrope_section": [2, 1, 1]}}}
        for name in ("glm4v_moe", "hy_v4_vl")
    },
    **{
        name: {"text_config": {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}}
        for name in ("minicpmv4_6", "minicpmv4_7", "qwen3_5", "qwen3_5_moe")
    },
    "apertus1p5": {
        "image_token_offset": 10,
        "audio_token_offset": 60,
        "vision_config": {"codebook_size": 50},
        "audio_config": {"codebook_dim": 64, "codebook_size": 40},
    },
    "chameleon": {"vocabulary_map": {"<image>": 9, "IMGIMGBZ": 100}},
    "cohere_compass": {
        "text_config": {"rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), ROTATION)}
    },
    "dots3_note": {"text_config": {"per_layer_config": {}}},
    "ernie4_5_vl_moe": {
        "text_config": {
            "moe_intermediate_size": [32, 32],
            "rope_parameters": POSITIONS | {"mrope_section": [3, 3, 2]},
        }
    },
    "glm5_next": {"text_config": {"index_topk": 16, "qk_rope_head_dim": 0}},
    "granite4_vision": {"deepstack_layer_map": [], "spatial_target_layers": [], "downsample_rate": "4/8"},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 2]}},
    "muse_spark": {"audio_config": {"num_hidden_layers": 4}, "vision_config": {"num_hidden_layers": 4}},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
}
"""Settings of one type."""


class Scripted:
    """The answers of a batch whose tokens are given; keeps the log-probabilities at each pick.

    Args:
        answers: for each row, its tokens, each with its kind: `t` of a text, `f` fixed, `v` a value.
    """

    max_tokens = 64

    def __init__(self, answers: Sequence[tuple[list[int], str]]) -> None:
        self._answers = answers
        self._asked = False
        self.tokens: list[list[int]] = [[] for _ in answers]
        self.found: list[tuple[int, list[int], torch.Tensor]] = []

    def _next(self, row: int) -> str:
        return self._answers[row][1][len(self.tokens[row]) :][:1]

    @property
    def writing(self) -> list[int]:
        return [row for row in self.incomplete if self._next(row) == "t"]

    @property
    def incomplete(self) -> list[int]:
        return [row for row in range(len(self.tokens)) if self._next(row)]

    def at_values(self, rows: Sequence[int]) -> list[bool]:
        return [self._next(row) == "v" for row in rows]

    def pick(self, rows: Sequence[int], logits: torch.Tensor) -> None:
        for row, found in zip(rows, logits, strict=True):
            if self._next(row):
                self.found.append((row, [*self.tokens[row]], found.log_softmax(-1)))
                self._append(row)

    def append_fixed(self, rows: Sequence[int]) -> None:
        for row in rows:
            while self._next(row) == "f":
                self._append(row)

    def branches(self) -> list[tuple[int, Beside]]:
        ends = [] if self._asked else [len(tokens) // part for tokens in self.tokens for part in (1, 2)]
        self._asked = True
        return [(number // 2, Beside(end - 1, (7, 9))) for number, end in enumerate(ends)]

    def keep(self, branches: Sequence[tuple[int, Beside]], logits: torch.Tensor) -> None:
        for (row, one), found in zip(branches, logits, strict=True):
            self.found.append((row, [*self.tokens[row][: one.place], *one.written], found.log_softmax(-1)))

    def _append(self, row: int) -> None:
        self.tokens[row].append(self._answers[row][0][len(self.tokens[row])])


class Beside(NamedTuple):
    """A branch beside an answer (`localjudge.constraint.value_paths.Branch`)."""

    place: int
    written: tuple[int, ...]


def main() -> None:
    options = _options()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    lines = []
    became: dict[str, str] = {}
    known = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    for name in options.types or sorted(known):
        of_type = list(_of_type(name, options.seconds))
        for line in of_type:
            print(*line.values(), sep="\t", flush=True)
        lines += of_type
        became[name] = what_became(name, of_type)
        print(name, became[name], sep="\t", flush=True)
    results_table.table(
        f"transformers {transformers_version}: the largest difference of log-probabilities",
        list(COLUMNS),
        [list(line.values()) for line in lines],
    )
    results_table.table("what became of each type", ["type", ""], [list(each) for each in became.items()])
    ran = [line for line in lines if _has_run(line)]
    unequal = {line["type"] for line in ran if not _shares_batches(line)}
    print("\nequal in a batch:", *sorted({line["type"] for line in ran} - unequal))
    print("\nequal only alone:", *sorted(unequal))
    found = {"equal": EQUAL, "types": became, "found": lines}
    results_table.write(options.name, found, options.results)


def what_became(name: str, lines: Sequence[dict[str, Any]]) -> str:
    """Return what the transformers engine does with the models of a type, and whether that was measured."""
    refused = sorted({line["path"] for line in lines if line["path"] and line["path"].startswith(REFUSED)})
    ran = [line for line in lines if _has_run(line)]
    if refused:
        return refused[0]
    batched = judged_alone(name) is None
    how = "in a batch" if batched else "row by row"
    if not ran:
        return f"{how}; no small model could be made"
    if batched and not all(_shares_batches(line) for line in ran):
        return f"{how}; NOT EQUAL to a row alone"
    differences = [line["in a batch"] if line["alone"] is None else line["alone"] for line in ran]
    if all(_is_equal(difference) for difference in differences):
        return how
    return f"{how}; differs from a pass over the whole text by up to {max(differences):.4f}, also alone"


def _has_run(line: dict[str, Any]) -> bool:
    """Return whether a variant ran; one that does not run at all is not one of the type."""
    return isinstance(line["in a batch"], float) or isinstance(line["alone"], float)


def _shares_batches(line: dict[str, Any]) -> bool:
    """Return whether a row got in a batch what it gets alone."""
    return _is_equal(line["in a batch"]) or _is_equal(line["between"])


def _of_type(name: str, seconds: int) -> Iterator[dict[str, Any]]:
    before: Any = None
    if name in OTHER_WORK:
        yield dict.fromkeys(COLUMNS) | {
            "type": name,
            "path": f"{REFUSED}: it is of type {name}, {OTHER_WORK[name]}",
        }
        return
    for variant, settings in WINDOWS.items():
        line: dict[str, Any] = dict.fromkeys(COLUMNS)
        line |= {"type": name, "variant": variant}
        try:
            with _time_limit(seconds):
                config = small_config(name, settings)
                if before is not None and config.to_dict() == before.to_dict():
                    return
                before = config
                refused = refusal(config)
                if refused is not None:
                    yield line | {"path": refused}
                    return
                whole = random_model(config)
                model = deepcopy(whole)
                drop_encoders(model)
        except Exception as error:
            yield line | {"path": "not built", "in a batch": in_one_line(error)}
            continue
        line["class"] = type(whole).__name__
        line["left out"] = size_of(whole) - size_of(model)
        reference, known = with_eager_attention(whole), dict[tuple[int, ...], torch.Tensor]()
        found: dict[str, Completed] = {}
        for way in ("in a batch", "alone"):
            try:
                with _time_limit(seconds):
                    found[way] = completed(model, way)
                    line["path"] = line["path"] or found[way].path
                    line[way] = found[way].difference_to(reference, known)
            except Exception as error:
                line[way] = in_one_line(error)
            if _is_equal(line[way]):
                break
        if len(found) == 2:
            line["between"] = found["in a batch"].difference_between(found["alone"])
        if line["path"] and not generation.can_write(reference):
            line["path"] = f"{REFUSED}: it is of type {name}, which cannot write token by token"
        yield line


def refusal(config: Any) -> str | None:
    """Return why the engine refuses a configuration; None if it does not."""
    reason = why_no_judge(config)
    if reason is None and ModelClass.of(config) is None:
        reason = no_class(config)
    return None if reason is None else f"{REFUSED}: {reason}"


def small_config(name: str, settings: dict[str, Any]) -> Any:
    """Return a small configuration of a model type; settings that it does not have are left out."""
    kind = type(AutoConfig.for_model(name))
    return kind(**_merged(_known(kind(), SMALL | settings), OWN.get(name, {})))


def _merged(settings: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return settings with those of one type; the settings of a part are merged."""
    merged = settings | own
    for name, value in own.items():
        if name.endswith("_config") and name in settings:
            merged[name] = settings[name] | value
    return merged


def _known(config: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return those of these settings that a configuration and its parts have."""
    names = {*config.to_dict(), *config.attribute_map}
    if "kv_lora_rank" in names:
        rotated, heads = settings["qk_rope_head_dim"], settings["num_attention_heads"]
        settings = settings | {"head_dim": rotated, "num_key_value_heads": heads}
    parts = {}
    for part in config.sub_configs:
        found = getattr(config, part, None)
        if found is not None:
            own = {} if part == "text_config" else TOWER
            parts[part] = _known(found, settings | own) | {"model_type": found.model_type}
    return {each: value for each, value in settings.items() if each in names} | parts


def random_model(config: Any) -> PreTrainedModel:
    """Return a model with random weights that are large enough for confident predictions."""
    chosen = ModelClass.of(config)
    if chosen is None:
        raise ValueError("transformers has no language model of this type")
    text = chosen.without_weights()
    drop_encoders(text)
    size = size_of(text)
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = chosen.auto.from_config(deepcopy(chosen.configuration)).eval()
    model.generation_config = GenerationConfig()  # as in the engine
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
        else:
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().float().mean()), std=0.1)
    return model


def size_of(model: PreTrainedModel) -> int:
    """Return the number of a model's parameters."""
    return sum(each.numel() for each in model.parameters())


def with_eager_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy with the eager attention of its own code."""
    copied = deepcopy(model)
    copied.set_attn_implementation("eager")
    return copied


@dataclass(frozen=True, slots=True)
class Completed:
    """What an engine found at each pick.

    Attributes:
        path: the path that it took.
        picks: for the tokens before each pick, the log-probabilities of the next token, (V,); of a row that was
            completed twice, both.
    """

    path: str
    picks: list[tuple[tuple[int, ...], torch.Tensor]]

    @torch.inference_mode()
    def difference_to(self, reference: PreTrainedModel, known: dict[tuple[int, ...], torch.Tensor]) -> float:
        """Return the largest difference of a log-probability to a pass over the whole text without a cache.

        Args:
            reference: the model with its eager attention.
            known: what the reference has said after some tokens; more is added.
        """
        for tokens, _ in self.picks:
            if tokens not in known:
                ids = torch.tensor([tokens])
                logits = reference(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
                known[tokens] = logits[0, -1].float().log_softmax(-1)
        return self._largest(known)

    def difference_between(self, other: Completed) -> float:
        """Return the largest difference of a log-probability to another way for the same rows."""
        return self._largest(dict(other.picks))

    def _largest(self, known: Mapping[tuple[int, ...], torch.Tensor]) -> float:
        worst = 0.0
        for tokens, found in self.picks:
            differs = (found - known[tokens]).abs().max().item()
            worst = differs if not differs <= worst else worst  # also if it is not a number
        return worst


@torch.inference_mode()
def completed(model: PreTrainedModel, way: str) -> Completed:
    """Complete the scripted answers.

    Args:
        model: the model.
        way: `in a batch`, after another batch whose beginnings are kept, or `alone`.
    """
    random = np.random.default_rng(1)
    shared, *prompts = (random.integers(3, VOCABULARY, length).tolist() for length in (SHARED, *PROMPT_LENGTHS))
    prompts = [[*shared, *each[SHARED:]] if len(each) > SHARED else each for each in prompts]
    asked = [Prompt(0, each, 0, beginnings=(SHARED,) * (len(each) > SHARED)) for each in prompts]
    lengths = random.integers(1, 5, (len(prompts), 3))
    kinds = ["t" * a + "f" * b + "v" + "f" * c + "vtfv" for a, b, c in lengths.tolist()]
    answers = [(random.integers(3, VOCABULARY, len(each)).tolist(), each) for each in kinds]
    batched = way == "in a batch"
    if batched:
        network = deepcopy(model)
        use_grouped_attention(network)
        pack(network)
        batches = [slice(2, 4), slice(None)]
    else:
        network = with_eager_attention(model)
        batches = [slice(row, row + 1) for row in range(len(prompts))]
    kept, picks, path = KeptBeginnings(), [], ""
    for rows in batches:
        scripted = Scripted(answers[rows])
        with _path_taken() as taken:
            generation.generate(network, asked[rows], scripted, kept, batched=batched)  # type: ignore[arg-type]
        path = taken[0]
        picks += [((*prompts[rows][row], *answer), found) for row, answer, found in scripted.found]
    return Completed(path, picks)


@contextmanager
def _path_taken() -> Iterator[list[str]]:
    """Yield the path that the engine takes, once it is taken."""
    taken: list[str] = []
    paths = {"CachedRows": "keys in place", "_PaddedRows": "padded"}
    before = {name: getattr(generation, name) for name in paths}

    def noted(name: str) -> Any:
        def made(*values: Any) -> Any:
            taken.append(paths[name])
            return before[name](*values)

        return made

    for name in paths:
        setattr(generation, name, noted(name))
    yield taken
    for name, kind in before.items():
        setattr(generation, name, kind)


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"{seconds} seconds are over")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _is_equal(found: Any) -> bool:
    return isinstance(found, float) and found <= EQUAL


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="time limit of each part")
    parser.add_argument("--name", default="architectures", help="name of the results")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
