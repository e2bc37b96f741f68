"""Tests of `models verify`: every kind of damage to a model directory, and the use of its manifest."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Cli, Ended, write_rows
from safetensors.torch import load_file, save_file

from localjudge import Judge, ModelError
from localjudge.models.digests import read_digests
from localjudge.models.model import Model
from localjudge.models.model_manifest import ModelManifest
from localjudge.models.weights import read_header
from localjudge.system.durable import _machine

INDEX = "model.safetensors.index.json"
MANIFEST = "localjudge-manifest.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """Return a copy of an intact model, for the test to damage."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def in_two_shards(folder: Path) -> Path:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    for shard, half in zip(SHARDS, halves, strict=True):
        save_file({name: tensors[name] for name in half}, folder / shard, metadata={"format": "pt"})
    place = {name: shard for shard, half in zip(SHARDS, halves, strict=True) for name in half}
    total = sum(tensor.nbytes for tensor in tensors.values())
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": place}))
    return folder


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def edit_header(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header of a safetensors file, but not its tensors."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    changed = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + length :])


def lines(end: Ended, state: str) -> list[str]:
    """Return the name and the message of each check with this result."""
    return [" ".join(line.split()[2:]) for line in end.out.splitlines() if line.split()[1] == state]


def test_a_sound_directory_passes_and_gets_a_manifest_of_its_files(cli: Cli, folder: Path) -> None:
    digest = Model.find(folder).digest
    end = cli("models", "verify", folder)
    assert end.code == 0, end.out
    assert {line[0] for line in end.out.splitlines()} == {"✓"}
    manifest = ModelManifest.read(folder)
    assert manifest is not None
    assert manifest.digest == Model.find(folder).digest == digest, "its own file does not count"
    assert manifest.files == Model.find(folder).files
    again = cli("models", "verify", folder)
    assert (again.code, "matches the manifest of" in again.out) == (0, True)


def test_a_model_in_shards_passes(cli: Cli, folder: Path) -> None:
    end = cli("models", "verify", in_two_shards(folder))
    assert (end.code, "2 files, " in end.out) == (0, True), end.out


def test_the_bundled_model_passes(cli: Cli) -> None:
    end = cli("models", "verify", "bundled", "--no-manifest")
    assert (end.code, lines(end, "wrong")) == (0, [])


def test_a_model_of_the_hub_cache_passes_though_its_files_are_links(
    cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--some--one"
    snapshot = repository / "snapshots" / "0a"
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0a")
    snapshot.mkdir(parents=True)
    for file in model.iterdir():
        shutil.copy(file, repository / "blobs" / f"b{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/b{file.name}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    end = cli("models", "verify", "some/one")
    assert (end.code, (snapshot / MANIFEST).is_file()) == (0, True), end.out + end.err
    (repository / "blobs" / "bmodel.safetensors").unlink()
    assert "model.safetensors: links to files that are not there" in cli("models", "verify", "some/one").out


def flip_in_header(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[8] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def cut_short(folder: Path) -> None:
    with in_two_shards(folder).joinpath(SHARDS[1]).open("r+b") as stream:
        stream.truncate(stream.seek(0, 2) - 100)


def cut_to_nothing(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x10")


def append_bytes(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as stream:
        stream.write(b"more")


def lose_a_shard(folder: Path) -> None:
    (in_two_shards(folder) / SHARDS[0]).unlink()


def leave_a_shard(folder: Path) -> None:
    shutil.copy(in_two_shards(folder) / SHARDS[0], folder / "model-00003-of-00002.safetensors")


def name_an_absent_tensor(folder: Path) -> None:
    index = json.loads((in_two_shards(folder) / INDEX).read_text())
    edit(folder / INDEX, weight_map=index["weight_map"] | {"model.extra.weight": SHARDS[0]})


def hide_a_tensor(folder: Path) -> None:
    index = json.loads((in_two_shards(folder) / INDEX).read_text())
    index["weight_map"].pop("lm_head.weight")
    edit(folder / INDEX, weight_map=index["weight_map"])


def climb_out(folder: Path) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": "../model.safetensors"}}))


def scramble_the_index(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": [')


def name_no_type(folder: Path) -> None:
    edit_header(folder / "model.safetensors", lambda header: header["lm_head.weight"].update(dtype="F17"))


def overlap(folder: Path) -> None:
    def change(header: dict[str, Any]) -> None:
        header["lm_head.weight"]["data_offsets"] = header["model.norm.weight"]["data_offsets"]
        header["lm_head.weight"]["shape"] = header["model.norm.weight"]["shape"]

    edit_header(folder / "model.safetensors", change)


def reshape(folder: Path) -> None:
    edit_header(folder / "model.safetensors", lambda header: header["lm_head.weight"].update(shape=[3, 5]))


def leave_a_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5000000000\n"
    )


def pickle_only(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def ask_for_remote_code(folder: Path) -> None:
    (folder / "modeling_own.py").write_text("raise SystemExit('it was run')\n")
    auto_map = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    edit(folder / "config.json", model_type="own", auto_map=auto_map)


def break_the_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('only for cats') }}")


def repeat_the_content(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    )


def lose_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def break_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {}}')


def decode_by_nothing(folder: Path) -> None:
    edit(folder / "tokenizer.json", decoder=None)


def shrink_the_embedding(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][:300].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def widen_the_vocabulary(folder: Path) -> None:
    edit(folder / "config.json", vocab_size=500)


def shorten_the_context(folder: Path) -> None:
    edit(folder / "config.json", max_position_embeddings=300)


def lose_the_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def scramble_the_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ')


def list_in_the_config(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def unknown_architecture(folder: Path) -> None:
    edit(folder / "config.json", model_type="abacus")


def forget_a_size(folder: Path) -> None:
    edit(folder / "config.json", hidden_size="wide")


def lose_the_letters(folder: Path) -> None:
    """Write a vocabulary that cannot spell the beginning of an answer."""
    layout = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = layout["model"]["vocab"]
    layout["model"]["vocab"] = {text: token for text, token in vocabulary.items() if "{" not in text}
    layout["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(layout))


DEFECTS: dict[Callable[[Path], None], str] = {
    flip_in_header: "weights model.safetensors: damaged or cut short: ",
    cut_short: f"weights {SHARDS[1]}: damaged or cut short: ",
    cut_to_nothing: "weights model.safetensors: damaged or cut short: ",
    append_bytes: "weights model.safetensors: damaged or cut short: ",
    lose_a_shard: f"weights {INDEX} needs {SHARDS[0]}: missing",
    leave_a_shard: "weights model-00003-of-00002.safetensors: not part of the model",
    name_an_absent_tensor: f"weights {INDEX} lists model.extra.weight in {SHARDS[0]}, which does not have it",
    hide_a_tensor: f"weights {SHARDS[0]} has lm_head.weight, which {INDEX} does not list there",
    climb_out: f"weights {INDEX}: its weight_map must name a file of this directory",
    scramble_the_index: f"weights {INDEX}: cannot be read: JSONDecodeError",
    name_no_type: "weights model.safetensors: damaged or cut short: ",
    overlap: "weights model.safetensors: damaged or cut short: ",
    reshape: "weights model.safetensors: damaged or cut short: ",
    leave_a_pointer: "files model.safetensors: a Git LFS pointer instead of the file → git -C ",
    pickle_only: "weights refused: only pickled weights, which can run code when loaded: pytorch_model.bin",
    ask_for_remote_code: "config refused: it needs remote code (modeling_own.py), and no *.py",
    break_the_template: "template the chat template cannot be rendered: only for cats",
    repeat_the_content: "template the chat template must show the content in exactly one place",
    lose_the_tokenizer: "tokenizer no tokenizer: none of tokenizer.json",
    break_the_tokenizer: "tokenizer its tokenizer cannot be loaded: ",
    decode_by_nothing: "vocabulary the tokenizer decodes by nothing, which does not define the bytes",
    shrink_the_embedding: "tensors its weights do not match the LlamaForCausalLM that config.json describes: ",
    widen_the_vocabulary: "tensors its weights do not match the LlamaForCausalLM that config.json describes: ",
    shorten_the_context: "context 300 tokens: ",
    lose_the_config: "config ",
    scramble_the_config: "config config.json: not JSON",
    list_in_the_config: "config config.json: not a JSON object",
    unknown_architecture: "config ",
    forget_a_size: "config ",
    lose_the_letters: "table the tokenizer cannot spell",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("damage", DEFECTS, ids=lambda damage: damage.__name__)
def test_each_defect_is_named_with_its_fix_and_leaves_no_manifest(
    cli: Cli, folder: Path, damage: Callable[[Path], None]
) -> None:
    damage(folder)
    end = cli("models", "verify", folder)
    assert (end.code, (folder / MANIFEST).exists()) == (2, False), end.out
    (said, *more) = lines(end, "wrong")
    assert said.startswith(DEFECTS[damage])
    assert " → " in said
    assert not more, "one defect, one red line"
    assert "Traceback" not in end.err


def test_what_is_beside_the_weights_is_named_and_stops_nothing(cli: Cli, folder: Path) -> None:
    in_two_shards(folder)
    (folder / "training_args.bin").write_bytes(b"a pickle")
    save_file({"a": torch.zeros(1)}, folder / "consolidated.safetensors")
    end = cli("models", "verify", folder)
    assert end.code == 0, end.out
    (said,) = lines(end, "note")
    assert said.startswith("weights")
    assert "; not read: consolidated.safetensors, training_args.bin" in said


def test_remote_code_that_is_not_needed_is_named_and_never_run(cli: Cli, folder: Path) -> None:
    (folder / "modeling_own.py").write_text("raise SystemExit('it was run')\n")
    edit(folder / "config.json", auto_map={"AutoConfig": "modeling_own.OwnConfig"})
    end = cli("models", "verify", folder)
    assert (end.code, lines(end, "note")) == (
        0, ["config LlamaConfig; the remote code that it names is never run: modeling_own.py"],
    )  # fmt: skip


def test_headers_are_read_as_the_library_reads_them(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    header = read_header(model / "model.safetensors")
    assert {name: entry.shape for name, entry in header.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }


@pytest.mark.slow
def test_one_flipped_byte_of_the_weights_is_named_and_the_manifest_kept_unless_renewed(
    cli: Cli, folder: Path
) -> None:
    assert cli("models", "verify", folder).code == 0
    before = (folder / MANIFEST).read_bytes()
    status = (folder / "model.safetensors").stat()
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.seek(-1, 2)
        byte = stream.read(1)[0]
        stream.seek(-1, 2)
        stream.write(bytes([byte ^ 1]))
    os.utime(folder / "model.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / "LICENSE").write_text("new")
    (folder / "generation_config.json").unlink()
    end = cli("models", "verify", folder)
    assert (end.code, (folder / MANIFEST).read_bytes()) == (2, before)
    assert [line.split(" since ")[0] for line in lines(end, "wrong")] == [
        "manifest model.safetensors has changed",
        "manifest generation_config.json is missing",
        "manifest LICENSE is new",
    ]
    renewed = cli("models", "verify", folder, "--renew")
    assert (renewed.code, (folder / MANIFEST).read_bytes() != before) == (0, True)
    assert cli("models", "verify", folder).code == 0


def settle(folder: Path) -> None:
    """Wait until the files' timestamps are old enough to be trusted."""
    newest = max(file.stat().st_ctime_ns for file in folder.iterdir())
    time.sleep(max(0.0, 2.1 - (time.time_ns() - newest) / 1e9))


def flip_a_bit(file: Path) -> None:
    """Change the content of a file in place, and restore the timestamps that a program can set."""
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    with file.open("r+b") as stream:
        stream.write(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_remembered_digest_is_not_trusted_for_weights_that_changed_under_the_same_size_and_time(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    flags = ("--model", folder, "--rubric", short_rubric, "--max-rationale-tokens", 3)
    settle(folder)
    assert cli("models", "verify", folder).code == 0
    assert cli("score", rows, "--out", tmp_path / "run", *flags).code == 0
    flip_a_bit(folder / "model.safetensors")
    end = cli("score", rows, "--out", tmp_path / "flipped", *flags)
    assert (end.code, "model.safetensors has changed; copy the model again" in end.err) == (2, True), end.err
    assert cli("score", rows, "--out", tmp_path / "allowed", *flags, "--allow-changed-model").code == 0


def test_a_file_whose_last_change_is_not_in_the_past_is_read_again(folder: Path) -> None:
    settle(folder)
    ahead = time.time_ns() + 3600 * 10**9
    os.utime(folder / "config.json", ns=(ahead, ahead))
    reports: list[int] = []
    digests = [read_digests(folder, report=lambda done, total=None: reports.append(done)) for _ in range(2)]
    assert digests[0] == digests[1]
    assert len(reports) > len(digests[0]), "the first time, every file was read"
    assert reports[-1] == (folder / "config.json").stat().st_size


def test_a_chat_template_in_a_subfolder_changes_a_verified_model(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path
) -> None:
    assert cli("models", "verify", folder).code == 0
    digest, prompts = Model.find(folder).digest, Model.find(folder).prompts.digest
    (folder / ".cache").mkdir()
    (folder / ".cache" / "hidden.json").write_text("{}")
    assert Model.find(folder).digest == digest, "no loader reads a hidden file"
    templates = folder / "additional_chat_templates"
    templates.mkdir()
    (templates / "default.jinja").write_text("{% for m in messages %}Other: {{ m.content }}{% endfor %}")
    assert Model.find(folder).prompts.digest != prompts, "the loader reads it"
    assert Model.find(folder).digest != digest
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    end = cli("score", rows, "--out", tmp_path / "run", "--model", folder, "--rubric", short_rubric)
    assert (end.code, "additional_chat_templates/default.jinja is new" in end.err) == (2, True), end.err
    renewed = cli("models", "verify", folder, "--renew")
    assert renewed.code == 0, renewed.out
    manifest = ModelManifest.read(folder)
    assert manifest is not None
    assert "additional_chat_templates/default.jinja" in manifest.files


def test_a_link_from_a_subfolder_back_to_the_directory_is_not_followed_for_ever(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "sub" / "notes.json").write_text("{}")
    assert {name for name in Model.find(folder).files if "/" in name} == {"sub/notes.json"}


def test_every_file_of_a_vocabulary_counts_for_the_digest(folder: Path) -> None:
    layout = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(layout["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(merge) for merge in layout["merges"]))
    for name in ("merges.txt", "vocab.txt", "source.spm", "tokenizer.model", "added_tokens.json"):
        (folder / name).write_text("a b\nc d\n")
        digest = Model.find(folder).digest
        (folder / name).write_text("a b\n")
        assert Model.find(folder).digest != digest, name
    digest = Model.find(folder).digest
    for name in ("LICENSE", "LICENSE.txt", "README.md", "figure.png"):
        (folder / name).write_text("more")
    assert Model.find(folder).digest == digest


def test_a_run_does_not_go_on_with_other_merges(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path
) -> None:
    layout = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "merges.txt").write_text("\n".join(" ".join(merge) for merge in layout["merges"]))
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    flags = (
        "--model",
        folder,
        "--rubric",
        short_rubric,
        "--max-rationale-tokens",
        3,
        "--out",
        tmp_path / "run",
    )
    assert cli("score", rows, *flags, "--limit", 1).code == 0
    merges = (folder / "merges.txt").read_text().splitlines()
    (folder / "merges.txt").write_text("\n".join(merges[: len(merges) // 3]))
    end = cli("score", rows, *flags)
    assert (end.code, "holds another run; it differs in model: " in end.err) == (2, True), end.err


def test_a_run_with_weights_that_are_cut_short_is_one_line(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path
) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    end = cli("score", rows, "--out", tmp_path / "run", "--model", folder, "--rubric", short_rubric)
    assert end.code == 2
    assert end.err.splitlines()[-1].endswith("; run localjudge models verify")


def test_a_changed_model_does_not_judge_unless_that_is_allowed(
    cli: Cli, tmp_path: Path, folder: Path, short_rubric: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    flags = ["--model", folder, "--rubric", short_rubric, "--max-rationale-tokens", 3]

    def verified(out: str) -> object:
        return json.loads((tmp_path / out / "run.json").read_text())["model"]["verified"]

    assert cli("score", rows, "--out", tmp_path / "before", *flags).code == 0
    assert verified("before") is False
    assert cli("models", "verify", folder).code == 0
    assert cli("score", rows, "--out", tmp_path / "after", *flags).code == 0
    assert verified("after") is True
    edit(folder / "generation_config.json", temperature=0.5)
    end = cli("score", rows, "--out", tmp_path / "changed", *flags)
    assert end.code == 2
    assert end.err.startswith(f"localjudge: model {folder}: changed since it was verified on ")
    assert (
        "generation_config.json has changed; copy the model again, or accept the change: "
        f"localjudge models verify {folder} --renew, or --allow-changed-model for this run\n" in end.err
    )
    assert not (tmp_path / "changed").exists()
    with pytest.raises(ModelError, match="changed since it was verified"):
        Judge(folder)
    assert cli("score", rows, "--out", tmp_path / "allowed", *flags, "--allow-changed-model").code == 0
    assert verified("allowed") is False
    about = json.loads((tmp_path / "allowed" / "run.json").read_text())["model"]
    assert about["changed_since_verified"] == ["generation_config.json has changed"]
    assert cli("prompt", rows, "--tokens", "--model", folder, "--rubric", short_rubric).code == 2
    again = cli("audit", "--check", "repeat", tmp_path / "allowed")
    assert again.code == 0, "what a run was allowed, its repetition is"


def test_a_manifest_that_cannot_be_read_is_refused_with_its_fix(cli: Cli, tmp_path: Path, folder: Path) -> None:
    (folder / MANIFEST).write_text('{"format": 2, "files": {}}')
    end = cli("models", "verify", folder)
    assert (end.code, "not a readable manifest: localjudge Field required" in end.out) == (2, True)
    end = cli("score", "examples", "--out", tmp_path / "out", "--model", folder)
    assert (end.code, f"models verify {folder} --renew" in end.err) == (2, True)
    assert cli("models", "verify", folder, "--renew").code == 0


def test_checking_alone_writes_nothing_and_a_directory_that_cannot_be_written_is_one_line(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("models", "verify", folder, "--no-manifest").code == 0
    assert not (folder / MANIFEST).exists()
    assert cli("models", "verify", folder, "--no-manifest", "--renew").code == 2
    writer = f"{_machine()}-{os.getpid()}-scratch"
    monkeypatch.setattr("secrets.token_hex", lambda size: "scratch")
    (folder / f".{MANIFEST}.{writer}.tmp").mkdir()  # even root cannot write a file where a folder is
    end = cli("models", "verify", folder)
    (said,) = lines(end, "wrong")
    assert (end.code, "cannot be written: Is a directory" in said, "--no-manifest" in said) == (2, True, True)


def test_what_is_not_there_is_one_line(cli: Cli) -> None:
    end = cli("models", "verify", "./none")
    assert (end.code, end.out, end.err) == (2, "", "localjudge: model ./none: no such directory\n")


def test_the_findings_come_as_json_too(cli: Cli, folder: Path) -> None:
    lose_the_tokenizer(folder)
    end = cli("models", "verify", folder, "--json")
    checks = json.loads(end.out)
    assert end.code == 2
    assert [check["name"] for check in checks if check["state"] == "wrong"] == ["tokenizer"]
    assert all(set(check) == {"name", "state", "found", "fix"} for check in checks)


def test_a_name_of_a_file_cannot_steer_the_terminal(cli: Cli, folder: Path) -> None:
    (folder / "\x1b[31m.bin").write_bytes(b"")
    end = cli("models", "verify", folder, "--no-manifest")
    assert "\x1b" not in end.out
    assert "\\u001b[31m.bin" in end.out
