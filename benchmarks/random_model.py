"""Models with random weights: real vocabularies, and shapes from tiny to the size of a real judge."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def tekken_tokenizer() -> Any:
    """Convert the tekken vocabulary of `mistral_common` (131,072 tokens) to a fast Hugging Face tokenizer.

    Tekken is byte-level BPE given by ranks. As in the conversion by `transformers`, every way to split a token
    into two others is a merge, the lowest rank first.
    """
    import mistral_common
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    file = max((Path(mistral_common.__file__).parent / "data").glob("tekken_*.json"))
    layout = json.loads(file.read_text())
    specials = layout["config"]["default_num_special_tokens"]
    count = layout["config"]["default_vocab_size"] - specials
    pieces = [base64.b64decode(token["token_bytes"]) for token in layout["vocab"][:count]]
    rank = {piece: place for place, piece in enumerate(pieces)}
    alphabet = _byte_alphabet()
    written = {piece: "".join(alphabet[byte] for byte in piece) for piece in pieces}
    merges = []
    for piece in pieces:
        parts = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        parts = [(left, right) for left, right in parts if left in rank and right in rank]
        parts.sort(key=lambda pair: (rank[pair[0]], rank[pair[1]]))
        merges += [(written[left], written[right]) for left, right in parts]
    names = ["<unk>", "<|start|>", "<|end|>", *(f"<|special_{n}|>" for n in range(3, specials))]
    vocabulary = {name: token for token, name in enumerate(names)}
    vocabulary |= {written[piece]: place + specials for piece, place in rank.items()}
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(layout["config"]["pattern"]), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a folder that has at least a `tokenizer.json`."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (folder / "tokenizer_config.json").is_file():
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokenizer.eos_token = tokenizer.eos_token or "<|endoftext|>"
    return tokenizer


def write_llama(
    folder: Path,
    tokenizer: Any,
    *,
    hidden: int = 32,
    layers: int = 1,
    heads: int = 2,
    context: int = 2048,
    spread: float = 0.5,
    seed: int = 0,
) -> Path:
    """Write a Llama with normally distributed weights and its tokenizer as a model folder.

    Args:
        spread: the standard deviation of the weights; the larger it is, the more certain the predictions.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    network = LlamaForCausalLM(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=spread)
    tokenizer.save_pretrained(folder)
    network.save_pretrained(folder)
    return folder


def write_shape(folder: Path, tokenizer: Any, shape: dict[str, Any]) -> Path:
    """Write a folder with a configuration and a tokenizer but no weights, for vLLM's `load_format="dummy"`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    (folder / "config.json").write_text(json.dumps({**shape, **ends}, indent=2))
    return folder


def random_prompts(count: int, length: int, vocabulary: Any, seed: int = 0) -> list[list[int]]:
    """Return prompts of random text tokens; they share no prefix that a cache could use."""
    draw = random.Random(seed)
    tokens = sorted(vocabulary.pieces)
    return [draw.choices(tokens, k=length) for _ in range(count)]


def _byte_alphabet() -> dict[int, str]:
    """Return the printable character that byte-level BPE writes for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
