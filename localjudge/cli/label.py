"""The command `label`: a page of this machine on which people label a sample of rows."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from localjudge.cli.judge_options import PairOptions
from localjudge.cli.options import ColumnNames, RubricName, input_extras
from localjudge.cli.statistics_options import MovedInputs
from localjudge.errors import UsageError
from localjudge.integrations.listener import ListenSettings
from localjudge.settings import Flag
from localjudge.system.quantities import counted


def label(
    rows: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...|RUN", help="Files as for score, or a run directory."),
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
    adjudicate: Annotated[
        bool, Flag("Ask again for rows of FILE whose annotators differ; their labels are shown afterwards.")
    ] = False,
    show_judge: Annotated[bool, Flag("Show the judge's answer; the labels then say so.")] = False,
    seed: Annotated[int, Flag("The seed of the sample.", "S")] = 0,
    columns: ColumnNames = None,
    inputs: MovedInputs = None,
) -> None:
    """Label a sample of rows on a page of this machine, blind, with the keyboard alone.

    The default rubric has the aspects of just-eval, the default of score, each with a description for people.
    """
    from localjudge.system.requirements import require

    require("label", "serve", "trust", *input_extras([*rows, *(inputs or ())]))
    import uvicorn

    from localjudge.cli.progress import Progress
    from localjudge.integrations.http_server import server_config
    from localjudge.integrations.listener import LOOPBACK
    from localjudge.labelling.label_app import LabelApp
    from localjudge.labelling.label_file import LabelFile
    from localjudge.labelling.sample import candidates_of_rows, candidates_of_run
    from localjudge.labelling.session import LabelSession
    from localjudge.rows.columns import parse_columns
    from localjudge.rows.row_store import RowStore
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.row_source import RowSource
    from localjudge.runs.run_manifest import MANIFEST, read_manifest

    progress, run = Progress(), Path(rows[0])
    is_run = len(rows) == 1 and (run / MANIFEST).is_file()
    if show_judge and not is_run:
        raise UsageError("--show-judge: needs the judgements of a run; give a run directory")
    listener = listen.listener()
    with ExitStack() as stack:
        store = stack.enter_context(RowStore())
        if is_run:
            found = read_manifest(run).rubric
            found.mode.require_whole_rows("label")
            candidates = candidates_of_run(run, store, sample, prefer, show_judge, inputs or ())
        else:
            found = Rubric.load(rubric)
            found.mode.require_whole_rows("label")
            pairing = pairs.pairing(found.fields, "one" if len(found.mode.responses) > 1 else "both", seed)
            used = found.fields if pairing is None else pairing.used(found.fields)
            named = parse_columns(columns or (), used)
            source = RowSource.from_files(rows, named, used=found.fields, pairing=pairing)
            candidates = candidates_of_rows(source.rows, store, sample, prefer)
        if lost := candidates.unreadable:
            progress.warn(f"{counted(len(lost), 'row')} cannot be read and are left out; first: {lost[0]}")
        file = stack.enter_context(LabelFile(out))
        if file.torn is not None:
            progress.warn(f"{out}: a crash had cut its last line, which was moved to {file.torn}")
        session = LabelSession(found, candidates, file, overlap, seed, adjudicate)
        what = "whose annotators differ" if adjudicate else f"to label of {len(store):,}"
        progress.say(f"{counted(len(session), 'row')} {what} · {out}: {len(file.lines):,} answered")
        token = listener.token or secrets.token_urlsafe(16)
        app = LabelApp(session, token, f"Labels: {found.name}", annotator, listener.host in LOOPBACK)
        listening = stack.enter_context(listener.bind())
        listening.listen()
        port = listening.getsockname()[1]
        scheme = "http" if listener.certfile is None else "https"
        progress.say(f"open {scheme}://{listener.host}:{port}/?token={token}", always=True)
        progress.say("Ctrl-C ends; every label is in the file as soon as the next row is shown")
        with suppress(KeyboardInterrupt):  # the usual end
            uvicorn.Server(server_config(app.asgi(), listener)).run(sockets=[listening])
        file.refresh()
        if file.lost:
            progress.warn(f"{out}: another program has removed {counted(file.lost, 'answer')} from it")
        again = "" if is_run else "score the same rows, then: "
        judged = run if is_run else "RUN"
        progress.say(
            f"{out}: {counted(len(file.lines), 'answer')} · {again}localjudge agree {judged} --labels {out}"
        )
