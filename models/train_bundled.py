"""Train the bundled judge from nothing: its text, its tokenizer and its weights.

    python models/train_bundled.py --out models/bundled        the model that ships, in two hours on one core
    python models/train_bundled.py --out /tmp/quick --quick    the same steps in a minute; its answers are noise

If the script is killed, the same command continues from its last checkpoint, `OUT.checkpoint`. The same command
on the same machine with the same versions writes the same file, byte for byte, whether it was killed or not.
`OUT.json` records what was trained and how; `evaluate_bundled.py` measures the model and writes its card.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from bundled_tokenizer import CONTEXT, FactoredVocabulary, build_vocabulary
from corruptions import RowGenerator
from ground_truth import score_row
from muon import Muon
from network import JudgeNetwork, TrainingSettings
from synthetic_text import TextGenerator
from training_examples import Batch, ExampleEncoder, group_by_length, make_batch
from transformers import GenerationConfig, LlamaForCausalLM
from warmup import warmup_row

from localjudge.rubrics.rubric import Rubric

FULL = TrainingSettings(
    warmup_stages=((500, 6), (400, 12), (300, 24)),
    stages=((900, 1), (800, 2), (700, 4), (900, 10), (900, 30), (250, 80)),
)
QUICK = TrainingSettings(
    warmup_stages=((12, 6),),
    stages=((12, 1), (4, 8)),
    layers=2,
    hidden=64,
    heads=2,
    intermediate=128,
    letter_pieces=400,
    pool=64,
    final_steps=10,
)


class StageBatches:
    """The batches of one stage, generated pool by pool; generation can start at any batch."""

    def __init__(
        self,
        encoder: ExampleEncoder,
        generator: TextGenerator,
        settings: TrainingSettings,
        name: str,
        stage: int,
    ) -> None:
        self.encoder, self.generator, self.settings, self.name = encoder, generator, settings, f"{name}:{stage}"
        _, self.longest = (*settings.warmup_stages, *settings.stages)[stage]
        is_warmup = stage < len(settings.warmup_stages)
        self.row = partial(warmup_row, generator) if is_warmup else RowGenerator(generator).row

    def batches(self, pool: int, place: int) -> Iterator[tuple[int, int, Batch]]:
        """Yield (pool, place, batch) without end, from the batch at `place` of `pool`."""
        while True:
            rows = (
                self.row(Random(f"{self.name}:{pool}:{n}"), self.longest)
                for n in range(max(16, self.settings.pool // max(1, self.longest // 4)))
            )
            examples = [self.encoder.example(score_row(self.generator, row)) for row in rows]
            examples = [example for example in examples if len(example.ids) <= CONTEXT // 2]
            groups = group_by_length(examples, self.settings.batch_tokens)
            Random(f"{self.name}:{pool}:order").shuffle(groups)
            for n in range(place, len(groups)):
                yield pool, n, make_batch(groups[n])
            pool, place = pool + 1, 0


class Training:
    """The network, its optimizers and the progress of the training; the checkpoint file holds all of them."""

    def __init__(self, settings: TrainingSettings, seed: int, checkpoint: Path) -> None:
        self.settings, self.seed, self.checkpoint = settings, seed, checkpoint
        torch.manual_seed(seed)
        self.generator, rubric = TextGenerator(), Rubric.load()
        self.vocabulary = build_vocabulary(self.generator, rubric, settings.letter_pieces, seed)
        self.encoder = ExampleEncoder(self.vocabulary.tokenizer, rubric)
        self.network = JudgeNetwork(self.vocabulary, settings)
        matrices = [weight for weight in self.network.llama.model.layers.parameters() if weight.ndim == 2]
        # The Llama's own embeddings are not trained: they are replaced by the factored ones at the end.
        excluded = {id(weight) for weight in (*matrices, self.network.llama.model.embed_tokens.weight)}
        others = [weight for weight in self.network.parameters() if id(weight) not in excluded]
        self.trained = [*matrices, *others]
        rate = settings.peak_rate
        self.optimizers = [
            Muon(matrices, lr=rate),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.step, self.minutes = 0, 0.0
        # Stage, pool and place of the next batch.
        self.next_batch = (0, 0, 0)

    def steps(self) -> Iterator[int]:
        """Train, from the checkpoint if there is one; yield the number of each finished step."""
        self._resume()
        plan = (*self.settings.warmup_stages, *self.settings.stages)
        sums: dict[str, float] = {}
        steps, since_report = sum(steps for steps, _ in plan), 0
        began = time.monotonic() - 60 * self.minutes
        for stage, (_, longest) in enumerate(plan):
            last = sum(steps for steps, _ in plan[: stage + 1])
            if self.step >= last:
                continue
            _, *start = self.next_batch if self.next_batch[0] == stage else (stage, 0, 0)
            source = StageBatches(self.encoder, self.generator, self.settings, f"{self.seed}:train", stage)
            for pool, place, batch in source.batches(*start):
                losses = self._train_step(batch, steps - self.step)
                self.step, since_report = self.step + 1, since_report + 1
                sums = {name: sums.get(name, 0.0) + loss for name, loss in losses.items()}
                self.minutes = (time.monotonic() - began) / 60
                if self.step % 50 == 0 or self.step == steps:
                    means = " ".join(f"{name} {total / since_report:.4f}" for name, total in sums.items())
                    print(
                        f"step {self.step}/{steps}, longest {longest}, {means}, {self.minutes:.1f} minutes",
                        flush=True,
                    )
                    sums, since_report = {}, 0
                self.next_batch = (stage, pool, place + 1)
                if self.step % self.settings.checkpoint_every == 0:
                    self._save()
                yield self.step
                if self.step == last:
                    break

    def _train_step(self, batch: Batch, steps_left: int) -> dict[str, float]:
        settings = self.settings
        progress = min(self.step, settings.decay_end) / settings.decay_horizon
        warmup = min(1.0, (self.step + 1) / 50)
        rate = settings.peak_rate * warmup * (0.02 + 0.98 * min(1.0, 1.5 * (1 - progress)))
        rate *= min(1.0, steps_left / settings.final_steps)
        losses = self.network.losses(batch)
        loss = losses["answer"] + settings.candidate_weight * losses["candidate"]
        (loss + settings.tag_weight * (losses["in_reference"] + losses["kind"])).backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        return {name: loss.item() for name, loss in losses.items()}

    @property
    def _plan(self) -> dict[str, Any]:
        return {**asdict(self.settings), "seed": self.seed, "threads": torch.get_num_threads()}

    def _save(self) -> None:
        state = {
            "plan": self._plan,
            "network": self.network.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "next_batch": self.next_batch,
            "minutes": self.minutes,
        }
        partial_file = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial_file)
        partial_file.replace(self.checkpoint)

    def _resume(self) -> None:
        if not self.checkpoint.is_file():
            return
        state = torch.load(self.checkpoint, weights_only=True)
        if state["plan"] != self._plan:
            raise SystemExit(f"{self.checkpoint}: belongs to other settings; delete it to start again")
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.next_batch, self.minutes = state["step"], tuple(state["next_batch"]), state["minutes"]
        print(f"continues from step {self.step}", flush=True)


def save(model: LlamaForCausalLM, vocabulary: FactoredVocabulary, out: Path) -> str:
    """Write the model's folder next to `out`, move it into place, and return the SHA-256 of the weights."""
    tokenizer = vocabulary.tokenizer
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as work:
        folder = Path(work) / out.name
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        weights = folder / "model.safetensors"
        weights.chmod(0o644)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    return digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; it is replaced if it exists")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="train a tiny model for a few steps, as a test")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of PyTorch; the weights depend on their number"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    options.out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = options.out.with_name(f"{options.out.name}.checkpoint")
    training = Training(QUICK if options.quick else FULL, options.seed, checkpoint)
    for _ in training.steps():
        pass
    model = training.network.export()
    digest = save(model, training.vocabulary, options.out)
    summary = {
        "parameters": model.num_parameters(),
        "steps": training.step,
        "minutes": round(training.minutes, 1),
        "seed": options.seed,
        "threads": options.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sha256": digest,
    }
    options.out.with_name(f"{options.out.name}.json").write_text(json.dumps(summary, indent=2) + "\n")
    checkpoint.unlink(missing_ok=True)
    print(f"{options.out}: sha256 {digest}")


if __name__ == "__main__":
    main()
