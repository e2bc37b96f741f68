"""The settings of a judge that a flag gives as they are. Each is declared once, here.

The flag, its check, its help and the record in `run.json` follow from the field: `JudgeConfig` has it, the
command line makes an option of it (`cli/options.py`), and `RunSettings` records it if all starts of a run share
it. A judge reads it as `config.NAME`. These classes import no pydantic, so that the help answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from localjudge.given_template import GivenTemplate

EngineName = Literal["auto", "vllm", "transformers", "server", "dry-run"]
OnOverflow = Literal["fail", "truncate-candidate"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of the command line, which gives a setting or another option of a command.

    Attributes:
        help: what it means.
        metavar: the form of its value; None if it has a few values, or is on or off.
        heading: the heading of the help under which it stands; None for the last one.
        advice: for a setting, what to give instead of a value that it cannot have.
        name: how it is spelled; None for the name of the setting or of the parameter with dashes.
        least: the smallest number that the command line accepts; a setting has its limits in its type.
        most: the largest one.
    """

    help: str
    metavar: str | None = None
    heading: str | None = None
    advice: str = ""
    name: str | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class PromptSettings:
    """Settings that decide a prompt, and the answer that it asks for."""

    max_rationale_tokens: Annotated[
        int,
        Ge(1),
        Flag("The largest number of tokens of a rationale.", "N", "Answers", "the smallest that works is 1"),
    ] = 256
    thinking_budget: Annotated[
        int | None,
        Ge(0),
        Flag("Let a reasoning model think for up to N tokens.", "N", "Answers", "give 0 or more"),
    ] = None
    """None switches thinking off; a model that cannot answer without thinking gets 2048 tokens."""
    chat_template: Annotated[
        GivenTemplate | None,
        Flag(
            "Use this chat template instead of the model's own, or none for a base model.",
            "FILE|none",
            "Rubric and prompt",
            "give the file of a chat template, or none",
        ),
    ] = None
    """A file is read once; the run has its text. Servers apply a template of their own."""
    template_args: Annotated[
        dict[str, Any] | None,
        Flag(
            "A variable of the model's chat template, such as reasoning_effort=low.",
            "NAME=VALUE",
            "Rubric and prompt",
            name="--template-arg",
        ),
    ] = None
    """Values are JSON; other text is itself. Servers get these variables, too."""
    on_overflow: Annotated[
        OnOverflow,
        Flag("What to do with a row that is longer than the model's context.", heading="Rubric and prompt"),
    ] = "fail"
    """`fail` makes the row a failure, and `truncate-candidate` removes as much of the candidate's end as
    necessary, but keeps at least one character."""
    max_result_tokens: Annotated[
        int | None,
        Ge(0),
        Flag(
            "Cut the middle of tool results of more than N tokens.", "N", "Rubric and prompt", "give 0 or more"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SharedSettings(PromptSettings):
    """Settings that all starts of a run share. They identify the run, and `run.json` records them."""

    temperature: Annotated[
        float, Ge(0), Lt(inf), Flag("0 picks the most likely token.", "T", "Answers", "give 0 or more")
    ] = 0.0
    top_p: Annotated[
        float,
        Gt(0),
        Le(1),
        Flag(
            "The share of the probability mass to sample from.",
            "P",
            "Answers",
            "give a share above 0 and up to 1",
        ),
    ] = 1.0
    seed: Annotated[int, Flag("The seed of the sampling.", "S", "Answers", "give a whole number")] = 0
    """Each row draws its own random numbers from the seed and its content."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class JudgeSettings(SharedSettings):
    """All settings that a flag gives as they are. Starts of a run may differ in those that this class adds."""

    model: Annotated[
        str | None,
        Flag(
            "A model directory, or the id of a model in the local cache.  [default: the small bundled model]",
            "PATH_OR_ID",
            "Model",
        ),
    ] = None
    """On a server, the name of one of its models; None if it has only one."""
    engine: Annotated[EngineName, Flag("The engine that runs the model.", heading="Engine")] = "auto"
    """`auto` chooses vLLM if it is installed and there is a GPU, and never a server."""
    keep_thoughts: Annotated[bool, Flag("Keep the model's thoughts.", heading="Answers")] = False


def flag_of(annotation: Any) -> Flag | None:
    """Return the flag in the annotation of a setting or a parameter; None without one."""
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, Flag):
            return metadata
    return None


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the values of a setting that has only a few, from the annotation of its field; else nothing."""
    type_of_setting = getattr(annotation, "__origin__", annotation)
    if get_origin(type_of_setting) is not Literal:
        return ()
    return get_args(type_of_setting)
