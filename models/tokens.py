"""The tokenizer of the bundled judge, and rows as the tokens that it learns from.

A word must break into the same pieces wherever it stands, or else it could not be compared by its pieces. So
every piece of letters is there four times, plain, with a space before it, with a capital, and with both, at
equal cost, and a text is cut into as few pieces as can be (a unigram model, over bytes).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from drill import FORM as DRILL
from spoiling import ASPECTS, Made
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from verdict import FIRST, LAST, Judged
from world import WORD, World

from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric

TURN, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Words, digits by two, marks with the line ends after them; a quote begins a piece, so that a score stands
# alone between two.
PIECES = (
    r"""'(?:s|t|re|ve|m|ll|d)\b| ?\p{L}+|\p{N}{1,2}|"[:,{}"]*| ?[^\s\p{L}\p{N}"]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
MARKS = """. , : ; ! ? - ( ) [ ] { } < > / * ** ` ``` = == + _ # ## % & @ ~ ^ | $ ... -- '"""
JSON_MARKS = ['"', '":"', '","', '":{"', '{"', '"}}', '":', '",']
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
# What a token of a response can be, beside whether the reference has its word: the kinds of segments.
KINDS = (
    "plain",
    "swapped",
    "invented",
    "repeated",
    "shuffled",
    "padding",
    "rude",
    "friendly",
    "plea",
    "ready-made",
    "curt",
    "refusing",
    "off topic",
    "complying",
    "empty",
)
NO_TAG = -100


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer, and of each token its core (tokens of one core are one piece of letters) and its form."""

    tokenizer: PreTrainedTokenizerFast
    core: torch.Tensor
    form: torch.Tensor


def make_vocabulary(world: World, rubric: Rubric, cores: int, seed: int) -> Vocabulary:
    """A tokenizer of some `cores` pieces of letters in four forms, bytes, marks, digits and sections."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def written(text: str) -> str:
        return str(byte_level.pre_tokenize_str(text)[0][0])

    pieces: dict[str, tuple[int, int]] = {}

    def add(text: str, core: int, form: int) -> None:
        pieces.setdefault(written(text), (core, form))

    sections = rubric_sections(rubric)
    core = 0
    for piece in letter_pieces(world, cores, seed):
        for form, text in enumerate((piece, f" {piece}", piece.capitalize(), f" {piece.capitalize()}")):
            add(text, core, form)
        core += 1
    others = [str(n) for n in range(10)] + [f"{n:02}" for n in range(100)] + JSON_MARKS + ENDINGS
    others += [
        f"{space}{mark}{line}" for mark in MARKS.split() for space in ("", " ") for line in ("", "\n", "\n\n")
    ]
    others += ["\n", "\n\n", " ", "  ", "    ", "        ", *sections]
    for text in others:
        add(text, core, 0)
        core += 1
    scores = dict.fromkeys(pieces, -10.0)
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        pieces.setdefault(byte, (core, 0))
        scores.setdefault(byte, -25.0)
        core += 1
    # Of two ways to cut a word into as few pieces, the same one wins in every form.
    ranked = [(piece, scores[piece] - 1e-4 * pieces[piece][0]) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(ranked, unk_id=None, byte_fallback=False))
    pattern = "|".join([*map(re.escape, sections), PIECES])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in (PAD, TURN, END)]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, model_max_length=CONTEXT
    )
    made.chat_template = CHAT_TEMPLATE
    kinds = [*(pieces[piece] for piece, _ in ranked), *((core + n, 0) for n in range(3))]
    cores_of, forms = torch.tensor(kinds).unbind(1)
    return Vocabulary(made, cores_of, forms)


def rubric_sections(rubric: Rubric) -> list[str]:
    """The fixed texts of the rubric's template, each to be one token, longest first."""
    marked = rubric.text(Row("\0", "\0", "\0"))
    sections = [
        re.sub(r"\s*\0[^#]*", "", section).rstrip()
        for section in re.split(r"^(?=#)", marked, flags=re.MULTILINE)
        if section
    ]
    return sorted(sections, key=len, reverse=True)


def _before_reference(rubric: Rubric) -> str:
    """The prompt of an empty row up to the section of the reference."""
    before, *_ = rubric.text(Row("", "", "\0")).split("\0")
    return before[: before.rindex("\n#") + 1]


def letter_pieces(world: World, count: int, seed: int) -> list[str]:
    """The most useful pieces of lower-case letters; the words of answers and the commonest ones whole."""
    random = Random(f"{seed}:pieces")
    said = " ".join(
        [*FIRST.values(), *LAST.values(), *ASPECTS, "rationale scores user assistant point by kept"]
    )
    said += " changed missing new no ground in the reference much most part places throughout reads clearly"
    fixed = list(dict.fromkeys(word.lower() for word in [*WORD.findall(said), *world.words["common"]]))
    listed = [word.lower() for name, group in world.words.items() if name != "common" for word in group]
    texts = [" ".join(sorted(world.everyday - {*fixed}))] * 40 + [" ".join(listed)] * 8
    texts += [world.name(random).lower() for _ in range(20_000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\p{L}+"), "isolated")
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=count, show_progress=False, initial_alphabet=list(LETTERS))
    )
    found = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return list(dict.fromkeys([*fixed, *LETTERS, *(piece for piece, _ in found if piece.isalpha())]))


