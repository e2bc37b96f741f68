"""The model in training: a Llama, its shared embeddings, and heads for what answers alone teach too late."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokens import CONTEXT, KINDS, NO_TAG, Batch, Vocabulary
from torch import nn
from torch.nn.functional import cross_entropy, embedding, scaled_dot_product_attention
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything.

    `drills` are (steps, words of the longest reference), `stages` after them (steps, sentences of the longest).
    """

    drills: tuple[tuple[int, int], ...]
    stages: tuple[tuple[int, int], ...]
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    inner: int = 352
    cores: int = 800
    pool: int = 512
    batch_tokens: int = 2048
    # The rate falls towards step `horizon` until step `held`, stays, and falls to nothing in the `last` steps.
    peak_rate: float = 4e-3
    horizon: int = 4500
    held: int = 3200
    last: int = 1050
    # Weights of the losses beside the answers': the candidates' tokens, and what their tags say.
    candidate: float = 0.2
    tags: float = 0.5
    saved_every: int = 200


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: object,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention in float32, the faster way on a CPU; (rows, tokens, heads, width)."""
    seen = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return seen.transpose(1, 2).contiguous(), None


AttentionInterface.register("training", attention)


class Pupil(nn.Module):
    """The Llama in training.

    A token's embedding is the sum of its core's, its form's and a little of its own, so that what is learned
    of a word holds wherever the word stands. Two heads, thrown away after, say of each token of a response
    whether the reference has its word and what was done to it: answers alone teach a small model to compare
    far too late.
    """

    def __init__(self, vocabulary: Vocabulary, size: Size) -> None:
        super().__init__()
        self.core_of, self.form_of = vocabulary.core, vocabulary.form
        count = len(self.core_of)
        tokenizer = vocabulary.tokenizer
        self.llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=count,
                hidden_size=size.hidden,
                intermediate_size=size.inner,
                num_hidden_layers=size.layers,
                num_attention_heads=size.heads,
                num_key_value_heads=size.heads,
                max_position_embeddings=CONTEXT,
                tie_word_embeddings=True,
                initializer_range=0.02,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                attn_implementation="training",
            )
        )
        self.core = nn.Parameter(0.1 * torch.randn(int(self.core_of.max()) + 1, size.hidden))
        self.form = nn.Parameter(0.1 * torch.randn(int(self.form_of.max()) + 1, size.hidden))
        self.own = nn.Parameter(torch.zeros(count, size.hidden))
        self.known = nn.Linear(size.hidden, 2)
        self.kinds = nn.Linear(size.hidden, len(KINDS))

    def embeddings(self) -> torch.Tensor:
        """(tokens, hidden)."""
        return self.core[self.core_of] + self.form[self.form_of] + self.own

    def losses(self, made: Batch) -> dict[str, torch.Tensor]:
        """Means over the answers' tokens, the candidates' tokens, and both tags of those."""
        embeddings = self.embeddings()
        states = self.llama.model(
            inputs_embeds=embedding(made.ids, embeddings), use_cache=False
        ).last_hidden_state
        heard = ~made.answer
        # Every third token of a candidate is enough to learn from, and saves a quarter of the time.
        said = made.answer | ((made.row + made.place) % 3 == 0)
        row, place, answer = made.row[said], made.place[said], made.answer[said]
        each = cross_entropy(states[row, place - 1] @ embeddings.T, made.ids[row, place], reduction="none")
        at = states[made.row[heard], made.place[heard]]
        candidates = max(1, int(heard.sum()))
        tags = (made.known[heard], self.known(at)), (made.kinds[heard], self.kinds(at))
        known, kinds = (
            cross_entropy(guess, truth, ignore_index=NO_TAG, reduction="sum") / candidates
            for truth, guess in tags
        )
        return {
            "answer": each[answer].mean(),
            "candidate": each[~answer].sum() / max(1, int((~answer).sum())),
            "known": known,
            "kinds": kinds,
        }

    def finished(self) -> LlamaForCausalLM:
        """The Llama alone, rounded so that bfloat16 holds the same weights, kept as float32 for CPUs.

        The zero half of each number packs to nothing in git and in a wheel.
        """
        with torch.no_grad():
            self.llama.model.embed_tokens.weight.copy_(self.embeddings())
        return self.llama.to(torch.bfloat16).to(torch.float32)
