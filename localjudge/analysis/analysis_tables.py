"""What a person sees of agreement, ranking, jury and calibration: tables that fit a terminal of 100 columns.

A figure stands above its 95 % interval. An en dash is what is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.agreement import STATISTICS, Agreement, Comparison
from localjudge.analysis.calibration import Calibration
from localjudge.analysis.interval import Estimate
from localjudge.analysis.jury import Jury
from localjudge.analysis.ranking import Ranking, SystemRank
from localjudge.runs.notices import headed, kinds

_NOTHING = "–"  # noqa: RUF001
_HEADINGS = {
    "within_one": "±1",
    "mae": "MAE",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "kendall": "Kendall",
}
_COLUMNS = {"length": "length alone", "overlap": "word overlap"}


def agreement_tables(agreement: Agreement) -> Group:
    """A table an aspect: the judge's columns, the trivial baselines, the annotators."""
    parts: list[RenderableType] = []
    for aspect, found in agreement.aspects.items():
        title = (
            f"{aspect} · {_count(found.rows, 'row')}, {_count(found.instructions, 'instruction')}, "
            f"{_count(found.annotators, 'annotator')}"
        )
        parts.append(_title(title, agreement.notices))
        table = _table("", *(_HEADINGS.get(name, name) for name in STATISTICS))
        for name, comparison in found.comparisons.items():
            table.add_row(_COLUMNS.get(name, name), *_statistics(comparison))
        ceiling = found.ceiling
        if ceiling:
            table.add_section()
            table.add_row("one annotator", *_statistics(ceiling.rest))
        parts.append(table)
        if ceiling:
            parts.append(
                Text(
                    f"Krippendorff's alpha of the annotators: ordinal {_inline(ceiling.alpha_ordinal)}, "
                    f"interval {_inline(ceiling.alpha_interval)}"
                )
            )
        elif found.annotators == 1:
            parts.append(Text("one annotator, so how far people agree is not known"))
    return headed(agreement.notices, *_spaced(parts), *_notes(agreement.notes))


def ranking_tables(ranking: Ranking) -> Group:
    """The systems' means; the same at equal length and for the human score; what cannot be told apart."""
    last = ranking.columns[-1]
    main = _table("system", last, "rank", "wins", "length", "rows", "instructions")
    for system in ranking.systems:
        best, worst = system.ranks[last]
        wins = system.win_rate[last]
        main.add_row(
            system.name,
            _stacked(system.means[last]),
            str(best) if best == worst else f"{best}-{worst}",
            _NOTHING if wins is None else f"{wins:.0%}",
            _NOTHING if system.length is None else f"{system.length:.0f}",
            str(system.rows),
            str(system.instructions),
        )
    parts: list[RenderableType] = [
        _title(f"Systems, by their {ranking.of} scores", ranking.notices),
        main,
    ]
    if len(ranking.columns) > 1:
        means = _table("system", *ranking.columns[:-1])
        for system in ranking.systems:
            means.add_row(*_named(system, {name: system.means[name] for name in ranking.columns[:-1]}))
        parts += [_title("Aspects", ranking.notices), means]
    for title, kind in (
        ("The human score, prediction-powered", "human"),
        ("With length held equal", "length_held"),
    ):
        figures = [getattr(system, kind) for system in ranking.systems]
        if any(one.value is not None for each in figures if each for one in each.values()):
            parts.append(_title(title, ranking.notices))
            table = _table("system", *ranking.columns)
            for system, each in zip(ranking.systems, figures, strict=True):
                table.add_row(*_named(system, each))
            if kind == "length_held":
                explained = [_short(ranking.length_explains[column]) for column in ranking.columns]
                table.add_section()
                table.add_row("R² of length", *explained)
            parts.append(table)
    if len(ranking.systems) > 1:
        whose = "the human score" if ranking.basis == "human" else "the judge"
        together = [group for group in ranking.groups[last] if len(group) > 1]
        text = "; ".join(", ".join(group) for group in together) or "none"
        parts.append(Text(f"Not told apart by {whose} ({last}): {text}"))
    return headed(ranking.notices, *_spaced(parts), *_notes(ranking.notes))


