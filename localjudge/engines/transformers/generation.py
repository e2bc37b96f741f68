"""The answers of a batch, and the generation loop: a pass for each token of a text, and one for each value.

The fixed text of an answer is known, so it takes no passes of its own. As texts close, their rows wait. When
all have closed, they go through the fixed text and the values together: each pass takes the tokens since the
last one, and its logits pick the next value. If an answer has another text after that, the rows write it in the
same way. At the end, the probabilities of values that were not written may need passes for the branches beside
the answers (`localjudge.constraint.value_paths`).

For this, a row must be able to stop in a batch while others go on, which is possible if each layer of the
model's cache keeps the keys and values of all tokens and nothing else (`CachedRows`). Other models (sliding
windows, recurrent layers …) go through the same loop with all rows in the batch and a pass for each token
(`_PaddedRows`); they compute a branch with its whole prompt. A model whose rows cannot share a batch
(`batched_types`) does this with one row, which needs no padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig, PreTrainedModel

from localjudge.constraint.masking import HostTable
from localjudge.constraint.value_paths import Branch
from localjudge.engines.protocol import Decoding
from localjudge.engines.transformers.cached_rows import CachedRows, keeps_rows, why_rows_are_not_kept
from localjudge.engines.transformers.float32_head import Float32Head
from localjudge.engines.transformers.kept_beginnings import KeptBeginnings
from localjudge.prompts.task import Prompt

_PADDING = 0


class BatchAnswers:
    """The answers of a batch, a row each.

    The token at each place of a sampled row has its own random number. So the row's tokens do not depend on the
    other rows of the batch, nor on which tokens were picked and which are fixed.

    Attributes:
        tokens: the tokens of each row so far, thoughts included.
        max_tokens: the most tokens of a row.
    """

    def __init__(self, table: HostTable, decoding: Decoding, prompts: Sequence[Prompt]) -> None:
        self._table, self._decoding = table, decoding
        self.max_tokens = decoding.max_tokens
        if decoding.temperature > 0:
            generators = [np.random.Generator(np.random.Philox(each.seed)) for each in prompts]
            self._draws = np.stack([each.random(self.max_tokens) for each in generators])
        self._fixed_token = table.fixed_token
        self._allowances = decoding.allowances
        self._writes = (table.table.text >= 0) | table.table.thinks
        self._states = np.full(len(prompts), table.table.entry, np.int64)
        # The length at which each row must be complete, unless another text begins before.
        self._deadline = self._allowances[self._states]
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self._complete = np.zeros(len(prompts), bool)

    @property
    def writing(self) -> list[int]:
        """The rows that are inside a text, or that think."""
        rows: list[int] = np.flatnonzero(self._writes[self._states]).tolist()
        return rows

    @property
    def incomplete(self) -> list[int]:
        """The rows whose answer is not complete."""
        rows: list[int] = np.flatnonzero(~self._complete).tolist()
        return rows

    def at_values(self, rows: Sequence[int]) -> list[bool]:
        """Return for each of these rows whether its next token picks a value."""
        at = np.array(rows)
        states = self._states[at]
        is_fixed = self._fixed_token[states] >= 0
        at_values: list[bool] = (~self._writes[states] & ~is_fixed & ~self._complete[at]).tolist()
        return at_values

    def pick(self, rows: Sequence[int], logits: torch.Tensor) -> None:
        """Pick the next token of these rows; rows that are complete stay as they are.

        Args:
            rows: rows of the batch.
            logits: float32 (rows, V); they are changed.
        """
        at = np.array(rows)
        lengths = np.array([len(self.tokens[row]) for row in rows])
        # The token after a complete answer is ignored, but some token must be allowed.
        left = np.where(self._complete[at], 1, self._deadline[at] - lengths)
        self._table.constrain(logits, self._states[at], left, at)
        picked = logits.argmax(dim=-1) if self._decoding.temperature == 0 else self._sample(at, lengths, logits)
        for row, token in zip(rows, picked.tolist(), strict=True):
            if not self._complete[row]:
                self._append(row, token)

    def branches(self) -> list[tuple[int, Branch]]:
        """Return the picks beside the answers that are to be computed next, each with its row."""
        if not self._table.paths.most_branches:
            return []
        kept = self._table.scores.look([*range(len(self.tokens))])
        return [
            (row, branch)
            for row, tokens in enumerate(self.tokens)
            for branch in self._table.paths.unexplored(kept[row], tokens)
        ]

    def keep(self, branches: Sequence[tuple[int, Branch]], logits: torch.Tensor) -> None:
        """Keep what the model says at these picks; logits are float32 (branches, V)."""
        at = torch.tensor([(row, branch.pick) for row, branch in branches], device=logits.device)
        self._table.scores.keep(logits, at[:, 0], at[:, 1])

    def append_fixed(self, rows: Sequence[int]) -> None:
        """Append the fixed text that comes next in each of these rows, up to the next text or value."""
        for row in rows:
            while (token := self._fixed_token[self._states[row]]) >= 0 and not self._writes[self._states[row]]:
                self._append(row, int(token))

    def _append(self, row: int, token: int) -> None:
        table, state = self._table.table, self._states[row]
        after = self._states[row] = table.next_state[state, token]
        self.tokens[row].append(token)
        if self._allowances[after] and after != state:
            self._deadline[row] = len(self.tokens[row]) + self._allowances[after]
        self._complete[row] = table.distance[after] == 0

    def _sample(self, rows: NDArray[np.int64], places: NDArray[np.int64], logits: torch.Tensor) -> torch.Tensor:
        """Return one token per row, (rows,), by inverting the cumulative distribution."""
        weights = torch.softmax(logits.double() / self._decoding.temperature, dim=-1)
        if self._decoding.top_p < 1:
            # The nucleus (Holtzman et al. 2020): the most likely tokens until their mass reaches top_p.
            ranked, order = weights.sort(dim=-1, descending=True, stable=True)
            outside = ranked.cumsum(dim=-1) - ranked >= self._decoding.top_p
            weights = weights.scatter(1, order, ranked.masked_fill(outside, 0.0))
        mass = weights.cumsum(dim=-1)
        draws = torch.from_numpy(self._draws[rows, places.clip(max=self._draws.shape[1] - 1)])[:, None]
        picked = torch.searchsorted(mass, draws.to(mass.device) * mass[:, -1:], right=True)[:, 0]
        # A draw that rounds up to the whole mass would select a token beyond the last one with any mass.
        return torch.where(picked < mass.shape[1], picked, weights.argmax(dim=-1))


def generate(
    model: PreTrainedModel,
    prompts: Sequence[Prompt],
    answers: BatchAnswers,
    kept: KeptBeginnings,
    *,
    batched: bool,
    head: Float32Head | None = None,
) -> None:
    """Complete the answers of a batch.

    Args:
        model: a causal model.
        prompts: the rows' prompts.
        answers: the answers of the rows.
        kept: the beginnings of earlier prompts; not used for a model whose cache is not only keys and values.
        batched: whether the rows of this model may share a batch (`judged_alone`); otherwise there is one row.
        head: the last layer of the model, to compute the logits of values in float32; None leaves them as they
            are.
    """
    tokens = [prompt.tokens for prompt in prompts]
    begun = prepared(model, tokens, answers.max_tokens)
    fits = batched and keeps_rows(model, begun[1])
    rows = CachedRows(model, prompts, begun[1], kept) if fits else _PaddedRows(model, tokens, begun)
    _complete(model, rows, answers, head)


def why_prompts_are_computed_whole(model: PreTrainedModel) -> str:
    """Return why the beginnings of earlier prompts are not kept for this model; empty if they are."""
    _, inputs = prepared(model, [[3, 4]], 1)
    return why_rows_are_not_kept(model, inputs)


def can_write(model: PreTrainedModel) -> bool:
    """Return whether a model can write token by token: no token sees later ones, and its cache is whole.

    An encoder sees later tokens, so the logits before the last token change with that token. If something is
    missing in a cache, a pass for the last token alone gives something else than one pass over all. There, also
    the rounding differs, by a few hundredths of what the logits differ from each other.
    """
    *prompt, last, other = range(3, 8)
    with torch.inference_mode():
        rows = _PaddedRows(model, [prompt], prepared(model, [prompt], 2))
        rows.step([0], [[]])
        (found,) = rows.step([0], [[last]])
        tokens = torch.tensor([[*prompt, last], [*prompt, other]], device=model.device)
        whole = model(input_ids=tokens, use_cache=False, return_dict=True).logits.float()
    seen = (whole[0, -2] - whole[1, -2]).std() > 0.01 * whole[0, -2].std()
    incomplete = (found - whole[0, -1]).std() > 0.2 * whole[0, -1].std()
    # A comparison with a number that is not finite is false: a broken model fails row by row, with its reason.
    return not (seen or incomplete)


def prepared(
    model: PreTrainedModel, prompts: Sequence[list[int]], max_tokens: int
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the tokens of these prompts, padded on the left, and the model's inputs for them with a cache."""
    length = max(map(len, prompts))
    padding = length - torch.tensor([[len(prompt)] for prompt in prompts])
    tokens = [[*[_PADDING] * (length - len(prompt)), *prompt] for prompt in prompts]

    def take(model: PreTrainedModel, input_ids: torch.Tensor, **inputs: Any) -> Any:
        # Arguments of `generate` that are not inputs of the model.
        for name in ("logits_processor", "stopping_criteria", "generation_config", "synced_gpus"):
            inputs.pop(name, None)
        return input_ids, inputs

    # `generate` prepares the inputs and the cache that this model takes.
    found: tuple[torch.Tensor, dict[str, Any]] = model.generate(
        torch.tensor(tokens, device=model.device),
        attention_mask=(torch.arange(length) >= padding).long().to(model.device),
        generation_config=GenerationConfig(max_new_tokens=max_tokens, do_sample=False, pad_token_id=_PADDING),
        custom_generate=take,
    )
    return found


