"""Terminal tables of agreement, ranking, jury and calibration; they fit a width of 100 characters.

Each value has its 95 % interval below it. An en dash means that a value is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from localjudge.analysis.agreement import Agreement, AspectAgreement
from localjudge.analysis.calibration import Calibration
from localjudge.analysis.comparison import STATISTICS, Comparison
from localjudge.analysis.interval import Estimate
from localjudge.analysis.jury import Jury
from localjudge.analysis.jury_aspect import EstimatedErrors, NominalJuryAspect
from localjudge.analysis.nominal_agreement import NominalAgreement
from localjudge.analysis.ranking import Ranking, SystemRank
from localjudge.rubrics.answer import shown
from localjudge.rubrics.score_column import heading, is_share
from localjudge.runs.notices import headed, kinds

_UNDEFINED = "–"  # noqa: RUF001
_HEADINGS = {
    "within_one": "±1",
    "mae": "MAE",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "kendall": "Kendall",
}
_ROW_NAMES = {"length": "length only", "overlap": "word overlap only", "most frequent": "most frequent label"}
_SHARES_OF = {
    "integer": "the judge's answers",
    "expected": "the judge's probabilities",
    "calibrated": "calibrated probabilities",
}
_ONE_ANNOTATOR = "Only one annotator: the inter-annotator agreement is unknown."


def agreement_tables(agreement: Agreement) -> Group:
    """Return one table for each aspect: the judge's scores, the trivial baselines and the annotators."""
    parts: list[RenderableType] = []
    for aspect, found in agreement.aspects.items():
        parts.append(_title(_labelled(aspect, found), agreement.notices))
        table = _table("", *(_HEADINGS.get(name, name) for name in STATISTICS))
        for name, comparison in found.comparisons.items():
            table.add_row(_ROW_NAMES.get(name, name), *_statistics(comparison))
        ceiling = found.ceiling
        if ceiling:
            table.add_section()
            table.add_row("inter-annotator", *_statistics(ceiling.rest))
        parts.append(table)
        if ceiling:
            parts.append(
                Text(
                    f"Krippendorff's alpha of the annotators: ordinal {_inline(ceiling.alpha_ordinal)}, "
                    f"interval {_inline(ceiling.alpha_interval)}"
                )
            )
        elif found.annotators == 1:
            parts.append(Text(_ONE_ANNOTATOR))
    for aspect, nominal in agreement.nominal.items():
        parts += [_title(_labelled(aspect, nominal), agreement.notices), *_nominal_agreement(nominal)]
    return headed(agreement.notices, *_spaced(parts), *_notes(agreement.notes))


def _nominal_agreement(found: NominalAgreement) -> Iterator[RenderableType]:
    """Yield the comparisons of an aspect without an order, and its confusion matrix."""
    table = _table("", "accuracy", "kappa", "Brier")
    for name, each in found.comparisons.items():
        cells = map(_stacked, (each.accuracy, each.kappa, each.brier))
        table.add_row(_ROW_NAMES.get(name, name), *cells)
    if found.rest:
        table.add_section()
        table.add_row("inter-annotator", *map(_stacked, (found.rest.accuracy, found.rest.kappa)))
    yield table
    confusion = _table("human \\ judge", *found.labels, "recall")
    for label, counts, recall in zip(found.labels, found.confusion, found.recall, strict=True):
        confusion.add_row(label, *map(str, counts), _stacked(recall))
    confusion.add_section()
    confusion.add_row("precision", *map(_stacked, found.precision))
    yield confusion
    if found.alpha:
        yield Text(f"Krippendorff's alpha of the annotators: nominal {_inline(found.alpha)}")
    elif found.annotators == 1:
        yield Text(_ONE_ANNOTATOR)


