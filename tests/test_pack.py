"""Tests of packs: files are restored from parts of any size and order; errors leave no files."""

from __future__ import annotations

import ast
import errno
import fcntl
import hashlib
import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_packs import FILES, HERE, contents, packed, parts_of, refused, tiny_wheel, unpacker

import localjudge.airgap.pack
from localjudge import UsageError
from localjudge.airgap import install, unpack
from localjudge.airgap.own_wheel import check_extras, installed_wheel
from localjudge.airgap.pack import parse_size
from localjudge.airgap.pack_manifest import PackedFile
from localjudge.airgap.target_machine import Target
from localjudge.airgap.wheels import gather_wheels, locked
from localjudge.errors import LocalJudgeError


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return packed(tmp_path, FILES)


def test_what_was_packed_comes_out_under_a_python_with_nothing_installed(tmp_path: Path, pack: Path) -> None:
    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out")
    assert (done.returncode, done.stdout) == (0, "unpacked into out\n")
    assert "ignored" not in done.stderr, "the recipes beside the parts are known"
    assert {"Containerfile", "apptainer.def", "slurm-array.sh"} <= {file.name for file in pack.iterdir()}
    assert json.loads((pack / "manifest.json").read_text())["sha256"] in done.stderr
    out = contents(tmp_path / "out")
    assert json.loads(out.pop("manifest.json")) == json.loads((pack / "manifest.json").read_text())
    assert out == FILES


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=6).map(lambda sizes: dict(enumerate(sizes))),
    st.integers(1024, 20_000),
)
@settings(max_examples=25)
def test_the_parts_are_full_but_the_last_and_make_one_tar_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: dict[int, int], part_size: int
) -> None:
    files = {f"rows/{number}": os.urandom(size) for number, size in sizes.items()}
    pack = packed(tmp_path_factory.mktemp("any"), files, part_size)
    parts = [part.read_bytes() for part in parts_of(pack)]
    assert {len(part) for part in parts[:-1]} <= {part_size}
    assert 0 < len(parts[-1]) <= part_size
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
        assert {member.name: archive.extractfile(member).read() for member in archive} == files
    manifest = unpack.read_pack_manifest([pack])
    out = pack.with_name("out")
    out.mkdir()
    unpack.extract(unpack.find_parts(manifest, [pack]), manifest, out)
    assert contents(out) == files


def test_the_same_files_make_the_same_parts_whatever_their_order_and_times(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = packed(tmp_path / "one", FILES)
    two = packed(tmp_path / "two", dict(reversed(FILES.items())))
    for file in (tmp_path / "one" / "sources").iterdir():
        os.utime(file, (0, 0))
        file.chmod(0o755)
    shutil.rmtree(one)
    again = packed(tmp_path / "one", FILES)
    assert contents(again) == contents(two)


def test_parts_in_another_order_under_other_names_in_two_folders_are_found(tmp_path: Path, pack: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first, second, *_ = parts_of(pack)
    names = first.name, second.name
    first.rename(pack / "x")
    second.rename(pack / names[0])  # the second part has the name of the first
    (pack / "x").rename(other / "from the gateway.bin")
    done = unpacker(pack / "unpack.py", pack, other, "--no-install", "--to", "out")
    assert done.returncode == 0
    assert contents(tmp_path / "out").items() >= FILES.items()
    (tmp_path / "out").rename(tmp_path / "first")
    alone = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path)
    assert alone[0] == f"{names[0]}: is missing", "though the second part has its name"


def test_every_damaged_missing_short_long_and_foreign_part_is_named(tmp_path: Path) -> None:
    pack = packed(tmp_path, {f"rows/{n}": os.urandom(3000) for n in range(8)})
    damaged, missing, short, long, *whole = parts_of(pack)
    content = bytearray(damaged.read_bytes())
    content[1234] ^= 1
    damaged.write_bytes(content)
    missing.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    with long.open("ab") as stream:
        stream.write(b"!")
    (pack / "foreign\x1b[31m").write_bytes(b"?")
    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out")
    assert refused(done, tmp_path) == [
        f"pack/{damaged.name}: is damaged",
        f"{missing.name}: is missing",
        f"pack/{short.name}: is damaged",
        f"pack/{long.name}: is damaged",
        "pack/foreign\\u001b[31m: is not part of this pack, or is damaged",
        f"4 of {len(whole) + 4} parts cannot be used: copy them again; nothing was unpacked",
    ]


def test_a_foreign_file_is_refused_in_the_folder_of_the_pack_and_ignored_in_another(
    tmp_path: Path, pack: Path
) -> None:
    (pack / "notes.txt").write_text("from the gateway")
    assert refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path) == [
        "pack/notes.txt: is not part of this pack, or is damaged",
        "the folder of a pack must have no other file: remove it; nothing was unpacked",
    ]
    (tmp_path / "medium").mkdir()
    (pack / "notes.txt").rename(tmp_path / "medium" / "notes.txt")
    done = unpacker(pack / "unpack.py", pack, "medium", "--no-install", "--to", "out")
    assert done.returncode == 0
    assert "notes.txt: is not part of this pack, or is damaged; ignored" in done.stderr


