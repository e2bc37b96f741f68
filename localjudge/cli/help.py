"""The format of the commands' help: commands in groups, complete descriptions, and an example for each command.

The help is plain text, so that it does not import Rich and is equal in a terminal, a pipe and a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from localjudge.cli.options import HEADINGS, AsJson, flattened
from localjudge.errors import UsageError

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


def group_that_lists(name: str, listing: Callable[[bool], None], about: str, example: str) -> typer.Typer:
    """Return a group of commands with the command `list`; the group alone does the same.

    Args:
        name: the group's name.
        listing: the command `list`; its argument says whether to print JSON.
        about: the group's own help.
        example: the group's own example.
    """
    app = typer.Typer(
        cls=CommandGroup,
        add_completion=False,
        help=about,
        epilog=example,
        no_args_is_help=False,
        invoke_without_command=True,
        rich_markup_mode=None,
    )

    @app.callback()
    @flattened
    def group(context: typer.Context, as_json: AsJson = False) -> None:
        if context.invoked_subcommand is None:
            listing(as_json)
        elif as_json:
            raise UsageError(f"{name} --json {context.invoked_subcommand}: write --json after the command")

    explained(app, f"localjudge {name} list", "list")(listing)
    return app


def explained(app: typer.Typer, example: str, name: str | None = None) -> Callable[..., Any]:
    """Return a decorator that makes a function a command of a group, with an example in its help."""
    return lambda command: app.command(name, cls=ExplainedCommand, epilog=example)(flattened(command))


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())
