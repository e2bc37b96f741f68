"""The network in training: a Llama with factored embeddings and two auxiliary heads that are removed later."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from bundled_tokenizer import CONTEXT, FactoredVocabulary
from torch import nn
from torch.nn.functional import cross_entropy, embedding, scaled_dot_product_attention
from training_examples import NO_TAG, SEGMENT_KINDS, Batch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Sizes of the network, of the data and of the training.

    Attributes:
        warmup_stages: (steps, words of the longest reference) of each stage of warm-up rows.
        stages: (steps, sentences of the longest reference) of each stage after the warm-up.
        letter_pieces: number of pieces of lower-case letters in the vocabulary.
        pool: number of rows that are generated and sorted by length at a time.
        batch_tokens: largest number of tokens in a batch.
        peak_rate: largest learning rate. It decays towards step `decay_horizon` until step `decay_end`, stays
            constant, and decays to zero in the last `final_steps`.
        candidate_weight: weight of the loss on the candidate's tokens; the loss on the answer has weight 1.
        tag_weight: weight of the losses of both auxiliary heads.
        checkpoint_every: number of steps between two checkpoints.
    """

    warmup_stages: tuple[tuple[int, int], ...]
    stages: tuple[tuple[int, int], ...]
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    intermediate: int = 352
    letter_pieces: int = 800
    pool: int = 512
    batch_tokens: int = 2048
    peak_rate: float = 4e-3
    decay_horizon: int = 4500
    decay_end: int = 3200
    final_steps: int = 1050
    candidate_weight: float = 0.2
    tag_weight: float = 0.5
    checkpoint_every: int = 200


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: object,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention without a mask tensor, faster on a CPU; returns (rows, tokens, heads, width)."""
    attended = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register("training", attention)


class JudgeNetwork(nn.Module):
    """The Llama in training, with its factored embeddings and auxiliary heads.

    The embedding of a token is the sum of three vectors: one for its letters (`piece`), one for its form
    (`form`: with or without a space before it, with or without a capital) and one for the token alone (`own`).
    Therefore, what the network learns about a word holds at every position of the word.

    Two linear heads predict, for each token of the candidate, whether the reference has its word and which
    corruption the token belongs to. They exist only in training: from the answers alone, a network of this size
    learns to compare far too late.
    """

    def __init__(self, vocabulary: FactoredVocabulary, settings: TrainingSettings) -> None:
        super().__init__()
        self.piece_of, self.form_of = vocabulary.piece, vocabulary.form
        count = len(self.piece_of)
        tokenizer = vocabulary.tokenizer
        self.llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=count,
                hidden_size=settings.hidden,
                intermediate_size=settings.intermediate,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                num_key_value_heads=settings.heads,
                max_position_embeddings=CONTEXT,
                tie_word_embeddings=True,
                initializer_range=0.02,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                attn_implementation="training",
            )
        )
        self.piece = nn.Parameter(0.1 * torch.randn(int(self.piece_of.max()) + 1, settings.hidden))
        self.form = nn.Parameter(0.1 * torch.randn(int(self.form_of.max()) + 1, settings.hidden))
        self.own = nn.Parameter(torch.zeros(count, settings.hidden))
        self.in_reference = nn.Linear(settings.hidden, 2)
        self.kind = nn.Linear(settings.hidden, len(SEGMENT_KINDS))

    def embeddings(self) -> torch.Tensor:
        """Return the embeddings of all tokens, (tokens, hidden)."""
        return self.piece[self.piece_of] + self.form[self.form_of] + self.own

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the mean losses: answers' tokens, candidates' tokens, and each auxiliary head."""
        embeddings = self.embeddings()
        states = self.llama.model(
            inputs_embeds=embedding(batch.ids, embeddings), use_cache=False
        ).last_hidden_state
        in_candidate = ~batch.answer
        # A third of the candidates' tokens is enough to learn from, and saves a quarter of the time.
        predicted = batch.answer | ((batch.row + batch.place) % 3 == 0)
        row, place, answer = batch.row[predicted], batch.place[predicted], batch.answer[predicted]
        each = cross_entropy(states[row, place - 1] @ embeddings.T, batch.ids[row, place], reduction="none")
        at = states[batch.row[in_candidate], batch.place[in_candidate]]
        candidates = max(1, int(in_candidate.sum()))
        tags = (
            (batch.in_reference[in_candidate], self.in_reference(at)),
            (batch.kind[in_candidate], self.kind(at)),
        )
        in_reference, kind = (
            cross_entropy(guess, truth, ignore_index=NO_TAG, reduction="sum") / candidates
            for truth, guess in tags
        )
        return {
            "answer": each[answer].mean(),
            "candidate": each[~answer].sum() / max(1, int((~answer).sum())),
            "in_reference": in_reference,
            "kind": kind,
        }

    def export(self) -> LlamaForCausalLM:
        """Return the Llama alone, its weights rounded to bfloat16 and stored as float32.

        A CPU loads float32 directly, and bfloat16 holds the same values. The zero half of each number
        compresses to almost nothing in git and in a wheel.
        """
        with torch.no_grad():
            self.llama.model.embed_tokens.weight.copy_(self.embeddings())
        return self.llama.to(torch.bfloat16).to(torch.float32)
