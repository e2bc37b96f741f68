"""The tokenizer of the bundled judge.

A word must have the same pieces at every position, because the model compares words by their pieces. So the
vocabulary holds every piece of letters in four forms: plain, with a space before it, with a capital, and with
both. All pieces have the same cost and a text is cut into as few pieces as possible (a unigram model over
bytes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

import torch
from corruptions import ASPECTS
from ground_truth import CLOSINGS, OPENINGS
from synthetic_text import WORD, TextGenerator
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric

TURN, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Words, pairs of digits, punctuation with the line ends after it. A quote begins a piece, so that a score
# between two quotes is a piece of its own.
PRE_TOKENS = (
    r"""'(?:s|t|re|ve|m|ll|d)\b| ?\p{L}+|\p{N}{1,2}|"[:,{}"]*| ?[^\s\p{L}\p{N}"]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
PUNCTUATION = """. , : ; ! ? - ( ) [ ] { } < > / * ** ` ``` = == + _ # ## % & @ ~ ^ | $ ... -- '"""
JSON_PIECES = ['"', '":"', '","', '":{"', '{"', '"}}', '":', '",']
ENDINGS = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "),",
    ").",
    "):",
    "**:",
    ":**",
    ".**",
    "!\n",
    "?\n",
    '"""',
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class FactoredVocabulary:
    """The tokenizer, and two properties of each token.

    Attributes:
        piece: int64 (tokens,), the number of the token's piece; the four forms of a piece of letters share one.
        form: int64 (tokens,), which of the four forms the token is; 0 for tokens that are not letters.
    """

    tokenizer: PreTrainedTokenizerFast
    piece: torch.Tensor
    form: torch.Tensor


def build_vocabulary(generator: TextGenerator, rubric: Rubric, letters: int, seed: int) -> FactoredVocabulary:
    """Build the tokenizer: pieces of letters in four forms, bytes, punctuation, digits, sections of the rubric.

    Args:
        letters: approximate number of pieces of letters.
        seed: seed of the words from which the pieces are chosen.
    """
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def byte_level_form(text: str) -> str:
        return str(byte_level.pre_tokenize_str(text)[0][0])

    pieces: dict[str, tuple[int, int]] = {}

    def add(text: str, piece: int, form: int) -> None:
        pieces.setdefault(byte_level_form(text), (piece, form))

    sections = rubric_sections(rubric)
    number = 0
    for piece in letter_pieces(generator, letters, seed):
        for form, text in enumerate((piece, f" {piece}", piece.capitalize(), f" {piece.capitalize()}")):
            add(text, number, form)
        number += 1
    others = [str(n) for n in range(10)] + [f"{n:02}" for n in range(100)] + JSON_PIECES + ENDINGS
    others += [
        f"{space}{mark}{line}"
        for mark in PUNCTUATION.split()
        for space in ("", " ")
        for line in ("", "\n", "\n\n")
    ]
    others += ["\n", "\n\n", " ", "  ", "    ", "        ", *sections]
    for text in others:
        add(text, number, 0)
        number += 1
    scores = dict.fromkeys(pieces, -10.0)
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        pieces.setdefault(byte, (number, 0))
        scores.setdefault(byte, -25.0)
        number += 1
    # If a word has two segmentations with the same number of pieces, every form of the word uses the same one.
    ranked = [(piece, scores[piece] - 1e-4 * pieces[piece][0]) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(ranked, unk_id=None, byte_fallback=False))
    pattern = "|".join([*map(re.escape, sections), PRE_TOKENS])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in (PAD, TURN, END)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=CONTEXT
    )
    fast.chat_template = CHAT_TEMPLATE
    properties = [*(pieces[piece] for piece, _ in ranked), *((number + n, 0) for n in range(3))]
    piece_of, form_of = torch.tensor(properties).unbind(1)
    return FactoredVocabulary(fast, piece_of, form_of)


def rubric_sections(rubric: Rubric) -> list[str]:
    """Return the fixed texts of the rubric's template, longest first; each becomes one token."""
    marked = rubric.text(Row.from_response(instruction="\0", candidate="\0", reference="\0"))
    sections = [
        re.sub(r"\s*\0[^#]*", "", section).rstrip()
        for section in re.split(r"^(?=#)", marked, flags=re.MULTILINE)
        if section
    ]
    return sorted(sections, key=len, reverse=True)


def letter_pieces(generator: TextGenerator, count: int, seed: int) -> list[str]:
    """Choose about `count` pieces of lower-case letters by BPE; answers' words and common words stay whole."""
    random = Random(f"{seed}:pieces")
    answer_words = " ".join(
        [*OPENINGS.values(), *CLOSINGS.values(), *ASPECTS, "rationale scores user assistant point by kept"]
    )
    answer_words += (
        " changed missing new no ground in the reference much most part places throughout reads clearly"
    )
    fixed = list(
        dict.fromkeys(word.lower() for word in [*WORD.findall(answer_words), *generator.words["common"]])
    )
    listed = [word.lower() for name, group in generator.words.items() if name != "common" for word in group]
    texts = [" ".join(sorted(generator.stopwords - {*fixed}))] * 40 + [" ".join(listed)] * 8
    texts += [generator.name(random).lower() for _ in range(20_000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\p{L}+"), "isolated")
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=count, show_progress=False, initial_alphabet=list(LETTERS))
    )
    found = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return list(dict.fromkeys([*fixed, *LETTERS, *(piece for piece, _ in found if piece.isalpha())]))
