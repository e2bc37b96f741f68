"""Makes the bundled judge from nothing: its text (world.py), its tokenizer, its training, its card.

    python models/train_bundled.py --out models/bundled        the model that ships, half an hour on 2 cores
    python models/train_bundled.py --out /tmp/quick --quick    the same path in a minute, its answers noise

The same command on the same machine and versions gives the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from world import ASPECTS, CONTENTS, Example, World, fill

from localjudge.records import Row
from localjudge.rubric import Rubric

TURN, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As GPT-2 splits text, but a digit stands alone and a quote begins a piece: a score is one token of its own.
PIECES = (
    r"""'(?:s|t|re|ve|m|ll|d)\b| ?\p{L}+|\p{N}|"[:,{}"]*| ?[^\s\p{L}\p{N}"]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
CANDIDATE_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything: `stages` are (steps, sentences of the longest reference)."""

    stages: tuple[tuple[int, int], ...]
    layers: int = 4
    hidden: int = 192
    heads: int = 6
    inner: int = 512
    vocabulary: int = 4096
    texts: int = 12_000
    held_out: int = 520
    batch_tokens: int = 4096
    peak_rate: float = 3e-3


FULL = Size(stages=((1200, 3), (600, 8), (350, 24), (250, 80)))
QUICK = Size(
    stages=((60, 3), (10, 8)),
    layers=2,
    hidden=64,
    heads=2,
    inner=128,
    vocabulary=1536,
    texts=600,
    held_out=26,
)


def answer(example: Example) -> str:
    """The one true answer: compact JSON, the rationale first."""
    scores = {aspect: str(example.scores[aspect]) for aspect in ASPECTS}
    return json.dumps(
        {"rationale": example.rationale, "scores": scores}, ensure_ascii=False, separators=(",", ":")
    )


def prompt(rubric: Rubric, example: Example) -> str:
    return rubric.text(Row(example.instruction, example.candidate, example.reference))


def examples(world: World, name: str, longest: int) -> Iterator[Example]:
    """Examples without end; the n-th of a name is always the same."""
    n = 0
    while True:
        yield world.example(Random(f"{name}:{n}"), longest)
        n += 1


def take(world: World, name: str, longest: int, count: int) -> list[Example]:
    return [example for example, _ in zip(examples(world, name, longest), range(count), strict=False)]


def make_tokenizer(world: World, rubric: Rubric, size: Size, seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE in which each section of the rubric is one token, so that the prompt is short."""
    marked = prompt(rubric, Example("\0", "\0", "\0", "", {}, ("same", "plain")))
    sections = [
        re.sub(r"\s*\0[^#]*", "", section).rstrip()
        for section in re.split(r"^(?=#)", marked, flags=re.MULTILINE)
        if section
    ]
    sections.sort(key=len, reverse=True)
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    bytes_of_text = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), "isolated"), bytes_of_text]
    )
    tokenizer.decoder = decoders.ByteLevel()
    text = [
        part
        for made in take(world, f"{seed}:text", 6, size.texts)
        for part in (made.instruction, made.reference, answer(made))
    ]
    words = " ".join(" ".join(group) for group in world.words.values())
    text += [marked, words, f" {words.title()}"] * (size.texts // 200)
    tokenizer.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=size.vocabulary - len(sections),
            special_tokens=[AddedToken(token, special=True, normalized=False) for token in (PAD, TURN, END)],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    made = json.loads(tokenizer.to_str())
    vocabulary = made["model"]["vocab"]
    for section in sections:
        vocabulary.setdefault(bytes_of_text.pre_tokenize_str(section)[0][0], len(vocabulary))
    split = made["pre_tokenizer"]["pretokenizers"][0]
    split["pattern"]["Regex"] = "|".join([*map(re.escape, sections), PIECES])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(made)),
        eos_token=END,
        pad_token=PAD,
        model_max_length=8192,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, size: Size) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.hidden,
            intermediate_size=size.inner,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            initializer_range=0.02,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


