"""The promises of `help trust`, `help pairs` and the label page where features meet, computed from raw rows.

A promise is a function of few lines that knows the raw rows alone. The commands' numbers come from `figure`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines
from scripted import scripted_checks, scripted_comparison
from test_escalate import judged, write_labels

from localjudge import Judge, RowSource, score_run
from localjudge.errors import UsageError
from localjudge.labelling.candidates import candidates_of_run
from localjudge.labelling.label_file import LabelFile
from localjudge.labelling.session import LabelSession
from localjudge.rows.row_store import RowStore
from localjudge.runs.run_manifest import read_manifest

Record = dict[str, Any]
Figure = Callable[[tuple[object, ...], str], Any]
Numbers = Mapping[str, float]

AXES: dict[str, tuple[Any, ...]] = {
    "responses": ("one", "four", "unequal"),
    "loss": ("complete", "failed", "no response", "absent"),
    "lost_in": ("new", "old", "both"),
    "systems": (1, 12),
    "mode": ("pointwise", "pair", "checklist"),
    "scale": ("the judge's", "another"),
    "annotators": (1, 3),
    "drawn": ("random", "preferred"),
    "shows": (("instruction", "candidate"), ("reference",), ("context",)),
}
"""What can differ between two sets of rows and their labels."""

RESPONSES = {"one": lambda at: 1, "four": lambda at: 4, "unequal": lambda at: 1 + at % 4}
COLUMN = {"pointwise": "help", "pair": "better", "checklist": "score"}
LOWEST = {"pointwise": 1.0, "pair": 0.0, "checklist": 0.0}
QUICK = ("--resamples", 100)

FIGURES: dict[str, Callable[[Any], Any]] = {
    "gate's changes": lambda found: {each["system"]: each["change"] for each in found["gate"]},
    "gate's bounds": lambda found: {each["system"]: each["bound"] for each in found["gate"]},
    "gate's results": lambda found: {each["system"]: each["passes"] for each in found["gate"]},
    "rows at the lowest score": lambda found: {each["system"]: each["lowest"] for each in found["gate"]},
    "lost rows": lambda found: sorted(each["id"] for each in found["missing"]),
    "rows that failed before": lambda found: sorted(each["id"] for each in found["failed"]),
    "changes": lambda found: {name: each["difference"]["value"] for name, each in found["columns"].items()},
    "undefined": lambda found: [name for name, each in found["columns"].items() if each["p"] is None],
    "moved instructions": lambda found: {
        name: (each["rose"], each["fell"]) for name, each in found["columns"].items()
    },
    "labelled rows": lambda found: found["aspects"]["help"]["rows"],
    "share of equal scores": lambda found: found["aspects"]["help"]["comparisons"]["integer"]["exact"]["value"],
    "share in order": lambda found: found["aspects"]["help"]["within"]["comparisons"]["integer"]["in_order"][
        "value"
    ],
    "means": lambda found: {each["name"]: each["means"]["help"]["value"] for each in found["systems"]},
    "changes by slice": lambda found: {
        each["name"]: {name: one["value"] for name, one in each["estimates"].items()}
        for each in found["slices"]["rows"]
    },
}
"""Where a number stands in what a command prints with --json."""


@pytest.fixture
def figure(cli: Cli) -> Figure:
    """Return the function that reads a number of a command; the only place that knows the form of --json."""
    known: dict[tuple[object, ...], Any] = {}

    def read(command: tuple[object, ...], name: str) -> Any:
        if command not in known:
            end = cli(*command, "--json")
            assert end.code in (0, 3), end.err
            known[command] = json.loads(end.out)
        return FIGURES[name](known[command])

    return read


def covering(*axes: str, strength: int = 2, **kept: Sequence[Any]) -> list[Any]:
    """Return few crossings, found greedily, that hold every combination of each two (or `strength`) axes."""
    values = [kept.get(axis, AXES[axis]) for axis in axes]
    every = list(product(*values))
    places = list(combinations(range(len(axes)), min(strength, len(axes))))

    def held(crossing: tuple[Any, ...]) -> set[Any]:
        return {(each, tuple(crossing[at] for at in each)) for each in places}

    left, chosen = set().union(*map(held, every)), list[tuple[Any, ...]]()
    while left:
        chosen.append(max(every, key=lambda crossing: len(held(crossing) & left)))
        left -= held(chosen[-1])
    return [pytest.param(dict(zip(axes, each, strict=True)), id="-".join(map(str, each))) for each in chosen]


def named(count: int) -> list[str]:
    """Return names of systems whose order is not that of the alphabet."""
    return [f"s{at * 5 % 12:02}" for at in range(count)]


def made(
    responses: str = "one",
    systems: int = 1,
    mode: str = "pointwise",
    seed: int = 0,
    shows: Sequence[str] = (),
    instructions: int = 12,
) -> list[Record]:
    """Return rows of one judge: `quality`, 1 to 5, decides what it says; the texts say it, too.

    Each row has an id of its own. A pair is a system's response beside that of "mid", whose quality is 3 and
    which stands first in every second row.
    """
    random = np.random.default_rng(seed)
    rows = []
    for at in range(instructions):
        for which, system in product(range(RESPONSES[responses](at)), named(systems)):
            quality = int(random.integers(1, 6))
            text = f"answer {seed} {which} of {system}, quality {quality}."
            row = {"id": f"{at}-{which}-{system}", "instruction": f"question {at}", "quality": quality}
            row |= {name: f"{name} {which} of {system}" for name in shows}
            if mode == "pair":
                sides = [(system, text), ("mid", f"middle {seed} {which} beside {system}, quality 3.")]
                for side, (name, said) in zip("ab", sides[:: 1 if at % 2 else -1], strict=True):
                    row |= {f"system_{side}": name, f"candidate_{side}": said}
                row["of"] = system
            else:
                row |= {"system": system, "candidate": text, "of": system}
            rows.append(row)
    return rows


def losing(rows: Sequence[Record], loss: str, every: int = 5) -> Iterator[Record]:
    """Yield the rows, of which each fifth one has lost its score."""
    for at, row in enumerate(rows):
        if at % every or loss == "complete":
            yield row
        elif loss == "failed":
            yield row | {"quality": None}
        elif loss == "no response":
            yield row | {name: None for name in row if name.startswith("candidate")}


def quality_of(text: str) -> int:
    return int(text.rpartition("quality ")[2][0])


def number(row: Record, mode: str) -> float | None:
    """Return the number that the judge gives a row, in words of the raw row; None if it has none."""
    quality = row["quality"]
    if quality is None or any(row[name] is None for name in row if name.startswith("candidate")):
        return None
    ways = {"pointwise": quality, "pair": 0.5 + 0.12 * (quality - 3), "checklist": quality // 2 / 2}
    return float(ways[mode])


@pytest.fixture
def run_of(tmp_path: Path, cli: Cli, model: Path) -> Iterator[Callable[..., Path]]:
    """Return the function that judges rows: given scores are imported, others are judged by script."""
    judges: dict[str, Judge] = {}

    def judge_of(mode: str) -> Judge:
        if mode not in judges:
            judges[mode] = (
                scripted_comparison(model, lambda a, b: 0.5 + 0.12 * (quality_of(a) - quality_of(b)))
                if mode == "pair"
                else scripted_checks(
                    model, lambda said, asked: float(quality_of(said) >= int(asked[-1])), "checklist-at-once"
                )
            )
        return judges[mode]

    def make(name: str, rows: Sequence[Record], mode: str = "pointwise", *options: object) -> Path:
        file, folder = tmp_path / f"{name}.jsonl", tmp_path / name
        criteria = [{"criterion": f"quality of at least {least}", "points": 1} for least in (2, 4)]
        more = {"criteria": criteria} if mode == "checklist" else {}
        kept = [
            {name: one for name, one in row.items() if name not in ("quality", "of")} | more for row in rows
        ]
        if mode == "pointwise":
            kept = [row | {"help": given["quality"]} for row, given in zip(kept, rows, strict=True)]
        file.write_text("".join(json.dumps(row) + "\n" for row in kept))
        if mode == "pointwise":
            end = cli("import", file, *(options or ("--aspect", "help")), "--out", folder)
            assert end.code in (0, 1), end.err
        else:
            judge = judge_of(mode)
            score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), folder)
        return folder

    yield make
    for judge in judges.values():
        judge.close()


# The gate of `compare`.


def gate_changes(old: Sequence[Record], new: Sequence[Record], mode: str) -> Numbers:
    """Return the mean change of each system over instructions, where a row without a score has the lowest one.

    A row that failed in OLD is left out in both; a further row of NEW counts.
    """
    numbers: list[dict[Any, dict[str, float | None]]] = [defaultdict(dict), defaultdict(dict)]
    for place, rows in enumerate((old, new)):
        for row in rows:
            numbers[place][row["of"], row["instruction"]][row["id"]] = number(row, mode)
    changes: dict[str, list[Any]] = defaultdict(list)
    for key, before in numbers[0].items():
        had = {each: value for each, value in before.items() if value is not None}
        then = dict.fromkeys(had) | {
            each: v for each, v in numbers[1][key].items() if before.get(each, 0) is not None
        }
        now = [LOWEST[mode] if value is None else value for value in then.values()]
        changes[key[0]] += [np.mean(now) - np.mean([*had.values()])] if had else []
    return {name: float(np.mean(each)) for name, each in changes.items()}


def lost(old: Sequence[Record], new: Sequence[Record], mode: str) -> list[str]:
    """Return the ids of the rows of OLD that have a score, but none in NEW."""
    scored = {row["id"] for row in new if number(row, mode) is not None}
    return sorted(row["id"] for row in old if number(row, mode) is not None and row["id"] not in scored)


def makes_sense(crossing: Record) -> bool:
    """Given scores can be null; a judge that is asked answers."""
    return crossing["mode"] == "pointwise" or crossing["loss"] != "failed"


GATES = [
    each
    for each in covering("responses", "loss", "lost_in", "systems", "mode")
    + covering("responses", "loss", "systems", "lost_in", strength=3)
    if makes_sense({"mode": "pointwise"} | each.values[0])
]


@pytest.fixture
def two_runs(run_of: Callable[..., Path]) -> Callable[..., tuple[list[Record], list[Record], Path, Path]]:
    def make(crossing: Mapping[str, Any]) -> tuple[list[Record], list[Record], Path, Path]:
        mode = crossing.get("mode", "pointwise")
        count = 12 if crossing["systems"] == 1 else 6 if mode == "pointwise" else 3
        old, new = (
            list(losing(made(crossing["responses"], crossing["systems"], mode, seed, instructions=count), loss))
            for seed, name in enumerate(("old", "new"))
            for loss in [crossing["loss"] if crossing["lost_in"] in (name, "both") else "complete"]
        )
        return old, new, run_of("old", old, mode), run_of("new", new[::-1], mode)

    return make


@pytest.mark.parametrize("crossing", GATES)
def test_the_gate_counts_every_row_of_every_system(
    two_runs: Callable[..., Any], figure: Figure, crossing: Record
) -> None:
    mode = crossing.get("mode", "pointwise")
    old, new, old_run, new_run = two_runs(crossing)
    # Of pairs of two systems, either could be meant.
    which = ("--system", "s00") if mode == "pair" and crossing["systems"] == 1 else ()
    command = ("compare", old_run, new_run, "--margin", f"{COLUMN[mode]}=0.4", *which, *QUICK)

    def of(name: str) -> dict[str, Any]:
        return {system.removesuffix(" over mid"): value for system, value in figure(command, name).items()}

    assert of("gate's changes") == pytest.approx(gate_changes(old, new, mode))
    gone = lost(old, new, mode)
    assert figure(command, "lost rows") == gone
    assert of("rows at the lowest score") == {
        name: sum(each.endswith(name) for each in gone) for name in of("gate's changes")
    }
    assert figure(command, "rows that failed before") == sorted(
        row["id"] for row in old if number(row, mode) is None
    )
    for name, bound in of("gate's bounds").items():  # a bound that is not known never passes
        assert of("gate's results")[name] == (bound is not None and bound > -0.4)
        assert bound is None or bound < of("gate's changes")[name]


def moved(old: Sequence[Record], new: Sequence[Record], mode: str) -> tuple[float, int, int]:
    """Return the mean change, and on how many instructions it rose and fell, of rows that both runs scored."""
    numbers = [{row["id"]: number(row, mode) for row in rows} for rows in (old, new)]
    by_instruction: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in old:
        before, after = (of.get(row["id"]) for of in numbers)
        if before is not None and after is not None:
            by_instruction[row["instruction"]][row["of"]].append(after - before)
    changes = [np.mean([np.mean(each) for each in of.values()]) for of in by_instruction.values()]
    return float(np.mean(changes)), sum(each > 1e-9 for each in changes), sum(each < -1e-9 for each in changes)


@pytest.mark.parametrize(
    "crossing",
    [
        each
        for each in covering("responses", "loss", "systems", "mode", mode=("pointwise", "pair"))
        if makes_sense(each.values[0])
    ],
)
def test_what_moved_is_counted_and_an_undefined_interval_is_never_no_change(
    two_runs: Callable[..., Any], run_of: Callable[..., Path], figure: Figure, cli: Cli, crossing: Record
) -> None:
    mode = crossing["mode"]
    old, new, old_run, new_run = two_runs(crossing | {"lost_in": "new"})
    given = ("--system", "s00") if mode == "pair" else ()
    old, new = ([row for row in rows if mode != "pair" or row["of"] == "s00"] for rows in (old, new))
    command = ("compare", old_run, new_run, *given, *QUICK)
    change, rose, fell = moved(old, new, mode)
    assert figure(command, "changes")[COLUMN[mode]] == pytest.approx(change)
    assert figure(command, "moved instructions")[COLUMN[mode]] == (rose, fell)

    lower = run_of(
        "lower", [row | {"quality": row["quality"] - 1} for row in made(seed=5) if row["quality"] > 1]
    )
    higher = run_of("higher", [row for row in made(seed=5) if row["quality"] > 1])
    everywhere = ("compare", higher, lower, *QUICK)
    assert figure(everywhere, "undefined") == ["help"]
    said = " ".join(cli(*everywhere).out.split())
    assert "no significant change" not in said
    assert f"help fell on {figure(everywhere, 'moved instructions')['help'][1]} of" in said


def test_each_system_alone_has_the_numbers_that_it_has_among_all(
    two_runs: Callable[..., Any], figure: Figure
) -> None:
    old, new, *runs = two_runs({"responses": "unequal", "loss": "failed", "lost_in": "new", "systems": 12})
    together = ("compare", *runs, "--margin", "help=0.4", *QUICK)
    by_system = figure(("compare", *runs, "--by-column", "system", *QUICK), "changes by slice")
    for name in named(12):
        alone = (*together, "--system", name)
        before, after = ([row for row in rows if row["of"] == name] for rows in (old, new))
        change, _, _ = moved(before, after, "pointwise")
        assert figure(alone, "gate's changes") == {name: figure(together, "gate's changes")[name]}
        assert figure(alone, "changes")["help"] == pytest.approx(change)
        assert by_system[name]["help"] == pytest.approx(change)


# Labels, and the rows that they were given for.

TEXTS = ("instruction", "candidate", "reference", "context")


def alike(shows: Sequence[str], responses: str, systems: int) -> list[Record]:
    """Return rows whose systems answer alike; where the rubric shows one more text, only this differs.

    `truth` is what a person says of these texts; the systems' equal texts get equal labels.
    """
    rows = made(responses, systems, shows=[name for name in shows if name in ("reference", "context")])
    for row in rows:
        at, which, _ = row["id"].split("-")
        for name in shows:
            if name != "instruction":
                row[name] = f"{name} {which} to {at}."
        row["candidate"] = row["candidate"] if "candidate" in shows else f"the answer to {at}."
        row["truth"] = 1 + (3 * int(at) + 2 * int(which)) % 5
    return rows


def texts_of(row: Record) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in TEXTS)


def agreed(labelled: Sequence[Record], chance: Mapping[str, float]) -> tuple[int, float]:
    """Return how many rows have a label, and the weighted share that the judge and people agree on."""
    rows = {row["id"]: row for row in labelled}
    weights = [1 / chance.get(name, 1) for name in rows]
    equal = [row["quality"] == row["truth"] for row in rows.values()]
    return len(rows), float(np.average(equal, weights=weights))


@pytest.fixture
def run_that_shows(tmp_path: Path, cli: Cli) -> Callable[..., Path]:
    """Return the function that judges rows by a rubric that shows these texts, and takes over its scores."""

    def make(rows: Sequence[Record], shows: Sequence[str]) -> Path:
        rubric, file = tmp_path / "rubric.toml", tmp_path / "rows.jsonl"
        fields = " ".join(f"{{${name}}}" for name in dict.fromkeys(("instruction", *shows, "candidate")))
        rubric.write_text(
            'name = "own"\naspects = ["help"]\nscale = { lowest = 1, highest = 5 }\n'
            f'[prompt]\ntemplate = "{fields} {{$aspects}} {{$answer_format}}"\n'
        )
        kept = ("id", "system", *TEXTS)
        file.write_text(
            "".join(json.dumps({name: row[name] for name in kept if name in row}) + "\n" for row in rows)
        )
        run = tmp_path / "run"
        end = cli("score", file, "--rubric", rubric, "--engine", "dry-run", "--out", run)
        assert end.code == 0, end.err
        given = {line["id"]: line["help"] for line in read_lines(run)}
        for row in rows:
            row["quality"] = given[row["id"]]
        return run

    return make


@pytest.mark.parametrize("crossing", covering("shows", "responses", "systems", "annotators", "drawn"))
def test_a_label_of_the_page_is_of_the_rows_with_the_texts_that_were_shown(
    tmp_path: Path, run_that_shows: Callable[..., Path], figure: Figure, crossing: Record
) -> None:
    rows = alike(crossing["shows"], crossing["responses"], crossing["systems"])
    run, labels = run_that_shows(rows, crossing["shows"]), tmp_path / "labels.jsonl"
    prefer = "score" if crossing["drawn"] == "preferred" else None
    with RowStore() as store, LabelFile(labels) as file:
        candidates = candidates_of_run(run, store, len(rows) // 2, prefer)  # type: ignore[arg-type]
        page = LabelSession(read_manifest(run).rubric, candidates, file, overlap=1.0)
        for person in range(crossing["annotators"]):
            while (shown := page.next(f"person {person}")) is not None:
                texts = json.dumps(shown)
                row = next(row for row in rows if all(each in texts for each in texts_of(row) if each))
                page.add(f"person {person}", shown["key"], {"values": {"help": str(row["truth"])}})
        if len(set(candidates.chance.tolist())) > 1:  # no interval that does not hold
            with pytest.raises(UsageError, match="unequal chances"):
                page.findings("person 0")
    chance = {line["id"]: line["label"]["chance"] for line in map(json.loads, labels.read_text().splitlines())}
    command = ("agree", run, "--labels", labels, "--allow-dry-run", *QUICK)
    count, share = agreed([row for row in rows if row["id"] in chance], chance)
    assert figure(command, "labelled rows") == count
    assert figure(command, "share of equal scores") == pytest.approx(share)


@pytest.mark.parametrize("crossing", covering("shows", "responses", "systems"))
@pytest.mark.parametrize("known", ["texts", "texts and id", "id and system", "instruction and candidate"])
def test_a_record_labels_its_row_or_is_refused(
    tmp_path: Path, run_that_shows: Callable[..., Path], figure: Figure, cli: Cli, crossing: Record, known: str
) -> None:
    rows = alike(crossing["shows"], crossing["responses"], crossing["systems"])
    run, labels = run_that_shows(rows, crossing["shows"]), tmp_path / "labels.jsonl"
    kept = {
        "texts": TEXTS,
        "texts and id": ("id", "system", *TEXTS),
        "id and system": ("id", "system"),
        "instruction and candidate": TEXTS[:2],
    }[known]
    labelled = rows[::2]
    records = [{name: row[name] for name in kept if name in row} | {"help": row["truth"]} for row in labelled]
    labels.write_text("".join(json.dumps(record) + "\n" for record in records))
    command = ("agree", run, "--labels", labels, "--allow-dry-run", *QUICK)
    # What is left of the rows must tell them apart.
    left = [json.dumps([row.get(name) for name in kept]) for row in rows]
    if len(set(left)) < len(rows):
        end = cli(*command)
        tells = "system" if crossing["systems"] > 1 else crossing["shows"][0]
        assert (end.code, tells in end.err) == (2, True), end.err
        return
    count, share = agreed(labelled, {})
    assert figure(command, "labelled rows") == count
    assert figure(command, "share of equal scores") == pytest.approx(share)


# Means of systems, and the order within instructions.


def system_means(rows: Sequence[Record]) -> Numbers:
    """Return the mean of each system, in which all its instructions have the same weight."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        value = number(row, "pointwise")
        if value is not None:
            scores[row["of"]][row["instruction"]].append(value)
    return {name: float(np.mean([np.mean(each) for each in of.values()])) for name, of in scores.items()}


