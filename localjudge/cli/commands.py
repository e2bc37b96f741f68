"""The commands, each with an example, in the order of the help, and the format of the help.

The module of a command is loaded when it is used, and its functions import what they need: help and
completion answer at once. The help is plain text, equal in a terminal, a pipe and a log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from localjudge.cli.options import HEADINGS, flattened

TOPICS: dict[str, dict[str, str]] = {
    "Every day": {
        "scoring.score": "score examples --out runs/first",
        "show.show": "show runs/first --sort helpfulness --limit 5",
        "compare.compare": "compare runs/first runs/second --margin helpfulness=0.2",
        "runs.report": "report runs/first --out report.html",
    },
    "Statistics and people": {
        "trust.rank": "rank runs/first",
        "serve.label": "label examples --sample 20 --out labels.jsonl",
        "trust.agree": "agree runs/first --labels labels.csv",
        "compare.sample_size": "sample-size --difference 0.2 --pilot runs/first",
        "trust.calibrate": "calibrate runs/first --labels labels.csv --out calibration.json",
        "audit.escalate": "escalate runs/first --labels labels.csv --by helpfulness",
        "trust.jury": "jury runs/first runs/second --out runs/jury",
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
"""The commands in the order of the help, by heading: where each is, and an example that works as typed.

A place is a module and a function, or the module of a group of commands.
"""


class AllCommands(Mapping[str, Any]):
    """The commands by their names. A command is built at its first use, because a process uses few of them."""

    def __init__(self) -> None:
        self._examples = {
            example.split()[0]: (where, example)
            for commands in TOPICS.values()
            for where, example in commands.items()
        }
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._examples)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            where, example = self._examples[name]
            module, _, function = where.partition(".")
            found = getattr(import_module(f"localjudge.cli.{module}"), function or "app")
            if function:
                app = typer.Typer(add_completion=False, rich_markup_mode=None)
                explained(app, f"localjudge {example}", name)(found)
                found = app
            self._made[name] = typer.main.get_command(found)
            self._made[name].name = name
        return self._made[name]


def descriptions() -> Iterator[tuple[str, str, str]]:
    """Yield the heading, the name and the first sentence of each command, without loading its module."""
    for heading, commands in TOPICS.items():
        for where, example in commands.items():
            module, _, function = where.partition(".")
            found = [each for each in _parsed(module).body if getattr(each, "name", None) == function]
            text = ast.get_docstring(found[0] if function else _parsed(module)) or ""  # type: ignore[arg-type]
            yield heading, example.split()[0], " ".join(text.split()).partition(". ")[0].rstrip(".") + "."


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(Path(__file__).with_name(f"{module}.py").read_text("utf-8"))


_SETTING = re.compile("`([a-z_]+)`")


def in_flags(text: str) -> str:
    """Return a text with the flag of each setting that it names in backquotes: `top_p` becomes --top-p.

    The rest of the package names settings as Python programs know them.
    """
    return _SETTING.sub(lambda named: _flags().get(named[1], named[0]), text)


@cache
def _flags() -> Mapping[str, str]:
    """Return the flag of each parameter of a command, by the parameter's name."""
    commands, found = [*AllCommands().values()], dict[str, str]()
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        options = (each for each in command.params if each.param_type_name == "option")
        found |= {option.name: max(option.opts, key=len) for option in options}
    return found


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
        return [
            self.options_metavar or "",
            *(_name(each) for each in self.get_params(ctx) if _is_argument(each)),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        has_headings = len(parameters) > _UNGROUPED
        rest = "Other options" if has_headings else "Options"
        sections: dict[str, list[tuple[str, str]]] = {
            "Arguments": [],
            **{each: [] for each in HEADINGS},
            rest: [],
        }
        for parameter in parameters:
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            if _is_argument(parameter):
                sections["Arguments"].append((_name(parameter), record[1]))
            else:
                heading = getattr(parameter, "rich_help_panel", None) if has_headings else None
                sections[heading or rest].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class CommandGroup(_WithExample, TyperGroup):
    """A group whose help lists its commands by `rich_help_panel`, each with its complete description."""

    def descriptions(self) -> Iterator[tuple[str, str, str]]:
        """Yield the heading, the name and the first sentence of each command."""
        for name, command in self.commands.items():
            yield "Commands", name, command.get_short_help_str(limit=1000)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for heading, name, description in self.descriptions():
            sections.setdefault(heading, []).append((name, description))
        width = max((len(name) for records in sections.values() for name, _ in records), default=0)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), description) for name, description in records])


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
    return lambda command: app.command(name, cls=ExplainedCommand, epilog=example)(flattened(command))


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())
