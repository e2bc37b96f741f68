"""Shared parts of the commands: options, groups of options, and the environment."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from localjudge.errors import UsageError
from localjudge.given_template import GivenTemplate
from localjudge.runs.run_files import FILES, MANIFEST, MARK
from localjudge.settings import Flag, JudgeSettings, choices, flag_of
from localjudge.system.durable import unwritable
from localjudge.system.machine import SWITCHES

FAILED_ROWS = 3
"""Exit code of a run that finished with failures."""
BELOW_THRESHOLD = 3
"""Exit code of a check or condition that does not hold."""

RUN = "Run"
MODEL = "Model"
RUBRIC = "Rubric and prompt"
ROWS = "Rows"
PAIRS = "Pairs"
ANSWERS = "Answers"
ENGINE = "Engine"
SERVER = "Model server"
RAY = "Ray cluster"
HEADINGS = (RUN, MODEL, RUBRIC, ROWS, PAIRS, ANSWERS, ENGINE, SERVER, RAY)
"""The headings of the options of the commands that judge, in their order; an option names its own."""
SETTING = object()
"""Marks an option that is declared as a setting of the judge with its name."""

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files or globs (.jsonl, .json, .csv, .tsv, each also with .gz; .parquet, .arrow, .feather), "
        "folders that datasets saved, '-' for JSONL on stdin, or 'examples'. Answers that name their questions "
        "(Arena-Hard, MT-Bench) need the file of questions among them.",
    ),
]
RubricName = Annotated[str, Flag("The rubric for the judge.", "NAME|FILE", RUBRIC)]
RationalePlace = Annotated[
    str | None,
    Flag(
        "Where the rationale stands, for a rubric with {$answer_format}.  [default: as the rubric says]",
        "before|after|each|none",
        RUBRIC,
    ),
]
ModelName = Annotated[str | None, SETTING]
ChatTemplate = Annotated[str | None, SETTING]
ServerUrl = Annotated[
    str | None,
    Flag("The server of --engine server: http://127.0.0.1:8000, or unix:/run/judge.sock.", "URL", SERVER),
]
AllowHost = Annotated[
    list[str] | None, Flag("Another host than this machine to which --server may send rows.", "NAME", SERVER)
]
ColumnNames = Annotated[
    list[str] | None,
    Flag(
        "The input's column for a field, such as candidate=my_column; not needed for the usual names.",
        "FIELD=COLUMN",
        ROWS,
        name="--column",
    ),
]
Limit = Annotated[int | None, Flag("Use only the first N rows or pairs.", "N", ROWS, least=1)]
RunFolders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Run directories, such as all shards of a run.")
]
AsJson = Annotated[bool, Flag("Print JSON, for programs.", name="--json")]


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each parameter with a `Flag`, and for each field of a dataclass.

    A field is declared like a parameter: annotated with a `Flag`, with its default. An option that the command
    declares itself replaces that of the field with the same name, and the field gets its value, too.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    own_names = set()
    for name, parameter in signature.parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
        else:
            own_names.add(name)
    options_of_groups = {name: _options(group) for name, group in groups.items()}

    options: dict[str, inspect.Parameter] = {}
    for name, parameter in signature.parameters.items():
        if name not in groups:
            options[name] = parameter.replace(annotation=_option(name, parameter.annotation))
            continue
        for field_name, option in options_of_groups[name].items():
            if field_name not in own_names:
                options[field_name] = option

    @wraps(command)
    def called(**values: Any) -> None:
        arguments = {name: values[name] for name in own_names}
        for name, group in groups.items():
            fields_of_group = {field_name: values[field_name] for field_name in options_of_groups[name]}
            arguments[name] = group(**fields_of_group)
        command(**arguments)

    keywords = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options.values()]
    called.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in keywords}
    return called


def _options(group: Any) -> dict[str, inspect.Parameter]:
    """Return an option for each field of a dataclass, by its name."""
    hints = get_type_hints(group, include_extras=True)
    options = {}
    for field in fields(group):
        options[field.name] = inspect.Parameter(
            field.name,
            kind=inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=_option(field.name, hints[field.name]),
        )
    return options


def _option(name: str, annotation: Any) -> Any:
    """Return the annotation of an option for typer, made of its `Flag`."""
    if SETTING in getattr(annotation, "__metadata__", ()):
        annotation = get_type_hints(JudgeSettings, include_extras=True)[name]
    flag = flag_of(annotation)
    if flag is None:
        return annotation
    values = choices(annotation)
    default_flag = "--" + name.replace("_", "-")
    option = typer.Option(
        flag.name or default_flag,
        metavar=flag.metavar or "|".join(values) or None,
        help=flag.help,
        rich_help_panel=flag.heading,
        min=flag.least,
        max=flag.most,
    )
    kind = str if values else _typed_kind(annotation.__origin__)
    return Annotated[kind, option]


def _typed_kind(kind: Any) -> Any:
    """Return the type of what is typed for a setting of a type that the command line does not know."""
    if kind == dict[str, Any] | None:
        return list[str] | None
    if kind == GivenTemplate | None:
        return str | None
    return kind


_QUIET_LIBRARIES = {
    # Threads that wait in a busy loop make a run on a busy machine ten times slower.
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Variables that `settle_environment` sets besides `SWITCHES`: quiet libraries, and no busy waiting."""


