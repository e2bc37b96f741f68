"""The commands, each with an example, in the order of the help. A command is built when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer

from localjudge.cli.help import explained

TOPICS: dict[str, dict[str, str]] = {
    "Every day": {
        "scoring.score": "score examples --out runs/first",
        "runs.show": "show runs/first --sort helpfulness --limit 5",
        "compare.compare": "compare runs/first runs/second --margin helpfulness=0.2",
        "runs.report": "report runs/first --out report.html",
    },
    "Statistics and people": {
        "trust.rank": "rank runs/first",
        "label.label": "label examples --sample 20 --out labels.jsonl",
        "trust.agree": "agree runs/first --labels labels.csv",
        "compare.sample_size": "sample-size --difference 0.2 --pilot runs/first",
        "trust.calibrate": "calibrate runs/first --labels labels.csv --out calibration.json",
        "escalate.escalate": "escalate runs/first --labels labels.csv --by helpfulness",
        "trust.jury": "jury runs/first runs/second --out runs/jury",
    },
    "Judge otherwise": {
        "scoring.prompt": "prompt examples --limit 1",
        "audit.audit": "audit examples --sample 10 --out runs/audit",
        "serve.serve": "serve --port 8700 --reward 'helpfulness_expected - 5*(safety < 3)'",
    },
    "Rubrics and models": {
        "rubrics.app": "rubrics init my-rubric.toml",
        "models.app": "models list",
        "doctor.doctor": "doctor --model bundled",
    },
    "Other tools and machines": {
        "runs.export": "export runs/first --to csv --out first.csv",
        "imports.import_scores": "import scores.csv --aspect helpfulness --out runs/imported",
        "runs.merge": "merge runs/part-1 runs/part-2 --out runs/whole",
        "pack.pack": "pack --out pack --extra cpu",
    },
    "Learn": {"guide.print_page": "help rubrics"},
}
"""The commands in the order of the help, by heading: where each is, and an example that works as typed."""


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
            self._made[name] = _made(name, function_of(where), f"localjudge {example}")
        return self._made[name]


def function_of(where: str) -> Any:
    """Return the function of a command, or the app of a group, by its module and its name."""
    module, _, name = where.partition(".")
    return getattr(import_module(f"localjudge.cli.{module}"), name)


def _made(name: str, found: Any, example: str) -> Any:
    """Return the command of a function, or the group of commands of an app."""
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    explained(one, example, name)(found)
    return typer.main.get_command(one)
