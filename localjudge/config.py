"""All settings of a judge: everything that decides a judgement besides the row and the model's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
)

from localjudge.errors import SettingError, UsageError
from localjudge.given_template import GivenTemplate
from localjudge.rubrics.rubric import Rubric
from localjudge.secret_options import masked_options
from localjudge.settings import JudgeSettings, SharedSettings, choices, flag_of

SHARED = frozenset(SharedSettings.__dataclass_fields__)
"""The names of the settings that all starts of a run share."""


class JudgeConfig(BaseModel, JudgeSettings, frozen=True):
    """All settings that decide a judgement, validated once. `run.json` records them, so a run can be repeated.

    Attributes:
        rubric: the prompt's template, the aspects and the scale; a rubric, the name of an included one, or its
            file.
        engine_args: the engine's own options, by vLLM's names with underscores; each value as text.

    `localjudge.settings` has the others: `model`, `engine`, `temperature` …
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    rubric: Rubric = Field(default_factory=Rubric.load)
    engine_args: dict[str, str] = Field(default_factory=dict, repr=False)

    @classmethod
    def from_settings(cls, **settings: Any) -> Self:
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
            advice = _advice(name)
            if not advice:
                advice = first["msg"].removeprefix("Value error, ")
            raise SettingError(name, first["input"], advice) from None

    @field_validator("rubric", mode="before")
    @classmethod
    def _load(cls, rubric: Any) -> Any:
        if isinstance(rubric, str | Path):
            return Rubric.load(rubric)
        return rubric

    @field_validator("engine_args", mode="before")
    @classmethod
    def _normalize(cls, options: Any) -> Any:
        return normalize_engine_args(options)

    @field_validator("chat_template", mode="before")
    @classmethod
    def _read_template(cls, template: Any) -> Any:
        if isinstance(template, str | Path):
            return GivenTemplate.read(template)
        return template

    @field_serializer("chat_template")
    def _template_identity(self, template: GivenTemplate | None) -> str | None:
        if template is None:
            return None
        return template.identity

    @field_validator("template_args", mode="before")
    @classmethod
    def _read_variables(cls, variables: Any, info: ValidationInfo) -> Any:
        if not variables:
            return None
        return template_variables(variables, info.data.get("thinking_budget"))

    @property
    def run_identity(self) -> dict[str, Any]:
        """The settings that all starts of a run must share, as far as they are known without the model.

        `thinking_budget` is left out unless it is given: a model that always thinks has a default of its own.
        """
        names = set(SHARED)
        if self.thinking_budget is None:
            names.remove("thinking_budget")
        return {"rubric": self.rubric.digest, **self.model_dump(include=names, mode="json")}

    @property
    def per_start_settings(self) -> dict[str, Any]:
        """The settings that may differ between starts, without the rubric; and `thinking_budget` as given.

        The engine's options have no secrets (`localjudge.secret_options`).
        """
        others = set(SHARED - {"thinking_budget"}) | {"rubric"}
        settings = self.model_dump(exclude=others, mode="json")
        settings["engine_args"] = masked_options(self.engine_args)
        return settings

    def replace(self, **settings: Any) -> Self:
        """Return a copy with other settings, validated again."""
        return self.from_settings(**{**dict(self), **settings})


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


# What the renderer of chat templates sets itself.
_RENDERED = {
    "messages", "conversations", "chat_template", "add_generation_prompt", "continue_final_message",
    "return_assistant_tokens_mask", "strftime_now",
}  # fmt: skip
# Variables that say whether the model thinks.
_THINKING = ("enable_thinking", "thinking", "thinking_budget")


def template_variables(
    variables: Mapping[str, Any] | Sequence[str], thinking_budget: int | None
) -> dict[str, JsonValue]:
    """Return variables of a chat template by name.

    Args:
        variables: the variables, or `NAME=VALUE` for each, whose value is JSON, or else text.
        thinking_budget: the setting, which these variables must not contradict.

    Raises:
        SettingError: a variable has no name or no value, or is not one that a judge may set.
    """
    if not isinstance(variables, Mapping):
        variables = dict(map(_variable, variables))
    for name, value in variables.items():
        reason = _refusal(name, value, thinks=thinking_budget is not None)
        if reason is not None:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            raise SettingError("template_args", f"{name}={text}", reason)
    return dict(variables)


def _refusal(name: str, value: Any, *, thinks: bool) -> str | None:
    """Return why a variable of a chat template cannot be set; None if it can.

    Args:
        name: its name.
        value: its value.
        thinks: whether the model is let think, by `thinking_budget`.
    """
    if not name.isidentifier() or name in _RENDERED:
        return "is not a variable that a judge may set; leave it out"
    if not _is_json(value) or value in ("True", "False", "None"):
        return "give true, false, null, a number or other text"
    if name not in _THINKING or bool(value) == thinks:
        return None
    setting = "`thinking_budget`, which lets the model think up to a limit"
    if value:
        return f"give {setting}"
    return f"contradicts {setting}; leave one of them out"


def _variable(option: str) -> tuple[str, JsonValue]:
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise SettingError("template_args", option, "write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _advice(name: str) -> str | None:
    """Return what to give instead of a wrong value of a setting; None if that is not known."""
    if name not in JudgeConfig.model_fields:
        return f"is not a setting; give one of {', '.join(JudgeConfig.model_fields)}"
    annotation = get_type_hints(JudgeSettings, include_extras=True).get(name)
    values = choices(annotation)
    if values:
        return f"give {', '.join(values[:-1])} or {values[-1]}"
    flag = flag_of(annotation)
    if flag is None:
        return None
    return flag.advice