@pytest.mark.parametrize("name", ["argparse.py", "__future__.py", "json/__init__.py", "encodings/idna.py"])
def test_a_module_beside_the_unpacker_never_runs(tmp_path: Path, pack: Path, name: str) -> None:
    (pack / name).parent.mkdir(exist_ok=True)
    (pack / name).write_text("import os; os._exit(77)")
    for folder, script in ((tmp_path, "pack/unpack.py"), (pack, "unpack.py")):
        command = [sys.executable, script, "--no-install", "--to", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert done.returncode == (2 if "/" not in name else 0), done.stderr


def test_a_damaged_copy_is_no_hindrance_where_a_whole_one_is_found(tmp_path: Path, pack: Path) -> None:
    shutil.copytree(pack, tmp_path / "second try")
    parts_of(pack)[0].write_bytes(b"cut")
    done = unpacker(pack / "unpack.py", pack, "second try", "--no-install", "--to", "out")
    assert done.returncode == 0
    assert contents(tmp_path / "out").items() >= FILES.items()


@pytest.mark.parametrize("change", [b"", b"{", b"[1]", b"{}", "flip"])
def test_a_damaged_manifest_is_not_believed(tmp_path: Path, pack: Path, change: bytes | str) -> None:
    manifest = pack / "manifest.json"
    text = manifest.read_bytes()
    manifest.write_bytes(
        change if isinstance(change, bytes) else text.replace(b'"size": 2500', b'"size": 2501')
    )
    assert manifest.read_bytes() != text
    (line,) = refused(unpacker(pack / "unpack.py", "--no-install"), tmp_path)
    assert line == "pack/manifest.json: is damaged, or not the manifest of a pack; copy it again"


def test_a_pack_without_a_manifest_or_of_two_packs_is_refused(tmp_path: Path, pack: Path) -> None:
    (tmp_path / "other").mkdir()
    other = packed(tmp_path / "other", {"rows/x": b"x"})
    (line,) = refused(unpacker(pack / "unpack.py", pack, other), tmp_path)
    assert line == "pack/manifest.json and other/pack/manifest.json differ: give the folders of one pack"
    (pack / "manifest.json").unlink()
    (line,) = refused(unpacker(pack / "unpack.py"), tmp_path)
    assert line == "no manifest.json in pack: copy it here, or give its folder"
    (line,) = refused(unpacker(pack / "unpack.py", "nowhere"), tmp_path)
    assert line == "nowhere: no such folder"


@pytest.mark.parametrize(
    "name", ["../escape", "/escape", "wheels/../../escape", "wheels\\..\\escape", "c:/x", "."]
)
def test_a_path_that_would_escape_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    pack = packed(tmp_path, {"rows/a": b"a", name: b"b"})
    (line,) = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path)
    assert line == f"pack/manifest.json: {name} would be written outside of the folder; nothing was unpacked"


