"""List the included rubrics, show the content of one, start a new rubric."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from localjudge.cli.commands import explained, group
from localjudge.cli.console import print_json
from localjudge.cli.messages import Messages
from localjudge.cli.options import AsJson, ChatTemplate, ModelName, RationalePlace, settle_environment
from localjudge.errors import UsageError
from localjudge.settings import Flag
from localjudge.system.durable import write_text

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
        print(f"    {rubric.description}" + " Needs a reference." * rubric.needs_reference)
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

    found = Rubric.load(rubric)
    if as_json:
        print_json(found.model_dump(mode="json") | {"digest": found.digest})
        return
    for heading, said in {
        "rubric": found.name,
        "description": found.description or "(none)",
        "aspects": "; ".join(f"{name} ({aspect})" for name, aspect in found.aspects.items()),
        "reference": "needed" if found.needs_reference else "not needed",
        "empty candidate": "is judged" if found.prompt.empty_candidate == "judge" else "is a failure",
        "guard": "on" if found.prompt.guard else "off",
        "system prompt": found.prompt.system or "(none)",
        "digest": found.digest,
        "template digest": found.template_digest,
    }.items():
        print(f"{heading:<16} {said}")
    print("\ntemplate")
    print(found.prompt.template)


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
    from localjudge.constraint.value_paths import ValuePaths
    from localjudge.judge import Judge
    from localjudge.rubrics.aspect import answer_format
    from localjudge.rubrics.rubric import Rubric

    settle_environment()
    found = Rubric.load(rubric, rationale=rationale)
    judge = Judge(model, rubric=found, chat_template=chat_template)
    table = judge.decoding.table
    layout = found.answer_layout
    decided = zip(layout.values, table.first_token_decides, strict=True)
    asked = [field.name for field, known in decided if not known]
    most = ValuePaths(table).most_branches
    texts = len(layout.texts)
    first, behind = judge.task_builder.tokens_around
    for heading, said in {
        "rubric": found.name,
        "fields": ", ".join(found.fields),
        "aspects": "; ".join(f"{name} ({aspect})" for name, aspect in found.aspects.items()),
        "system prompt": _SYSTEM[judge.prompts.system_place],
        "prompt": f"{first} tokens before the first field, and {behind} after the response, besides the fields",
        "answer": answer_format(layout, found.aspects),
        "tokens": f"{table.smallest_limit} at least"
        + (f", and up to --max-rationale-tokens for {_counted(texts, 'text')}" if texts else ""),
        "probabilities": "of every aspect"
        + (
            f"; values of {', '.join(asked)} share first tokens, so the model computes up to {most} tokens "
            "more an answer, as far as they matter; a server gives none"
            if asked
            else ""
        ),
    }.items():
        print(f"{heading:<16} {said}")
    if hint := judge.task_builder.order_hint():
        print(f"{'slow':<16} {hint}")
    for problem in found.problems:
        print(f"{'looks wrong':<16} {problem}")
    if found.problems:
        raise typer.Exit(1)


def _counted(number: int, noun: str) -> str:
    return f"the {noun}" if number == 1 else f"each of {number} {noun}s"


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

    if start not in (None, *(included := shipped_rubrics())):
        raise UsageError(f"--from {start}: is not an included rubric; give one of {', '.join(included)}")
    source = f"{start}.toml" if start else "starting_rubric.txt"
    text = (files("localjudge") / "rubrics" / source).read_text(encoding="utf-8")
    if file.exists():
        raise UsageError(f"{file}: exists already; give the name of a new file")
    try:
        write_text(file, text)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
    Messages().say(f"{file} · edit it, then: localjudge score ROWS --rubric {file} --out DIR")