_ENGINE_ARG = "--engine-arg"


def typed_command() -> str:
    """Return the command line that started this program, quoted for a shell; secrets are hidden."""
    program = sys.argv[0]
    name = Path(program).name
    if name == "__main__.py":
        command = [sys.orig_argv[0], "-m", "localjudge"]
    elif shutil.which(name) == program:
        command = [name]
    else:
        command = [program]
    return shlex.join(command + _without_secret_options(sys.argv[1:]))


def _without_secret_options(arguments: Sequence[str]) -> list[str]:
    """Return arguments of the command line, with the secrets hidden in values of --engine-arg."""
    from localjudge.secret_options import masked_option

    shown = []
    follows_flag = False
    for argument in arguments:
        flag, _, value_after_flag = argument.partition("=")
        is_option = follows_flag or flag == _ENGINE_ARG
        option = argument if follows_flag else value_after_flag
        follows_flag = argument == _ENGINE_ARG
        name, equals, value = option.partition("=")
        if is_option and equals:
            masked = masked_option(name, value).shown
            shown.append(f"{argument.removesuffix(value)}{masked}")
        else:
            shown.append(argument)
    return shown


def check_out_file(out: Path, flag: str = "--out") -> None:
    """Check that an output file is new or replaces a file, and not a folder, a device or a file of a run.

    Args:
        out: the file to write.
        flag: the flag that names it.

    Raises:
        UsageError: the path is something else.
    """
    if os.path.exists(out) and not os.path.isfile(out):
        raise UsageError(f"{flag} {out}: is not a file; give a new file, or one to replace")
    is_in_run = os.path.exists(out.parent / MANIFEST) or os.path.exists(out.parent / MARK)
    if out.name in FILES and is_in_run:
        raise UsageError(f"{flag} {out}: is a file of a run; choose another name")


def refuse_input_as_out(out: Path, inputs: Iterable[str | Path], flag: str = "--out") -> None:
    """Check that an output file does not replace an input.

    Args:
        out: the file to write.
        inputs: the files that the command reads; missing ones are ignored.
        flag: the flag that names the output.

    Raises:
        UsageError: it is an input, by this path or by another one.
    """
    for name in inputs:
        if os.path.exists(name) and os.path.exists(out) and os.path.samefile(name, out):
            raise UsageError(f"{flag} {out}: is the input {name}; choose another name")


def check_out(out: Path) -> None:
    """Check that a folder can be written; leave nothing in it.

    Raises:
        UsageError: it is a file, it or its parent cannot be written, or the disk is full.
    """
    fault = unwritable(out, least=1 << 20)
    if not fault:
        return
    if fault.endswith("a file"):
        fix = "give a folder"
    else:
        fix = "free space or change the permissions, or give another folder"
    raise UsageError(f"--out {out}: {fault}; {fix}")


def given_template(chat_template: str | None) -> GivenTemplate | None:
    """Return the chat template of a command that checks a model; None if none is given.

    Raises:
        SettingError: its file cannot be read.
    """
    return None if chat_template is None else GivenTemplate.read(chat_template)


def settle_environment(*, allow_download: bool = False, ray: str | None = None) -> None:
    """Set the variables for no network and quiet libraries, except those that the user has set.

    Libraries read them at import, so call this first.
    """
    settings = SWITCHES | _QUIET_LIBRARIES
    if ray == "local":
        # A Ray on one host uses the loopback address, and does not search for another address.
        settings |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if allow_download:
        os.environ |= {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
