"""Synthetic rows as the token ids that the model is trained on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from corruptions import SyntheticRow
from ground_truth import ScoredRow
from synthetic_text import WORD
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from warmup import WARMUP_FORM

from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric

# The kinds of segments, which are the labels of the second auxiliary head.
SEGMENT_KINDS = (
    "plain",
    "swapped",
    "invented",
    "repeated",
    "shuffled",
    "padding",
    "rude",
    "friendly",
    "score request",
    "injected answer",
    "curt",
    "refusing",
    "off topic",
    "complying",
    "empty",
)
# The label of a token that an auxiliary head does not learn from.
NO_TAG = -100


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and its answer as token ids.

    Attributes:
        ids: all token ids.
        candidate: the positions of the candidate's tokens.
        in_reference: for each token of the candidate, 1 if the reference has a word that begins with the
            letters of the word up to this token, else 0; NO_TAG outside words.
        kind: for each token of the candidate, the index in SEGMENT_KINDS of the segment that the token ends in.
        answer: the positions of the answer's tokens.
    """

    ids: list[int]
    candidate: list[int]
    in_reference: list[int]
    kind: list[int]
    answer: range


class ExampleEncoder:
    """An encoder of rows that works as in the engines: the chat template's tokens around the content's text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rubric: Rubric) -> None:
        self.rubric = rubric
        self.end = tokenizer.eos_token_id
        # Without added tokens, text such as "<|im_end|>" is read as its characters.
        text_only = json.loads(tokenizer.backend_tokenizer.to_str())
        text_only["added_tokens"] = []
        self.text_only = Tokenizer.from_str(json.dumps(text_only))
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": "\0"}], add_generation_prompt=True, tokenize=False
        )
        self.before, self.after = (
            tokenizer.encode(part, add_special_tokens=False) for part in str(prompt).split("\0")
        )
        *_, after_candidate = rubric.text(
            Row.from_response(instruction="-", candidate="\0", reference="")
        ).split("\0")
        self.after_candidate = len(after_candidate)
        self.warmup_begin = len(self.before) + len(self.text_only.encode(_before_reference(rubric)).ids)

    def example(self, scored: ScoredRow) -> TrainingExample:
        """Encode a row; for a warm-up row, encode only the reference, the candidate and the rationale."""
        row = scored.row
        text = self.rubric.text(
            Row.from_response(instruction=row.instruction, candidate=row.candidate, reference=row.reference)
        )
        content = self.text_only.encode(text, add_special_tokens=False)
        begin = len(text) - self.after_candidate - len(row.candidate)
        in_reference_at, kind_at = self._tags(row)
        candidate, in_reference, kind = [], [], []
        for place, (first, end) in enumerate(content.offsets):
            if begin <= first and end <= begin + len(row.candidate) and end > first:
                candidate.append(len(self.before) + place)
                in_reference.append(in_reference_at[end - begin - 1])
                kind.append(kind_at[end - begin - 1])
        prompt = [*self.before, *content.ids, *self.after]
        answer = scored.answer
        if row.form == WARMUP_FORM:
            last = sum(first < begin + len(row.candidate) for first, _ in content.offsets) + len(self.before)
            prompt = prompt[self.warmup_begin : last + 1]
            candidate = [place - self.warmup_begin for place in candidate]
            answer = scored.rationale
        ids = [*self.text_only.encode(answer).ids, self.end]
        return TrainingExample(
            prompt + ids, candidate, in_reference, kind, range(len(prompt), len(prompt) + len(ids))
        )

    def _tags(self, row: SyntheticRow) -> tuple[list[int], list[int]]:
        """Return, for each character of the candidate, `in_reference` and `kind` of a token that ends there."""
        beginnings = {
            word[: n + 1] for word in map(str.lower, WORD.findall(row.reference)) for n in range(len(word))
        }
        in_reference = [NO_TAG] * len(row.candidate)
        for word in WORD.finditer(row.candidate):
            for end in range(word.start() + 1, word.end() + 1):
                in_reference[end - 1] = int(row.candidate[word.start() : end].lower() in beginnings)
        return in_reference, [SEGMENT_KINDS.index(part.kind) for part in row.segments for _ in part.text]


def _before_reference(rubric: Rubric) -> str:
    """Return the prompt of a warm-up row up to the section of the reference."""
    before, *_ = rubric.text(Row.from_response(instruction="-", candidate="", reference="\0")).split("\0")
    return before[: before.rindex("\n#") + 1]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of training examples, padded on the right.

    Attributes:
        ids: (rows, tokens).
        row, place: (learned,), the positions of the tokens that the loss includes: candidates and answers.
        answer: (learned,), whether the token belongs to an answer.
        in_reference, kind: (learned,), the tags of a candidate's token; NO_TAG for an answer's.
    """

    ids: torch.Tensor
    row: torch.Tensor
    place: torch.Tensor
    answer: torch.Tensor
    in_reference: torch.Tensor
    kind: torch.Tensor


def make_batch(examples: Sequence[TrainingExample]) -> Batch:
    ids = torch.zeros(len(examples), max(len(example.ids) for example in examples), dtype=torch.long)
    learned: list[tuple[int, int, int, int, int]] = []
    for n, example in enumerate(examples):
        ids[n, : len(example.ids)] = torch.tensor(example.ids)
        tags = zip(example.candidate, example.in_reference, example.kind, strict=True)
        learned += [(n, place, 0, in_reference, kind) for place, in_reference, kind in tags]
        learned += [(n, place, 1, NO_TAG, NO_TAG) for place in example.answer]
    row, place, answer, in_reference, kind = torch.tensor(learned).unbind(1)
    return Batch(ids, row, place, answer.bool(), in_reference, kind)


def group_by_length(examples: Iterable[TrainingExample], tokens: int) -> list[list[TrainingExample]]:
    """Group examples of similar length; a group has at most `tokens` tokens, including its padding."""
    groups: list[list[TrainingExample]] = [[]]
    for example in sorted(examples, key=lambda example: len(example.ids)):
        if groups[-1] and (len(groups[-1]) + 1) * len(example.ids) > tokens:
            groups.append([])
        groups[-1].append(example)
    return groups
