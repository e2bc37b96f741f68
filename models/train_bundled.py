"""Makes the bundled judge from nothing: its text, its tokenizer, its training.

    python models/train_bundled.py --out models/bundled        the model that ships, in two hours on one core
    python models/train_bundled.py --out /tmp/quick --quick    the same path in a minute, its answers noise

Killed, the same command goes on from its last checkpoint, in `OUT.checkpoint`. The same command on the same
machine and versions gives the same file, byte for byte, killed or not. What it made and how goes to `OUT.json`;
`evaluate_bundled.py` measures the model and writes its card.
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
from drill import drill
from muon import Muon
from pupil import Pupil, Size
from spoiling import Spoiler
from tokens import CONTEXT, Batch, Encoder, Vocabulary, batch, grouped, make_vocabulary
from transformers import GenerationConfig, LlamaForCausalLM
from verdict import judge
from world import World

from localjudge.rubrics.rubric import Rubric

FULL = Size(
    drills=((500, 6), (400, 12), (300, 24)),
    stages=((900, 1), (800, 2), (700, 4), (900, 10), (900, 30), (250, 80)),
)
QUICK = Size(
    drills=((12, 6),),
    stages=((12, 1), (4, 8)),
    layers=2,
    hidden=64,
    heads=2,
    inner=128,
    cores=400,
    pool=64,
    last=10,
)


class Course:
    """The batches of a stage, pool after pool, from any place on."""

    def __init__(self, encoder: Encoder, world: World, size: Size, name: str, rank: int) -> None:
        self.encoder, self.world, self.size, self.name = encoder, world, size, f"{name}:{rank}"
        _, self.longest = (*size.drills, *size.stages)[rank]
        self.row = partial(drill, world) if rank < len(size.drills) else Spoiler(world).row

    def batches(self, pool: int, place: int) -> Iterator[tuple[int, int, Batch]]:
        """(pool, place, batch) without end, from the batch at `place` of `pool`."""
        while True:
            rows = (
                self.row(Random(f"{self.name}:{pool}:{n}"), self.longest)
                for n in range(max(16, self.size.pool // max(1, self.longest // 4)))
            )
            lessons = [self.encoder.lesson(judge(self.world, row)) for row in rows]
            lessons = [lesson for lesson in lessons if len(lesson.ids) <= CONTEXT // 2]
            groups = grouped(lessons, self.size.batch_tokens)
            Random(f"{self.name}:{pool}:order").shuffle(groups)
            for n in range(place, len(groups)):
                yield pool, n, batch(groups[n])
            pool, place = pool + 1, 0


class Training:
    """A pupil, its optimizers, and how far it has come; `checkpoint` holds all of it."""

    def __init__(self, size: Size, seed: int, checkpoint: Path) -> None:
        self.size, self.seed, self.checkpoint = size, seed, checkpoint
        torch.manual_seed(seed)
        self.world, rubric = World(), Rubric.load()
        self.vocabulary = make_vocabulary(self.world, rubric, size.cores, seed)
        self.encoder = Encoder(self.vocabulary.tokenizer, rubric)
        self.pupil = Pupil(self.vocabulary, size)
        matrices = [weight for weight in self.pupil.llama.model.layers.parameters() if weight.ndim == 2]
        kept = {id(weight) for weight in (*matrices, self.pupil.llama.model.embed_tokens.weight)}
        others = [weight for weight in self.pupil.parameters() if id(weight) not in kept]
        self.learned = [*matrices, *others]
        rate = size.peak_rate
        self.optimizers = [
            Muon(matrices, lr=rate),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.step, self.minutes = 0, 0.0
        # The next batch: its stage, pool and place.
        self.next = (0, 0, 0)

    def steps(self) -> Iterator[int]:
        """Learns, from the checkpoint on where there is one; yields the number of each step taken."""
        self._resume()
        plan = (*self.size.drills, *self.size.stages)
        sums: dict[str, float] = {}
        steps, since = sum(steps for steps, _ in plan), 0
        began = time.monotonic() - 60 * self.minutes
        for stage, (_, longest) in enumerate(plan):
            last = sum(steps for steps, _ in plan[: stage + 1])
            if self.step >= last:
                continue
            _, *start = self.next if self.next[0] == stage else (stage, 0, 0)
            course = Course(self.encoder, self.world, self.size, f"{self.seed}:train", stage)
            for pool, place, made in course.batches(*start):
                losses = self._learn(made, steps - self.step)
                self.step, since = self.step + 1, since + 1
                sums = {name: sums.get(name, 0.0) + loss for name, loss in losses.items()}
                self.minutes = (time.monotonic() - began) / 60
                if self.step % 50 == 0 or self.step == steps:
                    means = " ".join(f"{name} {total / since:.4f}" for name, total in sums.items())
                    print(
                        f"step {self.step}/{steps} longest {longest} {means} minutes {self.minutes:.1f}",
                        flush=True,
                    )
                    sums, since = {}, 0
                self.next = (stage, pool, place + 1)
                if self.step % self.size.saved_every == 0:
                    self._save()
                yield self.step
                if self.step == last:
                    break

    def _learn(self, made: Batch, left: int) -> dict[str, float]:
        size = self.size
        gone = min(self.step, size.held) / size.horizon
        rate = size.peak_rate * min(1.0, (self.step + 1) / 50) * (0.02 + 0.98 * min(1.0, 1.5 * (1 - gone)))
        rate *= min(1.0, left / size.last)
        losses = self.pupil.losses(made)
        whole = losses["answer"] + size.candidate * losses["candidate"]
        (whole + size.tags * (losses["known"] + losses["kinds"])).backward()
        torch.nn.utils.clip_grad_norm_(self.learned, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        return {name: loss.item() for name, loss in losses.items()}

    @property
    def _plan(self) -> dict[str, Any]:
        return {**asdict(self.size), "seed": self.seed, "threads": torch.get_num_threads()}

    def _save(self) -> None:
        state = {
            "plan": self._plan,
            "pupil": self.pupil.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "next": self.next,
            "minutes": self.minutes,
        }
        scratch = self.checkpoint.with_suffix(".partial")
        torch.save(state, scratch)
        scratch.replace(self.checkpoint)

    def _resume(self) -> None:
        if not self.checkpoint.is_file():
            return
        state = torch.load(self.checkpoint, weights_only=True)
        if state["plan"] != self._plan:
            raise SystemExit(f"{self.checkpoint}: of another plan; remove it to begin anew")
        self.pupil.load_state_dict(state["pupil"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.next, self.minutes = state["step"], tuple(state["next"]), state["minutes"]
        print(f"goes on from step {self.step}", flush=True)


def save(model: LlamaForCausalLM, vocabulary: Vocabulary, out: Path) -> str:
    """Writes the model's folder beside `out` and moves it into place; returns the weights' digest."""
    tokenizer = vocabulary.tokenizer
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
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)
    return digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write; replaced if it exists")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a tiny model and few steps, to try the path")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; the file depends on it")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    options.out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = options.out.with_name(f"{options.out.name}.checkpoint")
    training = Training(QUICK if options.quick else FULL, options.seed, checkpoint)
    for _ in training.steps():
        pass
    model = training.pupil.finished()
    digest = save(model, training.vocabulary, options.out)
    made = {
        "parameters": model.num_parameters(),
        "steps": training.step,
        "minutes": round(training.minutes, 1),
        "seed": options.seed,
        "threads": options.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sha256": digest,
    }
    options.out.with_name(f"{options.out.name}.json").write_text(json.dumps(made, indent=2) + "\n")
    checkpoint.unlink(missing_ok=True)
    print(f"{options.out}: sha256 {digest}")


if __name__ == "__main__":
    main()
