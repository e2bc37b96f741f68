"""The options of the commands that judge rows, beside the settings of the judge in `localjudge.settings`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from localjudge.cli.options import (
    ENGINE,
    MODEL,
    PAIRS,
    RAY,
    ROWS,
    RUBRIC,
    SERVER,
    AllowHost,
    ColumnNames,
    ModelName,
    RationalePlace,
    RubricName,
    ServerUrl,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.rows.record import MAX_ROW_BYTES
from localjudge.settings import Flag, JudgeSettings, PromptSettings
from localjudge.system.requirements import require
from localjudge.system.steps import Report, no_progress

if TYPE_CHECKING:
    from pathlib import Path

    from localjudge.config import JudgeConfig
    from localjudge.engines.engine_options import Cluster
    from localjudge.judge import Judge
    from localjudge.rows.pairs import Pairing
    from localjudge.rubrics.rubric import Rubric
    from localjudge.runs.row_source import RowSource

_Download = Annotated[
    bool, Flag("Download the model from the hub if it is not on this machine.", heading=MODEL)
]
_EngineInt = Annotated[int | None, Flag("Passed to vLLM under the same name.", "N", ENGINE)]
_ENGINE_ARGS = ("server", "server_kind", "tensor_parallel_size", "max_model_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """The options that form pairs of the rows of several systems, for a rubric that compares two responses."""

    pairs: Annotated[
        str | None,
        Flag(
            "Compare the responses of all pairs of systems, or of the pairs in a file (system_a, system_b).",
            "all|FILE",
            PAIRS,
        ),
    ] = None
    baseline: Annotated[
        str | None, Flag("Compare the responses of each system with this one's.", "SYSTEM", PAIRS)
    ] = None
    pairs_per_instruction: Annotated[
        int | None,
        Flag(
            "Compare at most N pairs of each instruction, so that all systems are compared equally often.",
            "N",
            PAIRS,
            least=1,
        ),
    ] = None

    @property
    def files(self) -> list[str]:
        """The file of the pairs, if one is given."""
        return [] if self.pairs in (None, "all") else [str(self.pairs)]

    def pairing(self, used: Sequence[str], orders: str, seed: int) -> Pairing | None:
        """Return how rows of two responses are made; None for a template of one response.

        Args:
            used: the fields that the rubric's template uses.
            orders: "one" or "both".
            seed: seed of the choice of pairs.

        Raises:
            UsageError: the options contradict each other or the template.
        """
        from localjudge.rows.pairs import Pairing

        return Pairing.parse(used, orders, self.pairs, self.baseline, self.pairs_per_instruction, seed)


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The options that say how the records of files are read as rows."""

    columns: ColumnNames = None
    shape: Annotated[
        str | None,
        Flag(
            "Read the records as this tool writes them (`localjudge help rows`).  [default: detected]",
            "NAME",
            ROWS,
        ),
    ] = None
    rows_at: Annotated[
        str | None,
        Flag("The path of the list of rows in a file that holds one object.", "PATH", ROWS, name="--rows"),
    ] = None
    encoded: Annotated[
        list[str] | None,
        Flag("Read the texts of this column as JSON; any other text stays a text.", "COLUMN", ROWS),
    ] = None
    join: Annotated[
        str | None, Flag("Join each record with a record of this file; with --on.", "FILE", ROWS)
    ] = None
    on: Annotated[
        str | None,
        Flag(
            "The column by which --join joins, and that of the file if it is another.", "COLUMN[=THEIRS]", ROWS
        ),
    ] = None
    max_row_bytes: Annotated[
        int, Flag("The largest row in bytes; larger rows become failures.", "N", ROWS, least=1)
    ] = MAX_ROW_BYTES

    def named(self, used: Sequence[str]) -> dict[str, str]:
        """Return the column of each of these fields of a template, and how the records are read.

        Raises:
            UsageError: the options contradict each other.
        """
        from localjudge.rows.columns import parse_columns

        return parse_columns(
            self.columns or (),
            used,
            encoded=self.encoded or (),
            shape=self.shape,
            rows=self.rows_at,
            join=self.join,
            on=self.on,
        )

    def source(
        self,
        inputs: Sequence[str],
        rubric: Rubric,
        pairing: Pairing | None,
        limit: int | None = None,
        system_from: str | None = None,
        out: Path | None = None,
    ) -> RowSource:
        """Return the rows of files.

        Args:
            inputs: the files.
            rubric: the rubric whose fields are read.
            pairing: how rows of two responses are made; None for rows of one.
            limit: the largest number of rows or pairs.
            system_from: "filename" if the name of a file is the system of its rows.
            out: the run directory, whose stored readings a further start takes; None for none.

        Raises:
            UsageError: an option or a file cannot be used.
        """
        from localjudge.rows.inputs import FILENAME, find_inputs
        from localjudge.runs.row_source import RowSource
        from localjudge.runs.run_manifest import stored_readings

        used = rubric.fields
        columns = self.named(used if pairing is None else pairing.used(used))
        if system_from is not None:
            if system_from != "filename" or "system" in columns:
                raise UsageError(f"--system-from {system_from}: give filename, and no --column system=…")
            columns["system"] = FILENAME
        readings = None if out is None else stored_readings(out, find_inputs(inputs), columns)
        return RowSource.from_files(
            inputs,
            columns,
            used=used,
            max_row_bytes=self.max_row_bytes,
            limit=limit,
            pairing=pairing,
            readings=readings,
        )


