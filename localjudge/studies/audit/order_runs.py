"""The runs of an audit of orders: judge a sample of rows by a prompt that gives its lists in another order.

    DIR/rows.jsonl            the sampled rows, as an input
    DIR/own/                  their run in the rubric's own order
    DIR/again/                the same again: the rows in another order, in batches of half the size
    DIR/options-reversed/     the values of each aspect in reverse; with three labels or more, also -shuffled
    DIR/aspects-reversed/     the aspects in reverse; with three aspects or more, also -shuffled

Each is a normal run directory. Both checks of the same rows share a folder, and its first two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Literal

from localjudge.errors import UsageError
from localjudge.judge import Judge
from localjudge.records import Row
from localjudge.rubrics.aspect import values_in_words
from localjudge.rubrics.orders import with_aspects_in, with_values_in
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_observer import RunObserver
from localjudge.runs.stop_request import NEVER, StopRequest
from localjudge.studies.audit.perturbations import AGAIN
from localjudge.studies.audit.sample_runs import ROWS, SAMPLED, SampleRuns, refuse_another, written_row

OrderCheck = Literal["options", "aspects"]
"""What stands in another order: the values of each aspect, or the aspects."""
OrderName = Literal["again", "reversed", "shuffled"]
"""The rubric's own order judged again, the reverse of each list, or a random order of it."""
OWN = "own"
"""The folder of the run in the rubric's own order."""


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """An order in which the prompt gives the values of its aspects, or its aspects.

    Attributes:
        name: its name, which a threshold takes.
        folder: the name of its run.
        lists: what the prompt gives in this order, a line for each list.
        rubric: the rubric with this order.
        aspects: the aspects whose verdicts are compared: those with another order of values, or all.
    """

    name: OrderName
    folder: str
    lists: tuple[str, ...]
    rubric: Rubric
    aspects: tuple[str, ...]


def other_orders(rubric: Rubric, check: OrderCheck, seed: int) -> tuple[PromptOrder, ...]:
    """Return the other orders of a rubric.

    These are the reverse and, where there are more orders than two, one that is drawn at random. The numbers of
    a scale are reversed alone: "1 to 5" has two orders.

    Args:
        rubric: the rubric in its own order.
        check: what stands in another order.
        seed: the seed of the random order.

    Raises:
        UsageError: the rubric has only one order, or its template writes the list itself.
    """
    if check == "aspects":
        return _orders_of_aspects(rubric, seed)
    return _orders_of_values(rubric, seed)


def _orders_of_aspects(rubric: Rubric, seed: int) -> tuple[PromptOrder, ...]:
    names = tuple(rubric.aspects)
    if len(names) < 2:
        raise UsageError(
            f"`check` aspects: the rubric {rubric.name} has one aspect, {names[0]}, which has only one order; "
            "give a rubric of several aspects, or `check` options"
        )
    in_reverse = _order_of_aspects(rubric, "reversed", names[::-1])
    if len(names) == 2:
        return (in_reverse,)
    in_random_order = _order_of_aspects(rubric, "shuffled", _shuffled(names, f"{seed} aspects"))
    return in_reverse, in_random_order


def _order_of_aspects(rubric: Rubric, name: OrderName, order: Sequence[str]) -> PromptOrder:
    return PromptOrder(
        name=name,
        folder=f"aspects-{name}",
        lists=(", ".join(order),),
        rubric=with_aspects_in(rubric, order, f"{rubric.name} (aspects {name})"),
        aspects=tuple(rubric.aspects),
    )


def _orders_of_values(rubric: Rubric, seed: int) -> tuple[PromptOrder, ...]:
    reversed_values: dict[str, tuple[str, ...]] = {}
    shuffled_values: dict[str, tuple[str, ...]] = {}
    for name, aspect in rubric.aspects.items():
        values = tuple(aspect.values)
        reversed_values[name] = values[::-1]
        has_more_orders = aspect.scale is None and len(values) > 2
        if has_more_orders:
            shuffled_values[name] = _shuffled(values, f"{seed} {name}")
    in_reverse = _order_of_values(rubric, "reversed", reversed_values)
    if not shuffled_values:
        return (in_reverse,)
    return in_reverse, _order_of_values(rubric, "shuffled", shuffled_values)


def _order_of_values(rubric: Rubric, name: OrderName, orders: dict[str, tuple[str, ...]]) -> PromptOrder:
    lists = [f"{aspect}: {values_in_words(rubric.aspects[aspect], texts)}" for aspect, texts in orders.items()]
    return PromptOrder(
        name=name,
        folder=f"options-{name}",
        lists=tuple(lists),
        rubric=with_values_in(rubric, orders, f"{rubric.name} (values {name})"),
        aspects=tuple(orders),
    )


def _shuffled(texts: tuple[str, ...], seed: str) -> tuple[str, ...]:
    """Return three texts or more in a random order that is neither theirs nor its reverse."""
    random = Random(seed)
    drawn = list(texts)
    while tuple(drawn) in (texts, texts[::-1]):
        random.shuffle(drawn)
    return tuple(drawn)


def run_orders(
    rows: Sequence[Row],
    rubric: Rubric,
    orders: Sequence[PromptOrder],
    open_judge: Callable[[Rubric], Judge],
    out: Path,
    *,
    seed: int,
    observer: RunObserver | None = None,
    stopping: StopRequest = NEVER,
) -> bool:
    """Judge the rows in the rubric's own order, once more in this order, and in each other order of the prompt.

    Args:
        rows: the sampled rows.
        rubric: the rubric in its own order.
        orders: its other orders.
        open_judge: opens the audited judge with a rubric; it is closed before the next one is opened.
        out: the folder of the runs; it is created if it is missing, and existing runs are continued.
        seed: seed of the order in which the rows are judged again.
        observer: receives steps, warnings and outcomes.
        stopping: a context that is active while rows are judged; when it requests a stop, rows in flight are
            finished.

    Returns:
        True if all runs are complete; False if they were stopped.

    Raises:
        UsageError: the folder holds something else, an audit of other rows, or one with other settings; nothing
            was written.
    """
    numbered = [
        replace(row, columns={SAMPLED: number, "audited": row.source}) for number, row in enumerate(rows)
    ]
    folders = [OWN, AGAIN] + [order.folder for order in orders]
    with open_judge(rubric) as judge:
        if refuse_another(judge, out, folders):
            _refuse_other_rows(numbered, rubric, out)
        runs = SampleRuns.of(numbered, rubric, out, observer=observer, stopping=stopping)
        in_order = list(runs.inputs.rows())
        in_another_order = Random(seed).sample(in_order, len(in_order))
        if not runs.judge(judge, OWN, in_order):
            return False
        batch_size = min(judge.engine.info.at_once, max(1, len(rows)))
        judge.engine.reset(max(1, batch_size // 2))
        if not runs.judge(judge, AGAIN, in_another_order):
            return False
    for order in orders:
        with open_judge(order.rubric) as judge:
            if not runs.judge(judge, order.folder, in_order):
                return False
    return True


def _refuse_other_rows(rows: Sequence[Row], rubric: Rubric, out: Path) -> None:
    """Check that the audit in a folder has these rows.

    Raises:
        UsageError: it has others.
    """
    written = "".join(written_row(row, rubric) for row in rows)
    if (out / ROWS).read_text(encoding="utf-8") != written:
        raise UsageError(
            f"`out` {out}: {ROWS} has the rows of another audit; choose another folder, or give the input, "
            "`sample` and `seed` of that audit"
        )
