"""The generation loop: a pass for each token of a text, and one for each value.

The fixed text of an answer is known, so it takes no passes of its own. As texts close, their rows leave the
batch. When all have closed, they return and go through the fixed text and the values together: each pass takes
the tokens since the last one, and its logits pick the next value. If an answer has another text after that, the
rows write it in the same way. At the end, the probabilities of values that were not written may need a pass of
a few tokens for the branches of all rows together (`localjudge.constraint.value_paths`).

For this, rows move within the model's cache, which is possible if each of its layers keeps the keys and values
of all tokens and nothing else (`_rows_can_move`). Other models (sliding windows, recurrent layers …) go through
the same loop with all rows in the batch and a pass for each token; they compute a branch with its whole prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from localjudge.constraint.value_paths import Branch
from localjudge.engines.batches import rotates_by_batch
from localjudge.engines.transformers.answers import BatchAnswers

_PADDING = 0


def generate(
    model: PreTrainedModel, prompts: Sequence[list[int]], answers: BatchAnswers, max_tokens: int
) -> None:
    """Complete the answers of a batch.

    Args:
        model: a causal model.
        prompts: the tokens of each row's prompt; they are padded on the left.
        answers: the answers of the rows.
        max_tokens: the most tokens of an answer.
    """
    _begin(model, prompts, max_tokens, lambda cached: _complete(model, cached, answers))


def _begin(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    max_tokens: int,
    go_on: Callable[[_CachedRows], None],
) -> None:
    """Go on with the rows of these prompts, which are not computed yet."""
    lengths = [len(prompt) for prompt in prompts]
    tokens = _left_padded(prompts, max(lengths)).to(model.device)
    attention = _attention(lengths, max(lengths), model.device)

    def loop(model: PreTrainedModel, input_ids: torch.Tensor, **inputs: Any) -> None:
        # Arguments of `generate` that are not inputs of the model.
        for name in ("logits_processor", "stopping_criteria", "generation_config", "synced_gpus"):
            inputs.pop(name, None)
        go_on(_CachedRows(model, prompts, input_ids, inputs))

    # `generate` prepares the inputs and the cache that this model takes.
    model.generate(
        tokens,
        attention_mask=attention,
        generation_config=GenerationConfig(max_new_tokens=max_tokens, do_sample=False, pad_token_id=_PADDING),
        custom_generate=loop,
    )


def _complete(model: PreTrainedModel, cached: _CachedRows, answers: BatchAnswers) -> None:
    def pick(rows: list[int], logits: torch.Tensor) -> None:
        answers.pick(rows, logits)
        if cached.can_move:
            answers.append_fixed(rows)

    everyone = answers.incomplete
    pick(everyone, cached.prefill())
    while answers.incomplete:
        with model._optimize_model_for_decode():  # for one token a row
            while rows := answers.writing if cached.can_move else answers.incomplete and everyone:
                pick(rows, cached.step(rows, answers.tokens))
        if waiting := answers.incomplete:
            pick(waiting, cached.step(waiting, answers.tokens))
    while branches := answers.branches():
        for begin in range(0, len(branches), len(everyone)):
            some = branches[begin : begin + len(everyone)]
            answers.keep(some, cached.after(some, answers.tokens))


class _CachedRows:
    """The rows of a batch in the model's cache; their tokens stand at its end, without a gap.

    Attributes:
        can_move: whether rows can leave the cache and return; known after `prefill`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[list[int]],
        input_ids: torch.Tensor,
        inputs: dict[str, Any],
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._input_ids = input_ids
        self._inputs = inputs
        self._rows = list(range(len(prompts)))
        self._lengths = [len(prompt) for prompt in prompts]  # tokens of each row that the cache holds
        self._width = input_ids.shape[1]
        self._layers: list[DynamicLayer] = []
        # For each layer, the keys and values, (heads, tokens, width of a head), of rows that have left.
        self._absent: list[dict[int, tuple[torch.Tensor, torch.Tensor]]] = []
        self.can_move = False

    def prefill(self) -> torch.Tensor:
        """Compute the prompts. Return the logits after each, float32 (rows, V)."""
        logits = self._forward(None, is_first_iteration=True)
        self.can_move = _rows_can_move(self._model, self._inputs, tuple(self._input_ids.shape))
        if self.can_move:
            self._layers = self._inputs["past_key_values"].layers
            self._absent = [{} for _ in self._layers]
        return logits

    def step(self, rows: list[int], tokens: Sequence[list[int]]) -> torch.Tensor:
        """Compute the new tokens of some rows. Return the logits after the last one, float32 (rows, V).

        Args:
            rows: rows of the batch; all of them if rows cannot move.
            tokens: the tokens of each row of the batch after its prompt.
        """
        totals = [len(self._prompts[row]) + len(tokens[row]) for row in rows]
        count = max(total - self._lengths[row] for row, total in zip(rows, totals, strict=True))
        count = count if self.can_move else 1
        last = [[*self._prompts[row][-count:], *tokens[row][-count:]][-count:] for row in rows]
        new = _left_padded(last, count).to(self._input_ids.device)
        if not self.can_move:
            self._input_ids = torch.cat([self._input_ids, new], dim=1)
            return self._forward(count)
        # Where a row has fewer new tokens than another one, its last tokens are computed again.
        self._arrange(rows, [max(0, total - count) for total in totals])
        for row, total in zip(rows, totals, strict=True):
            self._lengths[row] = total
        return self._append(new, totals)

    def after(self, branches: Sequence[tuple[int, Branch]], tokens: Sequence[list[int]]) -> torch.Tensor:
        """Return the logits after other ways on from the answers of rows, float32 (branches, V).

        Afterwards, there are no more steps.

        Args:
            branches: each with its row.
            tokens: the complete answer of each row of the batch.
        """
        rows = [row for row, _ in branches]
        sequences = [
            [*self._prompts[row], *tokens[row][: branch.place], *branch.written] for row, branch in branches
        ]
        if not self.can_move:
            found: list[torch.Tensor] = []
            _begin(self._model, sequences, 1, lambda cached: found.append(cached.prefill()))
            return found[0]
        count = max(len(branch.written) for _, branch in branches)
        totals = [*map(len, sequences)]
        kept = [total - count for total in totals]
        for layer, absent in zip(self._layers, self._absent, strict=True):
            for at, row in enumerate(self._rows):
                begin = self._width - self._lengths[row]
                absent[row] = layer.keys[at, :, begin:], layer.values[at, :, begin:]
            keys, values = zip(*(absent[row] for row in rows), strict=True)
            layer.keys = _right_aligned(keys, kept, max(kept))
            layer.values = _right_aligned(values, kept, max(kept))
        self._rows, self._width = [], max(kept)
        last = _left_padded([sequence[-count:] for sequence in sequences], count)
        return self._append(last.to(self._input_ids.device), totals)

    def _append(self, new: torch.Tensor, totals: Sequence[int]) -> torch.Tensor:
        """Compute new tokens, (rows, tokens), of the rows in the cache, which then have `totals` tokens."""
        count = new.shape[1]
        self._input_ids = new
        self._width += count
        attention = _attention(totals, self._width, new.device)
        self._inputs["attention_mask"] = None if min(totals) == self._width else attention
        if "position_ids" in self._inputs:
            positions = attention.cumsum(dim=1) - 1
            self._inputs["position_ids"] = positions[:, -count:].clamp(min=0)
        return self._forward(count)

    def _forward(self, count: int | None, *, is_first_iteration: bool = False) -> torch.Tensor:
        inputs = self._model.prepare_inputs_for_generation(
            self._input_ids,
            next_sequence_length=count,
            is_first_iteration=is_first_iteration,
            **self._inputs,
        )
        outputs = self._model(**inputs, return_dict=True)
        self._inputs = self._model._update_model_kwargs_for_generation(outputs, self._inputs)
        logits: torch.Tensor = outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
        return logits

    def _arrange(self, rows: list[int], kept: list[int]) -> None:
        """Make the cache hold these rows, in this order, each with its first `kept` tokens."""
        complete = kept == [self._lengths[row] for row in rows]
        if complete and rows == self._rows:
            return
        only_leave = complete and set(rows) <= set(self._rows)
        leaving = set(self._rows) - set(rows)
        width = self._width if only_leave else max(kept)
        stay = torch.tensor([self._rows.index(row) for row in rows] if only_leave else [])
        for layer, absent in zip(self._layers, self._absent, strict=True):
            for at, row in enumerate(self._rows):
                begin = self._width - self._lengths[row]
                if row in leaving:  # a copy, so that the memory of the other rows is freed
                    absent[row] = layer.keys[at, :, begin:].clone(), layer.values[at, :, begin:].clone()
                elif not only_leave:
                    absent[row] = layer.keys[at, :, begin:], layer.values[at, :, begin:]
            if only_leave:
                layer.batch_select_indices(stay.to(layer.keys.device))
            else:
                keys, values = zip(*(absent.pop(row) for row in rows), strict=True)
                layer.keys, layer.values = (
                    _right_aligned(keys, kept, width),
                    _right_aligned(values, kept, width),
                )
        self._rows, self._width = rows, width
        for row, length in zip(rows, kept, strict=True):
            self._lengths[row] = length


