"""Tests of models in GGUF files: judged as the directory they were made of, verified, planned, refused."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, fake_package, read_lines, write_rows
from gguf_files import as_gguf, content_of, packed, text, value, write_gguf

from localjudge import Judge, Judgement, ModelError, UsageError
from localjudge.airgap.pack import _sources
from localjudge.engines.selection import choose_engine
from localjudge.engines.transformers.fast_layers import GROUPED
from localjudge.models.capacity import PlannedModel
from localjudge.models.digests import ModelManifest
from localjudge.models.gguf import read_gguf
from localjudge.models.model import Model
from localjudge.models.tensor_check import count_parameters
from localjudge.records import Outcome

FLOAT32 = {"dtype": "float32"}
ROWS = [
    {"id": f"r{n}", "instruction": "Is it so?", "reference": "Yes.", "candidate": "No, " * n} for n in range(4)
]


@pytest.fixture(scope="module")
def file(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return as_gguf(model, tmp_path_factory.mktemp("gguf") / "random.gguf")


def judged(model: Path, **options: str) -> list[Outcome]:
    judge = Judge(model, engine="transformers", engine_args=FLOAT32 | options, max_rationale_tokens=12)
    return sorted(judge.score(ROWS), key=lambda outcome: outcome.id)


def test_a_gguf_file_judges_as_the_directory_it_was_made_of(model: Path, file: Path) -> None:
    ours, theirs = judged(file), judged(model)
    assert all(isinstance(outcome, Judgement) for outcome in ours)
    assert [each.model_copy(update={"key": ""}) for each in ours] == [
        each.model_copy(update={"key": ""}) for each in theirs
    ]
    assert Model.find(file).vocabulary == Model.find(model).vocabulary
    assert Model.find(file).end_tokens == Model.find(model).end_tokens


def test_a_gguf_file_computes_with_the_attention_of_its_directory(model: Path, file: Path) -> None:
    used = []
    for each in (model, file):
        with Judge(each, engine="transformers", engine_args=FLOAT32) as judge:
            engine: Any = judge.engine
            used.append(engine._model.config._attn_implementation)
    assert used == [GROUPED, GROUPED]


def test_quantized_weights_are_unpacked_and_every_answer_is_whole(model: Path, tmp_path: Path) -> None:
    metadata, tensors = content_of(model)
    file = write_gguf(tmp_path / "packed.gguf", metadata, packed(tensors))
    assert all(isinstance(outcome, Judgement) for outcome in judged(file))
    assert Model.find(file).gguf.dtype == "bfloat16"
    assert Model.find(file).gguf.tensors["token_embd.weight"].dtype == "Q8_0"


def test_the_digest_of_a_gguf_file_is_its_sha256_whatever_its_name(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other.gguf"
    copy.write_bytes(file.read_bytes())
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    assert Model.find(file).digest == Model.find(copy).digest == Model.find(tmp_path).digest == expected


def test_a_rule_for_splitting_text_that_transformers_does_not_know_is_noted(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    for rule, noted in (("llama-bpe", False), ("smollm", True)):
        end = cli("models", "verify", as_gguf(model, tmp_path / f"{rule}.gguf", tokenizer__ggml__pre=rule))
        assert end.code == 0, end.out
        assert (f"does not know how {rule} splits text" in end.out) == noted


def test_what_lies_beside_a_gguf_file_changes_nothing(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "random.gguf"
    copy.write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }} another template")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<think>"}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert Model.find(tmp_path).prompts.digest == Model.find(file).prompts.digest
    assert Model.find(tmp_path).end_tokens == Model.find(file).end_tokens


def test_a_run_is_of_one_gguf_file_and_continues_with_no_other(cli: Cli, file: Path, tmp_path: Path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl", 3), tmp_path / "run"
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(file.read_bytes()[:-1] + b"\x01")
    arguments = ("score", rows, "--out", out, "--max-rationale-tokens", 8, "--engine", "transformers")
    assert cli(*arguments, "--model", file, "--limit", 2).code == 0
    assert {line["status"] for line in read_lines(out)} == {"judged"}
    recorded = json.loads((out / "run.json").read_text())
    assert recorded["model"]["files"] == {file.name: Model.find(file).digest}
    end = cli(*arguments, "--model", changed)
    assert (end.code, end.err.splitlines()[-1].partition(":")[0]) == (2, "localjudge")
    assert "model" in end.err.splitlines()[-1]
    assert cli(*arguments, "--model", file).code == 0


def test_a_sound_gguf_file_gets_a_manifest_beside_it_and_a_changed_one_is_refused(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(file.read_bytes())
    end = cli("models", "verify", tmp_path)
    assert (end.code, {line[0] for line in end.out.splitlines()}) == (0, {"✓"}), end.out
    manifest = ModelManifest.read(copy)
    assert manifest is not None
    assert manifest.digest == Model.find(copy).digest
    assert Judge(copy).describe({})["model"]["verified"]
    copy.write_bytes(copy.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ModelError, match=r"copy\.gguf has changed"):
        Judge(copy)
    end = cli("models", "verify", copy)
    assert (end.code, "copy.gguf has changed" in end.out) == (2, True)


Content = tuple[dict[str, Any], dict[str, tuple[list[int], int, bytes]]]


def no_norm(content: Content) -> None:
    del content[1]["output_norm.weight"]


def an_unread_tensor(content: Content) -> None:
    content[1]["rope_freqs.weight"] = ([8], 0, bytes(32))


def another_shape(content: Content) -> None:
    content[1]["blk.0.attn_v.weight"] = ([32, 16], 0, bytes(2048))


def scaled_rotation(content: Content) -> None:
    content[0]["llama.rope.scaling.type"] = "yarn"


def broken_template(content: Content) -> None:
    content[0]["tokenizer.chat_template"] = "{% for"


def escaping_template(content: Content) -> None:
    content[0]["tokenizer.chat_template"] = "{{ messages.__class__.__mro__[1].__subclasses__() }}"


def fewer_tokens(content: Content) -> None:
    tokens = content[0]["tokenizer.ggml.tokens"]
    content[0]["tokenizer.ggml.tokens"] = [*tokens, "ĠoneĠmore"]
    content[0]["tokenizer.ggml.token_type"] += [1]


def strange_architecture(content: Content) -> None:
    content[0]["general.architecture"] = "none-such"


def one_of_three(content: Content) -> None:
    content[0]["split.count"] = 3


@pytest.mark.parametrize(
    ("damage", "check", "said"),
    [
        (no_norm, "tensors", "missing model.norm.weight"),
        (an_unread_tensor, "tensors", "not its own rope_freqs.weight"),
        (another_shape, "tensors", "of another shape model.layers.0.self_attn.v_proj.weight"),
        (scaled_rotation, "tensors", "ignores the scaling of the rotary embeddings"),
        (broken_template, "template", "template"),
        (escaping_template, "template", "template"),
        (fewer_tokens, "vocabulary", "do not belong together"),
        (strange_architecture, "config", "none-such"),
        (one_of_three, "header", "one of 3 parts of a model"),
    ],
)
def test_a_gguf_file_that_cannot_judge_is_refused_with_the_reason(
    cli: Cli, model: Path, tmp_path: Path, damage: Callable[[Content], None], check: str, said: str
) -> None:
    content = content_of(model)
    damage(content)
    file = write_gguf(tmp_path / "damaged.gguf", *content)
    end = cli("models", "verify", file)
    wrong = [line for line in end.out.splitlines() if line.split()[1] == "wrong"]
    assert (end.code, len(wrong), wrong[0].split()[2]) == (2, 1, check), end.out
    assert said in wrong[0]
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.gguf"], "no manifest of a damaged model"


@pytest.mark.parametrize("damage", [no_norm, an_unread_tensor, another_shape, scaled_rotation])
def test_the_engine_loads_no_gguf_file_whose_tensors_are_not_those_of_its_model(
    model: Path, tmp_path: Path, damage: Callable[[Content], None]
) -> None:
    content = content_of(model)
    damage(content)
    with pytest.raises(ModelError, match="transformers"):
        judged(write_gguf(tmp_path / "damaged.gguf", *content))


def header(tensors: int, entries: int, *content: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, entries) + b"".join(content)


def named(name: str, length: int, kind: int) -> bytes:
    """A tensor of one dimension at the beginning of the data."""
    return text(name) + struct.pack("<IQIQ", 1, length, kind, 0)


LLAMA = text("general.architecture") + value("llama")
A, REST = text("a"), bytes(99)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GGML and so on", "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
        (b"GGUF" + struct.pack("<I", 3), "cut short"),
        (header(2**62, 0), "do not fit the file"),
        (header(0, 2**62), "do not fit the file"),
        (header(0, 1, struct.pack("<Q", 2**60), REST), "do not fit the file"),
        (header(0, 1, A, struct.pack("<IIQ", 9, 8, 2**50)), "do not fit the file"),
        (header(0, 1, A, struct.pack("<IIQ", 9, 9, 1), REST), "unknown type 9"),
        (header(0, 1, A, struct.pack("<I", 77), REST), "unknown type 77"),
        (header(0, 1, struct.pack("<Q", 1), b"\xff", REST), "not UTF-8"),
        (header(0, 2, LLAMA, LLAMA), "occurs twice"),
        (header(0, 0), "names no general.architecture"),
        (header(1, 1, LLAMA, A, struct.pack("<I", 2**20), REST), "1,048,576 dimensions"),
        (header(1, 1, LLAMA, named("a", 4, 5)), "unknown type 5"),
        (header(1, 1, LLAMA, named("a", 40, 8)), "not whole blocks"),
        (header(1, 1, LLAMA, named("a", 2**60, 0)), "cut short"),
        (header(2, 1, LLAMA, named("a", 4, 0), named("b", 4, 0), REST), "b begins within another"),
        (header(2, 1, LLAMA, named("a", 0, 0), named("a", 0, 0), REST), "occurs twice"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused_before_a_library_reads_it(
    cli: Cli, tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    end = cli("models", "verify", file)
    assert (end.code, said in end.out) == (2, True), end.out
    end = cli("score", "examples", "--out", tmp_path / "run", "--model", file, "--engine", "transformers")
    assert (end.code, end.err.count("\n"), said in end.err) == (2, 1, True), end.err
    assert not (tmp_path / "run").exists()


def test_a_header_is_read_as_the_package_gguf_reads_it(file: Path) -> None:
    from gguf import GGUFReader

    theirs = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    ours = read_gguf(file)
    assert ours.tensors.keys() == theirs.keys()
    for name, tensor in ours.tensors.items():
        other = theirs[name]
        shape = tuple(int(size) for size in other.shape[::-1])
        assert (tensor.dtype, tensor.shape) == (other.tensor_type.name, shape)


def test_a_plan_counts_the_unpacked_weights_and_says_so(cli: Cli, model: Path, tmp_path: Path) -> None:
    metadata, tensors = content_of(model)
    file = write_gguf(tmp_path / "packed.gguf", metadata, packed(tensors))
    found = PlannedModel.find(str(file))
    assert found.weights == 2 * (count_parameters(Model.find(model)) or 0)
    assert found.is_gguf
    assert file.stat().st_size < found.weights
    end = cli("models", "plan", file)
    assert "unpacked to bfloat16 from the" in end.out
    assert "only the transformers engine reads a GGUF file" in end.out
    assert "localjudge score" not in end.out, "vLLM's flags are of no use"


def test_a_gguf_file_is_packed_with_its_manifest(file: Path, cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "judge.gguf"
    copy.write_bytes(file.read_bytes())
    assert cli("models", "verify", copy).code == 0
    manifest = f"{copy.name}.localjudge-manifest.json"
    assert _sources([str(tmp_path)], [], []) == {
        "models/judge.gguf": copy,
        f"models/{manifest}": tmp_path / manifest,
    }


def test_an_older_transformers_is_named_with_the_command_that_replaces_it(
    file: Path, installed_as: Path
) -> None:
    fake_package(installed_as, "localjudge-eval", 'Requires-Dist: transformers<5.20,>=5.19; extra == "gguf"')
    fake_package(installed_as, "transformers", version="5.18.2")
    with pytest.raises(ModelError, match=r'needs transformers 5\.19: pip install "transformers<5\.20,>=5\.19"'):
        Model.find(file)


def test_vllm_is_never_chosen_for_a_gguf_file(cli: Cli, file: Path, tmp_path: Path) -> None:
    assert choose_engine("auto", str(file)) == ("transformers", "because the model is a GGUF file")
    with pytest.raises(UsageError, match="vLLM reads no GGUF file"):
        choose_engine("vllm", str(file))
    end = cli("doctor", "--model", file)
    assert "because the model is a GGUF file" in end.out
    assert "4,096 tokens" in next(line for line in end.out.splitlines() if line.split()[2:3] == ["model"])


def test_a_directory_with_several_gguf_files_is_refused_and_one_with_safetensors_is_that_model(
    cli: Cli, file: Path, model: Path, tmp_path: Path
) -> None:
    for name in ("q4.gguf", "q8.gguf"):
        (tmp_path / name).write_bytes(file.read_bytes())
    end = cli("score", "examples", "--out", tmp_path / "run", "--model", tmp_path)
    assert (end.code, end.err.count("\n"), "q4.gguf, q8.gguf" in end.err) == (2, 1, True), end.err
    with pytest.raises(ModelError, match="no such file"):
        Model.find(tmp_path / "none.gguf")
    for each in model.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    assert Model.find(tmp_path).digest == Model.find(model).digest