@dataclass(frozen=True, slots=True)
class Lesson:
    """A prompt and its answer as tokens.

    Attributes:
        ids: all of them.
        candidate: the places of the candidate's tokens.
        known: of each of those, whether the reference has a word that begins like the word so far; or NO_TAG.
        kinds: of each of those, the rank in KINDS of the segment that it ends in.
        answer: the places of the answer's tokens.
    """

    ids: list[int]
    candidate: list[int]
    known: list[int]
    kinds: list[int]
    answer: range


class Encoder:
    """Rows to token ids, as an engine sends them: the template's tokens around the content's text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rubric: Rubric) -> None:
        self.rubric = rubric
        self.end = tokenizer.eos_token_id
        plain = json.loads(tokenizer.backend_tokenizer.to_str())
        plain["added_tokens"] = []
        self.plain = Tokenizer.from_str(json.dumps(plain))
        around = tokenizer.apply_chat_template(
            [{"role": "user", "content": "\0"}], add_generation_prompt=True, tokenize=False
        )
        self.before, self.after = (
            tokenizer.encode(part, add_special_tokens=False) for part in str(around).split("\0")
        )
        *_, last = rubric.text(Row("", "\0", "")).split("\0")
        self.last = len(last)
        self.drilled = len(self.before) + len(self.plain.encode(_before_reference(rubric)).ids)

    def prompt(self, made: Made) -> list[int]:
        text = self.rubric.text(Row(made.instruction, made.candidate, made.reference))
        return [*self.before, *self.plain.encode(text, add_special_tokens=False).ids, *self.after]

    def lesson(self, judged: Judged) -> Lesson:
        made = judged.made
        text = self.rubric.text(Row(made.instruction, made.candidate, made.reference))
        content = self.plain.encode(text, add_special_tokens=False)
        begin = len(text) - self.last - len(made.candidate)
        known_to, kind_to = self._tags(made)
        candidate, known, kinds = [], [], []
        for place, (first, end) in enumerate(content.offsets):
            if begin <= first and end <= begin + len(made.candidate) and end > first:
                candidate.append(len(self.before) + place)
                known.append(known_to[end - begin - 1])
                kinds.append(kind_to[end - begin - 1])
        asked = [*self.before, *content.ids, *self.after]
        if made.form == DRILL:
            # Only the middle of the prompt, from the reference's section on, and only the rationale.
            last = sum(first < begin + len(made.candidate) for first, _ in content.offsets) + len(self.before)
            asked = asked[self.drilled : last + 1]
            candidate = [place - self.drilled for place in candidate]
            said = [*self.plain.encode(judged.rationale).ids, self.end]
            return Lesson(asked + said, candidate, known, kinds, range(len(asked), len(asked) + len(said)))
        said = [*self.plain.encode(judged.answer).ids, self.end]
        return Lesson(asked + said, candidate, known, kinds, range(len(asked), len(asked) + len(said)))

    def _tags(self, made: Made) -> tuple[list[int], list[int]]:
        """Of each character of the candidate: `known` and `kinds` of a token that ends there."""
        beginnings = {
            word[: n + 1] for word in map(str.lower, WORD.findall(made.reference)) for n in range(len(word))
        }
        known = [NO_TAG] * len(made.candidate)
        for word in WORD.finditer(made.candidate):
            for end in range(word.start() + 1, word.end() + 1):
                known[end - 1] = int(made.candidate[word.start() : end].lower() in beginnings)
        return known, [KINDS.index(part.kind) for part in made.segments for _ in part.text]


@dataclass(frozen=True, slots=True)
class Batch:
    """Lessons side by side, padded at the right.

    Attributes:
        ids: (rows, tokens).
        row, place: (learned,), where the learned tokens stand: those of candidates and answers.
        answer: (learned,), whether it is an answer's.
        known, kinds: (learned,), the tags of a candidate's tokens, NO_TAG elsewhere.
    """

    ids: torch.Tensor
    row: torch.Tensor
    place: torch.Tensor
    answer: torch.Tensor
    known: torch.Tensor
    kinds: torch.Tensor


def batch(lessons: Sequence[Lesson]) -> Batch:
    ids = torch.zeros(len(lessons), max(len(lesson.ids) for lesson in lessons), dtype=torch.long)
    learned: list[tuple[int, int, int, int, int]] = []
    for n, lesson in enumerate(lessons):
        ids[n, : len(lesson.ids)] = torch.tensor(lesson.ids)
        tags = zip(lesson.candidate, lesson.known, lesson.kinds, strict=True)
        learned += [(n, place, 0, known, kind) for place, known, kind in tags]
        learned += [(n, place, 1, NO_TAG, NO_TAG) for place in lesson.answer]
    row, place, answer, known, kinds = torch.tensor(learned).unbind(1)
    return Batch(ids, row, place, answer.bool(), known, kinds)


def grouped(lessons: Iterable[Lesson], tokens: int) -> list[list[Lesson]]:
    """Lessons of like length together, with at most `tokens` tokens a group."""
    groups: list[list[Lesson]] = [[]]
    for lesson in sorted(lessons, key=lambda lesson: len(lesson.ids)):
        if groups[-1] and (len(groups[-1]) + 1) * len(lesson.ids) > tokens:
            groups.append([])
        groups[-1].append(lesson)
    return groups