@dataclass(frozen=True, kw_only=True)
class RubricOptions:
    """The options that choose a rubric."""

    rubric: RubricName = "just-eval"
    guard: Annotated[
        bool, Flag("Keep each field inside its fence, and show invisible characters in it.", heading=RUBRIC)
    ] = False
    rationale: RationalePlace = None

    def load(self) -> Rubric:
        """Return the rubric.

        Raises:
            RubricError: it cannot be read or is inconsistent.
        """
        from localjudge.rubrics.rubric import Rubric

        return Rubric.load(self.rubric, guard=self.guard, rationale=self.rationale)


@dataclass(frozen=True, kw_only=True)
class PromptOptions(PromptSettings, RubricOptions):
    """The options that decide a prompt."""

    model: ModelName = None
    allow_download: _Download = False


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(JudgeSettings, RubricOptions):
    """The settings of a judge, and the other options of every command that judges."""

    allow_download: _Download = False
    allow_changed_model: Annotated[
        bool, Flag("Judge although the model's manifest does not match.", heading=MODEL)
    ] = False
    server: ServerUrl = None
    server_kind: Annotated[
        str | None,
        Flag(
            "table: the server was started as serve --print-vllm-flags says, or is refused.",
            "unverified|table",
            SERVER,
        ),
    ] = None
    allow_host: AllowHost = None
    deterministic: Annotated[
        bool, Flag("Ask vLLM for results that do not depend on the batch.", heading=ENGINE)
    ] = False
    ray: Annotated[
        str | None,
        Flag(
            "Judge on the workers of a Ray cluster: a running one, or one on this machine.",
            "auto|local|ADDRESS",
            RAY,
        ),
    ] = None
    num_workers: Annotated[
        str | None, Flag("The number of workers.  [default: as many as the cluster can hold]", "N|MIN:MAX", RAY)
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        Flag("The number of GPUs of each worker.  [default: as many as its engine uses]", "G", RAY),
    ] = None
    tensor_parallel_size: _EngineInt = None
    max_model_len: _EngineInt = None
    engine_args: Annotated[
        list[str] | None,
        Flag("Any other option of the engine, such as batch_size=8.", "KEY=VALUE", ENGINE, name="--engine-arg"),
    ] = None

    @property
    def files(self) -> list[str]:
        """The names of the rubric and of the chat template, which may be files."""
        names = [self.rubric]
        if self.chat_template is not None:
            names.append(str(self.chat_template))
        return names

    def open_judge(
        self, config: JudgeConfig, cluster: Cluster | None = None, report: Report = no_progress
    ) -> Judge:
        """Return a judge with these settings."""
        from localjudge.judge import Judge

        return Judge(
            config,
            cluster=cluster,
            allow_changed_model=self.allow_changed_model,
            allow_download=self.allow_download,
            report=report,
        )

    def prepare(self, command: str, inputs: Sequence[str], *extras: str) -> tuple[JudgeConfig, Cluster | None]:
        """Set the environment, and return the settings and the cluster after all checks that need no model.

        Args:
            command: the command's name, for messages.
            inputs: the files of rows.
            extras: what the command needs besides its engine and the readers of its files.

        Raises:
            UsageError: an option cannot be used, or a package that it needs is not installed.
        """
        from localjudge.config import JudgeConfig
        from localjudge.engines.engine_options import BATCH_INVARIANT, Cluster
        from localjudge.engines.selection import engine_extras, engine_options
        from localjudge.rows.formats import input_extras

        cluster = Cluster.parse(self.ray, self.num_workers, self.gpus_per_worker)
        if self.deterministic:
            os.environ.setdefault(BATCH_INVARIANT, "1")
        settle_environment(allow_download=self.allow_download, ray=self.ray)
        settings = {setting.name: getattr(self, setting.name) for setting in fields(JudgeSettings)}
        config = JudgeConfig.from_settings(
            **settings,
            rubric=self.load(),
            engine_args=self._own_options(),
        )
        needed = engine_extras(self.engine, cluster)
        require(command, *extras, *needed, *input_extras(inputs))
        engine_options(self.engine, config.engine_args, cluster)
        return config, cluster

    def _own_options(self) -> dict[str, object]:
        """Return the engine's own options: options with their own flag, and options from `--engine-arg`."""
        options: dict[str, object] = {name: getattr(self, name) for name in _ENGINE_ARGS}
        options["allow_host"] = ",".join(self.allow_host) if self.allow_host else None
        for argument in self.engine_args or ():
            key, equals, value = argument.partition("=")
            if not equals or not key:
                name = re.split(r"[^\w.-]", argument, maxsplit=1)[0]  # what follows may be a secret
                raise UsageError(f"--engine-arg {name}: write KEY=VALUE")
            options[key] = value
        return options


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(JudgeOptions, RowOptions):
    """The options of the commands that judge the rows of files."""
