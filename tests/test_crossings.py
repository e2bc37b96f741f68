"""The promises of `localjudge help compare`, `labels`, `audit` and `pairs` where features meet, from raw rows.

A promise is a function of few lines that knows the raw rows alone. The commands' numbers come from `figure`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, read_lines
from preloaded import Preloaded
from scripted import scripted_checks, scripted_comparison, scripted_judge
from test_escalate import judged, write_labels
from test_label import ask, served

from localjudge import Judge, RowSource, Rubric, score_run
from localjudge.arrays import Floats

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
    "sampled": ("a run", "files"),
    "shows": (("instruction", "candidate"), ("reference",), ("context",)),
}
"""What can differ between two sets of rows and their labels."""

RESPONSES = {"one": lambda at: 1, "four": lambda at: 4, "unequal": lambda at: 1 + at % 4}
COLUMN = {"pointwise": "help", "pair": "better", "checklist": "score"}
LOWEST = {"pointwise": 1.0, "pair": 0.0, "checklist": 0.0}
QUICK = ("--resamples", 100)


def within(found: Any, estimate: str) -> Record:
    """Return an estimate of the order within instructions, of the expected scores of each aspect."""
    return {
        name: each["within"]["comparisons"]["expected"][estimate] for name, each in found["aspects"].items()
    }


FIGURES: dict[str, Callable[[Any], Any]] = {
    "gate's changes": lambda found: {each["system"]: each["change"] for each in found["gate"]},
    "gate's bounds": lambda found: {each["system"]: each["bound"] for each in found["gate"]},
    "gate's results": lambda found: {each["system"]: each["passes"] for each in found["gate"]},
    "rows at the lowest score": lambda found: {each["system"]: each["lost"] for each in found["gate"]},
    "lost rows": lambda found: sorted(each["id"] for each in found["missing"]),
    "rows that failed before": lambda found: sorted(each["id"] for each in found["failed"]),
    "changes": lambda found: {name: each["difference"]["value"] for name, each in found["columns"].items()},
    "undefined": lambda found: [name for name, each in found["columns"].items() if each["p"] is None],
    "moved instructions": lambda found: {
        name: (each["rose"], each["fell"]) for name, each in found["columns"].items()
    },
    "labelled rows": lambda found: found["aspects"]["help"]["rows"],
    "accuracy of both orders": lambda found: found["aspects"]["better"]["comparisons"]["both orders"][
        "accuracy"
    ]["value"],
    "ends of the share in order": lambda found: {
        name: (each["low"], each["high"]) for name, each in within(found, "in_order").items()
    },
    "least over chance": lambda found: {
        name: each["low"] for name, each in within(found, "over_chance").items()
    },
    "share of equal scores": lambda found: found["aspects"]["help"]["comparisons"]["integer"]["exact"]["value"],
    "share in order": lambda found: found["aspects"]["help"]["within"]["comparisons"]["integer"]["in_order"][
        "value"
    ],
    "means": lambda found: {each["name"]: each["means"]["help"]["value"] for each in found["systems"]},
    "changes by system": lambda found: {
        each["name"]: {name: one["value"] for name, one in each["estimates"].items()}
        for each in found["by_system"]["rows"]
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
                else scripted_checks(model, lambda said, asked: float(quality_of(said) >= int(asked[-1])))
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

    A row that failed in OLD is left out in both, and a further row of NEW counts in nothing.
    """
    numbers: list[dict[Any, dict[str, float | None]]] = [defaultdict(dict), defaultdict(dict)]
    for place, rows in enumerate((old, new)):
        for row in rows:
            numbers[place][row["of"], row["instruction"]][row["id"]] = number(row, mode)
    changes: dict[str, list[Any]] = defaultdict(list)
    for key, before in numbers[0].items():
        had = {each: value for each, value in before.items() if value is not None}
        then = {each: numbers[1][key].get(each) for each in had}
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
    assert "No significant change" not in said
    assert f"help fell on {figure(everywhere, 'moved instructions')['help'][1]} of" in said


