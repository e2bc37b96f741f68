"""The options of the commands that judge rows, each declared once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localjudge.cli.options import (
    AdapterNames,
    AllowDownload,
    AllowHost,
    AnswerSpelling,
    ColumnNames,
    Guard,
    MaxRowBytes,
    ModelName,
    RationalePlace,
    RubricName,
    ServerUrl,
    input_extras,
    settle_environment,
)
from localjudge.errors import UsageError
from localjudge.rows.record import MAX_ROW_BYTES

if TYPE_CHECKING:
    from localjudge.config import JudgeConfig
    from localjudge.engines.cluster import Cluster
    from localjudge.rows.pairs import Pairing

_PASSED = "Passed to vLLM under the same name."
_EngineInt = Annotated[int | None, typer.Option(metavar="N", help=_PASSED)]
_EngineShare = Annotated[float | None, typer.Option(metavar="SHARE", help=_PASSED)]
_EngineText = Annotated[str | None, typer.Option(metavar="NAME", help=_PASSED)]
_ENGINE_ARGS = (
    "server",
    "server_kind",
    "tensor_parallel_size",
    "max_model_len",
    "gpu_memory_utilization",
    "dtype",
    "quantization",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """The options that form pairs of the rows of several systems, for a rubric that compares two responses."""

    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="all|FILE",
            help="Compare the responses of all pairs of systems, or of the pairs in a file "
            "(system_a, system_b).",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="Compare the responses of each system with this one's."),
    ] = None
    pairs_per_instruction: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Compare at most N pairs of each instruction, so that all systems are compared equally often.",
        ),
    ] = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """The values of the options; a field with the name of a setting in `JudgeConfig` sets it."""

    model: ModelName = None
    adapter: AdapterNames = None
    allow_download: AllowDownload = False
    allow_changed_model: Annotated[
        bool, typer.Option("--allow-changed-model", help="Judge although the model's manifest does not match.")
    ] = False
    engine: Annotated[
        str,
        typer.Option(metavar="auto|vllm|transformers|server|dry-run", help="The engine that runs the model."),
    ] = "auto"
    server: ServerUrl = None
    server_kind: Annotated[
        str | None,
        typer.Option(
            metavar="unverified|table",
            help="table: the server was started with the flags of serve-flags, or is refused.",
        ),
    ] = None
    allow_host: AllowHost = None
    rubric: RubricName = "just-eval"
    columns: ColumnNames = None
    max_row_bytes: MaxRowBytes = MAX_ROW_BYTES
    answer_spelling: AnswerSpelling = "compact"
    max_rationale_tokens: Annotated[
        int, typer.Option(metavar="N", help="The largest number of tokens of a rationale.")
    ] = 256
    temperature: Annotated[float, typer.Option(metavar="T", help="0 picks the most likely token.")] = 0.0
    top_p: Annotated[
        float, typer.Option(metavar="P", help="The share of the probability mass to sample from.")
    ] = 1.0
    thinking_budget: Annotated[
        int | None,
        typer.Option(metavar="N", help="Let a reasoning model think for up to N tokens."),
    ] = None
    on_overflow: Annotated[
        str,
        typer.Option(
            metavar="fail|truncate-candidate",
            help="What to do with a row that is longer than the model's context.",
        ),
    ] = "fail"
    guard: Guard = False
    rationale: RationalePlace = None
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Ask vLLM for results that do not depend on the batch.")
    ] = False
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="auto|local|ADDRESS",
            help="Judge on the workers of a Ray cluster: a running one, or one on this machine.",
        ),
    ] = None
    num_workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|MIN:MAX",
            help="The number of workers.  [default: as many as the cluster can hold]",
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            metavar="G", help="The number of GPUs of each worker.  [default: as many as its engine uses]"
        ),
    ] = None
    tensor_parallel_size: _EngineInt = None
    max_model_len: _EngineInt = None
    gpu_memory_utilization: _EngineShare = None
    dtype: _EngineText = None
    quantization: _EngineText = None
    engine_args: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-arg", metavar="KEY=VALUE", help="Any other option of the engine, such as batch_size=8."
        ),
    ] = None

    def named_columns(self, used: Sequence[str]) -> dict[str, str]:
        """Return the column of each field whose column has a custom name.

        Args:
            used: the fields that the rubric's template uses.

        Raises:
            UsageError: `--column` does not name a field and a column.
        """
        from localjudge.rows.columns import parse_columns

        return parse_columns(self.columns or (), used)

    def prepare(
        self, command: str, inputs: Sequence[str], **settings: Any
    ) -> tuple[JudgeConfig, Cluster | None]:
        """Set the environment, and return the settings and the cluster after all checks that need no model.

        Args:
            command: the command's name, for messages.
            inputs: the files of rows.
            settings: the settings that only this command has, by their names in `JudgeConfig`.

        Raises:
            UsageError: an option cannot be used, or a package that it needs is not installed.
        """
        from localjudge.config import JudgeConfig
        from localjudge.engines.cluster import Cluster
        from localjudge.engines.selection import engine_extras, engine_options
        from localjudge.rubrics.rubric import Rubric
        from localjudge.system.requirements import require

        cluster = Cluster.parse(self.ray, self.num_workers, self.gpus_per_worker)
        settle_environment(deterministic=self.deterministic, allow_download=self.allow_download, ray=self.ray)
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        shared = {name: value for name, value in given.items() if name in JudgeConfig.model_fields}
        read = {
            "rubric": Rubric.load(self.rubric, guard=self.guard, rationale=self.rationale),
            "engine_args": self._own_options(),
            "adapter": self.adapter[0] if self.adapter else None,
        }
        config = JudgeConfig.of(**shared | read | settings)
        adapts = bool(self.adapter)
        require(command, *engine_extras(self.engine, cluster, self.model, adapts=adapts), *input_extras(inputs))
        engine_options(self.engine, config.engine_args, cluster, self.model, adapts=adapts)
        return config, cluster

    def _own_options(self) -> dict[str, object]:
        """Return the engine's own options: options with their own flag, and options from `--engine-arg`."""
        given: dict[str, object] = {name: getattr(self, name) for name in _ENGINE_ARGS}
        given["allow_host"] = ",".join(self.allow_host) if self.allow_host else None
        for option in self.engine_args or ():
            key, equals, value = option.partition("=")
            if not equals or not key:
                raise UsageError(f"--engine-arg {option}: write KEY=VALUE")
            given[key] = value
        return given
