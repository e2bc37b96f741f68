"""The command `label`, a page on which people label rows."""

from __future__ import annotations

import secrets
import shlex
import signal
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localjudge.cli.judge_options import PairOptions
from localjudge.cli.listening import accept_connections, end_on
from localjudge.cli.options import ColumnNames, RubricName
from localjudge.cli.progress import Progress, one_run
from localjudge.errors import UsageError
from localjudge.integrations.listener import LOOPBACK, ListenSettings
from localjudge.report.study_options import MovedInputs
from localjudge.settings import Flag
from localjudge.system.quantities import counted
from localjudge.system.requirements import require

if TYPE_CHECKING:
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.row_source import RowSource


def label(
    rows: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...|RUN...", help="Files as for score, or a run directory or those of all its shards."
        ),
    ],
    pairs: PairOptions,
    listen: ListenSettings,
    *,
    rubric: RubricName = "six-aspects",
    out: Annotated[Path, Flag("The label file; it is continued.", "FILE")] = Path("labels.jsonl"),
    annotator: Annotated[str | None, Flag("The annotator.  [default: the page asks]", "NAME")] = None,
    sample: Annotated[int | None, Flag("Label about N rows.  [default: all]", "N", least=1)] = None,
    prefer: Annotated[
        Literal["system", "score", "orders", "jurors", "mass", "interval"] | None,
        Flag(
            "Draw some rows more often: those of rare systems or scores, or those that the judge of RUN "
            "doubts, by its orders, jurors, mass or interval. rank, agree and calibrate correct for it by "
            "weights.",
            "system|score|orders|jurors|mass|interval",
        ),
    ] = None,
    overlap: Annotated[
        float, Flag("The share of instructions that everyone labels.", "SHARE", least=0, most=1)
    ] = 0.0,
    show_judge: Annotated[bool, Flag("Show the judge's answer; the labels then say so.")] = False,
    seed: Annotated[int, Flag("The seed of the sample.", "S")] = 0,
    columns: ColumnNames = None,
    inputs: MovedInputs = None,
) -> None:
    """Label a sample of rows on a page of this machine, blind, with the keyboard alone.

    The default rubric has the aspects of just-eval, the default of score, each with a description for people.
    """
    from localjudge.labelling.label_file import LabelFile
    from localjudge.labelling.sample import candidates_of_rows, candidates_of_run
    from localjudge.labelling.session import LabelSession
    from localjudge.rows.formats import input_extras
    from localjudge.rows.row_store import RowStore
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.run_manifest import read_manifest
    from localjudge.runs.run_state import unchanged

    moved_inputs = inputs or ()
    require("label", "serve", "trust", *input_extras(rows + list(moved_inputs)))
    import uvicorn

    from localjudge.integrations.http_server import server_config
    from localjudge.labelling.label_app import LabelApp

    progress = Progress()
    is_run = _are_runs(rows)
    if show_judge and not is_run:
        raise UsageError("--show-judge: needs the judgements of a run; give a run directory")
    given_token = listen.checked_token()
    end_on(signal.SIGTERM, signal.SIGHUP)
    with ExitStack() as stack:
        store = stack.enter_context(RowStore())
        if is_run:
            run = stack.enter_context(one_run([Path(name) for name in rows]))
            labelled_rubric = read_manifest(run).rubric
            labelled_rubric.mode.require_whole_rows("label: its rubric")
            with unchanged([run]):
                candidates = candidates_of_run(
                    run, store, sample=sample, prefer=prefer, show_judge=show_judge, inputs=moved_inputs
                )
        else:
            labelled_rubric = Rubric.load(rubric)
            labelled_rubric.mode.require_whole_rows("label: its rubric")
            source = _rows_of_files(rows, labelled_rubric, pairs=pairs, columns=columns or (), seed=seed)
            candidates = candidates_of_rows(source.rows, store, sample=sample, prefer=prefer)
        unreadable = candidates.unreadable
        if unreadable:
            progress.warn(
                f"{counted(len(unreadable), 'row')} cannot be read and are left out; first: {unreadable[0]}"
            )
        file = stack.enter_context(LabelFile(out))
        if file.torn is not None:
            progress.warn(f"{out}: a crash had cut its last line, which was moved to {file.torn}")
        session = LabelSession(labelled_rubric, candidates, file=file, overlap=overlap, seed=seed)
        rows_to_label = f"{counted(len(session), 'row')} to label of {len(store):,}"
        progress.say(f"{rows_to_label} · {out}: {len(file.lines):,} answered")
        token = given_token or secrets.token_urlsafe(16)
        app = LabelApp(
            session,
            token,
            title=f"Labels: {labelled_rubric.name}",
            annotator=annotator,
            is_local=listen.host in LOOPBACK,
        )
        bound = stack.enter_context(listen.bind())
        progress.say(f"open {accept_connections(listen, bound)}/?token={token}", always=True)
        progress.say("Ctrl-C ends; every label is in the file as soon as the next row is shown")
        with suppress(KeyboardInterrupt):  # the usual end
            uvicorn.Server(server_config(app.asgi())).run(sockets=[bound])
        file.refresh()
        if file.lost:
            progress.warn(f"{out}: another program has removed {counted(file.lost, 'answer')} from it")
        if is_run:
            next_command = f"localjudge agree {shlex.join(rows)}"
        else:
            next_command = "score the same rows, then: localjudge agree RUN"
        progress.say(f"{out}: {counted(len(file.lines), 'answer')} · {next_command} --labels {out}")


def _are_runs(names: Sequence[str]) -> bool:
    """Return whether all inputs are run directories, and not files.

    Raises:
        UsageError: some are, and some are not.
    """
    from localjudge.runs.run_files import MANIFEST

    others = [name for name in names if not Path(name, MANIFEST).is_file()]
    if 0 < len(others) < len(names):
        raise UsageError(
            f"{Path(others[0])}: is not a run directory; give the shards of a run alone, or files alone"
        )
    return not others


def _rows_of_files(
    names: Sequence[str], rubric: Rubric, *, pairs: PairOptions, columns: Sequence[str], seed: int
) -> RowSource:
    """Return the rows of files; pairs in one order."""
    from localjudge.rows.columns import parse_columns
    from localjudge.runs.row_source import RowSource

    orders = "both" if rubric.mode.pairs is None else "one"
    pairing = pairs.pairing(rubric.fields, orders, seed=seed)
    used_fields = rubric.fields if pairing is None else pairing.used(rubric.fields)
    column_of_field = parse_columns(columns, used_fields)
    return RowSource.from_files(names, column_of_field, used=rubric.fields, pairing=pairing)
