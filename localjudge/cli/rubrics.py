"""The commands `rubrics`: those that are included, what one holds, and a file to start one's own from."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.help import ExplainedCommand, group_that_lists
from localjudge.cli.options import AsJson, print_json, print_table
from localjudge.errors import UsageError


def list_rubrics(as_json: AsJson = False) -> None:
    """List the rubrics that are included; `rubrics` alone does the same."""
    from rich import box
    from rich.table import Table

    from localjudge.rubrics.rubric import Rubric, shipped_rubrics

    included = [Rubric.load(name) for name in shipped_rubrics()]
    if as_json:
        print_json([rubric.model_dump(mode="json", exclude={"prompt"}) for rubric in included])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rubric", no_wrap=True)
    for heading in ("scale", "reference"):
        table.add_column(heading, no_wrap=True)
    table.add_column("aspects")
    table.add_column("description")
    for rubric in included:
        ends = f"{rubric.scale.lowest}-{rubric.scale.highest}"
        needed = "needed" if rubric.needs_reference else "no"
        table.add_row(rubric.name, ends, needed, ", ".join(rubric.aspects), rubric.description)
    print_table(table)


app = group_that_lists(
    "rubrics",
    list_rubrics,
    "List the rubrics that are included, show what one holds, start a rubric of your own.",
    "localjudge rubrics init my-rubric.toml",
)


@app.command(cls=ExplainedCommand, epilog="localjudge rubrics show no-reference")
def show(
    rubric: Annotated[
        str,
        typer.Argument(metavar="NAME|FILE", help="An included rubric's name, or a TOML file."),
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a rubric holds: its aspects, its scale, its digest and its template.

    The digest is the SHA-256 of everything in the rubric that can change a score; name and description are not
    part of it. Runs with the same digest were judged by the same rubric.
    """
    from localjudge.rubrics.rubric import Rubric

    found = Rubric.load(rubric)
    if as_json:
        print_json(found.model_dump(mode="json") | {"digest": found.digest})
        return
    for heading, said in {
        "rubric": found.name,
        "description": found.description or "(none)",
        "aspects": ", ".join(found.aspects),
        "scale": f"{found.scale.lowest} to {found.scale.highest}",
        "reference": "needed" if found.needs_reference else "not needed",
        "empty candidate": "is judged" if found.prompt.empty_candidate == "judge" else "is a failure",
        "guard": "on" if found.prompt.guard else "off",
        "digest": found.digest,
        "template digest": found.template_digest,
    }.items():
        print(f"{heading:<16} {said}")
    print("\ntemplate")
    print(found.prompt.template)


@app.command(cls=ExplainedCommand, epilog="localjudge rubrics init my-rubric.toml")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
) -> None:
    """Write a rubric with comments to start from, which `--rubric FILE` accepts as it is."""
    text = (files("localjudge") / "rubrics" / "starting_rubric.txt").read_bytes()
    try:
        with file.open("xb") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{file}: exists already; give the name of a new file") from None
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
    print(f"{file} · edit it, then: localjudge score ROWS --rubric {file} --out DIR", file=sys.stderr)