class Encoder:
    """Rows to token ids, as an engine sends them: the template's tokens around the content's text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rubric: Rubric) -> None:
        self.rubric = rubric
        self.tokenizer = tokenizer
        plain = json.loads(tokenizer.backend_tokenizer.to_str())
        plain["added_tokens"] = []
        self.plain = Tokenizer.from_str(json.dumps(plain))
        around = tokenizer.apply_chat_template(
            [{"role": "user", "content": "\0"}], add_generation_prompt=True, tokenize=False
        )
        self.before, self.after = (
            tokenizer.encode(part, add_special_tokens=False) for part in str(around).split("\0")
        )

        *_, last = prompt(rubric, Example("", "", "\0", "", {}, ("same", "plain"))).split("\0")
        self.last = len(last)

    def prompt(self, example: Example) -> list[int]:
        content = self.plain.encode(prompt(self.rubric, example), add_special_tokens=False).ids
        return [*self.before, *content, *self.after]

    def row(self, example: Example) -> Lesson:
        text = prompt(self.rubric, example)
        content = self.plain.encode(text, add_special_tokens=False)
        end = len(text) - self.last
        candidate = [
            len(self.before) + place
            for place, (begin, close) in enumerate(content.offsets)
            if end - len(example.candidate) <= begin and close <= end
        ]
        asked = [*self.before, *content.ids, *self.after]
        said = [*self.plain.encode(answer(example)).ids, self.tokenizer.eos_token_id]
        return Lesson(asked + said, candidate, range(len(asked), len(asked) + len(said)))


@dataclass(frozen=True, slots=True)
class Lesson:
    """The token ids of a prompt and its answer, and where in them the candidate and the answer stand."""

    ids: list[int]
    candidate: Sequence[int]
    answer: Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Ids (rows, tokens), padded at the right; of each learned token its row, place, and if of an answer."""

    ids: torch.Tensor
    row: torch.Tensor
    place: torch.Tensor
    answer: torch.Tensor


def batches(encoder: Encoder, world: World, name: str, longest: int, size: Size) -> Iterator[Batch]:
    """Batches of rows of like length, from pools of a few hundred rows; endless."""
    source = examples(world, name, longest)
    pool_order = Random(f"{name}:order")
    while True:
        pool = [encoder.row(example) for example, _ in zip(source, range(512), strict=False)]
        pool.sort(key=lambda row: len(row.ids))
        groups: list[list[Lesson]] = [[]]
        for row in pool:
            if groups[-1] and (len(groups[-1]) + 1) * len(row.ids) > size.batch_tokens:
                groups.append([])
            groups[-1].append(row)
        pool_order.shuffle(groups)
        yield from map(batch, groups)


def batch(rows: Sequence[Lesson]) -> Batch:
    ids = torch.zeros(len(rows), max(len(row.ids) for row in rows), dtype=torch.long)
    learned = []
    for n, row in enumerate(rows):
        ids[n, : len(row.ids)] = torch.tensor(row.ids)
        learned += [(n, place, 0) for place in row.candidate] + [(n, place, 1) for place in row.answer]
    row_of, place, answer = torch.tensor(learned).unbind(1)
    return Batch(ids, row_of, place, answer.bool())


def train(model: LlamaForCausalLM, encoder: Encoder, world: World, size: Size, seed: int) -> None:
    """Learns the answers' tokens, on references that grow by stages.

    A little of the loss is on the candidates' tokens: many of them repeat the reference, and to foretell
    those is what teaches a small model to copy and to compare. From the answers alone it learns that late.
    """
    hidden = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    others = [weight for name, weight in model.named_parameters() if weight.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(hidden, lr=size.peak_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=size.peak_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    steps = sum(steps for steps, _ in size.stages)
    step, started, losses = 0, time.monotonic(), []
    for stage, (stage_steps, longest) in enumerate(size.stages):
        source = batches(encoder, world, f"{seed}:train:{stage}", longest, size)
        for _ in range(stage_steps):
            rate = (
                size.peak_rate * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * min(1.0, 1.6 * (1 - step / steps)))
            )
            made = next(source)
            states = model.model(made.ids, use_cache=False).last_hidden_state[made.row, made.place - 1]
            each = cross_entropy(model.lm_head(states), made.ids[made.row, made.place], reduction="none")
            loss = each[made.answer].mean()
            (loss + CANDIDATE_WEIGHT * each[~made.answer].sum() / made.answer.sum()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            step += 1
            if step % 20 == 0 or step == steps:
                mean, minutes = math.fsum(losses) / len(losses), (time.monotonic() - started) / 60
                print(
                    f"step {step}/{steps} longest {longest} loss {mean:.4f} minutes {minutes:.1f}", flush=True
                )
                losses.clear()


@dataclass(frozen=True, slots=True)
class Answered:
    """A held-out row and what the model said to it, greedily and with no grammar; `scores` if it is valid."""

    example: Example
    text: str
    scores: dict[str, int] | None


@torch.inference_mode()
def answered(model: LlamaForCausalLM, encoder: Encoder, rows: Sequence[Example]) -> list[Answered]:
    model.eval()
    pad = model.config.pad_token_id
    found: dict[int, Answered] = {}
    asked = sorted(
        ((encoder.prompt(example), n) for n, example in enumerate(rows)), key=lambda row: len(row[0])
    )
    for start in range(0, len(asked), 16):
        group = asked[start : start + 16]
        width = len(group[-1][0])
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt, _ in group])
        said = model.generate(
            input_ids=ids, attention_mask=(ids != pad).long(), max_new_tokens=160, do_sample=False
        )
        for (_, n), tokens in zip(group, said[:, width:], strict=True):
            text = encoder.tokenizer.decode(tokens, skip_special_tokens=True)
            found[n] = Answered(rows[n], text, scores_of(text))
    return [found[n] for n in range(len(rows))]


