"""How often each warning sign comes, for judges that work and for judges that do not.

    python benchmarks/warning_signs.py [--repeats 400]

Rows: a rationale repeats the prompt's placeholder, or is cut, with a given probability. A score has its most
frequent value with a given probability; a judge that always gives it does not work. With --labels FILE, scores
are drawn without replacement from those of a real judge (`scores` of each line).

Pairs: the response shown first wins with the probability expit(bias + sensitivity * quality). The quality is a
standard normal variable, and has the opposite sign in the reverse order. A judge with the sensitivity 0 guesses
or follows the place. Labels are ties at random, or in both orders where the quality is near 0.

The Monte Carlo error of a share p of R repeats is sqrt(p (1 - p) / R).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import results_table

from localjudge import Rubric
from localjudge.records import Judgement
from localjudge.runs.warning_signs import WarningSigns

SIZES = (10, 20, 50, 100, 200)
"""Numbers of rows or pairs."""
PAIRS, ROWS = Rubric.load("pairwise"), Rubric.load("correctness")
JOIN = ROWS.mode.join(ROWS.aspects, 1)
Simulated = Callable[[np.random.Generator, int], WarningSigns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400, help="simulated runs of each kind and size")
    parser.add_argument("--labels", type=Path, nargs="*", default=[], help="scores of real judges, as JSONL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    shares: dict[str, dict[str, list[float]]] = {}
    for title, signs, simulations in kinds(options.labels):
        rows = []
        for name, simulated in simulations.items():
            for sign in signs:
                key = f"{name}, {sign}" if len(signs) > 1 else name
                shares.setdefault(title, {})[key] = []
            for size in SIZES:
                generator = np.random.default_rng([options.seed, size])
                found = [simulated(generator, size).lines for _ in range(options.repeats)]
                for sign in signs:
                    key = f"{name}, {sign}" if len(signs) > 1 else name
                    came = [any(line.startswith(sign + ":") for line in lines) for lines in found]
                    shares[title][key].append(round(float(np.mean(came)), 4))
        rows = [[name, *each] for name, each in shares[title].items()]
        results_table.table(f"{title}: share of runs with the sign", ["rows or pairs", *map(str, SIZES)], rows)
    error = round(0.5 / options.repeats**0.5, 4)
    content = {"repeats": options.repeats, "largest_error": error, "sizes": SIZES, "shares": shares}
    results_table.write("warning_signs", content, options.results)


def kinds(labels: list[Path]) -> list[tuple[str, tuple[str, ...], dict[str, Simulated]]]:
    """Return what is simulated: a title, the kinds of signs, and the simulations by name."""
    shares = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
    scores = {f"{share:.1%} of the scores equal": one_value(share) for share in (0.75, 0.9, 0.974, 1.0)}
    for file in labels:
        real = defaultdict(list)
        for line in file.read_text().splitlines():
            for aspect, score in json.loads(line)["scores"].items():
                if score is not None:
                    real[aspect].append(score)
        scores |= {f"{file.stem}, {name}": drawn(np.array(values)) for name, values in real.items()}
    pairs = {
        f"bias {bias}, sensitivity {sensitivity}": compared(bias, sensitivity)
        for bias in (0.0, 0.5, 1.0, 2.0)
        for sensitivity in (0.0, 0.5, 1.0, 2.0, 4.0)
    } | {
        "a third of the labels ties, guessing": compared(0, 0, ties=1 / 3),
        "a third of the labels ties, sensitivity 2": compared(0, 2, ties=1 / 3),
        "first, or a tie where the responses are close": compared(20, 0, close=0.7),
    }
    return [
        ("copied", ("copied rationales",), {f"{p:.0%} copied": rationales(p, 0) for p in shares}),
        ("cut", ("cut rationales",), {f"{p:.0%} cut": rationales(0, p) for p in shares}),
        ("equal scores", ("equal scores",), scores),
        ("pairs", ("order", "place"), pairs),
    ]


@cache
def judgement(
    row: int, score: bool | int | str, rationale: str = "It is right.", cut: bool = False
) -> Judgement:
    """Return a judgement; that of a pair's reverse order has an even number and a label."""
    is_label = isinstance(score, str)
    return Judgement(
        id=str(row), key=str(row), row=row, swapped=is_label and row % 2 == 0, texts={"rationale": rationale},
        scores=dict.fromkeys((PAIRS if is_label else ROWS).aspects, score), rationale_cut=cut,
        prompt_tokens=1, output_tokens=1,
    )  # fmt: skip


def rationales(copied: float, cut: float) -> Simulated:
    """Return a judge that copies the placeholder, or runs into the limit, with these probabilities."""

    def run(generator: np.random.Generator, size: int) -> WarningSigns:
        signs = WarningSigns(ROWS)
        for row, (copies, is_cut) in enumerate(generator.random((size, 2)) < (copied, cut), 1):
            said = "[your rationale]" if copies else "It is right."
            signs.add(JOIN.joined([judgement(row, row % 2 == 0, said, bool(is_cut))]))
        return signs

    return run


def one_value(share: float) -> Simulated:
    """Return a judge that gives one of two scores with this probability."""
    return _scored(lambda generator, size: generator.random(size) < share)


def drawn(scores: np.ndarray) -> Simulated:
    """Return a judge with the scores of a real one."""
    return _scored(lambda generator, size: generator.choice(scores, size, replace=size > len(scores)))


def _scored(draw: Callable[[np.random.Generator, int], np.ndarray]) -> Simulated:
    def run(generator: np.random.Generator, size: int) -> WarningSigns:
        signs = WarningSigns(ROWS)
        for row, score in enumerate(draw(generator, size).tolist(), 1):
            signs.add(JOIN.joined([judgement(row, score)]))
        return signs

    return run


def compared(bias: float, sensitivity: float, ties: float = 0.0, close: float = 0.0) -> Simulated:
    """Return a judge of pairs in both orders."""

    def run(generator: np.random.Generator, size: int) -> WarningSigns:
        signs, join = WarningSigns(PAIRS), PAIRS.mode.join(PAIRS.aspects, prompts=2)
        quality = generator.standard_normal(size)
        odds = bias + sensitivity * np.column_stack([quality, -quality])
        first = generator.random((size, 2)) < 1 / (1 + np.exp(-odds))
        tie = (generator.random((size, 2)) < ties) | (np.abs(quality) < close)[:, None]
        labels = np.where(tie, "tie", np.where(first, "A", "B"))
        for pair in join.all(judgement(row, label) for row, label in enumerate(labels.ravel().tolist(), 1)):
            signs.add(pair)
        return signs

    return run


if __name__ == "__main__":
    main()
