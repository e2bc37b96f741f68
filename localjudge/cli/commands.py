"""The commands, each with an example, in the order of the help, and the format of the help.

The module of a command is loaded when it is used, and its functions import what they need: help and
completion answer at once. The help is plain text, equal in a terminal, a pipe and a log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from localjudge.cli.options import HEADINGS, flattened

COMMANDS: dict[str, dict[str, str]] = {
    "Every day": {
        "scoring.score": "score examples --out runs/first",
        "show.show": "show runs/first --sort helpfulness --limit 5",
        "compare.compare": "compare runs/first runs/second --margin helpfulness=0.2",
        "runs.report": "report runs/first --out report.html",
    },
    "Statistics and people": {
        "rank.rank": "rank runs/first",
        "label.label": "label examples --sample 20 --out labels.jsonl",
        "labels.agree": "agree runs/first --labels labels.csv",
        "compare.sample_size": "sample-size --difference 0.2 --pilot runs/first",
        "labels.calibrate": "calibrate runs/first --labels labels.csv --out calibration.json",
        "escalate.escalate": "escalate runs/first --labels labels.csv --by helpfulness",
        "jury.jury": "jury runs/first runs/second --out runs/jury",
    },
    "Judge otherwise": {
        "scoring.prompt": "prompt examples --limit 1",
        "audit.audit": "audit examples --sample 10 --out runs/audit",
        "serve.serve": "serve --port 8700 --reward 'helpfulness_expected - 5*(safety < 3)'",
    },
    "Rubrics and models": {
        "rubrics": "rubrics init my-rubric.toml",
        "models": "models list",
        "machines.doctor": "doctor --model bundled",
    },
    "Other tools and machines": {
        "runs.export": "export runs/first --to csv --out first.csv",
        "runs.import_scores": "import scores.csv --aspect helpfulness --out runs/imported",
        "runs.merge": "merge runs/part-1 runs/part-2 --out runs/whole",
        "machines.pack": "pack --out pack --extra cpu",
    },
    "Learn": {"help.print_page": "help rubrics"},
}
"""The commands in the order of the help, by heading: the location of each, and an example that works as typed.

A location is a module and a function, or the module of a group of commands.
"""


@dataclass(frozen=True, slots=True)
class Description:
    """What the help lists of a command: its heading, its name and its first sentence."""

    heading: str
    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Listed:
    """A command in `COMMANDS`.

    Attributes:
        heading: the heading in the help.
        module: the module in this folder.
        function: the function in it; empty for a group of commands.
        example: an example that works as typed, without the name of the program.
    """

    heading: str
    module: str
    function: str
    example: str

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.example.split()[0]


def _listed() -> Iterator[_Listed]:
    """Yield the commands in the order of the help."""
    for heading, commands in COMMANDS.items():
        for location, example in commands.items():
            module, _, function = location.partition(".")
            yield _Listed(heading, module, function=function, example=example)


class AllCommands(Mapping[str, Any]):
    """The commands by their names. A command is built at its first use, because a process uses few of them."""

    def __init__(self) -> None:
        self._listed = {listed.name: listed for listed in _listed()}
        self._built: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(self._listed[name])
        return self._built[name]


def _build(listed: _Listed) -> Any:
    """Return the command of Click for a function, or for the group of commands of a module."""
    module = import_module(f"localjudge.cli.{listed.module}")
    if listed.function:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        add_to_app = explained(app, f"localjudge {listed.example}", listed.name)
        add_to_app(getattr(module, listed.function))
    else:
        app = module.app
    command = typer.main.get_command(app)
    command.name = listed.name
    return command


def descriptions() -> Iterator[Description]:
    """Yield the description of each command, without loading its module."""
    for listed in _listed():
        text = " ".join(_docstring(listed).split())
        sentence = text.partition(". ")[0].rstrip(".")
        yield Description(listed.heading, listed.name, f"{sentence}.")


def _docstring(listed: _Listed) -> str:
    """Return the docstring of the function of a command, or that of the module of a group."""
    module = _parsed(listed.module)
    if not listed.function:
        return ast.get_docstring(module) or ""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == listed.function:
            return ast.get_docstring(statement) or ""
    raise LookupError(f"{listed.module}.py has no function {listed.function}")


@cache
def _parsed(module: str) -> ast.Module:
    source = Path(__file__).with_name(f"{module}.py")
    return ast.parse(source.read_text("utf-8"))


_SETTING = re.compile("`([a-z_]+)`")


def in_flags(text: str) -> str:
    """Return a text with the flag of each setting that it names in backquotes: `top_p` becomes --top-p.

    The rest of the package names settings as Python programs know them.
    """
    return _SETTING.sub(lambda match: _flags().get(match[1], match[0]), text)


@cache
def _flags() -> Mapping[str, str]:
    """Return the flag of each parameter of a command, by the parameter's name."""
    flags: dict[str, str] = {}
    commands = list(AllCommands().values())
    for command in list(commands):
        if isinstance(command, CommandGroup):
            commands.extend(command.commands.values())
    for command in commands:
        for parameter in command.params:
            if parameter.param_type_name == "option":
                flags[parameter.name] = max(parameter.opts, key=len)
    return flags


_UNGROUPED = 20
"""Largest number of parameters of a command whose help lists its options under one heading."""


class _WithExample:
    """A mixin that prints the epilog as an example, without wrapping its lines."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            with formatter.section("Example"):
                for line in self.epilog.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class ExplainedCommand(_WithExample, TyperCommand):
    """A command whose help shows only the metavar of an argument; Typer would add the Python type."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [_name(parameter) for parameter in self.get_params(ctx) if _is_argument(parameter)]
        return [self.options_metavar or ""] + arguments

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        has_headings = len(parameters) > _UNGROUPED
        other_options = "Other options" if has_headings else "Options"
        sections: dict[str, list[tuple[str, str]]] = {}
        for heading in ("Arguments",) + HEADINGS + (other_options,):
            sections[heading] = []
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if _is_argument(parameter):
                sections["Arguments"].append((_name(parameter), record[1]))
                continue
            panel = getattr(parameter, "rich_help_panel", None)
            if panel is None or not has_headings:
                panel = other_options
            sections[panel].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class CommandGroup(_WithExample, TyperGroup):
    """A group whose help lists its commands by `rich_help_panel`, each with its complete description."""

    def descriptions(self) -> Iterator[Description]:
        """Yield the description of each command."""
        for name, command in self.commands.items():
            yield Description("Commands", name, command.get_short_help_str(limit=1000))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[Description]] = {}
        width = 0
        for description in self.descriptions():
            sections.setdefault(description.heading, []).append(description)
            width = max(width, len(description.name))
        for heading, commands in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(command.name.ljust(width), command.sentence) for command in commands])


def group(about: str | None, example: str) -> typer.Typer:
    """Return a group of commands; `about` is the docstring of its module."""
    return typer.Typer(
        cls=CommandGroup,
        add_completion=False,
        help=about,
        epilog=example,
        no_args_is_help=True,
        rich_markup_mode=None,
    )


def explained(app: typer.Typer, example: str, name: str | None = None) -> Callable[..., Any]:
    """Return a decorator that makes a function a command of a group, with an example in its help."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        add_to_app = app.command(name, cls=ExplainedCommand, epilog=example)
        return add_to_app(flattened(command))

    return add


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())
