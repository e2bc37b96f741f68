"""Whether the results of a row depend on the rows beside it, for each causal model type of transformers.

    python benchmarks/architectures.py [TYPE …] [--seconds 60]

A small model of each type with random weights completes scripted answers of five rows through the loop of the
transformers engine: texts, fixed text, values and branches beside them. The logits of each pick are compared
with those of the model's own eager attention on that row alone, without a cache. `in a batch` has all rows
together, with the engine's attention and layers; `alone`, if that is not equal, has the model's own, a row at a
time. Types that have a sliding window run with one of 16 tokens, which the rows exceed, and without.

`localjudge.engines.transformers.batched_types` lists the types that are equal in a batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import results_table
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers import __version__ as transformers_version
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from localjudge.engines.transformers import generation
from localjudge.engines.transformers.fast_layers import pack, use_grouped_attention
from localjudge.engines.transformers.kept_beginnings import KeptBeginnings
from localjudge.errors import in_one_line
from localjudge.prompts.task import Prompt

VOCABULARY = 128
# float32: the largest difference of log-probabilities between the orders in which sums are computed.
EQUAL = 1e-3
PROMPT_LENGTHS = (5, 40, 41, 1, 22)
SHARED = 15
"""Number of tokens with which the long prompts begin alike."""
MOST_PARAMETERS = 20_000_000

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
    for name in options.types or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        for line in _of_type(name, options.seconds):
            print(*line.values(), sep="\t", flush=True)
            lines.append(line)
    results_table.table(
        f"transformers {transformers_version}: the largest difference of log-probabilities",
        ["type", "variant", "path", "in a batch", "alone"],
        [list(line.values()) for line in lines],
    )
    # A variant that does not run at all is not one of the type.
    ran = [line for line in lines if isinstance(line["in a batch"], float) or isinstance(line["alone"], float)]
    unequal = {line["type"] for line in ran if not _is_equal(line["in a batch"])}
    apart = {line["type"] for line in ran if not (_is_equal(line["in a batch"]) or _is_equal(line["alone"]))}
    print("\nequal in a batch:", *sorted({line["type"] for line in ran} - unequal))
    print("\nequal only alone:", *sorted(unequal - apart))
    results_table.write("architectures", {"equal": EQUAL, "found": lines}, options.results)


def _of_type(name: str, seconds: int) -> Iterator[dict[str, Any]]:
    before: Any = None
    for variant, settings in WINDOWS.items():
        line: dict[str, Any] = dict.fromkeys(("type", "variant", "path", "in a batch", "alone"))
        line |= {"type": name, "variant": variant}
        try:
            with _time_limit(seconds):
                config = small_config(name, settings)
                if before is not None and config.to_dict() == before.to_dict():
                    return
                before, model = config, random_model(config)
        except Exception as error:
            yield line | {"path": "not built", "in a batch": in_one_line(error)}
            continue
        reference, known = with_eager_attention(model), dict[tuple[int, ...], torch.Tensor]()
        for way in ("in a batch", "alone"):
            try:
                with _time_limit(seconds):
                    taken, line[way] = largest_difference(model, reference, way, known)
                    line["path"] = line["path"] or taken
            except Exception as error:
                line[way] = in_one_line(error)
            if _is_equal(line[way]):
                break
        yield line


def small_config(name: str, settings: dict[str, Any]) -> Any:
    """Return a small configuration of a model type; settings that it does not have are left out."""
    kind = type(AutoConfig.for_model(name))
    return kind(**_known(kind(), SMALL | settings) | OWN.get(name, {}))


def _known(config: Any, settings: dict[str, Any]) -> dict[str, Any]:
    names = {*config.to_dict(), *config.attribute_map}
    if "kv_lora_rank" in names:
        rotated, heads = settings["qk_rope_head_dim"], settings["num_attention_heads"]
        settings = settings | {"head_dim": rotated, "num_key_value_heads": heads}
    parts = {
        part: _known(found, settings)
        for part in config.sub_configs
        if (found := getattr(config, part, None)) is not None
    }
    return {each: value for each, value in settings.items() if each in names} | parts


def random_model(config: Any) -> PreTrainedModel:
    """Return a model with random weights that are large enough for confident predictions."""
    with torch.device("meta"):
        size = sum(each.numel() for each in AutoModelForCausalLM.from_config(deepcopy(config)).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.generation_config = GenerationConfig()  # as in the engine
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
        else:
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().float().mean()), std=0.1)
    return model


def with_eager_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy with the eager attention of its own code."""
    copied = deepcopy(model)
    copied.set_attn_implementation("eager")
    return copied


@torch.inference_mode()
def largest_difference(
    model: PreTrainedModel, reference: PreTrainedModel, way: str, known: dict[tuple[int, ...], torch.Tensor]
) -> tuple[str, float]:
    """Return the path of the engine, and the largest difference of a log-probability to the reference.

    Args:
        model: the model.
        reference: the model with its eager attention.
        way: `in a batch` or `alone`.
        known: what the reference has said after some tokens; more is added.
    """
    random = np.random.default_rng(1)
    shared, *prompts = (random.integers(3, VOCABULARY, length).tolist() for length in (SHARED, *PROMPT_LENGTHS))
    prompts = [[*shared, *each[SHARED:]] if len(each) > SHARED else each for each in prompts]
    asked = [Prompt(0, each, 0, beginnings=(SHARED,) * (len(each) > SHARED)) for each in prompts]
    lengths = random.integers(1, 5, (len(prompts), 3))
    kinds = ["t" * a + "f" * b + "v" + "f" * c + "vtfv" for a, b, c in lengths.tolist()]
    answers = [(random.integers(3, VOCABULARY, len(each)).tolist(), each) for each in kinds]
    if way == "alone":
        batches = [(with_eager_attention(model), slice(row, row + 1)) for row in range(len(prompts))]
    else:
        model = deepcopy(model)
        use_grouped_attention(model)
        pack(model)
        batches = [(model, slice(None))]
    worst, path = 0.0, ""
    for network, rows in batches:
        scripted = Scripted(answers[rows])
        with _path_taken() as taken:
            batched = way == "in a batch"
            kept = KeptBeginnings()
            generation.generate(network, asked[rows], scripted, kept, batched=batched)  # type: ignore[arg-type]
        path = taken[0]
        for row, answer, found in scripted.found:
            tokens = (*prompts[rows][row], *answer)
            if tokens not in known:
                ids = torch.tensor([tokens])
                logits = reference(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
                known[tokens] = logits[0, -1].float().log_softmax(-1)
            differs = (found - known[tokens]).abs().max().item()
            worst = differs if not differs <= worst else worst
    return path, worst


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
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
