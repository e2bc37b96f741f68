"""Profiles of models that can judge: `models/profiles/NAME.toml`, one each.

A profile says what one wants to know before a model is fetched: its licence, how large it is, whether it
thinks and how it is told not to, what to beware of, and where these facts were found. Its `[config]` holds
the numbers of the model's own `config.json` that say how large it is, under their own names, so that a
profile and a directory are read by the same code. (`layer_types` may be written as `sliding_window_pattern`:
every how many layers one has no window.)
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from localjudge.errors import ModelError
from localjudge.models.configuration import shape_of
from localjudge.models.model import shipped_folder
from localjudge.models.shape import Shape


class Profile(BaseModel):
    """A model that can judge.

    Attributes:
        name: of the profile; that of its file, and the last part of the id in small letters.
        id: of the model's repository.
        licence: of its weights.
        parameters: in billions, as its model card has them, of its language model.
        active_parameters: those that one token meets; None where it meets all.
        thinking: whether it thinks before it answers: `never`, `optional` or `always`.
        thinking_switch: how its chat template is told not to think, or how much.
        thinking_end: what ends its thoughts.
        system_turn: whether its chat template has a turn for the system; where not, such text goes elsewhere.
        traps: what to beware of, the gravest first; each one line.
        checked: where these facts were found.
        config: numbers of its `config.json`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    licence: str = Field(min_length=1)
    parameters: float = Field(gt=0)
    active_parameters: float | None = Field(default=None, gt=0)
    thinking: Literal["never", "optional", "always"]
    thinking_switch: str = ""
    thinking_end: str = ""
    system_turn: bool
    traps: tuple[str, ...] = Field(strict=False)
    checked: str = Field(min_length=1)
    config: dict[str, Any]

    @property
    def shape(self) -> Shape:
        """What its weights and its cache are made of."""
        return shape_of(self.config, self.name)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if (self.thinking == "never") != (self.thinking_end == ""):
            raise ValueError(
                "a model that thinks ends its thoughts somehow, and only such a one (thinking_end)"
            )
        if self.thinking == "optional" and not self.thinking_switch:
            raise ValueError("thinking is optional, so say how it is switched off (thinking_switch)")
        if self.name != self.id.rpartition("/")[2].lower():
            raise ValueError(f"a profile of {self.id} is named {self.id.rpartition('/')[2].lower()}.toml")
        if any("\n" in trap or not trap for trap in self.traps):
            raise ValueError("each of the traps is one line")
        try:
            shape = self.shape
        except ModelError as error:
            raise ValueError(str(error)) from None
        if shape.context is None:
            raise ValueError("config names no max_position_embeddings")
        return self


@cache
def profiles() -> tuple[Profile, ...]:
    """All profiles, smallest model first.

    Raises:
        ModelError: this installation has none, or one does not hold together.
    """
    folder = shipped_folder("profiles")
    if folder is None:
        raise ModelError("the profiles of models are missing from this installation")
    found = []
    for file in folder.glob("*.toml"):
        try:
            document = tomllib.loads(file.read_text(encoding="utf-8"))
            found.append(Profile.model_validate({"name": file.stem, **document}))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ModelError(f"profile {file}: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise ModelError(f"profile {file}: {place + ': ' if place else ''}{message}") from None
    return tuple(sorted(found, key=lambda profile: (profile.parameters, profile.name)))


def find_profile(name: str) -> Profile | None:
    """The profile of this name or of the repository with this id, in any letter case; None without one."""
    wanted = name.lower()
    return next((each for each in profiles() if wanted in (each.name, each.id.lower())), None)
