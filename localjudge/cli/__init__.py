"""The command line: each command is a function of one of the modules here, and `main` is the program."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from localjudge.cli import audit, doctor, models, pack, report, runs, scoring, trust
from localjudge.cli.options import typed_command
from localjudge.errors import LocalJudgeError
from localjudge.terminal import printable


class Commands(TyperGroup):
    """The commands; one that is stopped says how to go on. (Typer itself would end it without a word.)"""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            typer.echo(printable(f"localjudge: stopped; to go on, run this again: {typed_command()}"), err=True)
            raise typer.Exit(getattr(stopped, "exit_code", 130)) from None


app = typer.Typer(
    cls=Commands,
    help="An LLM judge that never leaves the machine: a rationale and scores for every response, every time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
for command in (
    scoring.score,
    scoring.prompt,
    runs.show,
    report.report,
    runs.export,
    runs.merge,
    trust.agree,
    trust.rank,
    trust.jury,
    trust.calibrate,
    audit.audit,
    scoring.repeat,
    doctor.doctor,
    pack.pack,
):
    app.command()(command)
app.command("import")(trust.import_scores)
app.add_typer(models.app, name="models")


def main() -> None:
    """The program `localjudge`: a mistake ends with one line and an exit code, not with a traceback."""
    try:
        app()
    except LocalJudgeError as error:
        typer.echo(f"localjudge: {error}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "localjudge").startswith("localjudge"):
            raise
        mend = "pip install 'localjudge[cpu]'; localjudge doctor says what else is missing"
        typer.echo(f"localjudge: {error.name} is not installed: {mend}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a folder taken away
        typer.echo(f"localjudge: {error}; the same command continues", err=True)
        sys.exit(1)