def test_each_system_alone_has_the_numbers_that_it_has_among_all(
    two_runs: Callable[..., Any], figure: Figure
) -> None:
    old, new, *runs = two_runs({"responses": "unequal", "loss": "failed", "lost_in": "new", "systems": 12})
    together = ("compare", *runs, "--margin", "help=0.4", *QUICK)
    by_system = figure(together, "changes by system")
    for name in named(12):
        alone = (*together, "--system", name)
        before, after = ([row for row in rows if row["of"] == name] for rows in (old, new))
        change, _, _ = moved(before, after, "pointwise")
        assert figure(alone, "gate's changes") == {name: figure(together, "gate's changes")[name]}
        assert figure(alone, "changes")["help"] == pytest.approx(change)
        assert figure((*together, "--where", f"system={name}"), "changes")["help"] == pytest.approx(change)
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


def asked(row: Record) -> tuple[Any, ...]:
    """Return what the responses to one instruction share: all that is shown besides them."""
    return tuple(row.get(name) for name in TEXTS if name != "candidate")


def agreed(labelled: Sequence[Record], chance: Mapping[Any, float]) -> tuple[int, float]:
    """Return how many rows have a label, and the weighted share that the judge and people agree on.

    `chance` has the chance of each instruction; it is 1 without one.
    """
    weights = [1 / chance.get(asked(row), 1) for row in labelled]
    equal = [row["quality"] == row["truth"] for row in labelled]
    return len(labelled), float(np.average(equal, weights=weights))


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


def chances(rows: Sequence[Record], said: Callable[[Record], Any], expected: int) -> dict[Any, float]:
    """Return the chance of each instruction: it grows with how rare what the judge said is among all rows.

    The chances of all rows add up to the number that is expected in the sample.
    """
    count, of = Counter(map(said, rows)), defaultdict[Any, list[Any]](list)
    for row in rows:
        of[asked(row)].append(said(row))
    rarity = {name: float(np.mean([1 / count[each] for each in own])) for name, own in of.items()}
    low, high = 0.0, 1e9  # the factor between rarity and chance
    for _ in range(200):
        factor = (low + high) / 2
        drawn = sum(min(1, factor * rarity[name]) * len(own) for name, own in of.items())
        low, high = (low, factor) if drawn > expected else (factor, high)
    return {name: min(1, low * each) for name, each in rarity.items()}


@pytest.fixture
def label(tmp_path: Path, preloaded: Preloaded) -> Callable[..., list[Record]]:
    """Return the function that labels on the page of `label` over HTTP, until it has no more rows.

    It returns the lines of the label file.
    """

    def answer(run: Path, people: int, values: Callable[[Record], Record], *given: object) -> list[Record]:
        out = tmp_path / "labels.jsonl"
        with served(run, "--out", out, "--overlap", 1, *given, program=preloaded.localjudge) as (_, address):
            for person in range(people):
                name = {"annotator": f"person {person}"}
                _, said = ask(address, "/row", name)
                while (shown := said["row"]) is not None:
                    answer = {**name, "key": shown["key"], "values": values(shown)}
                    status, said = ask(address, "/label", answer)
                    assert status == 200, said
        return [json.loads(line) for line in out.read_text().splitlines()]

    return answer