def ranking_tables(ranking: Ranking) -> Group:
    """Return tables of the systems' means: by the judge, by the human score, and adjusted for length.

    The last line names the systems that do not differ significantly.
    """
    last = ranking.columns[-1]
    main = _table("system", heading(last), "rank", "win rate", "length", "rows", "instructions")
    for system in ranking.systems:
        best, worst = system.ranks[last]
        wins = system.win_rate[last]
        main.add_row(
            system.name,
            _stacked(system.means[last]),
            str(best) if best == worst else f"{best}-{worst}",
            _UNDEFINED if wins is None else f"{wins:.0%}",
            _UNDEFINED if system.length is None else f"{system.length:.0f}",
            str(system.rows),
            str(system.instructions),
        )
    parts: list[RenderableType] = [
        _title(
            f"Shares of {last} by system, from {_SHARES_OF[ranking.of]}"
            if is_share(last)
            else f"Mean {ranking.of} scores of the systems",
            ranking.notices,
        ),
        main,
    ]
    if len(ranking.columns) > 1:
        means = _table("system", *map(heading, ranking.columns[:-1]))
        for system in ranking.systems:
            means.add_row(*_named(system, {name: system.means[name] for name in ranking.columns[:-1]}))
        others = "Shares of the other labels" if all(map(is_share, ranking.columns)) else "Aspects"
        parts += [_title(others, ranking.notices), means]
    for title, kind in (
        ("Mean human scores, prediction-powered", "human"),
        ("Means at equal length", "length_held"),
    ):
        estimates = [getattr(system, kind) for system in ranking.systems]
        if any(one.value is not None for each in estimates if each for one in each.values()):
            parts.append(_title(title, ranking.notices))
            table = _table("system", *map(heading, ranking.columns))
            for system, each in zip(ranking.systems, estimates, strict=True):
                table.add_row(*_named(system, each))
            if kind == "length_held":
                explained = [_short(ranking.length_explains[column]) for column in ranking.columns]
                table.add_section()
                table.add_row("R² of length", *explained)
            parts.append(table)
    if len(ranking.systems) > 1:
        basis = "human" if ranking.basis == "human" else "judge's"
        together = [group for group in ranking.groups[last] if len(group) > 1]
        text = "; ".join(", ".join(group) for group in together) or "none"
        parts.append(Text(f"No significant difference in the {basis} scores ({last}): {text}"))
    return headed(ranking.notices, *_spaced(parts), *_notes(ranking.notes))


