"""What several commands share: the forms of their flags, the environment, a table on stdout."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from localjudge.errors import UsageError
from localjudge.system.offline import SWITCHES

FAILED_ROWS = 3
"""The exit code of a run that finished with failures."""

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files or globs (.jsonl, .jsonl.gz, .csv, .tsv, .parquet), '-' for JSONL on stdin, or 'examples'.",
        show_default=False,
    ),
]
RubricName = Annotated[str, typer.Option("--rubric", metavar="NAME|FILE", help="The rubric to judge by.")]
Guard = Annotated[
    bool, typer.Option("--guard", help="Keep each field inside its fence, and show invisible characters in it.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH_OR_ID",
        help="A model directory or the id of a model in the local cache.  [default: the small bundled one]",
        show_default=False,
    ),
]
AllowChangedModel = Annotated[
    bool, typer.Option("--allow-changed-model", help="Judge although the model's manifest does not match.")
]
AllowDownload = Annotated[
    bool, typer.Option("--allow-download", help="Fetch the model from the hub if it is not on this machine.")
]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="FIELD=COLUMN",
        help="The input's column for a field, such as candidate=my_column; the usual names need none.",
    ),
]
MaxRowBytes = Annotated[
    int, typer.Option("--max-row-bytes", min=1, metavar="N", help="The largest row; a larger one fails.")
]
EngineInt = Annotated[
    int | None, typer.Option(metavar="N", help="Passed to vLLM under the same name.", show_default=False)
]
EngineFloat = Annotated[
    float | None, typer.Option(metavar="SHARE", help="Passed to vLLM under the same name.", show_default=False)
]
EngineText = Annotated[
    str | None, typer.Option(metavar="NAME", help="Passed to vLLM under the same name.", show_default=False)
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N rows.", show_default=False)
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="auto|vllm|transformers|dry-run", help="What runs the model.")
]
AnswerSpelling = Annotated[
    str, typer.Option(metavar="compact|spaced|indented", help="The white space of an answer.")
]
RationaleTokens = Annotated[
    int, typer.Option("--max-rationale-tokens", metavar="N", help="The most tokens of a rationale.")
]
Temperature = Annotated[float, typer.Option(metavar="T", help="0 takes the likeliest token.")]
TopP = Annotated[float, typer.Option(metavar="P", help="The share of the probability to sample from.")]
ThinkingBudget = Annotated[
    int | None,
    typer.Option(metavar="N", help="Let a reasoning model think for up to N tokens.", show_default=False),
]
OnOverflow = Annotated[
    str,
    typer.Option(
        metavar="fail|truncate-candidate", help="What becomes of a row longer than the model's context."
    ),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Ask vLLM for results that do not depend on the batch.")
]
EngineArgs = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Any other option of the engine's own, such as batch_size=8."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="auto|local|ADDRESS",
        help="Judge on the workers of a Ray cluster: a running one, or one on this machine.",
        show_default=False,
    ),
]
NumWorkers = Annotated[
    str | None,
    typer.Option(
        metavar="N|MIN:MAX",
        help="The number of workers.  [default: as many as there is room for]",
        show_default=False,
    ),
]
GpusPerWorker = Annotated[
    float | None,
    typer.Option(
        metavar="G", help="The GPUs of each worker.  [default: those of its engine]", show_default=False
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


QUIET = {
    # Threads that spin while they wait make a run on a busy machine ten times slower.
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""What `settle_environment` sets besides `SWITCHES`: no chatter from the libraries below, no busy waiting."""


def print_table(table: object) -> None:
    from localjudge.system.terminal import Console

    Console(width=None if sys.stdout.isatty() else 120).print(table)


def typed_command() -> str:
    """The command that started this program, to be typed again."""
    program, *arguments = sys.argv
    if Path(program).name == "__main__.py":
        return shlex.join([sys.orig_argv[0], "-m", "localjudge", *arguments])
    name = Path(program).name
    return shlex.join([name if shutil.which(name) == program else program, *arguments])


def print_json(document: object, indent: int | None = None) -> None:
    """Print JSON that every encoding of stdout can hold and no terminal can be steered by."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(document, ensure_ascii=not is_unicode, indent=indent))


def engine_args(named: Mapping[str, object], others: Sequence[str] | None) -> dict[str, str]:
    """The engine's own options: those that have a flag each, as far as they are given, and `--engine-arg`'s."""
    from localjudge.config import normalize_engine_args

    given = dict(named)
    for option in others or ():
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UsageError(f"--engine-arg {option}: write KEY=VALUE")
        given[key] = value
    return normalize_engine_args(given)


def input_extras(inputs: Iterable[str]) -> list[str]:
    """The extras that reading these files needs."""
    return ["parquet"] if any(name.endswith(".parquet") for name in inputs) else []


_OF_A_RUN = ("run.json", "judgements.jsonl", "set-aside.jsonl", "summary.json")


def check_out_file(out: Path) -> None:
    """See that what is to be written takes the place of a file, and never of a folder or a device.

    Raises:
        UsageError: there is something else.
    """
    if os.path.exists(out) and not os.path.isfile(out):
        raise UsageError(f"--out {out}: is no file; name one that is new or is to be replaced")
    if out.name in _OF_A_RUN and (out.parent / "run.json").exists():
        raise UsageError(f"--out {out}: is a file of a run; choose another name")


def check_out(out: Path) -> None:
    """See that a folder can be written, and leave nothing there.

    Raises:
        UsageError: it is a file, it or its parent cannot be written, or the disk is full.
    """
    from localjudge.diagnostics import storage

    check = storage.out(out, least=1 << 20)
    if check.state == "wrong":
        raise UsageError(f"--out {check.found}; {check.fix}")


def settle_environment(
    *, deterministic: bool = False, allow_download: bool = False, ray: str | None = None
) -> None:
    """No network and no chatter from the libraries below, unless the user has set it otherwise.

    They read these when they are imported, so it comes first.
    """
    settings = SWITCHES | QUIET | ({"VLLM_BATCH_INVARIANT": "1"} if deterministic else {})
    if ray == "local":
        # A Ray without other hosts keeps to the loopback address, and does not look for another one.
        settings |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if allow_download:
        os.environ |= {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
