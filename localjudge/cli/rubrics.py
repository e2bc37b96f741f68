"""List the included rubrics, show the content of one, start a new rubric."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localjudge.cli.commands import explained, group
from localjudge.cli.console import print_json
from localjudge.cli.messages import Messages
from localjudge.cli.options import AsJson, ChatTemplate, ModelName, RationalePlace, settle_environment
from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.durable import write_text

if TYPE_CHECKING:
    from localjudge.constraint.token_table import TokenTable
    from localjudge.rubrics.answer import AnswerLayout
    from localjudge.rubrics.rubric import Rubric

app = group(__doc__, "localjudge rubrics init my-rubric.toml")


@explained(app, "localjudge rubrics list", "list")
def list_rubrics(as_json: AsJson = False) -> None:
    """List the included rubrics."""
    from localjudge.rubrics.rubric import Rubric
    from localjudge.rubrics.rubric_file import shipped_rubrics

    included = [Rubric.load(name) for name in shipped_rubrics()]
    if as_json:
        print_json([rubric.model_dump(mode="json", exclude={"prompt"}) for rubric in included])
        return
    width = max(len(rubric.name) for rubric in included)
    for rubric in included:
        print(f"{rubric.name:<{width}}  {', '.join(rubric.aspects)}")
        description = rubric.description
        if rubric.needs_reference:
            description += " Needs a reference."
        print(f"    {description}")
    Messages().say("localjudge rubrics show NAME prints the values of the aspects and the prompt")


_SYSTEM = {
    None: "none",
    "turn": "a turn of its own",
    "user": "before the first turn of the user; this model's chat template has no turn of the system",
    "text": "first; this model has no chat template",
}

_Rubric = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="The name of an included rubric, or a TOML file.")
]


@explained(app, "localjudge rubrics show no-reference")
def show(
    rubric: _Rubric,
    as_json: AsJson = False,
) -> None:
    """Show a rubric: its aspects, its digest and its template.

    The digest is the SHA-256 of everything in the rubric that can change a score, without name and description.
    Runs with the same digest were judged with the same rubric.
    """
    from localjudge.rubrics.rubric import Rubric

    loaded = Rubric.load(rubric)
    if as_json:
        print_json(loaded.model_dump(mode="json") | {"digest": loaded.digest})
        return
    properties = {
        "rubric": loaded.name,
        "description": loaded.description or "(none)",
        "aspects": _aspects_line(loaded),
        "reference": "needed" if loaded.needs_reference else "not needed",
        "empty candidate": "is judged" if loaded.prompt.empty_candidate == "judge" else "is a failure",
        "guard": "on" if loaded.prompt.guard else "off",
        "system prompt": loaded.prompt.system or "(none)",
        "digest": loaded.digest,
        "template digest": loaded.template_digest,
    }
    for heading, text in properties.items():
        _print_property(heading, text)
    print("\ntemplate")
    print(loaded.prompt.template)


def _aspects_line(rubric: Rubric) -> str:
    """Return the aspects of a rubric with their values, in a line."""
    return "; ".join(f"{name} ({aspect})" for name, aspect in rubric.aspects.items())


def _print_property(heading: str, text: str) -> None:
    print(f"{heading:<16} {text}")


@explained(app, "localjudge rubrics check my-rubric.toml")
def check(
    rubric: _Rubric,
    model: ModelName = None,
    chat_template: ChatTemplate = None,
    rationale: RationalePlace = None,
) -> None:
    """Check a rubric: what it asks for, what its answer takes, and what looks wrong.

    Tokens and probabilities depend on the model's tokenizer. The exit code is 1 if something looks wrong.
    """
    from localjudge.judge import Judge
    from localjudge.rubrics.aspect import answer_format
    from localjudge.rubrics.rubric import Rubric

    settle_environment()
    loaded = Rubric.load(rubric, rationale=rationale)
    judge = Judge(model, rubric=loaded, chat_template=chat_template)
    table = judge.decoding.table
    layout = loaded.answer_layout
    tokens_before, tokens_after = judge.task_builder.tokens_around
    properties = {
        "rubric": loaded.name,
        "fields": ", ".join(loaded.fields),
        "aspects": _aspects_line(loaded),
        "system prompt": _SYSTEM[judge.prompts.system_place],
        "prompt": (
            f"{tokens_before} tokens before the first field, and {tokens_after} after the response, "
            "besides the fields"
        ),
        "answer": answer_format(layout, loaded.aspects),
        "tokens": _needed_tokens(table.smallest_limit, texts=len(layout.texts)),
        "probabilities": _probabilities_line(layout, table),
    }
    for heading, text in properties.items():
        _print_property(heading, text)
    slow_order = judge.task_builder.order_hint()
    if slow_order:
        _print_property("slow", slow_order)
    for problem in loaded.problems:
        _print_property("looks wrong", problem)
    if loaded.problems:
        raise typer.Exit(1)


def _needed_tokens(smallest_limit: int, *, texts: int) -> str:
    """Return how many tokens an answer takes with this number of texts, such as rationales."""
    line = f"{smallest_limit} at least"
    if texts == 1:
        line += ", and up to --max-rationale-tokens for the text"
    elif texts > 1:
        line += f", and up to --max-rationale-tokens for each of {texts} texts"
    return line


def _probabilities_line(layout: AnswerLayout, table: TokenTable) -> str:
    """Return of which aspects a judgement has probabilities, and what those with common first tokens cost."""
    from localjudge.constraint.value_paths import ValuePaths

    most_tokens = ValuePaths(table).most_branches
    ambiguous = []
    for value_field, is_decided in zip(layout.values, table.first_token_decides, strict=True):
        if not is_decided:
            ambiguous.append(value_field.name)
    if not ambiguous:
        return "of every aspect"
    return (
        f"of every aspect; values of {', '.join(ambiguous)} share first tokens, so the model computes up to "
        f"{most_tokens} tokens more an answer, as far as they matter; a server gives none"
    )


@explained(app, "localjudge rubrics init my-rubric.toml")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    *,
    start: Annotated[
        str | None, Flag("Copy this included rubric.  [default: a commented one]", "NAME", name="--from")
    ] = None,
) -> None:
    """Write a commented rubric as a template; `--rubric FILE` accepts it unchanged."""
    from localjudge.rubrics.rubric_file import shipped_rubrics

    included = shipped_rubrics()
    if start is not None and start not in included:
        raise UsageError(f"--from {start}: is not an included rubric; give one of {', '.join(included)}")
    source = "starting_rubric.txt" if start is None else f"{start}.toml"
    text = (files("localjudge") / "rubrics" / source).read_text(encoding="utf-8")
    if file.exists():
        raise UsageError(f"{file}: exists already; give the name of a new file")
    try:
        write_text(file, text)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
    Messages().say(f"{file} · edit it, then: localjudge score ROWS --rubric {file} --out DIR")