def _complete(
    model: PreTrainedModel,
    cached: CachedRows | _PaddedRows,
    answers: BatchAnswers,
    head: Float32Head | None,
) -> None:
    def in_float32(picks: list[bool] | None) -> AbstractContextManager[None]:
        return nullcontext() if head is None else head.at(picks)

    def step(rows: list[int]) -> None:
        at_values = answers.at_values(rows)
        picks: list[bool] | None = at_values
        if cached.can_move:  # the rows of a pass are all at values, or none is
            picks = [True] * len(rows) if any(at_values) else None
        with in_float32(picks):
            logits = cached.step(rows, [answers.tokens[row] for row in rows])
        answers.pick(rows, logits)
        if cached.can_move:
            answers.append_fixed(rows)

    everyone = answers.incomplete
    while answers.incomplete:
        with model._optimize_model_for_decode():  # for one token a row
            while rows := answers.writing if cached.can_move else answers.incomplete and everyone:
                step(rows)
        if waiting := answers.incomplete:
            step(waiting)
    while branches := answers.branches():
        sequences = [(row, [*answers.tokens[row][: branch.begin], *branch.written]) for row, branch in branches]
        with in_float32([True] * len(answers.tokens)):
            for numbers, logits in cached.branches(sequences):
                answers.keep([branches[number] for number in numbers], logits)