def jury_tables(jury: Jury) -> Group:
    """Return tables of the aspects, of the jurors, and of the rows with the largest differences."""
    title = (
        f"{len(jury.jurors)} jurors · {_count(jury.rows, 'row')}, {_count(jury.instructions, 'instruction')}"
    )
    parts: list[RenderableType] = [_title(title, jury.notices)]
    aspects = _table(
        "aspect", "mean", "median", "SD", "alpha ord.", "alpha int.", "all equal", "majority", "split"
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
    labels = _table("aspect", "alpha nom.", "all equal", "majority", "tied")
    for name, nominal in jury.nominal.items():
        shares = (nominal.unanimous, nominal.with_majority, nominal.tied)
        labels.add_row(name, _stacked(nominal.alpha_nominal), *(f"{share:.0%}" for share in shares))
    parts += [aspects] * bool(jury.aspects) + [labels] * bool(jury.nominal)
    bias = _table("juror", *jury.aspects)
    for juror in jury.jurors:
        cells = [f"{juror.bias[name]:+.2f}\n{_short(juror.with_rest[name])}" for name in jury.aspects]
        bias.add_row(juror.name, *cells)
    bias_title = "Bias (a juror's mean minus the mean of the others) and Spearman correlation with the others"
    if jury.aspects:
        parts += [_title(bias_title, jury.notices), bias]
    for name, nominal in jury.nominal.items():
        parts += [_title(f"{name}: shares of the labels", jury.notices), _juror_labels(jury, name, nominal)]
        if nominal.estimated:
            parts += [
                _title(f"{name}: estimated share of each true label that a juror finds", jury.notices),
                _juror_errors(jury, nominal.labels, nominal.estimated),
            ]
    parts.append(Text(f"Outlier among the jurors: {jury.odd or 'none'}"))
    if jury.splits:
        parts.append(_title("Rows with the largest differences between jurors", jury.notices))
        names = [*jury.aspects, *jury.nominal]
        splits = _table("row", "system", *names)
        for row in jury.splits:
            scores = [
                (", " if name in jury.nominal else " ").join(map(shown, row.scores[name])) for name in names
            ]
            splits.add_row(row.id, row.system, *scores)
        parts.append(splits)
    if jury.not_shared:
        left_out = _count(jury.not_shared, "judgement")
        parts.append(Text(f"Left out: {left_out} of rows that some jurors have not judged"))
    return headed(jury.notices, *_spaced(parts))


def _juror_labels(jury: Jury, aspect: str, nominal: NominalJuryAspect) -> Table:
    """Return the share of each label by each juror and by the majorities, and the alpha without each juror."""
    table = _table("juror", *nominal.labels, "alpha without")
    for juror in jury.jurors:
        shares = [_short(juror.mean[f"{aspect}={label}"]) for label in nominal.labels]
        table.add_row(juror.name, *shares, _short(juror.alpha_without[aspect]))
    if nominal.majority:
        table.add_section()
        table.add_row("majority", *map(_short, nominal.majority))
    return table


def _juror_errors(jury: Jury, labels: Sequence[str], estimated: EstimatedErrors) -> Table:
    """Return the estimates of Dawid and Skene: recall of each label, and accuracy."""
    table = _table("juror", *labels, "accuracy")
    for juror, rates, accuracy in zip(jury.jurors, estimated.rates, estimated.accuracy, strict=True):
        table.add_row(
            juror.name, *(_short(given[place]) for place, given in enumerate(rates)), _short(accuracy)
        )
    table.add_section()
    table.add_row("true share", *map(_short, estimated.shares))
    return table


def calibration_table(calibration: Calibration) -> Group:
    """Return a table of the maps and of their gain on unseen instructions."""
    title = _title(
        f"Map from the {calibration.of} score to the mean label; errors on unseen instructions",
        calibration.notices,
    )
    table = _table(
        "aspect", "rows", "RMSE", "calibrated", "constant", "MSE gain", "map",
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
    without_gain = [name for name, found in calibration.aspects.items() if not found.has_gain]
    names = ", ".join(without_gain)
    notes = [f"No gain is shown for {names}: the interval is not above 0 or is undefined."] if names else []
    return headed(calibration.notices, *_spaced([title, table]), *_notes(notes))


def _labelled(aspect: str, found: AspectAgreement | NominalAgreement) -> str:
    return (
        f"{aspect} · {_count(found.rows, 'row')}, {_count(found.instructions, 'instruction')}, "
        f"{_count(found.annotators, 'annotator')}"
    )


def _title(text: str, notices: Sequence[str]) -> Text:
    return Text(" · ".join([text, kinds(notices)] if notices else [text]), style="bold")


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(names[0], overflow="fold", min_width=8)
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _statistics(comparison: Comparison) -> Iterator[Text | str]:
    for name in STATISTICS:
        yield _stacked(getattr(comparison, name))


def _named(system: SystemRank, means: Mapping[str, Estimate] | None) -> list[Text | str]:
    return [system.name, *(_stacked(each) for each in (means or {}).values())]


def _stacked(estimate: Estimate) -> Text | str:
    """Return the value, with its interval below it."""
    if estimate.low is None or estimate.high is None:
        return _short(estimate.value)
    interval = f"{_bare(estimate.low)} {_bare(estimate.high)}"
    return Text.assemble(f"{_short(estimate.value)}\n", (interval, "dim"))


def _inline(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return _short(estimate.value)
    return f"{_short(estimate.value)} ({_bare(estimate.low)} to {_bare(estimate.high)})"


def _short(value: float | None) -> str:
    return _UNDEFINED if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def _bare(value: float) -> str:
    """Return the value with two decimals and no leading zero, as is usual for statistics from -1 to 1."""
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
