"""Small tokenizers of each family that open-weights models use, and chat templates in the style of each.

They are trained quickly on the text below. Tests with the name of a tokenizer as parameter also run on real
tokenizers: those next to the checkout, in `../shared/tokenizers/NAME/tokenizer.json`, or the bundled judge's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXT = """The judge reads an instruction, a reference and a candidate, writes a rationale, and gives six scores.
A score is a whole number: 1 is the lowest, 5 is the highest. The rationale says what is missing, wrong or new.
    def mean(scores): return sum(scores) / len(scores)   # four spaces, then three
{"rationale": "The candidate repeats the reference.", "scores": {"safety": "5", "clarity": "4"}}
It's said that they'll come back; we've heard that I'm late. Don't worry, he'd say: 3.14, 1,234,567 or 2026.

# Instruction
The user asks a question and the system answers. <table> and [brackets] are text, and so is a | between words.
\tTabs, naïve façades, Zoë's café, 是的。好的。 नमस्ते مرحبا and 🙂 are text like any other.
"""
PIECES = 700
# The pre-tokenization pattern of GPT-4's tokenizer; those of Qwen and Llama 3 are similar.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATES = {
    "ChatML": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
    ),
    "Llama 3": (
        "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "Phi-3": (
        "{% for m in messages %}{% if m.role == 'system' %}<|system|>{% else %}<|user|>{% endif %}\n"
        "{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "Mistral": "<s>{% for m in messages %}[INST] {{ m.content }}[/INST]{% endfor %}",
    "harmony": (
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
        "<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
}


def byte_level_bpe() -> Tokenizer:
    """Return byte-level BPE as in Qwen and Llama 3: a start token, and added tokens, special and not."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), _byte_level_trainer())
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(
        [AddedToken(text, normalized=False) for text in ("<think>", "</think>", "<tool_call>")]
    )
    tokenizer.post_processor = TemplateProcessing(
        single="<|begin_of_text|> $A",
        special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))],
    )
    return tokenizer


def byte_level_bpe_by_parts() -> Tokenizer:
    """Return byte-level BPE as in Falcon, whose pre-tokenizers split punctuation, words and single digits."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), _byte_level_trainer())
    tokenizer.add_special_tokens([">>TITLE<<", ">>QUESTION<<", ">>ANSWER<<", "<|endoftext|>"])
    return tokenizer


def sentencepiece_bpe() -> Tokenizer:
    """Return BPE over characters with byte fallback, as in Llama 2 and Phi-3; `▁` represents a space."""
    specials = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=[*specials, *_byte_pieces()],
        initial_alphabet=["▁"],
        show_progress=False,
    )
    # Merges do not cross a space, so the training text is split into words.
    tokenizer.train_from_iterator(re.findall(r" ?\S+|\s", TEXT), trainer)
    # Bytes are pieces of the model; the trainer also declares them as special tokens, which is removed here.
    layout = json.loads(tokenizer.to_str())
    layout["added_tokens"] = [each for each in layout["added_tokens"] if each["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(layout))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    ends = [AddedToken(f"<|{name}|>", rstrip=True, special=True) for name in ("user", "assistant", "end")]
    tokenizer.add_special_tokens(ends)
    return tokenizer


def unigram() -> Tokenizer:
    """Return a unigram model with byte fallback, as in T5 and ALBERT; `▁` represents a space."""
    pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=PIECES - 256, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(TEXT.splitlines(), trainer)
    pieces = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    ranked = [(piece, -1.0 - rank / 100) for rank, (piece, _) in enumerate(pieces)]
    ranked += [(piece, -30.0) for piece in _byte_pieces()]
    tokenizer = Tokenizer(models.Unigram(ranked, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    return tokenizer


SMALL: dict[str, Callable[[], Tokenizer]] = {
    "byte-level BPE": byte_level_bpe,
    "byte-level BPE by parts": byte_level_bpe_by_parts,
    "SentencePiece BPE": sentencepiece_bpe,
    "unigram": unigram,
}
_SHARED = Path(__file__).parents[2] / "shared" / "tokenizers"
REAL = {file.parent.name: file for file in sorted(_SHARED.glob("*/tokenizer.json"))} or {
    "bundled": Path(__file__).parents[1] / "models" / "bundled" / "tokenizer.json"
}
"""Real tokenizers: those next to the checkout, or else the one of the bundled judge."""
TOKENIZER_NAMES = [*SMALL, *REAL]
"""Parameters for tests with a tokenizer name."""


@cache
def _written(name: str) -> str:
    """Return the tokenizer.json of a small tokenizer, which is trained once."""
    return str(SMALL[name]().to_str())


def tokenizer_file(name: str, folder: Path) -> Path:
    """Return the tokenizer.json of a real tokenizer, or of a small one, which is written to the folder."""
    if name in SMALL:
        file = folder / "tokenizer.json"
        file.write_text(_written(name), encoding="utf-8")
        return file
    return REAL[name]


def tokenizer_with(name: str, template: str | None) -> Any:
    """Return a tokenizer with a chat template; the markers of the template are special tokens."""
    if name in SMALL:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_written(name)))
    else:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(REAL[name]))
    markers = sorted(set(re.findall(r"<[|\uff5c]?[\w/▁:.-]+[|\uff5c]?>|\[/?[A-Z_]+\]", template or "")))
    tokenizer.add_special_tokens({"additional_special_tokens": markers})
    tokenizer.chat_template = template
    return tokenizer


def model_with(name: str, folder: Path) -> Path:
    """Save a small Llama of random weights with a tokenizer; it is loud enough to have opinions."""
    tokenizer = tokenizer_with(name, CHAT_TEMPLATES["ChatML"])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=4096,
            bos_token_id=None,
            eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        )
    )
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    network.save_pretrained(folder)
    return folder


def _byte_level_trainer() -> trainers.BpeTrainer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trainers.BpeTrainer(vocab_size=PIECES, initial_alphabet=alphabet, show_progress=False)


def _byte_pieces() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]
