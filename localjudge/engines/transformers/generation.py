"""The generation loop: a pass for each token of a text, and one for the drafted values after it.

The fixed text of an answer is known, so it takes no passes of its own. As texts close, their rows wait. When
all have closed, they go through the fixed text and the values together: each pass takes the tokens since the
last one and a draft of the values that follow, and its logits pick the values as far as the draft was right
(`BatchAnswers.pick`). If an answer has another text after that, the rows write it in the same way. At the end,
the probabilities of values that were not written may need passes for the branches beside the answers
(`localjudge.constraint.value_paths`).

For this, a row must be able to stop in a batch while others go on, which is possible if each layer of the
model's cache keeps the keys and values of all tokens and nothing else (`CachedRows`). Other models (sliding
windows, recurrent layers …) go through the same loop with all rows in the batch and a pass for each token
(`_PaddedRows`); they compute a branch with its whole prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from localjudge.engines.transformers.answers import BatchAnswers, Draft, PickedLogits
from localjudge.engines.transformers.cached_rows import CachedRows, keeps_rows

_PADDING = 0


def generate(
    model: PreTrainedModel, prompts: Sequence[list[int]], answers: BatchAnswers, max_tokens: int
) -> None:
    """Complete the answers of a batch.

    Args:
        model: a causal model.
        prompts: the tokens of each row's prompt.
        answers: the answers of the rows.
        max_tokens: the most tokens of an answer.
    """
    _begin(model, prompts, max_tokens, lambda rows: _complete(model, rows, answers))


def _begin(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    max_tokens: int,
    go_on: Callable[[CachedRows | _PaddedRows], None],
) -> None:
    """Go on with the rows of these prompts, which are not computed yet."""
    length = max(map(len, prompts))
    padding = length - torch.tensor([[len(prompt)] for prompt in prompts])
    tokens = [[*[_PADDING] * (length - len(prompt)), *prompt] for prompt in prompts]

    def loop(model: PreTrainedModel, input_ids: torch.Tensor, **inputs: Any) -> None:
        # Arguments of `generate` that are not inputs of the model.
        for name in ("logits_processor", "stopping_criteria", "generation_config", "synced_gpus"):
            inputs.pop(name, None)
        fits = keeps_rows(model, inputs)
        go_on(CachedRows(model, prompts, inputs) if fits else _PaddedRows(model, input_ids, prompts, inputs))

    # `generate` prepares the inputs and the cache that this model takes.
    model.generate(
        torch.tensor(tokens, device=model.device),
        attention_mask=(torch.arange(length) >= padding).long().to(model.device),
        generation_config=GenerationConfig(max_new_tokens=max_tokens, do_sample=False, pad_token_id=_PADDING),
        custom_generate=loop,
    )


def _complete(model: PreTrainedModel, cached: CachedRows | _PaddedRows, answers: BatchAnswers) -> None:
    def step(rows: list[int]) -> None:
        drafts = [answers.draft(row, ahead=cached.drafts) for row in rows]
        answers.pick(rows, drafts, cached.step(rows, drafts), fixed=cached.drafts)

    everyone = answers.incomplete
    while answers.incomplete:
        with model._optimize_model_for_decode():  # for one token a row
            while rows := answers.writing if cached.drafts else answers.incomplete and everyone:
                step(rows)
        if waiting := answers.incomplete:
            step(waiting)
    while branches := answers.branches():
        drafts = [
            (row, Draft(tokens := [*answers.tokens[row][: branch.place], *branch.written], [len(tokens)]))
            for row, branch in branches
        ]
        for numbers, logits in cached.branches(drafts):
            answers.keep([branches[number] for number in numbers], logits)


class _PaddedRows:
    """The rows of a batch that go through a model together, padded on the left, a token at a time."""

    drafts = False

    def __init__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        prompts: Sequence[list[int]],
        inputs: dict[str, Any],
    ) -> None:
        self._model = model
        self._input_ids = input_ids
        self._prompts = prompts
        self._inputs = inputs
        self._begun = False

    def step(self, rows: Sequence[int], drafts: Sequence[Draft]) -> PickedLogits:
        """Compute the prompts, or else the last token of each row, and return the logits after it.

        Args:
            rows: all rows of the batch.
            drafts: their tokens.
        """
        if self._begun:
            new = torch.tensor([[(draft.tokens or [_PADDING])[-1]] for draft in drafts])
            self._input_ids = torch.cat([self._input_ids, new.to(self._input_ids.device)], dim=1)
        inputs = self._model.prepare_inputs_for_generation(
            self._input_ids,
            next_sequence_length=1 if self._begun else None,
            is_first_iteration=not self._begun,
            **self._inputs,
        )
        outputs = self._model(**inputs, return_dict=True)
        self._inputs = self._model._update_model_kwargs_for_generation(outputs, self._inputs)
        self._begun = True
        return PickedLogits(outputs.logits[:, -1:], [(row, [0]) for row in rows])

    def branches(self, branches: Sequence[tuple[int, Draft]]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Do what `CachedRows.branches` does."""
        size = len(self._prompts)
        for begin in range(0, len(branches), size):
            some = branches[begin : begin + size]
            places = range(len(some))
            found: list[PickedLogits] = []
            step = partial(_first_step, found, [draft for _, draft in some])
            _begin(self._model, [[*self._prompts[row], *draft.tokens] for row, draft in some], 1, step)
            yield [begin + place for place in places], found[0].at(0, places)


def _first_step(found: list[PickedLogits], drafts: Sequence[Draft], cached: CachedRows | _PaddedRows) -> None:
    found.append(cached.step(range(len(drafts)), drafts))