def scores_of(text: str) -> dict[str, int] | None:
    try:
        scores = {aspect: int(json.loads(text)["scores"][aspect]) for aspect in ASPECTS}
    except (ValueError, KeyError, TypeError):
        return None
    return scores if all(1 <= score <= 5 for score in scores.values()) else None


def held_out_table(rows: Sequence[Answered]) -> str:
    """Markdown: for each content its rows, its valid answers, and each aspect's mean given (and deserved)."""
    lines = [
        "| response | rows | valid | " + " | ".join(ASPECTS) + " |",
        "|---|---|---|" + "---|" * len(ASPECTS),
    ]
    for content in (*CONTENTS, "harmful"):
        of_kind = [row for row in rows if row.example.made[0] == content]
        valid = [row for row in of_kind if row.scores is not None]
        if not valid:
            continue
        means = []
        for aspect in ASPECTS:
            given = sum(row.scores[aspect] for row in valid if row.scores) / len(valid)
            deserved = sum(row.example.scores[aspect] for row in valid) / len(valid)
            means.append(f"{given:.1f} ({deserved:.1f})")
        lines.append(f"| {content} | {len(of_kind)} | {len(valid)} | " + " | ".join(means) + " |")
    return "\n".join(lines)


def save(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, figures: dict[str, str], out: Path
) -> str:
    """Writes the model and its card beside `out` and moves them into place; returns the weights' digest."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as work:
        made = Path(work) / out.name
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        weights = made / "model.safetensors"
        weights.chmod(0o644)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        card = Path(__file__).with_name("card.md").read_text("utf-8")
        (made / "README.md").write_text(fill(card, {**figures, "digest": digest}), encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)
    return digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write; replaced if it exists")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a tiny model and few steps, to try the path")
    parser.add_argument("--threads", type=int, default=2, help="torch threads; the file depends on it")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    started = time.monotonic()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)

    world, rubric = World(), Rubric.load()
    tokenizer = make_tokenizer(world, rubric, size, options.seed)
    encoder = Encoder(tokenizer, rubric)
    model = make_model(tokenizer, size)
    train(model, encoder, world, size, options.seed)
    minutes = (time.monotonic() - started) / 60
    # Rounded so that bfloat16 holds the same weights, kept as float32, which a CPU computes faster; the zero
    # half of each number packs to nothing in git and in a wheel.
    model = model.to(torch.bfloat16).to(torch.float32)
    rows = answered(model, encoder, take(world, f"{options.seed}:held out", 12, size.held_out))
    figures = {
        "parameters": f"{model.num_parameters() / 1e6:.1f} million",
        "prompt_tokens": str(len(encoder.prompt(Example("", "", "", "", {}, ("same", "plain"))))),
        "steps": str(sum(steps for steps, _ in size.stages)),
        "minutes": f"{minutes:.0f}",
        "versions": f"torch {torch.__version__}, seed {options.seed}, {options.threads} threads",
        "valid": f"{sum(row.scores is not None for row in rows)} of {len(rows)}",
        "table": held_out_table(rows),
        "answers": "\n".join(f"- {row.example.made[0]}: `{row.text}`" for row in rows[:10]),
    }
    digest = save(model, tokenizer, figures, options.out)
    print(figures["table"], figures["answers"], f"{options.out}: sha256 {digest}", sep="\n\n")


if __name__ == "__main__":
    main()
