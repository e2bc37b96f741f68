"""The command `help`: a page of the guide, the help of a command, or both of one name."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text
from rich.theme import Theme

from localjudge.cli.console import Console
from localjudge.errors import UsageError

GUIDE = Path(__file__).parent / "guide"
"""The folder of the pages."""
TOPICS = (
    "rows", "rubrics", "runs", "models", "engines", "compare", "labels", "audit", "pairs", "cluster", "airgap",
    "server", "rewards", "harnesses", "python", "hostile-text",
)  # fmt: skip
"""The topics in the order in which a newcomer needs them."""


def page(topic: str) -> str:
    """Return a topic's page in Markdown, without the comments that are for the tests."""
    text = (GUIDE / f"{topic}.md").read_text("utf-8")
    if topic == "rows":
        text = text.replace("<!-- shapes -->\n", _shapes())
    return re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE | re.DOTALL)


def _shapes() -> str:
    """Return a table of the shapes of records, from their declarations."""
    from localjudge.rows.shapes import shapes

    ordered = sorted(shapes().values(), key=lambda shape: shape.name)
    lines = ["| shape | what | recognized by | tested with |", "|---|---|---|---|"]
    for shape in ordered:
        columns = "`, `".join(shape.has[0])
        lines.append(f"| `{shape.name}` | {shape.title} | `{columns}` | {shape.writer or 'documentation'} |")
    return "".join(f"{line}\n" for line in lines)


def print_page(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="A topic, or a command.", show_default=False)
    ] = None,
) -> None:
    """Explain a topic, with commands to copy; without a topic, list the topics."""
    commands: Any = context.parent and context.parent.command
    if topic is None:
        print("Topics:")
        for name in TOPICS:
            first_line = page(name).partition("\n")[0]
            title = first_line.partition(": ")[2]
            print(f"  {name:<14}{title}")
        print("\nlocaljudge help TOPIC prints one, localjudge COMMAND --help a command's options.")
        return
    command = commands.get_command(context.parent, topic)
    if topic in TOPICS:
        _print_markdown(page(topic))
    elif command is None:
        raise UsageError(f"no topic {topic!r}; there are: {', '.join(TOPICS)}")
    if command is not None:
        with typer.Context(command, parent=context.parent, info_name=topic) as inner:
            if topic in TOPICS:
                print(f"\nThe command {topic}:\n")
            print(command.get_help(inner))


def _print_markdown(text: str) -> None:
    """Print Markdown: laid out for a terminal, as it is for a pipe or a file."""
    if not sys.stdout.isatty():
        print(text, end="")
        return
    console = Console()
    console.push_theme(Theme({"markdown.code": "bold", "markdown.table.header": "bold"}))
    for prose, code in re.findall(r"(.*?)(?:^```[^\n]*\n(.*?)^```\n|\Z)", text, re.MULTILINE | re.DOTALL):
        console.print(Padding(Markdown(prose, hyperlinks=False), (0, 0, 1, 0)))
        # The terminal wraps a long line of code, so that it is copied as one line.
        console.print(Text(code, style="green"), soft_wrap=True)