@pytest.mark.parametrize("crossing", covering("responses", "loss", "systems"))
def test_each_instruction_has_the_same_weight_in_the_mean_of_a_system(
    run_of: Callable[..., Path], figure: Figure, crossing: Record
) -> None:
    rows = list(losing(made(crossing["responses"], crossing["systems"], instructions=9), crossing["loss"]))
    command = ("rank", run_of("run", rows[::-1]), *QUICK)
    assert figure(command, "means") == pytest.approx(system_means(rows))


def in_order(rows: Sequence[Record], label: Mapping[str, float]) -> float:
    """Return the share of an instruction's pairs that scores and labels order alike, in the mean over all."""
    of: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        if number(row, "pointwise") is not None:
            of[row["instruction"]].append(row)
    shares = [
        np.mean(
            [
                np.sign(a["quality"] - b["quality"]) == np.sign(label[a["id"]] - label[b["id"]])
                for a, b in combinations(each, 2)
            ]
        )
        for each in of.values()
        if len(each) > 1
    ]
    return float(np.mean(shares))


@pytest.mark.parametrize(
    "crossing", covering("responses", "loss", "scale", "annotators", responses=("four", "unequal"))
)
def test_the_share_in_order_is_that_of_the_pairs_of_rows(
    tmp_path: Path, run_of: Callable[..., Path], figure: Figure, crossing: Record
) -> None:
    rows = list(losing(made(crossing["responses"], 1, instructions=16), crossing["loss"]))
    run, labels, random = run_of("run", rows), tmp_path / "labels.jsonl", np.random.default_rng(2)
    top = 5 if crossing["scale"] == "the judge's" else 10
    people = range(crossing["annotators"])
    given = {row["id"]: [int(random.integers(1, top + 1)) for _ in people] for row in rows}
    labels.write_text(
        "".join(
            json.dumps({"id": name, "system": "s00", "annotator": f"person {person}", "help": value}) + "\n"
            for name, values in given.items()
            for person, value in enumerate(values)
        )
    )
    command = ("agree", run, "--labels", labels, *QUICK)
    means = {name: float(np.mean(values)) for name, values in given.items()}
    assert figure(command, "share in order") == pytest.approx(in_order(rows, means))


