"""Fixtures of all tests: a separate cache, a small model with random weights, `localjudge` in this process.

PyTorch and transformers take seconds to import; the process that only hands tests to workers does without them.
"""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from preloaded import Preloaded

from localjudge import Rubric
from localjudge.cli import main
from localjudge.runs.reader import read_outcomes, read_row_outcomes
from localjudge.runs.run_files import JUDGEMENTS
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.stop_request import StopRequest

settings.register_profile("without deadlines", deadline=None)  # a slow machine makes no test fail
settings.load_profile("without deadlines")

SHORT_RUBRIC = """
name = "short"
aspects = ["tact", "wit"]
scale = { lowest = 1, highest = 3 }
[prompt]
empty_candidate = "fail"
template = "Q: {$instruction} R: {$reference} A: {$candidate} Tact, wit: 1-3"
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hostile-rows", type=int, default=300, help="How many of test_hostile.py's rows to judge."
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without a garbage collector: their modules make a million objects, which stay."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return a worker for each core, at most four; no worker for files that are named: it starts slowly."""
    cores = len(os.sched_getaffinity(0))
    folders = all(Path(argument.partition("::")[0]).is_dir() for argument in config.args)
    return min(cores, 4) if cores > 1 and folders else 0


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests their own cache, switch off the network, and use one thread."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    torch.set_num_threads(1)
    disable_progress_bar()  # the program also sets this, but before transformers is loaded
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("LOCALJUDGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    """Yield the process that starts programs fast; a program with a special environment needs its own start."""
    with Preloaded(os.environ) as process:
        yield process


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real tokenizers, templates and rows next to the checkout, or skip the test."""
    folder = Path(__file__).parents[2] / "shared"
    if not (folder / "tokenizers").is_dir():
        pytest.skip("the shared tokenizers and data are not here")
    return folder


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The directory of a real model, SmolLM2-135M-Instruct, where the environment names one."""
    if "LOCALJUDGE_REAL_MODEL" not in os.environ:
        pytest.skip(
            "no real model: make one with `python models/smollm2.py --out smollm2`, "
            "then set LOCALJUDGE_REAL_MODEL=smollm2"
        )
    return Path(os.environ["LOCALJUDGE_REAL_MODEL"]).resolve()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def short_rubric(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a rubric with short prompts and answers; it refuses an empty candidate."""
    file = tmp_path_factory.mktemp("rubric") / "short.toml"
    file.write_text(SHORT_RUBRIC)
    return file


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run as they stand in its file, each of which the package reads; a torn one is left out."""
    outcomes = list(read_outcomes(folder))
    pieces = (folder / JUDGEMENTS).read_bytes().splitlines() if outcomes else []
    return (json.loads(piece) for piece, _ in zip(pieces, outcomes, strict=False))


def row_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the rows or pairs of a run, as `localjudge export` writes them."""
    columns = read_manifest(folder).rubric.columns
    return [json.loads(json.dumps(row.line(columns))) for row in read_row_outcomes(folder)]


def random_model(folder: Path, seed: int = 0, context: int = 4096) -> Path:
    """Return a Llama with random weights, a byte-level tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|start|>", "<|end|>", "<think>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([Rubric.load().prompt.template], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    network = LlamaForCausalLM(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    network.save_pretrained(folder)
    return folder


def write_rows(file: Path, count: int, **columns: Any) -> Path:
    """Write valid rows with the ids `r0`, `r1` …; two systems alternate."""
    rows = (
        {
            "id": f"r{n}",
            "system": "ab"[n % 2],
            "instruction": f"Question {n}?",
            "reference": "Yes.",
            "candidate": "word " * (1 + n * 37 % 100),
            **columns,
        }
        for n in range(count)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


class StopIf(StopRequest):
    """Requests a stop if a condition holds."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds

    def asked(self) -> bool:
        return self._holds()


def fake_package(folder: Path, name: str, *headers: str, version: str = "0.0.1") -> None:
    """Write the metadata of an installed package, without the package."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *headers])
    (info / "METADATA").write_text(text + "\n")


@pytest.fixture
def installed_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose modules and metadata take precedence over installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run the program `localjudge` in this process; return its output and its exit code."""

    def run(*args: object, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "argv", ["localjudge", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        capfd.readouterr()
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        else:
            code = 0
        return Ended(code, *capfd.readouterr())

    return run