def test_a_file_that_the_manifest_does_not_name_is_refused(tmp_path: Path) -> None:
    entry = PackedFile(name="rows/a", size=1, sha256=hashlib.sha256(b"a").hexdigest())
    pack = packed(tmp_path, {"rows/a": b"a", "../escape": b"b"}, files=(entry,))
    (line,) = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path)
    assert line == "../escape: is in the parts, but not in the manifest; nothing was kept"


def forged(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], size: int = 1) -> Path:
    """Write a pack of one file, `rows/a`, whose only part has these members; all digests are correct."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as writer:
        for member, content in members:
            member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
    pack = packed(tmp_path, {"rows/a": b"a"}, part_size=1 << 20)
    (part,) = parts_of(pack)
    part.write_bytes(archive.getvalue())
    content = archive.getvalue()
    manifest = json.loads((pack / "manifest.json").read_text())
    manifest["parts"][0] |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["files"][0]["size"] = size
    manifest["sha256"] = unpack.seal(manifest)
    (pack / "manifest.json").write_text(json.dumps(manifest))
    return pack


@pytest.mark.parametrize("stated", [1, 64 << 20])
def test_a_small_part_that_stands_for_a_large_file_is_refused_before_anything_is_written(
    tmp_path: Path, stated: int
) -> None:
    sparse = tarfile.TarInfo("rows/a")
    sparse.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "rows/a",
        "GNU.sparse.realsize": str(64 << 20),
    }  # fmt: skip
    pack = forged(tmp_path, [(sparse, b"1\n0\n1\n".ljust(512, b"\0") + b"a")], stated)
    small_disk = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))}
    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out", **small_disk)
    (line,) = refused(done, tmp_path)
    assert line == "rows/a: is in the parts, but not in the manifest; nothing was kept"


def test_a_file_of_another_size_or_that_comes_twice_is_refused(tmp_path: Path) -> None:
    for name, members, said in (
        ("long", [(tarfile.TarInfo("rows/a"), b"aa")], "has 2 bytes in the parts, but 1 in the manifest"),
        ("twice", [(tarfile.TarInfo("rows/a"), b"a")] * 2, "is in the parts, but not in the manifest"),
    ):
        (tmp_path / name).mkdir()
        pack = forged(tmp_path / name, members)
        (line,) = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path / name)
        assert line == f"rows/a: {said}; nothing was kept"


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"name": "rows/a", "size": "1", "sha256": ""}]},
        {"files": [{"name": "rows/a", "size": -1, "sha256": ""}]},
        {"files": [{"name": "rows/a", "sha256": ""}]},
        {"parts": [1]},
        {"parts": None},
        {"extras": [[]]},
        {"name": "../elsewhere"},
        {"version": 1},
    ],
)
def test_a_manifest_of_another_shape_is_refused_whatever_its_digest(
    tmp_path: Path, pack: Path, change: dict[str, Any]
) -> None:
    manifest = json.loads((pack / "manifest.json").read_text()) | change
    manifest["sha256"] = unpack.seal(manifest)
    (pack / "manifest.json").write_text(json.dumps(manifest))
    (line,) = refused(unpacker(pack / "unpack.py", "--no-install"), tmp_path)
    assert line == "pack/manifest.json: is damaged, or not the manifest of a pack; copy it again"


def test_a_link_among_the_files_is_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("rows/a")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    pack = forged(tmp_path, [(link, b"")])
    (line,) = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path)
    assert line == "rows/a: is in the parts, but not in the manifest; nothing was kept"


def test_a_file_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path) -> None:
    entry = PackedFile(name="rows/a", size=1, sha256="0" * 64)
    pack = packed(tmp_path, {"rows/a": b"a"}, files=(entry,))
    (line,) = refused(unpacker(pack / "unpack.py", "--no-install", "--to", "out"), tmp_path)
    assert line == "rows/a: differs from the manifest after writing"


def test_a_disk_that_fills_up_leaves_nothing_half(tmp_path: Path) -> None:
    pack = packed(tmp_path, {"rows/large": bytes(200_000)}, part_size=1 << 20)

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out", preexec_fn=small_files)
    assert (done.returncode, done.stdout) == (1, "")
    assert "unpack.py: " in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pack", "sources"]


def test_unpacking_again_checks_what_is_there_and_never_overwrites(tmp_path: Path, pack: Path) -> None:
    again = (pack / "unpack.py", "--no-install", "--to", "out")
    (tmp_path / "out").mkdir()
    assert unpacker(*again).returncode == 0, "an empty folder is as good as none"
    for part in parts_of(pack):
        part.unlink()
    done = unpacker(*again)
    assert done.returncode == 0
    assert "out: is unpacked already, and complete" in done.stderr
    (tmp_path / "out" / "wheels" / "a.whl").write_bytes(b"a" * 2499 + b"b")
    done = unpacker(*again)
    assert done.returncode == 2
    assert "out/wheels/a.whl: is missing or was changed" in done.stderr
    assert (tmp_path / "out" / "wheels" / "a.whl").read_bytes().endswith(b"b")
    (tmp_path / "other").mkdir()
    other = packed(tmp_path / "other", {"rows/x": b"x"})
    assert (
        "holds another pack" in unpacker(other / "unpack.py", "--no-install", "--to", tmp_path / "out").stderr
    )
    full = unpacker(other / "unpack.py", "--no-install", "--to", tmp_path / "sources")
    assert (full.returncode, "holds something else" in full.stderr) == (2, True)


def unpack_and_wait(pack: Path, to: Path, unpacked: Event) -> None:
    """Unpack until all files are written, and wait there for the end of this process."""

    def wait(manifest: dict[str, Any], folder: Path) -> list[str]:
        unpacked.set()
        signal.pause()
        return []

    unpack.differing = wait
    unpack.unpack(unpack.read_pack_manifest([pack]), [pack], to)


def test_a_running_unpacker_is_left_alone_and_what_a_killed_one_left_is_removed(
    tmp_path: Path, pack: Path
) -> None:
    forking = multiprocessing.get_context("fork")
    unpacked = forking.Event()
    running = forking.Process(target=unpack_and_wait, args=(pack, tmp_path / "out", unpacked))
    running.start()
    assert unpacked.wait(60)
    before = contents(tmp_path / "out.partial")
    assert before == FILES
    command = (pack / "unpack.py", "--no-install", "--to", "out")
    done = unpacker(*command)
    assert (done.returncode, "out.partial: another unpack.py is running" in done.stderr) == (2, True)
    assert contents(tmp_path / "out.partial") == before
    running.kill()
    running.join()
    assert unpacker(*command).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "pack", "sources"]
    assert FILES.items() <= contents(tmp_path / "out").items()


@pytest.mark.parametrize("name", ["notes.txt", "wheels/mine.whl", "link"])
def test_a_folder_that_is_not_of_the_pack_is_not_taken_for_what_a_killed_unpacker_left(
    tmp_path: Path, pack: Path, name: str
) -> None:
    foreign = tmp_path / "out.partial" / name
    foreign.parent.mkdir(parents=True)
    if name == "link":
        foreign.symlink_to(tmp_path / "sources")
    else:
        foreign.write_text("mine")
    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out")
    assert (done.returncode, f"out.partial/{name}: is not of this pack" in done.stderr) == (2, True)
    assert os.path.lexists(foreign)
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_scratch_folder_is_named(tmp_path: Path, pack: Path) -> None:
    (tmp_path / "out.partial").write_text("mine")
    done = unpacker(pack / "unpack.py", "--no-install", "--to", "out")
    assert (done.returncode, "out.partial: is not a folder" in done.stderr) == (2, True)
    assert (tmp_path / "out.partial").read_text() == "mine"


def test_where_folders_have_no_locks_a_pack_is_unpacked_but_what_was_left_is_not_removed(
    tmp_path: Path, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    manifest = unpack.read_pack_manifest([pack])
    (tmp_path / "left.partial").mkdir()
    with pytest.raises(unpack.PackError, match=r"left\.partial: .* if it was killed, remove this"):
        unpack.unpack(manifest, [pack], tmp_path / "left")
    assert (tmp_path / "left.partial").exists()
    unpack.unpack(manifest, [pack], tmp_path / "out")
    assert FILES.items() <= contents(tmp_path / "out").items()


def test_an_environment_that_a_killed_unpacker_left_half_is_not_taken_for_whole(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    for name in ("pyvenv.cfg", ".unpacking"):
        (tmp_path / "half" / name).touch()
    pack = packed(tmp_path, {"wheels/pip-1.whl": b""})
    done = unpacker(pack / "unpack.py", "--to", "out", "--venv", "half")
    assert done.returncode == 2
    assert "half: another unpack.py is running; if it was killed, remove this" in done.stderr
    assert (tmp_path / "half" / "pyvenv.cfg").exists()


def test_a_pack_for_another_python_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    pack = packed(tmp_path, FILES, python="3.99")
    (line,) = refused(unpacker(pack / "unpack.py"), tmp_path)
    assert line == f"this is Python {HERE}, the pack is for 3.99: run it with python3.99"


def test_the_unpacker_says_how_much_it_has_checked_and_how_long_the_rest_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {f"rows/{name}": bytes(3_000_000) for name in "ab"}
    pack = packed(tmp_path, files, 2_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(unpack, "_LINE_EVERY", 0)
        unpack.run([str(pack), "--no-install", "--to", str(tmp_path / "out")])
    lines = capfd.readouterr().err.splitlines()
    for step in ("checking", "unpacking", "reading again"):
        assert any(re.fullmatch(rf"{step}: [23] of 6 MB, remaining 0:0\d", line) for line in lines), lines
    capfd.readouterr()
    unpack.run([str(pack), "--no-install", "--to", str(tmp_path / "other")])
    assert "remaining" not in capfd.readouterr().err, "a short step has no line in a pipe"


def test_the_unpacker_needs_the_standard_library_alone_and_an_old_python_can_say_so() -> None:
    for file in (unpack.__file__, install.__file__):
        tree = ast.parse(Path(file).read_text(), feature_version=(3, 8))
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("text", "size"),
    [("60M", 60_000_000), ("60MB", 60_000_000), ("1.5g", 1_500_000_000), ("512KiB", 524_288), ("2 GiB", 2**31)],
)
def test_a_part_size_is_written_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "M", "60X", "-1M", "1e9", "12", "0.0001M", "2000,5M", "60M of it", "60 Mbit"]
)
def test_a_part_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--part-size {text}: "):
        parse_size(text)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package index with a `localjudge` of one module, its dependencies, and pip."""
    folder = tmp_path_factory.mktemp("index")
    tiny_wheel(folder, "scales")
    tiny_wheel(folder, "feather")
    extras = ("Provides-Extra: cpu", "Requires-Dist: feather; extra == 'cpu'")
    more = ("Provides-Extra: trust", "Requires-Dist: absent-here; extra == 'trust'")
    script = "[console_scripts]\nlocaljudge = localjudge_eval:main\n"
    module = "def main():\n    import scales, feather\n    print('judged')\n"
    tiny_wheel(folder, "localjudge_eval", "Requires-Dist: scales", *extras, *more, module=module, script=script)
    installed_wheel("pip", folder)
    return folder


