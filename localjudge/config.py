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
from localjudge.rubrics.answer import AnswerLayout, AnswerSpelling
from localjudge.rubrics.rubric import Rubric

EngineName = Literal["auto", "transformers", "vllm", "server", "dry-run"]
OnOverflow = Literal["fail", "truncate-candidate"]

SHARED_SETTINGS = ("answer_spelling", "max_rationale_tokens", "temperature", "top_p", "seed", "on_overflow")
"""Names of settings that all starts of a run share, in the form that the user gives."""

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
    """The settings of a `JudgeConfig` as keyword arguments; `JudgeConfig` documents each."""

    rubric: Rubric | str | Path
    adapter: str | None
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
    """All settings that decide a judgement, validated once. `run.json` records them, so a run can be repeated.

    Attributes:
        model: a model directory, or the id of a model in the local hub cache; None for the small bundled model.
            With a server, the name of one of its models; None if it has only one.
        adapter: the directory of a LoRA adapter for the model; None for none.
        rubric: the prompt's template, the aspects and the scale; a rubric, the name of an included one, or its
            file.
        engine: the engine that runs the model; `auto` chooses vLLM if it is installed and there is a GPU, and
            never a server.
        engine_args: the engine's own options, by vLLM's names with underscores; each value as text.
        answer_spelling: the white space of an answer: `compact` has none, `spaced` has a space after each colon
            and comma, and `indented` is inside a Markdown fence, with a line for each key.
        max_rationale_tokens: the largest number of tokens of a rationale, at least 1.
        temperature: 0 picks the most likely token; above 0, tokens are sampled.
        top_p: the share of the probability mass to sample from, above 0 and up to 1.
        seed: seed of the sampling; each row draws its own random numbers from the seed and its content.
        thinking_budget: the largest number of tokens of thinking before the answer. None switches thinking off;
            a model that cannot answer without thinking gets 2048 tokens.
        keep_thoughts: keep the thinking in the judgements.
        on_overflow: the treatment of a row that does not fit the model's context: `fail` makes it a failure,
            and `truncate-candidate` removes as much of the candidate's end as necessary, but keeps at least one
            character.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    adapter: str | None = None
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
        """Validate settings given by name.

        Raises:
            SettingError: a setting has an invalid value; the message has its name, its value and valid values.
            RubricError: the rubric cannot be read or is inconsistent.
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
        """The settings that all starts of a run must share, as far as they are known without the model."""
        shared = self.model_dump(include=set(SHARED_SETTINGS), mode="json")
        # A model that always thinks has its own default budget.
        budget = {} if self.thinking_budget is None else {"thinking_budget": self.thinking_budget}
        return {"rubric": self.rubric.digest, **shared, **budget}

    @property
    def answer_layout(self) -> AnswerLayout:
        """The answer as the judge writes it.

        Raises:
            ValueError: the answer has no other spelling; the message says what to do.
        """
        return self.rubric.answer_layout.spelled(self.answer_spelling)

    @property
    def own(self) -> dict[str, Any]:
        """The other settings except the rubric; they may differ between starts of a run."""
        without = {"adapter"} if self.adapter is None else set()
        return self.model_dump(exclude={"rubric", *SHARED_SETTINGS, *without}, mode="json")

    def with_(self, **settings: Any) -> Self:
        """Return a copy with other settings, validated again."""
        return self.of(**{**dict(self), **settings})


def normalize_engine_args(options: Mapping[str, object]) -> dict[str, str]:
    """Normalize an engine's own options: names with underscores, and each value as text.

    Args:
        options: the options by name. Text is kept, other values are written as JSON, and None means that the
            option is not given. If an option is given in two spellings, the last one counts.

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