@pytest.mark.parametrize(
    "crossing", covering("shows", "responses", "systems", "annotators", "drawn", "sampled")
)
def test_a_label_of_the_page_is_of_the_row_whose_texts_were_shown(
    run_that_shows: Callable[..., Path],
    label: Callable[..., Any],
    figure: Figure,
    tmp_path: Path,
    crossing: Record,
) -> None:
    rows = alike(crossing["shows"], crossing["responses"], crossing["systems"])
    run, by_id = run_that_shows(rows, crossing["shows"]), {row["id"]: row for row in rows}
    # Equal texts of several systems are asked once.
    distinct = [*{texts_of(row): row for row in reversed(rows)}.values()]
    of_files = crossing["sampled"] == "files"  # before they are judged, so only systems can be preferred
    is_preferred, sample = crossing["drawn"] == "preferred" and not of_files, len(distinct) // 2
    chance = chances(distinct, lambda row: row["quality"] if is_preferred else 0, sample)

    def says(shown: Record) -> Record:
        texts = json.dumps(shown)
        row = next(row for row in rows if all(each in texts for each in texts_of(row) if each))
        return {"help": str(row["truth"])}

    given = ("--sample", sample, *("--prefer", "score") * is_preferred)
    source = (tmp_path / "rows.jsonl", "--rubric", tmp_path / "rubric.toml") if of_files else (run,)
    lines = label(source[0], crossing["annotators"], says, *source[1:], *given)
    drawn = {texts_of(by_id[line["id"]]) for line in lines}
    whole = {asked(by_id[line["id"]]) for line in lines}
    assert drawn == {texts_of(row) for row in distinct if asked(row) in whole}
    assert len(lines) == len(drawn) * crossing["annotators"]
    for line in lines:
        assert line["help"] == by_id[line["id"]]["truth"]
        assert line["label"]["chance"] == pytest.approx(chance[asked(by_id[line["id"]])])
    command = ("agree", run, "--labels", tmp_path / "labels.jsonl", "--allow-dry-run", *QUICK)
    # The label is of every row with the texts that the person saw, of whatever system.
    count, share = agreed([row for row in rows if texts_of(row) in drawn], chance)
    assert figure(command, "labelled rows") == count
    assert figure(command, "share of equal scores") == pytest.approx(share)


def accuracy(rows: Sequence[Record], chance: Mapping[Any, float]) -> float:
    """Return the share of pairs on which judge and person say the same; a tie of one of them is a half."""
    credit = [1 - abs(np.sign(row["quality"] - 3) - row["truth"]) / 2 for row in rows]
    return float(np.average(credit, weights=[1 / chance[asked(row)] for row in rows]))


