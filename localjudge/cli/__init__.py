"""The command line: each command is a function of one of the modules here, and `main` is the program."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, NoReturn, cast

import typer

from localjudge.cli.commands import AllCommands, CommandGroup, Description, descriptions
from localjudge.cli.messages import LOG_JSON, QUIET, Messages, lacking, options_first
from localjudge.cli.options import typed_command
from localjudge.errors import LocalJudgeError, UsageError
from localjudge.system.durable import StoppedAfterWriting, WrittenError
from localjudge.system.terminal import guarded_streams


class Commands(CommandGroup):
    """The commands; a stopped command prints how to continue. (Typer alone would print nothing.)"""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, AllCommands())

    def descriptions(self) -> Iterator[Description]:
        return descriptions()

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for (
            option
        ) in parameters:  # Typer loads pydantic to read that a flag of its own is None, and not for False
            if option.default is None and option.type_descriptor.annotation is bool:
                option.default = False
        return parameters

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StoppedAfterWriting as stopped:
            Messages().error(f"localjudge: stopped, after {stopped.target} was written whole")
            raise typer.Exit(getattr(stopped.reason, "exit_code", 130)) from None
        except KeyboardInterrupt as stopped:
            Messages().error(f"localjudge: stopped; to continue, run this again: {typed_command()}")
            raise typer.Exit(getattr(stopped, "exit_code", 130)) from None


app = typer.Typer(
    cls=Commands,
    help="An LLM judge that never leaves the machine: a rationale and scores for every response, every time.",
    epilog="localjudge score examples --out runs/first\nlocaljudge show runs/first",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # No colours: Typer's output passes the filter of `guarded_streams`, which would print them as escapes.
    context_settings={"help_option_names": ["-h", "--help"], "color": False},
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import localjudge

        print(f"localjudge {localjudge.__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option(QUIET, help="Print only errors and results. It may stand after the command, too.")
    ] = False,
    log_json: Annotated[
        bool,
        typer.Option(
            LOG_JSON,
            help="Print progress, warnings, notices and the end to stderr as JSON, one object in each line. It "
            "may stand after the command, too.",
        ),
    ] = False,
) -> None:
    """Parse the options that belong to no command; `Messages` reads --quiet and --log-json."""
    if quiet and log_json:
        raise UsageError(f"{QUIET} prints no progress, and {LOG_JSON} all of it; give only one of them")


_FULL = "; free some space, and the same command continues"
_FILES = "; raise the limit of open files (ulimit -n), and give the same command again"
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOENT: "; put it back, and give the same command again",
}
_CLOSED = "the reader of the output closed it before its end; what a run has judged is on the disk"


def main() -> None:
    """Run the program. A user's mistake ends with one line and an exit code, not with a traceback."""
    with guarded_streams(), Messages().until_the_end():
        if sys.platform == "win32":
            _end(2, "this program runs on Linux and macOS; on Windows, use it in WSL")
        try:
            app(
                options_first(sys.argv[1:]), prog_name="localjudge"
            )  # also under `python -m`: completion is installed for this name
        except SystemExit as end:
            # Click ends the program itself if its reader has closed the output.
            _end(end.code, _CLOSED if isinstance(end.__context__, BrokenPipeError) else "")
        except LocalJudgeError as error:
            _end(error.exit_code, str(error))
        except ModuleNotFoundError as error:
            if (error.name or "localjudge").startswith("localjudge"):
                traceback.print_exc()
                _end(1)
            from localjudge.system.requirements import install_command

            fix = f"{install_command('cpu')}; localjudge doctor lists what else is missing"
            _end(2, f"{error.name} is not installed: {fix}")
        except KeyboardInterrupt as stopped:
            _end(getattr(stopped, "exit_code", 130), "stopped; the same command continues")
        except BrokenPipeError:
            _end(1, _CLOSED)
        except WrittenError as error:
            _end(1, str(error))
        except OSError as error:  # for example a full disk, a removed folder, a folder instead of a file
            _end(1, f"{error}{_ADVICE.get(error.errno or 0, '')}")
        except BaseException as error:  # also a panic of a library in Rust
            lack = lacking(error)
            if lack is None:  # a bug in this program: the traceback passes the filter, too
                traceback.print_exc()
            _end(1, lack or "")


def _end(code: str | int | None, message: str = "") -> NoReturn:
    """Print in one line why the program ends, and end it. Output that cannot be written is an error, too."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe on purpose
        code = code or 1
        message = message or _CLOSED
    except OSError as error:
        code = code or 1
        message = message or f"stdout: {error}"
    with suppress(OSError):
        if message:
            Messages().error(f"localjudge: {' '.join(message.split())}")
        sys.stderr.flush()
    sys.exit(code)
