"""The known models that can judge, and the folders that are part of the package.

A known model has a profile, a file of its own, `models/profiles/NAME.toml`. It lists the facts to know before a
model is downloaded: its licence, its size, whether it thinks and how to switch that off, known problems, and
the sources of these facts. Its `[config]` has the numbers of the model's `config.json` that determine its size,
with the same names, so that the same code reads profiles and directories. (`layer_types` can be given as
`sliding_window_pattern`: one layer in this many has no window.)
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from localjudge.errors import ModelError
from localjudge.models.dimensions import ModelDimensions, dimensions_of

BUNDLED = "bundled"
"""The name of the model that is part of the package."""

_REAL_JUDGE = (
    "Give a real judge with --model, a model directory or an id in the local cache, such as "
    "--model Qwen/Qwen3-8B"
)
BUNDLED_NOTICE = (
    "These scores come from the small bundled model. It only compares words: which words of the reference "
    "the response keeps, changes or omits, and how it is written. Use its scores to try the program, not as "
    f"results.\n{_REAL_JUDGE}"
)
BUNDLED_RUBRIC_NOTICE = (
    "These scores come from the small bundled model. It was trained for the prompt of just-eval alone; its "
    "scores and rationales by any other prompt mean nothing. Use them only to try the program.\n"
    f"{_REAL_JUDGE}"
)


def shipped_folder(name: str) -> Path | None:
    """Return `models/NAME` of the checkout or its copy in the installed package; None if neither exists."""
    package = Path(__file__).parents[1]
    for folder in (package / "_models" / name, package.parent / "models" / name):
        if folder.is_dir():
            return folder
    return None


def model_path(name: str | Path) -> Path:
    """Return a model's name as a path; `~` stays if there is no known home folder."""
    return Path(os.path.expanduser(name))


def bundled_folder() -> Path:
    """Return the directory of the bundled model.

    Raises:
        ModelError: it is missing from this installation.
    """
    folder = shipped_folder(BUNDLED)
    if folder is None or not (folder / "config.json").is_file():
        raise ModelError("the bundled model is missing from this installation; give another with --model")
    return folder


class Profile(BaseModel):
    """A model that can judge.

    Attributes:
        name: name of the profile and of its file: the last part of the id in lower case.
        id: id of the model's repository.
        licence: licence of its weights.
        parameters: billions of parameters of its language model, as in its model card.
        active_parameters: billions that one token uses; None if it uses all.
        weight_bytes: bytes of its published weights.
        thinking: whether it thinks before it answers: `never`, `optional` or `always`.
        thinking_switch: how to switch thinking off, or limit it, in its chat template.
        thinking_end: the text that ends its thoughts.
        system_turn: whether its chat template has a system turn.
        too_small: whether it is too small for its scores to be results.
        traps: known problems, the most serious first; one line each.
        checked: the sources of these facts.
        config: numbers of its `config.json`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    licence: str = Field(min_length=1)
    parameters: float = Field(gt=0)
    active_parameters: float | None = Field(default=None, gt=0)
    weight_bytes: int = Field(gt=0)
    thinking: Literal["never", "optional", "always"]
    thinking_switch: str = ""
    thinking_end: str = ""
    system_turn: bool
    too_small: bool = False
    traps: tuple[str, ...] = Field(strict=False)
    checked: str = Field(min_length=1)
    config: dict[str, Any]

    @property
    def dimensions(self) -> ModelDimensions:
        """Dimensions of the model: the sizes of its cache and its activations."""
        return dimensions_of(self.config, self.name)

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of its weights in its dtype."""
        dimensions = self.dimensions
        if dimensions.quantization is None:
            return self.weight_bytes
        return int(self.parameters * 1e9) * dimensions.element

    @property
    def small_notice(self) -> str | None:
        """The notice of a run that this model judged; None if it is not too small."""
        if not self.too_small:
            return None
        name = self.id.rpartition("/")[2]
        return f"small model: {name} is too small to judge; use its scores to try the program, not as results"


@cache
def profiles() -> tuple[Profile, ...]:
    """Return all profiles, smallest model first.

    Raises:
        ModelError: this installation has no profiles.
    """
    folder = shipped_folder("profiles")
    if folder is None:
        raise ModelError("the model profiles are missing from this installation; install localjudge again")
    unordered = [_read_profile(file) for file in folder.glob("*.toml")]
    return tuple(sorted(unordered, key=lambda profile: (profile.parameters, profile.name)))


def _read_profile(file: Path) -> Profile:
    facts = tomllib.loads(file.read_text(encoding="utf-8"))
    return Profile.model_validate({"name": file.stem, **facts})


_SIZES = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
)  # fmt: skip
"""Settings of a `config.json` that together identify a known model."""


def profile_of(config: Any) -> Profile | None:
    """Return the profile of a model by its sizes, whatever its name; None if there is none.

    Args:
        config: the configuration of its language model, as transformers reads it.
    """
    sizes = [getattr(config, setting, None) for setting in _SIZES]
    for profile in profiles():
        if sizes == [profile.config.get(setting) for setting in _SIZES]:
            return profile
    return None


def find_profile(name: str) -> Profile | None:
    """Return the profile with this name or repository id, in any letter case; None if there is none."""
    wanted = name.lower()
    for profile in profiles():
        if wanted in (profile.name, profile.id.lower()):
            return profile
    return None