@pytest.fixture
def offline_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Use only packages of this index, and do not build localjudge, because a build needs the network."""
    own = next(index.glob("localjudge_eval-*.whl"))
    monkeypatch.setattr(localjudge.airgap.pack, "own_wheel", lambda folder, pip_args, say: own)
    return [f"--pip-arg={argument}" for argument in ("--no-index", f"--find-links={index}", "--no-cache-dir")]


@pytest.mark.slow
def test_a_pack_installs_with_no_index_what_a_pack_command_gathered(
    cli: Cli, tmp_path: Path, offline_index: list[str], model: Path
) -> None:
    rows = write_rows(tmp_path / "my rows.jsonl", 2)
    pack = tmp_path / "pack"
    flags = ["--extra", "cpu", "--part-size", "1M", "--model", model, "--rows", rows]
    end = cli("pack", "--out", pack, *flags, *offline_index)
    assert (end.code, end.out) == (0, "")
    manifest = json.loads((pack / "manifest.json").read_text())
    assert manifest["sha256"] in end.err
    assert {part.stat().st_size for part in parts_of(pack)[:-1]} == {1_000_000}
    names = {file["name"] for file in manifest["files"]}
    assert {name.split("-")[0] for name in names if name.startswith("wheels/")} == {
        "wheels/localjudge_eval", "wheels/scales", "wheels/feather", "wheels/pip",
    }  # fmt: skip
    assert "rows/my rows.jsonl" in names
    assert f"models/{model.name}/model.safetensors" in names
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []

    done = unpacker(
        pack / "unpack.py", "--to", "here", env={"PIP_INDEX_URL": "http://127.0.0.1:9/", "PATH": ""}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "installed; next:",
        "  . here/venv/bin/activate",
        "  localjudge doctor",
        "  localjudge score examples --out first-run",
        f"  localjudge score 'here/rows/my rows.jsonl' --out RUN --model here/models/{model.name}",
    ]
    program = tmp_path / "here" / "venv" / "bin" / "localjudge"
    assert subprocess.run([program], capture_output=True, text=True, check=True, env={}).stdout == "judged\n"
    assert not (tmp_path / "here" / "venv" / ".unpacking").exists()
    taken = unpacker(pack / "unpack.py", "--to", "here", "--venv", pack)
    assert (taken.returncode, "is not a virtual environment" in taken.stderr) == (2, True)


@pytest.mark.slow
def test_an_install_that_fails_says_what_pip_said_and_leaves_no_environment(
    tmp_path: Path, index: Path
) -> None:
    wheels = [file for file in index.iterdir() if "scales" not in file.name]
    files = {f"wheels/{file.name}": file.read_bytes() for file in wheels} | {
        "requirements.txt": locked(wheels).encode()
    }
    pack = packed(tmp_path, files, 1 << 20, version="0.1.0", extras=("cpu",))
    done = unpacker(pack / "unpack.py", "--to", "out")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    failed = "unpack.py: pip: ERROR: No matching distribution found for scales"
    assert any(line.startswith(failed) for line in lines), "a new pip adds who needs it"
    assert lines[-1] == f"unpack.py: pip failed; the pack was made for Python {HERE} on any"
    assert (tmp_path / "out" / "wheels").is_dir()
    assert not (tmp_path / "out" / "venv").exists()


def test_wheels_for_another_machine_are_chosen_by_its_python_and_glibc(tmp_path: Path) -> None:
    for minor, glibc in (("12", "2_17"), ("12", "2_34"), ("11", "2_17")):
        wheel = tiny_wheel(tmp_path / minor / glibc, "scales")
        (tmp_path / "index").mkdir(exist_ok=True)
        name = f"scales-0.1.0-cp3{minor}-cp3{minor}-manylinux_{glibc}_x86_64.whl"
        wheel.rename(tmp_path / "index" / name)
    installed_wheel("pip", tmp_path / "index")
    target = Target.from_options("3.12", ["manylinux_2_28_x86_64"])
    assert "manylinux2014_x86_64" in target.platforms
    arguments = ["--no-index", f"--find-links={tmp_path / 'index'}"]
    gather_wheels("scales", target, tmp_path / "wheels", arguments, print)
    chosen = [file.name for file in (tmp_path / "wheels").glob("scales*")]
    assert chosen == ["scales-0.1.0-cp312-cp312-manylinux_2_17_x86_64.whl"]
    how = "wheel" if sys.version_info[:2] == (3, 13) else "download"  # what it does for this Python, or another
    with pytest.raises(LocalJudgeError, match=f"pip {how} failed: ERROR: .*No matching distribution found"):
        gather_wheels("scales", Target.from_options("3.13", ()), tmp_path / "none", arguments, print)


def test_an_extra_that_the_wheel_does_not_have_is_refused(index: Path) -> None:
    wheel = next(index.glob("localjudge_eval-*.whl"))
    check_extras(wheel, ["trust", "cpu"])
    with pytest.raises(UsageError, match="--extra gpu: the extras are cpu, trust"):
        check_extras(wheel, ["gpu"])


def test_an_installed_wheel_is_put_together_again_unless_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--target"]
    wheel = tiny_wheel(tmp_path, "feather", module="weight = 1\n")
    subprocess.run([*install, tmp_path / "site", wheel], check=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = installed_wheel("feather", tmp_path / "first")
    assert first.name == wheel.name
    with zipfile.ZipFile(first) as again, zipfile.ZipFile(wheel) as before:
        assert set(again.namelist()) == set(before.namelist())
        same = [name for name in before.namelist() if not name.endswith("RECORD")]
        assert all(again.read(name) == before.read(name) for name in same)
    subprocess.run([*install, tmp_path / "anew", first], check=True)
    assert (tmp_path / "anew" / "feather.py").read_text() == "weight = 1\n"
    assert installed_wheel("feather", tmp_path / "second").read_bytes() == first.read_bytes()
    (tmp_path / "site" / "feather.py").write_text("weight = 2\n")
    with pytest.raises(UsageError, match=r"feather\.py: was changed after it was installed"):
        installed_wheel("feather", tmp_path / "second")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--part-size", "60X"], "--part-size 60X: write it like 60M, 1.5G or 512MiB"),
        (["--part-size", "2K", "--model", "MODEL", "--model", "MODEL"], "a second one of this name"),
        (["--rows", "nowhere.jsonl"], "--rows nowhere.jsonl: no such file"),
        (["--model", "./nowhere"], "model ./nowhere: no such directory"),
        (["--python", "3"], "--python 3: write it like 3.11"),
        (["--extra", "gpu"], "--extra gpu: the extras are cpu, trust"),
        (["--extra", "trust"], "ERROR: No matching distribution found for absent-here"),
    ],
)
def test_what_cannot_be_packed_is_said_in_one_line_and_leaves_nothing(
    cli: Cli, tmp_path: Path, offline_index: list[str], model: Path, args: list[str], said: str
) -> None:
    args = [str(model) if arg == "MODEL" else arg for arg in args]
    end = cli("pack", "--out", tmp_path / "new" / "pack", *offline_index, *args)
    assert end.code in (1, 2)
    (line,) = [line for line in end.err.splitlines() if line.startswith("localjudge: ")]
    assert said in line
    assert "Traceback" not in end.err
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_a_pack_is_never_written_over_and_parts_are_not_too_many(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes").touch()
    end = cli("pack", "--out", tmp_path / "there")
    assert (end.code, "exists already; give a new folder" in end.err) == (2, True)
    with (tmp_path / "large.jsonl").open("wb") as stream:
        stream.truncate(20_000_000)
    end = cli("pack", "--out", tmp_path / "new", "--part-size", "2K", "--rows", tmp_path / "large.jsonl")
    assert (end.code, "more than 9999 parts; give at least 2001" in end.err) == (2, True)
    with (tmp_path / "huge.jsonl").open("wb") as stream:
        stream.truncate(shutil.disk_usage(tmp_path).total)
    end = cli("pack", "--out", tmp_path / "new", "--part-size", "100G", "--rows", tmp_path / "huge.jsonl")
    assert (end.code, "not enough disk space" in end.err) == (2, True)
    assert not (tmp_path / "new").exists()
