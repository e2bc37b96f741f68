"""The manifest of a run, `run.json`: its settings, its rubric, its model, and each start.

Each fact is recorded once: the settings that decide a judgement in `settings`, the rubric in `rubric`, and
everything that may differ between starts in `starts`. Only fields that were given are written, so reading a
manifest and writing it again does not change it.
"""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from localjudge import __version__
from localjudge.config import SHARED, JudgeConfig
from localjudge.engines.protocol import Enforced, EngineInfo
from localjudge.errors import RunMismatchError, UsageError
from localjudge.given_template import NO_TEMPLATE, GivenTemplate
from localjudge.modes.row_outcome import Join
from localjudge.rows.formats import EXAMPLES, STDIN
from localjudge.rows.pairs import Pairing
from localjudge.rows.reading import Reading
from localjudge.rows.record import MAX_ROW_BYTES
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_files import MANIFEST
from localjudge.settings import SharedSettings

FORMAT: Literal[11] = 11
_OF_ENGINE = ("engine", "dtype", "head_dtype", "enforced")
"""The settings that only the open engine knows, as `EngineInfo.settings` has them."""


class _ManifestPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that were given, in the form of the file."""
        return self.model_dump(mode="json", exclude_unset=True)


class RunSettings(_ManifestPart, SharedSettings):  # type: ignore[misc]  # it does not see that both are frozen
    """Everything that decides a judgement besides the row; all starts of a run must have the same settings.

    `rubric`, `model`, `prompt_frame` (of everything around a row's text in a prompt) and `vocabulary` are
    digests. `chat_template` is the digest of a given template, `none` for none, and None for the model's own.
    `value_rule` is the number of the definition of a value's probability. `head_dtype` is the type of the
    model's last layer where a value is picked, if that is not `dtype`. `enforced` is what a server took that
    applies no token table; no other engine has it. A jury and imported scores have only the first three
    settings.
    """

    engine: str
    rubric: str
    model: str
    value_rule: int | None = None
    dtype: str | None = None
    head_dtype: str | None = None
    chat_template: str | None = None  # type: ignore[assignment]  # the settings of a judge have the template
    prompt_frame: str | None = None
    vocabulary: str | None = None
    enforced: Enforced | None = None

    @property
    def of_engine(self) -> dict[str, Any]:
        """The recorded settings that are known only when the engine is open."""
        recorded = self.as_dict()
        return {name: recorded[name] for name in _OF_ENGINE if name in recorded}


class ModelRecord(_ManifestPart):
    """The model: its name, its directory, and the SHA-256 of each file.

    `changed_since_verified` has a phrase for each file that differs from the verified file.
    """

    name: str
    path: str | None
    files: dict[str, str]
    verified: bool = False
    changed_since_verified: list[str] = Field(default_factory=list)


class ReadingRecord(_ManifestPart):
    """A reading, and the inputs that have it, by their indices in the command, from 0."""

    inputs: list[int]
    reading: Reading


class StartRecord(_ManifestPart):
    """A start of a run: the time, the machine, the versions, the rows and the engine.

    Attributes:
        started: local time with the offset from UTC.
        inputs: absolute paths of the input files; empty for rows of a program.
        input_sha256: SHA-256 of each input; None for one that can be read only once.
        columns: the column of each field whose column has a custom name.
        readings: the readings of the inputs that hold rows.
        late_columns: a line for each column that appears first in later records and would have been a field.
        max_row_bytes: the limit on the size of a row.
        pairing: how rows of two responses were made; None for rows of one.
        missing: for each system of formed pairs, the number of instructions that it has no response to.
        input_rows: number of rows in the whole input.
        input_digest: digest of the whole input's rows, in their order.
        rows: number of rows in this shard.
        tokenization_warning: how other programs may encode its prompts differently; None if they do not.
        engine: the `EngineInfo` of the open engine; None without a judge.
        config: the settings of a `JudgeConfig` that are neither in `settings` nor in `rubric`; None without a
            judge.
    """

    started: str
    inputs: list[str]
    input_sha256: list[str | None] = Field(default_factory=list)
    columns: dict[str, str]
    readings: list[ReadingRecord] = Field(default_factory=list)
    late_columns: list[str] = Field(default_factory=list)
    max_row_bytes: PositiveInt = MAX_ROW_BYTES
    pairing: Pairing | None = None
    missing: dict[str, int] = Field(default_factory=dict)
    localjudge: str
    outlines_core: str
    python: str
    platform: str
    input_rows: int | None = None
    input_digest: str | None = None
    rows: int | None = None
    tokenization_warning: str | None = None
    engine: EngineInfo | None = None
    config: dict[str, Any] | None = None

    @field_validator("started")
    @classmethod
    def _is_time(cls, started: str) -> str:
        datetime.fromisoformat(started)
        return started

    @property
    def instant(self) -> datetime:
        """The time of the start, to compare with starts in other time zones."""
        return datetime.fromisoformat(self.started).astimezone(UTC)

    def reading_of(self, files: Sequence[str]) -> dict[str, Reading]:
        """Return the reading of each of these files, which are read instead of the inputs, in their order.

        If they are more or fewer than the inputs, they have the reading of all inputs, if these have one.
        """
        if len(files) != len(self.inputs):
            if len(self.readings) != 1:
                return {}
            return dict.fromkeys(files, self.readings[0].reading)
        readings: dict[str, Reading] = {}
        for record in self.readings:
            readings.update({files[index]: record.reading for index in record.inputs})
        return readings

    def changed_inputs(self, before: StartRecord) -> list[str]:
        """Return the inputs whose content is another one than at an earlier start."""
        if self.inputs != before.inputs:
            return []
        if len(self.input_sha256) != len(self.inputs) or len(before.input_sha256) != len(self.inputs):
            return []
        digests = zip(self.inputs, self.input_sha256, before.input_sha256, strict=True)
        return [name for name, digest, earlier in digests if digest != earlier]

    @classmethod
    def now(cls, inputs: Sequence[str], columns: Mapping[str, str], **fields: Any) -> Self:
        """Return a start at the current time on this machine; `fields` has the other fields."""
        return cls(
            started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            inputs=list(inputs),
            columns=dict(columns),
            localjudge=__version__,
            outlines_core=version("outlines-core"),
            python=platform.python_version(),
            platform=platform.platform(),
            **fields,
        )


class JurorRecord(_ManifestPart):
    """A juror of a jury's run: its name, its run directory, its model's name and its settings."""

    name: str
    run: str
    model: str
    settings: RunSettings


class RunManifest(_ManifestPart):
    """The content of `run.json`.

    Attributes:
        prompt_sha256: SHA-256 of the template's bytes.
        max_tokens: the largest number of tokens of an answer; None without an engine.
        notice: a warning about the judge for readers of the scores; None if there is none.
        given_template: the source of the chat template that replaces the model's own; None without one.
        shard: the part of the input, such as "3/16"; None for the whole input.
        jury: the jurors, if a jury made the scores.
        dry_run: True if a source of this run, such as a juror, is a dry run.
        inherited_notices: the notices of the sources of this run.
    """

    format: Literal[11]
    settings: RunSettings
    rubric: Rubric
    prompt_sha256: str
    model: ModelRecord
    max_tokens: int | None
    notice: str | None
    given_template: str | None = None
    shard: str | None
    jury: list[JurorRecord] | None = None
    dry_run: bool = False
    inherited_notices: list[str] = Field(default_factory=list)
    starts: list[StartRecord] = Field(min_length=1)

    @field_validator("rubric", mode="before")
    @classmethod
    def _with_defaults(cls, rubric: Any) -> Any:
        """Convert a rubric to a mapping of all its fields, so that all are written."""
        return rubric.model_dump(mode="json") if isinstance(rubric, Rubric) else rubric

    @model_validator(mode="after")
    def _check_configs(self) -> Self:
        try:
            for start in self.starts:
                self.config_of(start)
        except (UsageError, TypeError) as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def last_start(self) -> StartRecord:
        return self.starts[-1]

    @property
    def judge(self) -> dict[str, Any]:
        """What identifies the judge: the model, the rubric and the settings that decide a score.

        The seed is not part of it, because a seed only selects one draw of the same judge. The engine and its
        data types are not part of it either, nor the model's own chat template; a given one is.
        """
        excluded = {"engine", "dtype", "head_dtype", "prompt_frame", "vocabulary", "seed"}
        recorded = self.settings.as_dict()
        return {name: recorded.get(name) for name in RunSettings.model_fields if name not in excluded}

    @property
    def orders(self) -> int:
        """The number of orders in which each pair is judged; 1 for rows of one response."""
        pairing = self.last_start.pairing
        return 1 if pairing is None else pairing.orders

    @property
    def mass_is_lower_bound(self) -> bool:
        """Whether the masses of its values are sums over the few tokens that a server lists."""
        return self.settings.engine == "server" and not self.model.files

    def join(self) -> Join[Any]:
        """Return the join of the outcomes of each row's prompts."""
        return self.rubric.mode.join(self.rubric.aspects, self.orders)

    def config_of(self, start: StartRecord) -> JudgeConfig | None:
        """Return the settings of a start; None if it had no judge."""
        if start.config is None:
            return None
        settings = self.settings.model_dump(include=set(SHARED))
        settings["chat_template"] = self._recorded_template()
        settings |= start.config
        return JudgeConfig.from_settings(**settings, rubric=self.rubric)

    def _recorded_template(self) -> GivenTemplate | None:
        """Return the chat template that was given to the judge; None if the model's own was used.

        Raises:
            UsageError: the recorded source is not that of the recorded digest.
        """
        digest = self.settings.chat_template
        if digest is None:
            return None
        name = NO_TEMPLATE if digest == NO_TEMPLATE else f"of {MANIFEST}"
        template = GivenTemplate(self.given_template, name)
        if template.identity != digest:
            raise UsageError("its chat template does not match the digest in its settings")
        return template


def read_manifest(folder: Path) -> RunManifest:
    """Return the content of `run.json`.

    Raises:
        RunMismatchError: the folder holds no run that this version can read.
    """
    file = folder / MANIFEST
    if folder.is_file():
        raise RunMismatchError(f"{folder}: is a file; give the run directory, such as {folder.parent}")
    if not file.exists():
        message = f"{folder}: not a run directory: it has no {MANIFEST}"
        if folder.is_dir():
            # A start that was killed early has made the folder, and nothing that a later start could continue.
            message += "; if a start was stopped before it wrote one, the same command begins it anew"
        raise RunMismatchError(message)
    if not file.is_file():
        raise RunMismatchError(f"{file}: is not a file")
    try:
        document: Any = json.loads(file.read_text(encoding="utf-8"))
        run_format = document.get("format") if isinstance(document, dict) else None
        if isinstance(run_format, int) and run_format != FORMAT:
            raise RunMismatchError(
                f"{file}: has run format {run_format}, and localjudge {__version__} reads format {FORMAT}; "
                f"read it with {_writer(document)}, or start a new run in another directory"
            )
        manifest = RunManifest.model_validate(document)
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise _unreadable(file, f"not a manifest of run format {FORMAT}, or damaged") from None
    if manifest.settings.rubric != manifest.rubric.digest:
        raise RunMismatchError(
            f"{file}: was edited: its rubric does not match the digest in its settings; restore the file"
        )
    return manifest


def _unreadable(file: Path, problem: str) -> RunMismatchError:
    """Return the error of a manifest that cannot be read."""
    return RunMismatchError(f"{file}: {problem}; restore the file, or start a new run in another directory")


def stored_readings(
    folder: Path, inputs: Sequence[str], columns: Mapping[str, str]
) -> dict[str, Reading] | None:
    """Return the readings that the run in a folder has for its inputs, so that it is continued by these.

    Args:
        folder: the run directory; it may be missing.
        inputs: the files of the new start.
        columns: the column of each field whose column is given.

    Returns:
        The reading of each file; None without a run, or for one of other inputs or columns.
    """
    try:
        start = read_manifest(folder).last_start
    except RunMismatchError:  # which is said when the run begins
        return None
    if not start.readings or start.inputs != recorded_inputs(inputs) or start.columns != dict(columns):
        return None
    return start.reading_of(inputs)


def inputs_of_runs(folders: Iterable[Path]) -> list[str]:
    """Return the names of the inputs of runs, of all their starts.

    Raises:
        RunMismatchError: a folder holds no run that this version can read.
    """
    names: list[str] = []
    for folder in folders:
        for start in read_manifest(folder).starts:
            names += start.inputs
    return names


def recorded_inputs(inputs: Iterable[str]) -> list[str]:
    """Return the names of inputs as a start records them: absolute paths, of files that have one."""
    return [name if name in (STDIN, EXAMPLES) else str(Path(name).resolve()) for name in inputs]


def _writer(document: dict[str, Any]) -> str:
    """Return the program that wrote a run of another format."""
    try:
        writer = document["starts"][-1]["localjudge"]
    except (KeyError, IndexError, TypeError):
        writer = None
    is_version = isinstance(writer, str) and re.fullmatch(r"[\w.+!-]{1,40}", writer)
    if is_version and writer != __version__:
        return f"localjudge {writer}, which wrote it"
    return "the version that wrote it"


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file of the run directory, indented for people."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    # A file name that is not UTF-8 has lone surrogates; JSON writes them with a backslash, too.
    return text.encode(errors="backslashreplace")