def jury_tables(jury: Jury) -> Group:
    """The aspects, the jurors, and the rows they split on."""
    title = (
        f"{len(jury.jurors)} jurors · {_count(jury.rows, 'row')}, {_count(jury.instructions, 'instruction')}"
    )
    aspects = _table(
        "aspect", "mean", "median", "spread", "alpha ord.", "alpha int.", "equal", "majority", "split"
    )
    for name, aspect in jury.aspects.items():
        aspects.add_row(
            name,
            _stacked(aspect.mean),
            f"{aspect.median:.2f}",
            f"{aspect.spread:.2f}",
            _stacked(aspect.alpha_ordinal),
            _stacked(aspect.alpha_interval),
            f"{aspect.unanimous:.0%}",
            f"{aspect.with_majority:.0%}",
            f"{aspect.split:.0%}",
        )
    bias = _table("juror", *jury.aspects)
    for juror in jury.jurors:
        cells = [f"{juror.bias[name]:+.2f}\n{_short(juror.with_rest[name])}" for name in jury.aspects]
        bias.add_row(juror.name, *cells)
    of_bias = "A juror's mean less the others', and its Spearman correlation with theirs"
    parts: list[RenderableType] = [
        _title(title, jury.notices),
        aspects,
        _title(of_bias, jury.notices),
        bias,
    ]
    parts.append(Text(f"The odd one out: {jury.odd or 'none'}"))
    if jury.splits:
        parts.append(_title("Rows they differ on most", jury.notices))
        splits = _table("row", "system", *jury.aspects)
        for row in jury.splits:
            scores = [" ".join(map(str, row.scores[name])) for name in jury.aspects]
            splits.add_row(row.id, row.system, *scores)
        parts.append(splits)
    if jury.not_shared:
        parts.append(Text(f"{_count(jury.not_shared, 'judgement')} of rows that not all have judged: left out"))
    return headed(jury.notices, *_spaced(parts))


def calibration_table(calibration: Calibration) -> Group:
    """The maps, and what each gained on instructions that it had not seen."""
    title = _title(
        f"From the {calibration.of} score to the mean label; errors on unseen instructions", calibration.notices
    )
    table = _table(
        "aspect", "rows", "RMSE", "mapped", "constant", "MSE gained", "the map",
    )  # fmt: skip
    for name, found in calibration.aspects.items():
        points = list(zip(found.x, found.y, strict=True))
        shown = (
            [points[round(step * (len(points) - 1) / 4)] for step in range(5)] if len(points) > 5 else points
        )
        table.add_row(
            name,
            str(found.rows),
            _short(found.before),
            _short(found.after),
            _short(found.constant),
            _stacked(Estimate(**found.gain.model_dump())),
            " ".join(f"{x:.3g}→{y:.2f}" for x, y in dict.fromkeys(shown)),
        )
    unsure = [name for name, found in calibration.aspects.items() if not found.has_gain]
    told = f"No gain is shown for {', '.join(unsure)}: the interval holds 0 or is unknown." if unsure else ""
    return headed(calibration.notices, *_spaced([title, table]), *_notes((told,) if told else ()))


def _title(text: str, notices: Sequence[str]) -> Text:
    return Text(" · ".join([text, kinds(notices)] if notices else [text]), style="bold")


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(headings[0], overflow="fold", min_width=8)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _statistics(comparison: Comparison) -> Iterator[Text | str]:
    for name in STATISTICS:
        yield _stacked(getattr(comparison, name))


def _named(system: SystemRank, means: Mapping[str, Estimate] | None) -> list[Text | str]:
    return [system.name, *(_stacked(each) for each in (means or {}).values())]


def _stacked(estimate: Estimate) -> Text | str:
    """The value, and its interval below."""
    if estimate.low is None or estimate.high is None:
        return _short(estimate.value)
    interval = f"{_bare(estimate.low)} {_bare(estimate.high)}"
    return Text.assemble(f"{_short(estimate.value)}\n", (interval, "dim"))


def _inline(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return _short(estimate.value)
    return f"{_short(estimate.value)} ({_bare(estimate.low)} to {_bare(estimate.high)})"


def _short(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def _bare(value: float) -> str:
    """Two decimals without the leading zero, as statistics print what lies between -1 and 1."""
    text = f"{value:.2f}".replace("-0.00", "0.00")
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _spaced(parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        if not (isinstance(part, Text) and part.style == "bold"):
            yield ""


def _notes(notes: Sequence[str]) -> Iterator[Text]:
    for note in dict.fromkeys(notes):
        yield Text(note, style="yellow")
