"""What several commands share: forms and groups of their flags, the environment, a table on stdout."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localjudge.engines.engine_options import BATCH_INVARIANT
from localjudge.errors import UsageError
from localjudge.system.offline import SWITCHES

if TYPE_CHECKING:
    from localjudge.diagnostics.check_results import Check

FAILED_ROWS = 3
"""The exit code of a run that finished with failures."""

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files or globs (.jsonl, .jsonl.gz, .csv, .tsv, .parquet), '-' for JSONL on stdin, or 'examples'.",
    ),
]
RubricName = Annotated[str, typer.Option("--rubric", metavar="NAME|FILE", help="The rubric to judge by.")]
Guard = Annotated[
    bool, typer.Option("--guard", help="Keep each field inside its fence, and show invisible characters in it.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH_OR_ID",
        help="A model directory or the id of a model in the local cache.  [default: the small bundled one]",
    ),
]
AllowDownload = Annotated[
    bool, typer.Option("--allow-download", help="Fetch the model from the hub if it is not on this machine.")
]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="FIELD=COLUMN",
        help="The input's column for a field, such as candidate=my_column; the usual names need none.",
    ),
]
MaxRowBytes = Annotated[
    int, typer.Option("--max-row-bytes", min=1, metavar="N", help="The largest row; a larger one fails.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N rows.")]
AnswerSpelling = Annotated[
    str,
    typer.Option("--answer-spelling", metavar="compact|spaced|indented", help="The white space of an answer."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each field of its parameters that are dataclasses.

    A field is declared as an option of a command is: annotated with `typer.Option`, with its default. The
    options stand in the help where the parameter stands in the signature.
    """
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    flat: list[inspect.Parameter] = []
    signature = inspect.signature(command, eval_str=True)
    for name, parameter in signature.parameters.items():
        group = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            parameters = inspect.signature(group, eval_str=True).parameters
            groups[name] = dict(parameters)
            flat += parameters.values()
        else:
            flat.append(parameter)

    @wraps(command)
    def flattened(**values: Any) -> None:
        for name, parameters in groups.items():
            group = signature.parameters[name].annotation
            values[name] = group(**{each: values.pop(each) for each in parameters})
        command(**values)

    flat = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in flat]
    flattened.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    flattened.__annotations__ = {each.name: each.annotation for each in flat}
    return flattened


QUIET = {
    # Threads that spin while they wait make a run on a busy machine ten times slower.
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""What `settle_environment` sets besides `SWITCHES`: no chatter from the libraries below, no busy waiting."""


def print_table(table: object) -> None:
    from localjudge.system.terminal import Console

    Console(width=None if sys.stdout.isatty() else 120).print(table)


def typed_command() -> str:
    """The command that started this program, to be typed again."""
    program, *arguments = sys.argv
    if Path(program).name == "__main__.py":
        return shlex.join([sys.orig_argv[0], "-m", "localjudge", *arguments])
    name = Path(program).name
    return shlex.join([name if shutil.which(name) == program else program, *arguments])


def print_json(document: object, indent: int | None = None) -> None:
    """Print JSON that every encoding of stdout can hold and no terminal can be steered by."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(document, ensure_ascii=not is_unicode, indent=indent))


def print_checks(checks: Sequence[Check], as_json: bool) -> None:
    """Print the results of checks as a list or as JSON."""
    from localjudge.diagnostics.check_results import checklist
    from localjudge.system.terminal import Console

    if as_json:
        print_json([check.as_dict() for check in checks], indent=2)
    else:
        Console(soft_wrap=True).print(checklist(checks))


def input_extras(inputs: Iterable[str]) -> list[str]:
    """The extras that reading these files needs."""
    return ["parquet"] if any(name.endswith(".parquet") for name in inputs) else []


_OF_A_RUN = ("run.json", "judgements.jsonl", "set-aside.jsonl", "summary.json")


def check_out_file(out: Path) -> None:
    """See that what is to be written takes the place of a file, and never of a folder or a device.

    Raises:
        UsageError: there is something else.
    """
    if os.path.exists(out) and not os.path.isfile(out):
        raise UsageError(f"--out {out}: is no file; name one that is new or is to be replaced")
    if out.name in _OF_A_RUN and (out.parent / "run.json").exists():
        raise UsageError(f"--out {out}: is a file of a run; choose another name")


def check_out(out: Path) -> None:
    """See that a folder can be written, and leave nothing there.

    Raises:
        UsageError: it is a file, it or its parent cannot be written, or the disk is full.
    """
    from localjudge.diagnostics import storage

    check = storage.out(out, least=1 << 20)
    if check.state == "wrong":
        raise UsageError(f"--out {check.found}; {check.fix}")


def settle_environment(
    *, deterministic: bool = False, allow_download: bool = False, ray: str | None = None
) -> None:
    """No network and no chatter from the libraries below, unless the user has set it otherwise.

    They read these when they are imported, so it comes first.
    """
    settings = SWITCHES | QUIET | ({BATCH_INVARIANT: "1"} if deterministic else {})
    if ray == "local":
        # A Ray without other hosts keeps to the loopback address, and does not look for another one.
        settings |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if allow_download:
        os.environ |= {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