@pytest.mark.parametrize("crossing", covering("responses", "systems", "drawn", responses=("one", "unequal")))
def test_a_label_of_a_pair_is_of_the_response_that_was_better_wherever_it_stood(
    run_of: Callable[..., Path], label: Callable[..., Any], figure: Figure, tmp_path: Path, crossing: Record
) -> None:
    random, is_preferred = np.random.default_rng(6), crossing["drawn"] == "preferred"
    rows = made(crossing["responses"], min(crossing["systems"], 3), "pair")
    for row in rows:  # what a person says of the system: 1 if it is better, 0 for a tie
        row["truth"] = int(random.integers(-1, 2))
        row["side"] = 1 if row["system_a"] == row["of"] else -1
    run = run_of("run", rows, "pair")
    by_texts = {(row["instruction"], *sorted([row["candidate_a"], row["candidate_b"]])): row for row in rows}
    verdict = {row["id"]: row["side"] * np.sign(row["quality"] - 3) if is_preferred else 0 for row in rows}
    chance = chances(rows, lambda row: verdict[row["id"]], len(rows) // 2)

    def says(shown: Record) -> Record:
        texts = shown["responses"]
        row = by_texts[shown["instruction"], *sorted(texts)]
        is_first = texts[0] == row["candidate_a"]
        places.append(is_first)
        return {"better": ("B", "tie", "A")[1 + row["truth"] * row["side"] * (1 if is_first else -1)]}

    places: list[bool] = []
    given = ("--sample", len(rows) // 2, *("--prefer", "score") * is_preferred)
    lines = label(run, 1, says, *given)
    assert len(lines) < 10 or len(set(places)) == 2, "the responses of some pairs change their places"
    by_id = {row["id"]: row for row in rows}
    for line in lines:
        row = by_id[line["id"]]
        assert line["better"] == ("b", "tie", "a")[1 + row["truth"] * row["side"]]
        assert line["label"]["chance"] == pytest.approx(chance[asked(row)])
    command = ("agree", run, "--labels", tmp_path / "labels.jsonl", *QUICK)
    found = accuracy([by_id[line["id"]] for line in lines], chance)
    assert figure(command, "accuracy of both orders") == pytest.approx(found)


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


def drawn(
    judge: str, sets: int, instructions: int, responses: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return a judge's scores and the labels, 1 to 5, of sets of responses, [sets, instructions, responses].

    The judge "level" knows the instruction, but not the response; "same" gives one score to all.
    """
    size = (sets, instructions, responses)
    level, (quality, noise, error) = random.normal(0, 1.1, (*size[:2], 1)), random.normal(0, 0.7, (3, *size))
    reads = {"level": 0.0, "same": 0.0, "weak": 0.5, "good": 0.9}[judge]
    scores = 10 + level + reads * quality + (1 - reads) * noise
    labels = np.clip(np.round(3 + level + quality + error / 5), 1, 5)
    return np.full(size, 10.5) if judge == "same" else scores, labels


def best_share(scores: Floats, labels: Floats) -> float:
    """Return the share of pairs that the scores order as the labels do, for the best epsilon."""
    first, second = np.triu_indices(scores.shape[2], 1)
    by_score, by_label = (each[..., first] - each[..., second] for each in (scores, labels))
    every = (np.where(np.abs(by_score) <= each, 0, by_score) for each in (*np.linspace(0, 3, 61), 99))
    return float(max(np.mean(np.sign(each) == np.sign(by_label)) for each in every))


@pytest.fixture
def agreement_of(tmp_path: Path, cli: Cli) -> Callable[..., tuple[object, ...]]:
    """Return the function that imports the scores of several aspects, and gives the command that compares them
    with the labels."""

    def make(aspects: Mapping[str, tuple[Floats, Floats]]) -> tuple[object, ...]:
        rows, labels, run = (tmp_path / name for name in ("rows.jsonl", "labels.jsonl", "run"))
        shape = next(iter(aspects.values()))[0].shape
        with rows.open("w") as scored, labels.open("w") as labelled:
            for at, which in np.ndindex(*shape):
                row = {"instruction": f"question {at}", "candidate": f"answer {which} to {at}", "system": "s"}
                for place, file in enumerate((scored, labelled)):
                    numbers = {name: float(each[place][at, which]) for name, each in aspects.items()}
                    file.write(json.dumps(row | numbers) + "\n")
        given = [part for name in aspects for part in ("--aspect", name)]
        end = cli("import", rows, *given, "--scale", "0-20", "--out", run)
        assert end.code == 0, end.err
        return "agree", run, "--labels", labels, *QUICK

    return make


@pytest.mark.parametrize(("responses", "sets"), [(2, 100), (4, 60)])
def test_the_interval_of_the_share_in_order_holds_the_share_of_the_best_epsilon(
    agreement_of: Callable[..., Any], figure: Figure, responses: int, sets: int
) -> None:
    """Each aspect is a set of its own. Some are of a judge that reads the responses."""
    random, aspects, truth = np.random.default_rng(7), dict[str, tuple[Floats, Floats]](), dict[str, float]()
    for judge, count in (("level", sets * 4 // 5), ("weak", sets // 5)):
        true_share = best_share(*drawn(judge, 1, 20_000, responses, random))
        for at, each in enumerate(zip(*drawn(judge, count, 50, responses, random), strict=True)):
            aspects[f"{judge[0]}{at}"], truth[f"{judge[0]}{at}"] = each, true_share
    command = agreement_of(aspects)
    ends = figure(command, "ends of the share in order")
    held = [ends[name][0] <= share <= ends[name][1] for name, share in truth.items()]
    assert sum(held) >= sets * 0.95 - 3 * (sets * 0.95 * 0.05) ** 0.5
    above = [name for name, low in figure(command, "least over chance").items() if low is not None and low > 0]
    blind = sum(name.startswith("l") for name in above)
    assert blind <= len(truth) * 0.025 + 3 * (len(truth) * 0.025) ** 0.5
    assert len(above) - blind > 0


@pytest.mark.parametrize("instructions", [60, 5])
def test_a_judge_that_does_not_read_the_responses_is_called_so(
    agreement_of: Callable[..., Any], cli: Cli, instructions: int
) -> None:
    random = np.random.default_rng(8)
    aspects = {
        name: tuple(each[0] for each in drawn(name, 1, instructions, 3, random))
        for name in ("level", "same", "good")
    }
    said = " ".join(cli(*agreement_of(aspects)).out.split())
    if instructions < 8:
        few = "because the difference has no interval: it depends on fewer than"
        assert f"unknown on 3 of 3 aspects (level, same, good), {few}" in said
        assert "Nothing shows" not in said
        return
    blind = said.partition("Nothing shows that this judge reads the responses: ")[2][:150]
    assert ("level" in blind, "same" in blind, "good" in blind) == (True, True, False), said
    assert "better on 1 of 3 aspects (good)" in said


# The interval of one score.


def inside(ends: Mapping[str, Any], labels: Sequence[Record]) -> float:
    """Return the share of single labels in the interval of their row, in the mean over instructions."""
    of = defaultdict[str, list[bool]](list)
    for label in labels:
        low, high = ends[label["id"]]
        of[label["id"].partition("-")[0]].append(low <= label["helpfulness"] <= high)
    return float(np.mean([np.mean(each) for each in of.values()]))


@pytest.mark.parametrize(
    "crossing", covering("responses", "scale", "annotators", strength=3, responses=("one", "four"))
)
def test_an_interval_holds_single_labels_of_new_responses_as_often_as_it_says(
    tmp_path: Path, model: Path, cli: Cli, crossing: Record
) -> None:
    """The labels of a random half are learned from, several times.

    Of the labels that were learned from, a certain share lies inside, by the definition of the two quantiles.
    Of the others, the promised share does in the mean; no share can have a larger variance than one that is 0
    or 1 on each instruction.
    """
    level, half, draws, random = 0.8, 25, 5, np.random.default_rng(11)
    rows = [row | {"reference": "r"} for row in made(crossing["responses"], instructions=2 * half)]
    file, run, out = (tmp_path / name for name in ("rows.jsonl", "run", "map.json"))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = scripted_judge(model, lambda reference, said, *_: 2 + quality_of(said) / 2)(Rubric.load())
    score_run(judge, RowSource.from_files([str(file)], used=judge.rubric.fields), run)
    judge.close()
    top = 5 if crossing["scale"] == "the judge's" else 10
    labels = [
        {"id": row["id"], "annotator": f"person {person}", "helpfulness": int(np.clip(round(said), 1, top))}
        for row in rows
        for person in range(crossing["annotators"])  # a strict one, and a generous one
        for said in (top / 5 * (row["quality"] + 1.5 * (person - 1) + random.normal(0, 0.7)),)
    ]
    shares = []
    for draw in range(draws):
        chosen = set(map(str, random.permutation(2 * half)[:half]))
        parts: tuple[list[Record], list[Record]] = [], []
        for label in labels:
            parts[label["id"].partition("-")[0] not in chosen].append(label)
        (tmp_path / "half.jsonl").write_text("".join(json.dumps(each) + "\n" for each in parts[0]))
        given = ("--labels", tmp_path / "half.jsonl", "--interval", level, "--out", out, *QUICK)
        assert cli("calibrate", run, *given).code == 0
        table = tmp_path / f"{draw}.jsonl"
        assert cli("export", run, "--intervals", out, "--out", table).code == 0
        ends = {
            row["id"]: row["helpfulness_interval"] for row in map(json.loads, table.read_text().splitlines())
        }
        assert inside(ends, parts[0]) >= (1 + level) * (half + 1) / half - 1 - 1e-9
        shares.append(inside(ends, parts[1]))
    error = (level * (1 - level) * (1 / (half + 2) + 1 / half) / draws) ** 0.5
    assert np.mean(shares) >= level - 3 * error


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