class _PaddedRows:
    """The rows of a batch that go through a model together, padded on the left, a token at a time."""

    can_move = False

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[list[int]],
        begun: tuple[torch.Tensor, dict[str, Any]],
    ) -> None:
        self._model, self._prompts = model, prompts
        self._input_ids, self._inputs = begun
        self._begun = False

    def step(self, rows: Sequence[int], answers: Sequence[list[int]]) -> torch.Tensor:
        """Compute the prompts, or else the last token of each answer.

        Args:
            rows: all rows of the batch.
            answers: the tokens of their answers.

        Returns:
            the logits after them, float32 (rows, V).
        """
        if self._begun:
            new = torch.tensor([answer[-1:] for answer in answers], device=self._input_ids.device)
            self._input_ids = torch.cat([self._input_ids, new], dim=1)
        inputs = self._model.prepare_inputs_for_generation(
            self._input_ids,
            next_sequence_length=1 if self._begun else None,
            is_first_iteration=not self._begun,
            **self._inputs,
        )
        outputs = self._model(**inputs, return_dict=True)
        self._inputs = self._model._update_model_kwargs_for_generation(outputs, self._inputs)
        self._begun = True
        logits: torch.Tensor = outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
        return logits

    def branches(self, branches: Sequence[tuple[int, list[int]]]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Do what `CachedRows.branches` does."""
        size = len(self._prompts)
        for begin in range(0, len(branches), size):
            some = branches[begin : begin + size]
            prompts = [[*self._prompts[row], *answer] for row, answer in some]
            rows = _PaddedRows(self._model, prompts, prepared(self._model, prompts, 1))
            yield [*range(begin, begin + len(some))], rows.step(range(len(some)), [[]] * len(some))