def _rows_can_move(model: PreTrainedModel, inputs: dict[str, Any], shape: tuple[int, int]) -> bool:
    """Return whether a row's cache, with nothing else, continues the row in another batch.

    Args:
        model: the model.
        inputs: its inputs after the prompts, with the cache.
        shape: the rows and the padded length of the prompts.
    """
    cache, positions = inputs.get("past_key_values"), inputs.get("position_ids")
    layers = cache.layers if cache is not None and type(cache) is DynamicCache else []
    whole = [
        type(layer) is DynamicLayer
        and layer.is_initialized
        and (layer.keys.shape[0], layer.keys.shape[-2]) == shape
        for layer in layers
    ]
    return (
        bool(whole)
        and all(whole)
        and (positions is None or positions.ndim == 2)
        and type(model).prepare_inputs_for_generation is GenerationMixin.prepare_inputs_for_generation
        and not rotates_by_batch(model.config.get_text_config(decoder=True))
    )


def _left_padded(sequences: Sequence[Sequence[int]], length: int) -> torch.Tensor:
    """Return tokens with padding before them, (rows, length)."""
    tokens = torch.full((len(sequences), length), _PADDING)
    for row, sequence in enumerate(sequences):
        tokens[row, length - len(sequence) :] = torch.tensor(sequence)
    return tokens


def _attention(lengths: Sequence[int], width: int, device: torch.device) -> torch.Tensor:
    """Return int64 (rows, width), 1 for each token and 0 for the padding before them."""
    padding = width - torch.tensor(lengths, device=device)
    return (torch.arange(width, device=device) >= padding[:, None]).long()


def _right_aligned(parts: Sequence[torch.Tensor], kept: Sequence[int], width: int) -> torch.Tensor:
    """Return the first `kept` tokens of each part, (rows, heads, width, width of a head), with zeros before."""
    heads, _, size = parts[0].shape
    joined = parts[0].new_zeros(len(parts), heads, width, size)
    for row, (part, length) in enumerate(zip(parts, kept, strict=True)):
        joined[row, :, width - length :] = part[:, :length]
    return joined