# What `escalate` keeps.


@pytest.mark.parametrize("responses", AXES["responses"])
@pytest.mark.parametrize("right", ["everywhere", "where an instruction has few rows", "almost everywhere"])
def test_of_the_rows_that_escalate_keeps_the_rate_agrees(
    tmp_path: Path, cli: Cli, responses: str, right: str
) -> None:
    random = np.random.default_rng(4)
    sizes = [20 if responses == "unequal" and at % 10 == 0 else RESPONSES[responses](at) for at in range(100)]
    instruction = np.repeat(np.arange(100), sizes)
    agreed = {
        "everywhere": np.ones(len(instruction), dtype=np.bool_),
        "where an instruction has few rows": np.array(sizes)[instruction] < 20,
        "almost everywhere": random.random(len(instruction)) < 0.97,
    }[right]
    truth = random.random(len(instruction)) < 0.5
    run = judged(tmp_path / "run", np.full(len(instruction), 0.9), agreed, truth, instruction)
    empty = judged(tmp_path / "large", np.full(len(instruction), np.nan), agreed, truth, instruction)
    labels = write_labels(tmp_path / "labels.jsonl", truth, len(truth), instruction)
    end = cli(
        "escalate", run, "--labels", labels, "--agreement", "0.8", "--to", empty, "--out", tmp_path / "out"
    )
    kept = [int(line["id"]) for line in read_lines(tmp_path / "out")] if (tmp_path / "out").is_dir() else []
    kept = kept if "run keeps nothing" not in end.err else []
    assert not kept or np.mean(agreed[kept]) >= 0.8, end.err
    assert bool(kept) == (np.mean(agreed) > 0.8), end.err
