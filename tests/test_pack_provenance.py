"""Tests of what a pack says about itself: its signature, the lock of its wheels, its bill of materials."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from small_packs import FILES, HERE, contents, key_pair, packed, refused, tiny_wheel, unpacker

import localjudge.airgap.pack
from localjudge.airgap.own_wheel import installed_wheel
from localjudge.airgap.pack_signature import sign_pack
from localjudge.airgap.wheels import locked
from localjudge.errors import LocalJudgeError


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """Return a signed pack and the public key of its signer."""
    pack = packed(tmp_path, FILES)
    private, public = key_pair(tmp_path, "signer")
    sign_pack(pack, private)
    return pack, public


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_signed_pack_is_unpacked_with_the_key_of_its_signer(
    tmp_path: Path, signed: tuple[Path, Path]
) -> None:
    pack, public = signed
    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out", "--key", public)
    assert (done.returncode, done.stdout) == (0, "unpacked into out\n"), done.stderr
    assert f"signed by {public}" in done.stderr
    assert contents(tmp_path / "out").items() >= FILES.items()


def test_the_commands_in_the_readme_of_a_pack_check_it_before_anything_of_it_runs(
    signed: tuple[Path, Path],
) -> None:
    pack, public = signed
    lines = [line.strip() for line in (pack / "README.txt").read_text().splitlines()]
    commands = [
        line.replace("PUBLIC.pem", str(public)) for line in lines if line.startswith(("openssl ", "sha256sum "))
    ]
    assert len(commands) == 2
    for command in commands:
        subprocess.run(command, shell=True, check=True, cwd=pack, capture_output=True)
    flip(pack / "unpack.py")
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(commands[1], shell=True, check=True, cwd=pack, capture_output=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("localjudge.tar.001", "pack/localjudge.tar.001: is damaged"),
        ("manifest.json", "pack/manifest.json: differs from the signed SHA256SUMS; nothing was unpacked"),
        ("README.txt", "pack/README.txt: differs from the signed SHA256SUMS; nothing was unpacked"),
        ("SHA256SUMS", "pack/SHA256SUMS.sig: was not made by the key"),
        ("SHA256SUMS.sig", "pack/SHA256SUMS.sig: was not made by the key"),
    ],
)
def test_a_signed_pack_with_one_bit_changed_is_not_unpacked(
    tmp_path: Path, signed: tuple[Path, Path], name: str, said: str
) -> None:
    pack, public = signed
    flip(pack / name)
    line, *_ = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out", "--key", public), tmp_path)
    assert line.startswith(said)


def test_a_manifest_sealed_again_by_somebody_else_is_not_believed(
    tmp_path: Path, signed: tuple[Path, Path]
) -> None:
    pack, public = signed
    (tmp_path / "forged").mkdir()
    forged = packed(tmp_path / "forged", {"rows/r.jsonl": b"others"})
    for file in forged.iterdir():
        shutil.copy(file, pack / file.name)
    ours = unpacker(pack / "unpack.py", "--no-install", "--to", "out", "--key", public)
    assert refused(ours, tmp_path)[0].startswith("pack/SHA256SUMS.sig: was not made by the key")
    without = unpacker(pack / "unpack.py", "--no-install", "--to", "out")
    assert (without.returncode, "the signature was not checked" in without.stderr) == (0, True)


def test_another_key_no_key_and_a_pack_without_a_signature_are_each_said(
    tmp_path: Path, signed: tuple[Path, Path]
) -> None:
    pack, public = signed
    private, stranger = key_pair(tmp_path, "stranger")
    unpack = (pack / "unpack.py", "--no-install", "--to", "out")
    for key in (stranger, private, pack / "README.txt"):
        (line,) = refused(unpacker(*unpack, "--key", key), tmp_path)
        assert line.startswith("pack/SHA256SUMS.sig: was not made by the key ")
    (line,) = refused(unpacker(*unpack, "--key", "nowhere.pem"), tmp_path)
    assert line == "--key nowhere.pem: no such file; give the public key of the signer"
    (line,) = refused(unpacker(*unpack, "--key", public, env={"PATH": ""}), tmp_path)
    assert line.startswith("--key needs the program openssl")
    (pack / "SHA256SUMS.sig").unlink()
    (line,) = refused(unpacker(*unpack, "--key", public), tmp_path)
    assert line == "no SHA256SUMS.sig in pack: the pack is unsigned, or its copy is incomplete"
    done = unpacker(*unpack)
    assert (done.returncode, "signature" in done.stderr) == (0, False)


def test_a_key_that_cannot_sign_leaves_the_pack_and_the_command_to_sign_it(tmp_path: Path) -> None:
    pack = packed(tmp_path, FILES)
    _, public = key_pair(tmp_path, "signer")
    with pytest.raises(
        LocalJudgeError, match=r"the pack is written, but not signed: .*; to sign it .*: openssl dgst"
    ):
        sign_pack(pack, public)
    assert not [file for file in pack.iterdir() if ".sig" in file.name]


def bill_of(pack: Path) -> dict[str, Any]:
    """Return the bill of materials of a pack, which the validator of its format accepts."""
    text = (pack / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill: dict[str, Any] = json.loads(text)
    return bill


@pytest.mark.slow
def test_a_pack_is_signed_and_its_bill_of_materials_has_all_that_it_brings(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    index = tmp_path / "index"
    own = tiny_wheel(index, "localjudge_eval", "Requires-Dist: scales")
    licence = ("License-Expression: MIT OR Apache-2.0", "Classifier: License :: OSI Approved :: MIT License")
    tiny_wheel(index, "scales", *licence)
    installed_wheel("pip", index)
    monkeypatch.setattr(localjudge.airgap.pack, "own_wheel", lambda folder, pip_args, say: own)
    judge = shutil.copytree(model, tmp_path / "judge")
    (judge / "README.md").write_text("---\nlicense: apache-2.0\n---\nlicense: none of the card's head\n")
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    private, public = key_pair(tmp_path, "signer")
    flags = ["--model", judge, "--rows", rows, "--sign", private]
    pip = [f"--pip-arg={argument}" for argument in ("--no-index", f"--find-links={index}", "--no-cache-dir")]
    for name in ("pack", "again"):
        end = cli("pack", "--out", tmp_path / name, *flags, *pip)
        assert (end.code, end.out) == (0, ""), end.err
    assert "unpack.py --key PUBLIC.pem" in end.err
    one, two = contents(tmp_path / "pack"), contents(tmp_path / "again")
    assert one.pop("SHA256SUMS.sig") != two.pop("SHA256SUMS.sig"), "a signature has a random number in it"
    assert one == two

    bill = bill_of(tmp_path / "pack")
    manifest = json.loads((tmp_path / "pack" / "manifest.json").read_text())
    assert bill["serialNumber"].replace("-", "")[9:21] == manifest["sha256"][:12]
    assert bill["metadata"].keys() == {"component"}
    assert bill["metadata"]["component"]["purl"].startswith("pkg:pypi/localjudge-eval@0.1.0")
    parts = {each["name"]: each for each in bill["components"]}
    assert {name: each["type"] for name, each in parts.items()} == {
        "scales": "library", "pip": "library", "judge": "machine-learning-model",
        "rows.jsonl": "data",
    }  # fmt: skip
    assert parts["scales"]["licenses"] == [{"acknowledgement": "declared", "expression": "MIT OR Apache-2.0"}]
    assert parts["judge"]["licenses"] == [{"license": {"acknowledgement": "declared", "id": "Apache-2.0"}}]
    known = {each["bom-ref"]: each for each in [*parts.values(), bill["metadata"]["component"]]}
    known |= {each["bom-ref"]: each for each in parts["judge"]["components"]}
    digests = {file["name"]: file["sha256"] for file in manifest["files"] if "/" in file["name"]}
    assert {name: each["hashes"][0]["content"] for name, each in known.items() if "hashes" in each} == digests

    unpack = (tmp_path / "pack" / "unpack.py", "--to", "here", "--key", public)
    assert unpacker(*unpack).returncode == 0
    flip(tmp_path / "here" / "requirements.txt")
    done = unpacker(*unpack)
    assert (done.returncode, "here/requirements.txt: is missing or was changed" in done.stderr) == (2, True)


@pytest.mark.slow
def test_only_the_wheels_of_the_lock_are_installed(tmp_path: Path) -> None:
    index = tmp_path / "index"
    extras = [f"Provides-Extra: {name}" for name in ("cpu", "trust")]
    tiny_wheel(
        index, "localjudge_eval", "Requires-Dist: scales", *extras,
        "Requires-Dist: feather; extra == 'cpu'", "Requires-Dist: abacus; extra == 'trust'",
    )  # fmt: skip
    for name in ("scales", "feather", "abacus"):
        tiny_wheel(index, name)
    installed_wheel("pip", index)
    wheels = sorted(index.iterdir())
    files = {f"wheels/{file.name}": file.read_bytes() for file in wheels}
    pack = packed(
        tmp_path, files | {"requirements.txt": locked(wheels).encode()}, 1 << 20,
        name="localjudge-eval", version="0.1.0", extras=("cpu", "trust"),
    )  # fmt: skip
    assert unpacker(pack / "unpack.py", "--to", "out", "--no-install").returncode == 0
    (tmp_path / "out" / "wheels" / "pip-0-py3-none-any.whl").write_bytes(b"not the pip of the pack")
    assert unpacker(pack / "unpack.py", "--to", "out", "--venv", "all").returncode == 0
    assert installed(tmp_path / "all") == {"localjudge_eval", "scales", "feather", "abacus", "pip"}
    newer = tiny_wheel(tmp_path / "newer", "feather", module="added = True\n")
    newer.rename(tmp_path / "out" / "wheels" / "feather-0.1.0-2-py3-none-any.whl")  # pip prefers a later build
    done = unpacker(pack / "unpack.py", "--to", "out", "--venv", "third")
    assert (done.returncode, "DO NOT MATCH THE HASHES" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "third").exists(), "a wheel that was added is never installed"


def installed(environment: Path) -> set[str]:
    folder = environment / "lib" / f"python{HERE}" / "site-packages"
    return {info.name.partition("-")[0] for info in folder.glob("*.dist-info")}
