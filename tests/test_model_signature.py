"""Tests of signatures of models: by OpenSSF's format, with a pair of keys, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli, Ended
from gguf_files import as_gguf
from small_packs import key_pair


@pytest.fixture
def judge(tmp_path: Path, model: Path) -> Path:
    return shutil.copytree(model, tmp_path / "judge")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return key_pair(tmp_path, "signer")


def verified(cli: Cli, model: Path, key: Path) -> Ended:
    return cli("models", "verify", model, "--signature", f"{model}.sig", "--key", key)


@pytest.fixture
def signed(cli: Cli, judge: Path, keys: tuple[Path, Path]) -> Path:
    end = cli("models", "sign", judge, "--key", keys[0])
    assert (end.code, end.err) == (0, f"signed: {judge}.sig\n")
    return judge


def test_a_signed_model_is_verified_again_and_again(cli: Cli, signed: Path, keys: tuple[Path, Path]) -> None:
    for _ in range(2):  # the first writes the manifest into the directory, which is not part of the model
        end = verified(cli, signed, keys[1])
        assert (end.code, "signature" in end.out) == (0, True), end.err
        assert (signed / "localjudge-manifest.json").is_file()


def test_a_model_that_was_verified_before_it_was_signed_is_verified_elsewhere(
    cli: Cli, tmp_path: Path, judge: Path, keys: tuple[Path, Path]
) -> None:
    assert cli("models", "verify", judge).code == 0  # writes the manifest
    assert cli("models", "sign", judge, "--key", keys[0], "--out", tmp_path / "elsewhere.sig").code == 0
    end = verified(cli, judge.rename(tmp_path / "elsewhere"), keys[1])
    assert end.code == 0, end.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("add", "Extra files found in model 'judge': added.json"),
        ("remove", "Missing files in model 'judge': config.json"),
        ("change", "Hash mismatch for 'config.json'"),
    ],
)
def test_a_model_whose_files_changed_since_it_was_signed_is_refused_in_one_line(
    cli: Cli, signed: Path, keys: tuple[Path, Path], change: str, said: str
) -> None:
    if change == "add":
        (signed / "added.json").write_text("{}")
    elif change == "remove":
        (signed / "config.json").unlink()
    else:
        (signed / "config.json").write_text((signed / "config.json").read_text() + " ")
    end = verified(cli, signed, keys[1])
    assert (end.code, end.out) == (2, "")
    *_, line = end.err.splitlines()
    assert line.startswith(f"localjudge: {signed}.sig: does not fit {signed}: ")
    assert said in line
    assert not (signed / "localjudge-manifest.json").exists(), "what was not signed gets no manifest"


@pytest.mark.parametrize("place", [".git/hooks/post-checkout", ".github/a", ".gitattributes/a"])
def test_files_of_git_which_no_signature_covers_are_refused(
    cli: Cli, signed: Path, keys: tuple[Path, Path], place: str
) -> None:
    (signed / place).parent.mkdir(parents=True)
    (signed / place).write_text("#!/bin/sh\n")
    for end in (verified(cli, signed, keys[1]), cli("models", "sign", signed, "--key", keys[0])):
        name = place.partition("/")[0]
        assert (end.code, end.out) == (2, ""), end.err
        assert f"model {signed}: has {name}, which a signature does not cover; " in end.err
        assert not (signed / "localjudge-manifest.json").exists()


def test_the_list_of_attributes_that_a_hub_adds_does_not_matter(
    cli: Cli, signed: Path, keys: tuple[Path, Path]
) -> None:
    (signed / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    assert verified(cli, signed, keys[1]).code == 0


def test_another_key_no_key_and_no_signature_are_each_one_line(
    cli: Cli, tmp_path: Path, signed: Path, keys: tuple[Path, Path]
) -> None:
    _, stranger = key_pair(tmp_path, "stranger")
    for key, said in (
        (stranger, "does not fit"),
        (signed / "config.json", "give a public key of an elliptic curve"),
        (keys[0], "give a public key of an elliptic curve"),
        (tmp_path / "none.pem", "none.pem: no such file"),
    ):
        end = verified(cli, signed, key)
        *_, line = end.err.splitlines()
        assert (end.code, end.out, said in line) == (2, "", True), end.err
    Path(f"{signed}.sig").write_text('{"mediaType": "none"}')
    end = verified(cli, signed, keys[1])
    assert (end.code, "does not fit" in end.err, "Traceback" in end.err) == (2, True, False)
    end = cli("models", "verify", signed, "--key", keys[1])
    assert (end.code, "--signature and --key belong together" in end.err) == (2, True)


def test_a_key_that_cannot_sign_is_said_and_writes_nothing(
    cli: Cli, tmp_path: Path, judge: Path, keys: tuple[Path, Path]
) -> None:
    for key, said in (
        (keys[1], "give a private key"),
        (tmp_path / "none.pem", "No such file"),
    ):
        end = cli("models", "sign", judge, "--key", key)
        assert (end.code, said in end.err, len(end.err.splitlines())) == (2, True, 1), end.err
    assert not Path(f"{judge}.sig").exists()


def test_an_openssl_that_may_not_sign_is_said_in_one_line(
    tmp_path: Path, judge: Path, keys: tuple[Path, Path]
) -> None:
    conf = tmp_path / "fips.cnf"  # asks for a FIPS module, of which there is none
    conf.write_text("openssl_conf = a\n[a]\nalg_section = b\n[b]\ndefault_properties = fips=yes\n")
    command = [sys.executable, "-m", "localjudge", "models", "sign", str(judge), "--key", str(keys[0])]
    end = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENSSL_CONF": str(conf)})
    assert (end.returncode, "Traceback" in end.stderr) == (2, False), end.stderr
    assert end.stderr.startswith("localjudge: ")
    assert not Path(f"{judge}.sig").exists()


def test_a_gguf_file_is_signed_as_it_stands(
    cli: Cli, tmp_path: Path, model: Path, keys: tuple[Path, Path]
) -> None:
    file = as_gguf(model, tmp_path / "judge.gguf")
    assert cli("models", "sign", file, "--key", keys[0]).code == 0
    assert verified(cli, file, keys[1]).code == 0
    with file.open("ab") as stream:
        stream.write(b"\0")
    assert verified(cli, file, keys[1]).code == 2
