"""The command line: each command is a function of one of the modules here, and `main` is the program."""

from __future__ import annotations

import errno
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from localjudge.cli import audit, doctor, models, pack, report, runs, scoring, trust
from localjudge.cli.options import typed_command
from localjudge.errors import LocalJudgeError, SettingError
from localjudge.system.requirements import install_command
from localjudge.system.terminal import guarded_streams


class Commands(TyperGroup):
    """The commands; one that is stopped says how to go on. (Typer itself would end it without a word.)"""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            print(f"localjudge: stopped; to go on, run this again: {typed_command()}", file=sys.stderr)
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

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """The program `localjudge`: a mistake ends with one line and an exit code, not with a traceback."""
    with guarded_streams():
        try:
            app()
        except SystemExit as end:
            _end(end.code)
        except SettingError as error:  # a setting is a flag here
            _end(error.exit_code, f"--{error.name.replace('_', '-')} {error.value}: {error.advice}")
        except LocalJudgeError as error:
            _end(error.exit_code, str(error))
        except ModuleNotFoundError as error:
            if (error.name or "localjudge").startswith("localjudge"):
                traceback.print_exc()
                _end(1)
            mend = f"{install_command('cpu')}; localjudge doctor says what else is missing"
            _end(2, f"{error.name} is not installed: {mend}")
        except KeyboardInterrupt as stopped:
            _end(getattr(stopped, "exit_code", 130), "stopped; the same command continues")
        except BrokenPipeError:
            _end(1)
        except OSError as error:  # a full disk, a folder taken away, a folder in the place of a file
            going_on = "; the same command continues" if error.errno in _FULL else ""
            _end(1, f"{error}{going_on}")
        except Exception:  # a fault of this program: the traceback passes the filter, too
            traceback.print_exc()
            _end(1)


def _end(code: str | int | None, message: str = "") -> NoReturn:
    """Say in one line why the program ends, and end it. Output that could not be written is an error, too."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has read enough
        code = code or 1
    except OSError as error:
        code, message = code or 1, message or f"stdout: {error}"
    with suppress(OSError):
        if message:
            print(f"localjudge: {' '.join(message.split())}", file=sys.stderr)
        sys.stderr.flush()
    sys.exit(code)
