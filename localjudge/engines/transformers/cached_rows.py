"""The rows of a batch in a cache of keys and values that is written in place.

Token n of a row stands at place n, so a row needs no padding before it, and nothing moves when rows get
different numbers of new tokens. What stands after a row's last token is not valid; a mask hides it until it is
overwritten. The rows that a pass computes are the first ones of the cache: removing or adding a row
swaps two slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any
from weakref import proxy

import torch
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from localjudge.engines.prompt_batches import rotates_by_batch
from localjudge.engines.transformers.kept_beginnings import KeptBeginnings, PromptPart
from localjudge.prompts.task import Prompt

# A processor multiplies so many tokens at its full speed; more at once need more memory and save nothing.
_TOKENS_OF_A_PASS = 1024
# The tokens by which a cache grows.
_GROWTH = 128


class _FilledError(Exception):
    """Ends a pass that is only to fill the cache: what follows would compute logits, which nobody reads."""


class _RowLayer(DynamicLayer):  # type: ignore[misc]
    """The keys and values of a layer, (rows, heads, places, width of a head).

    Args:
        now: the rows, which say where the pass writes.
        is_last: whether no further layer keeps keys and values.
    """

    def __init__(self, now: CachedRows, is_last: bool) -> None:
        super().__init__()
        self._now = now
        self._is_last = is_last

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        now = self._now
        self._make_room(key_states, value_states, now.width)
        for kept, new in (self.keys, key_states), (self.values, value_states):
            rows = kept[now.first : now.last]
            if min(now.begins) == max(now.begins):
                rows[:, :, now.begins[0] : now.width] = new
            else:
                rows[now.row, :, now.place] = new.transpose(1, 2)
        if self._is_last and now.only_fills:
            raise _FilledError
        return tuple(kept[now.first : now.last, :, : now.width] for kept in (self.keys, self.values))

    def _make_room(self, keys: torch.Tensor, values: torch.Tensor, width: int) -> None:
        now = self._now
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
            self.keys, self.values = (_room(each, now.count, 0) for each in (keys, values))
        if self.keys.shape[2] < width:
            old, places = (self.keys, self.values), max(width, now.longest) + _GROWTH
            self.keys, self.values = (_room(each, now.count, places) for each in old)
            for grown, before in zip((self.keys, self.values), old, strict=True):
                grown[:, :, : before.shape[2]] = before

    def get_seq_length(self) -> int:
        return max(self._now.begins)

    def part(self, row: int, part: PromptPart) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a part of a row's prompt."""
        places = slice(part.begin, len(part.tokens))
        return self.keys[row : row + 1, :, places], self.values[row : row + 1, :, places]

    def write(self, rows: Sequence[int], begin: int, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Write keys and values of tokens that these rows share."""
        end = begin + pair[0].shape[2]
        self._make_room(*pair, end)
        for kept, new in zip((self.keys, self.values), pair, strict=True):
            kept[rows, :, begin:end] = new

    def swap(self, one: int, other: int) -> None:
        """Swap two slots."""
        for kept in self.keys, self.values:
            kept[[one, other]] = kept[[other, one]]


class CachedRows:
    """The rows of a batch whose tokens a model computes in any order, any number of them at a time.

    Args:
        model: a model for which `keeps_rows` is true.
        prompts: the rows' prompts.
        inputs: the model's inputs, with an empty cache.
        kept: the beginnings of earlier prompts; gets those of these.

    Attributes:
        count: number of rows.
        longest: number of tokens of the longest prompt.
        first, last: the rows of the pass.
        begins: the place of the first new token of each row of the pass.
        width: number of places of the pass.
        only_fills: whether nobody reads its logits.
        row, place: for each new token, its row of the pass and its place, (rows, 1) and (rows, tokens).
    """

    can_move = True

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Prompt],
        inputs: dict[str, Any],
        kept: KeptBeginnings,
    ) -> None:
        self._model = model
        self._prompts = [prompt.tokens for prompt in prompts]
        self._kept = kept
        self._cache_name = _cache_name(inputs)
        self._cache = inputs[self._cache_name]
        self.count, self.longest = len(prompts), max(map(len, self._prompts))
        last = len(self._cache.layers) - 1
        now = proxy(self)  # a circle of references would keep the memory of the keys and values for a while
        self._layers = self._cache.layers = [_RowLayer(now, n == last) for n in range(last + 1)]
        # The tokens of each answer that the cache has.
        self._answer_tokens: list[list[int]] = [[] for _ in prompts]
        kept.most = max(kept.most, self.count * self.longest)
        levels = max(len(prompt.beginnings) for prompt in prompts)
        self._order = self._prefill([_parts(prompt, levels) for prompt in prompts])

    def step(self, rows: Sequence[int], answers: Sequence[list[int]]) -> torch.Tensor:
        """Compute what is new in the answers of these rows.

        Returns:
            the logits after each answer, float32 (rows, V).
        """
        self._arrange(rows)
        answer_of = dict(zip(rows, answers, strict=True))
        begins, new = [], []
        for row in self._order[: len(rows)]:
            answer, prompt = answer_of[row], self._prompts[row]
            # The logits are those after the last token, which may be the prompt's.
            known = min(_shared(answer, self._answer_tokens[row]), len(answer) - 1)
            begins.append(len(prompt) + known)
            new.append([prompt[-1], *answer][known + 1 :])
            self._answer_tokens[row] = [*answer]
        ends = [len(each) - 1 for each in new]
        kept = sorted({*ends})
        logits = self._forward(0, new, begins, kept)
        places = [self._order.index(row) for row in rows]
        return logits[places, [kept.index(ends[place]) for place in places]].float()

    def branches(self, branches: Sequence[tuple[int, list[int]]]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Compute the logits after branches of the rows' answers; each pass computes one branch of each row.

        Args:
            branches: for each branch, its row and the tokens of the answer up to its end.

        Yields:
            indices of `branches`, and the logits after each of these, float32 (branches, V).
        """
        waiting: dict[int, list[int]] = {}
        for number, (row, _) in enumerate(branches):
            waiting.setdefault(row, []).append(number)
        while waiting:
            numbers = [each.pop() for each in waiting.values()]
            yield numbers, self.step([*waiting], [branches[number][1] for number in numbers])
            waiting = {row: each for row, each in waiting.items() if each}

    def _prefill(self, parts: Sequence[Sequence[PromptPart]]) -> list[int]:
        """Compute the prompts but for their last tokens, which the first step computes.

        First what all rows share, then what those of an instruction share, then the rest. Rows that compute the
        same are computed once.

        Args:
            parts: the parts of each row's prompt, as many of each.

        Returns:
            the row of each place in the cache.
        """
        order = self._ordered(parts)
        for level in range(1, len(parts[0]) + 1):
            places: dict[PromptPart, list[int]] = {}
            for place, row in enumerate(order):
                if (part := parts[row][level - 1]).new:
                    places.setdefault(part, []).append(place)
            known = {part: self._kept.get(part) for part in places}
            self._compute([(places[part][0], part) for part in places if known[part] is None])
            for part, same in places.items():
                kept = known[part] or [layer.part(same[0], part) for layer in self._layers]
                if known[part] is None and level < len(parts[0]):
                    self._kept.keep(part, kept)
                if others := same if known[part] else same[1:]:
                    for layer, pair in zip(self._layers, kept, strict=True):
                        layer.write(others, part.begin, pair)
                    self._kept.served += len(part.new) * len(others)
        return order

    def _ordered(self, parts: Sequence[Sequence[PromptPart]]) -> list[int]:
        """Return the rows so that those of a pass are beside each other and have similarly many new tokens.

        First the rows that compute a beginning for others, last those whose whole prompt another row has.
        """
        rank, seen = {}, set[PromptPart]()
        for row in sorted(range(len(parts)), key=lambda row: len(parts[row][-1].new)):
            new = any(part.new and part not in seen and not self._kept.get(part) for part in parts[row][:-1])
            rank[row] = 0 if new else 2 if parts[row][-1] in seen else 1
            seen.update(parts[row])
        return sorted(rank, key=rank.__getitem__)

    def _compute(self, parts: Sequence[tuple[int, PromptPart]]) -> None:
        """Compute parts of prompts, whose tokens before them the cache has.

        Args:
            parts: the place of each row and the part, in the order of the places.
        """
        # Many rows fill a device; a processor is full with fewer.
        most = _TOKENS_OF_A_PASS if self._model.device.type == "cpu" else math.inf
        while parts:
            first, count, longest = parts[0][0], 0, 0
            for place, part in parts:
                longest = max(longest, len(part.new))
                if count and (place > first + count or longest * (count + 1) > most):
                    break
                count += 1
            some, parts = [part for _, part in parts[:count]], parts[count:]
            with suppress(_FilledError):
                self._forward(first, [[*part.new] for part in some], [part.begin for part in some], [])

    def _forward(
        self, first: int, new: Sequence[list[int]], begins: Sequence[int], kept: list[int]
    ) -> torch.Tensor:
        """Compute new tokens of rows that stand beside each other in the cache, from the row `first` on.

        Args:
            first: the first of the rows.
            new: the tokens of each row.
            begins: the place of the first new token of each row.
            kept: the places in `new` after which logits are computed; with none, the pass ends when the cache
                has the tokens.

        Returns:
            the logits, (rows, places, V).

        Raises:
            _FilledError: the cache is filled, and no logits are wanted.
        """
        device, most = self._model.device, max(map(len, new))
        self.first, self.last, self.begins, self.width = first, first + len(new), begins, max(begins) + most
        self.only_fills = not kept
        tokens = torch.tensor([[*each, *[0] * (most - len(each))] for each in new], device=device)
        self.row = torch.arange(len(new), device=device)[:, None]
        self.place = torch.tensor(begins, device=device)[:, None] + torch.arange(most, device=device)
        ends = torch.tensor([begin + len(each) for begin, each in zip(begins, new, strict=True)], device=device)
        mask = None  # that of the model: each token sees those before it
        if min(begins) != max(begins):
            dtype = self._model.dtype
            hidden = torch.arange(self.width, device=device) > self.place[:, None, :, None]
            mask = torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
        logits: torch.Tensor = self._model(
            input_ids=tokens,
            position_ids=torch.minimum(self.place, ends[:, None] - 1).clamp(min=0),
            attention_mask=mask,
            use_cache=True,
            return_dict=True,
            logits_to_keep=torch.tensor(kept or [0], device=device),
            **{self._cache_name: self._cache},
        ).logits
        return logits

    def _arrange(self, rows: Sequence[int]) -> None:
        """Make these rows the first ones of the cache."""
        wanted = set(rows)
        outside = [place for place, row in enumerate(self._order[: len(rows)]) if row not in wanted]
        inside = [place for place, row in enumerate(self._order) if place >= len(rows) and row in wanted]
        for one, other in zip(outside, inside, strict=True):
            self._order[one], self._order[other] = self._order[other], self._order[one]
            for layer in self._layers:
                layer.swap(one, other)


def keeps_rows(model: PreTrainedModel, inputs: dict[str, Any]) -> bool:
    """Return whether a row can be continued in any batch from its keys and values alone.

    Args:
        model: the model.
        inputs: its inputs before the first pass, with the cache.
    """
    return not why_rows_are_not_kept(model, inputs)


def why_rows_are_not_kept(model: PreTrainedModel, inputs: dict[str, Any]) -> str:
    """Return why a row cannot be continued from its keys and values alone; empty if it can.

    The arguments are those of `keeps_rows`.
    """
    name = _cache_name(inputs)
    cache: Any = inputs.get(name)
    positions = inputs.get("position_ids")
    config = model.config.get_text_config(decoder=True)
    layers = getattr(cache, "layers", [])
    others = sum(type(layer) is not DynamicLayer for layer in layers)
    if others:
        return f"{others} of {len(layers)} layers keep a window or a state of the text, not all its tokens"
    if type(cache) is not DynamicCache or not layers:
        return "its cache is not one of keys and values"
    if getattr(config, "alibi", False):
        return "its attention depends on the padding of the batch"  # ALiBi (Press et al. 2022)
    if rotates_by_batch(config):
        return "its positions depend on the longest row of the batch"
    takes_more = positions is None or positions.ndim != 2 or inputs.keys() != _INPUTS | {name}
    if takes_more or type(model).prepare_inputs_for_generation is not _USUAL_INPUTS:
        return "it takes other inputs than tokens and their positions"
    return ""


def _parts(prompt: Prompt, levels: int) -> list[PromptPart]:
    """Return the beginnings of a prompt, each without the one before it, and the rest without the last token.

    Args:
        prompt: the prompt.
        levels: the number of beginnings to return; the first ones are empty if the prompt has fewer.
    """
    tokens, missing = prompt.tokens[:-1], levels - len(prompt.beginnings)
    ends = [min(end, len(tokens)) for end in (*[0] * missing, *prompt.beginnings, len(tokens))]
    return [PromptPart(begin, tuple(tokens[:end])) for begin, end in pairwise([0, *ends])]


_INPUTS = {"attention_mask", "position_ids", "use_cache", "logits_to_keep"}
"""The inputs of a model beside its cache."""
_USUAL_INPUTS = GenerationMixin.prepare_inputs_for_generation


def _cache_name(inputs: dict[str, Any]) -> str:
    """Return the name of the input that is the cache: transformers 5.24 changed it."""
    return "cache" if "cache" in inputs else "past_key_values"


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of tokens with which both begin."""
    if other[: len(one)] == one:
        return len(one)
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))


def _room(like: torch.Tensor, rows: int, places: int) -> torch.Tensor:
    """Return zeros for the keys or values of so many tokens; a place without a token must be a number."""
    return like.new_zeros(rows, like.shape[1], places, like.shape[3])
