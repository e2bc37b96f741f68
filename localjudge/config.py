"""The settings of a judge: everything that decides a judgement besides the row and the model's files.

A new setting is added here, in `JudgeSettings` and in `JudgeConfig`, as a flag in `cli/judge_options.py`, and
where it takes effect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypedDict, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from localjudge.errors import SettingError, UsageError
from localjudge.rubrics.answer import AnswerSpelling
from localjudge.rubrics.rubric import Rubric

EngineName = Literal["auto", "transformers", "vllm", "dry-run"]
OnOverflow = Literal["fail", "truncate-candidate"]

SHARED_SETTINGS = ("answer_spelling", "max_rationale_tokens", "temperature", "top_p", "seed", "on_overflow")
"""Settings that two starts of one run share, as they are given."""

_ADVICE = {
    "engine": f"give one of {', '.join(get_args(EngineName))}",
    "answer_spelling": "give compact, spaced or indented",
    "max_rationale_tokens": "the smallest that works is 1",
    "temperature": "give 0 or more",
    "top_p": "give a share above 0 and up to 1",
    "thinking_budget": "give 0 or more",
    "on_overflow": "give fail or truncate-candidate",
}


class JudgeSettings(TypedDict, total=False):
    """The settings of a `JudgeConfig` as keyword arguments; `JudgeConfig` says what each means."""

    rubric: Rubric | str | Path
    engine: str
    engine_args: Mapping[str, object]
    answer_spelling: str
    max_rationale_tokens: int
    temperature: float
    top_p: float
    seed: int
    thinking_budget: int | None
    keep_thoughts: bool
    on_overflow: str


class JudgeConfig(BaseModel):
    """Every setting that decides a judgement, validated once. `run.json` keeps it, for a run to be repeated.

    Attributes:
        model: a model directory, the id of a model in the local hub cache; None is the small bundled one.
        rubric: the prompt's template, the aspects and the scale; given as a rubric, the name of one that ships,
            or its file.
        engine: what runs the model; `auto` is vLLM where it is installed and there is a GPU.
        engine_args: the engine's own options, by vLLM's names with underscores; each value as text.
        answer_spelling: the white space of an answer: `compact` has none, `spaced` has a space after each colon
            and comma, and `indented` is inside a Markdown fence, with a line for each key.
        max_rationale_tokens: the most tokens of a rationale, 1 or more.
        temperature: 0 takes the likeliest token; above 0, tokens are sampled.
        top_p: the share of the probability to sample from, above 0 and up to 1.
        seed: seed of the sampling; each row draws its own random numbers from the seed and its content.
        thinking_budget: the most tokens of thinking before the answer. None asks the model not to think; one
            that cannot answer without thinking gets 2048.
        keep_thoughts: keep the thinking in the judgements.
        on_overflow: what becomes of a row that does not fit the model's context: `fail`, or
            `truncate-candidate`, which leaves out as much of the candidate's end as it must and keeps at least
            one character.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    rubric: Rubric = Field(default_factory=Rubric.load)
    engine: EngineName = "auto"
    engine_args: dict[str, str] = Field(default_factory=dict)
    answer_spelling: AnswerSpelling = "compact"
    max_rationale_tokens: Annotated[int, Field(ge=1, strict=True)] = 256
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: int = 0
    thinking_budget: Annotated[int, Field(ge=0, strict=True)] | None = None
    keep_thoughts: bool = False
    on_overflow: OnOverflow = "fail"

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Validate settings given by their names.

        Raises:
            SettingError: a setting cannot be used; the message has its name and value, and what to give.
            RubricError: the rubric cannot be read or does not hold together.
        """
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise SettingError(name, first["input"], _ADVICE.get(name, first["msg"])) from None

    @field_validator("rubric", mode="before")
    @classmethod
    def _load(cls, rubric: Any) -> Any:
        return Rubric.load(rubric) if isinstance(rubric, str | Path) else rubric

    @field_validator("engine_args", mode="before")
    @classmethod
    def _normalize(cls, options: Any) -> Any:
        return normalize_engine_args(options)

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that two starts of one run must share, as far as they are known without the model."""
        shared = self.model_dump(include=set(SHARED_SETTINGS), mode="json")
        # A model that always thinks has a budget of its own.
        budget = {} if self.thinking_budget is None else {"thinking_budget": self.thinking_budget}
        return {"rubric": self.rubric.digest, **shared, **budget}

    @property
    def own(self) -> dict[str, Any]:
        """The other settings, the rubric aside: starts of one run may differ in them."""
        return self.model_dump(exclude={"rubric", *SHARED_SETTINGS}, mode="json")

    def with_(self, **settings: Any) -> Self:
        """Return a copy with other settings, validated again."""
        return self.of(**{**dict(self), **settings})


def normalize_engine_args(options: Mapping[str, object]) -> dict[str, str]:
    """Give one form to an engine's own options: names with underscores, and each value as text.

    Args:
        options: text as it is, any other value as JSON writes it; None is an option that is not given. Of two
            spellings of one option the later one counts.

    Raises:
        UsageError: a value cannot be written as JSON.
    """
    normalized: dict[str, str] = {}
    for name, value in options.items():
        try:
            text = value if isinstance(value, str) else json.dumps(value)
        except (TypeError, ValueError):
            raise UsageError(f"engine option {name}: give text, a number or true or false") from None
        if value is not None:
            normalized[name.replace("-", "_")] = text
    return normalized
