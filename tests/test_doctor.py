"""Tests of `doctor`: green if a run would start, and every possible red line."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Cli, Ended, fake_package

from localjudge import doctor
from localjudge.doctor import examine, required_packages, writable
from localjudge.system import requirements
from localjudge.verification import Check


def lines(end: Ended, state: str) -> list[str]:
    """Return the name and the message of each check with this result."""
    return [" ".join(line.split()[2:]) for line in end.out.splitlines() if line.split()[1] == state]


def program(path: Path, *args: str, **environment: str) -> Ended:
    """Run `doctor` in a separate process that finds the modules of this folder first."""
    root = str(Path(doctor.__file__).parents[1])
    end = subprocess.run(
        [sys.executable, "-m", "localjudge", "doctor", *args],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(path), root])} | environment,
        capture_output=True,
        text=True,
    )
    return Ended(end.returncode, end.stdout, end.stderr)


def test_a_machine_on_which_a_run_would_start_is_green_and_ends_with_0(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    end = cli("doctor", "--model", model, "--engine", "transformers", "--out", tmp_path / "a" / "new")
    assert (end.code, lines(end, "wrong")) == (0, []), end.out
    assert {line[:7] for line in end.out.splitlines()} <= {"✓ ok   ", "! note "}
    said = {line.split()[0] for line in lines(end, "ok")}
    assert said == {"packages", "temporary", "out", "engine", "model", "fit"}
    assert not (tmp_path / "a").exists(), "an examination leaves nothing behind"
    assert cli("score", "examples", "--limit", 1, "--out", tmp_path / "out", "--model", model,
               "--max-rationale-tokens", 1).code == 0, "what is green starts"  # fmt: skip


def test_the_findings_come_as_json_too(cli: Cli, model: Path) -> None:
    end = cli("doctor", "--model", model / "none", "--json")
    checks = json.loads(end.out)
    assert end.code == 1
    assert all(set(check) == {"name", "state", "found", "fix"} for check in checks)
    assert [check["name"] for check in checks if check["state"] == "wrong"] == ["model"]


def test_broken_libraries_are_each_a_red_line_and_the_examination_goes_on(tmp_path: Path) -> None:
    fake_package(
        tmp_path,
        "localjudge-eval",
        "Requires-Dist: numpy>=99",
        "Requires-Dist: no-such-thing>=1",
        "Requires-Dist: rich>=1",
        'Requires-Dist: abacus>=2; extra == "vllm"',
    )
    (tmp_path / "vllm.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')\n")
    end = program(tmp_path, "--engine", "vllm", "--model", "none")
    assert (end.code, "Traceback" in end.err) == (1, False), end.err
    said = lines(end, "wrong")
    for expected in (
        "packages numpy ",
        'packages no-such-thing is not installed → pip install "no-such-thing>=1"',
        'packages abacus is not installed → pip install "abacus>=2"',
        "engine OSError: libcudart.so.13: cannot open shared object file → ",
    ):
        assert sum(line.startswith(expected) for line in said) == 1, (expected, said)
    assert any('localjudge needs >=99 → pip install "numpy>=99"' in line for line in said)
    assert all(" → " in line for line in said)
    assert any(line.startswith("packages rich ") for line in lines(end, "ok")), "and what is there is named"
    assert any(line.startswith("temporary ") for line in lines(end, "ok"))


def test_the_package_of_another_project_with_our_module_is_red(installed_as: Path) -> None:
    fake_package(installed_as, "localjudge-eval", "Requires-Dist: rich")
    assert [check.state for check in required_packages([])] == ["ok"]
    fake_package(installed_as, "localjudge", version="0.0.1")
    *_, fault = required_packages([])
    assert fault.found.startswith("localjudge 0.0.1 is installed, another project's package")
    assert fault.fix == "pip uninstall localjudge; install localjudge-eval again"


def test_without_metadata_of_its_own_the_packages_are_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "SELF", "localjudge-of-nowhere")
    red = {check.name: check for check in examine(model="none") if check.state == "wrong"}
    assert set(red) == {"packages", "model"}
    assert red["packages"].found == "cannot be checked: localjudge-of-nowhere is not installed"
    assert "pip install" in red["packages"].fix


def test_the_extras_of_what_an_extra_asks_for_are_looked_at_too(installed_as: Path) -> None:
    fake_package(
        installed_as, "localjudge-eval", 'Requires-Dist: ray[data]>=2; extra == "ray"', "Requires-Dist: rich"
    )
    data = ['Requires-Dist: arrows>=9; extra == "data"', 'Requires-Dist: bows>=9; extra == "other"']
    fake_package(installed_as, "ray", *data, version="2.5")
    fake_package(installed_as, "arrows", version="8")
    assert [check.state for check in required_packages(["cpu"])] == ["ok"], "an extra that is not used"
    fine, fault = required_packages(["ray"])
    assert fine.found.startswith("ray 2.5, rich ")
    assert (fault.found, fault.fix) == (
        "arrows 8, but localjudge needs >=9", 'pip install "arrows>=9"',
    )  # fmt: skip


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_asked_for_and_not_there_is_red(cli: Cli) -> None:
    end = cli("doctor", "--engine", "vllm", "--model", "none")
    assert end.code == 1
    said = lines(end, "wrong")
    assert 'packages vllm is not installed → pip install "vllm==0.32.*"' in said
    assert 'engine vLLM is not installed → pip install "vllm==0.32.*", or give --engine transformers' in said


def test_a_vllm_that_breaks_or_finds_no_device_is_red(installed_as: Path) -> None:
    def said() -> Check:
        (check,) = [check for check in examine("none", "vllm") if check.name == "engine"]
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        return check

    (installed_as / "vllm").mkdir()
    (installed_as / "vllm" / "__init__.py").write_text("import sys; sys.exit('no CPU of such a kind')")
    check = said()
    assert (check.state, check.found) == ("wrong", "SystemExit: no CPU of such a kind")
    # Of another length: Python takes a file of the same second and length for the one that it has compiled.
    for name, text in {
        "__init__": "__version__ = '9.9.0-no-device'; LLM = None",
        "platforms": "class current_platform: device_type = ''; is_cpu = staticmethod(lambda: False)",
    }.items():
        (installed_as / "vllm" / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    check = said()
    assert (check.state, check.found) == (
        "wrong",
        "vLLM 9.9.0-no-device finds no device of the kind that it was built for",
    )


def test_a_run_directory_that_cannot_be_written_is_red(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    end = cli("doctor", "--model", "none", "--out", tmp_path / "file")
    assert (
        f"out {tmp_path}/file: is a file → free space or change the permissions, or give another --out"
        in lines(end, "wrong")
    )
    end = cli("doctor", "--model", "none", "--out", tmp_path / "file" / "below")
    assert any(f"{tmp_path}/file is a file" in line for line in lines(end, "wrong"))
    if os.geteuid() == 0:
        check = writable("out", Path("/proc/1/new"))
    else:
        (tmp_path / "shut").mkdir(0o500)
        check = writable("out", tmp_path / "shut" / "new")
    assert (check.state, "cannot be written: " in check.found) == ("wrong", True)


def test_a_full_disk_is_red(tmp_path: Path) -> None:
    check = writable("out", tmp_path, 10**18)
    assert (check.state, "GB free, less than 1000000000.0 GB" in check.found) == ("wrong", True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("a disk can be mounted only by who may")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="not root")
def test_a_really_full_disk_is_red(tiny_disk: Path) -> None:
    check = writable("out", tiny_disk)
    assert (check.state, "only 1.0 MB free, less than 200.0 MB" in check.found) == ("wrong", True)
    (tiny_disk / "filler").write_bytes(b"x" * 2**20)
    check = writable("out", tiny_disk)
    assert (check.state, "cannot be written: No space left on device" in check.found) == ("wrong", True)


def test_without_a_writable_temporary_folder_the_check_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "file")])
    (check,) = [check for check in examine(model="none") if check.name == "temporary"]
    assert (check.state, check.fix) == ("wrong", "set TMPDIR")
    assert "No usable temporary directory found" in check.found


@pytest.mark.slow
def test_a_model_that_is_not_there_damaged_or_changed_is_red(cli: Cli, tmp_path: Path, model: Path) -> None:
    def said(name: object) -> str:
        (line,) = lines(cli("doctor", "--model", name), "wrong")
        return line

    assert (
        said("./none")
        == "model ./none: no such directory → give --model a directory, or an id in the local cache"
    )
    whole = "the whole id of a repository, such as meta-llama/Llama-3.3-70B-Instruct"
    assert whole in said("llama-3.3-70b")
    assert "the whole id of a repository, OWNER/NAME" in said("none")
    assert "hf download" not in said("llama-3.3-70b") + said("none")
    assert said("some/one").startswith("model some/one: no such directory, and not in the local cache ")
    assert said("some/one").endswith(
        " → download it: hf download some/one, or score with --allow-download, or bring it in a pack "
        "(localjudge pack --model)"
    )
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    assert cli("models", "verify", folder).code == 0
    (state,) = [line for line in lines(cli("doctor", "--model", folder), "ok") if line.startswith("model ")]
    assert state.endswith("context 4,096 tokens, as verified")
    (folder / "LICENSE").write_text("new")
    assert f"model {folder}: changed since it was verified on " in said(folder)
    assert "LICENSE is new → copy the model again, or accept the change: localjudge models verify " in said(
        folder
    )
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)
    assert f"model {folder}: weights: model.safetensors: damaged or cut short" in said(folder)


def test_a_model_larger_than_the_memory_here_is_red(cli: Cli, tmp_path: Path, model: Path) -> None:
    size = 8 * 2**40
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, held = json.loads(content[8 : 8 + length]), len(content) - 8 - length
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {  # a file that every loader ignores
        "dtype": "U8",
        "shape": [size],
        "data_offsets": [held, held + size],
    }
    longer = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(longer).to_bytes(8, "little") + longer + content[8 + length :])
        stream.truncate(8 + len(longer) + held + size)  # a sparse file, which uses no disk space
    end = cli("doctor", "--model", folder)
    (said,) = lines(end, "wrong")
    assert (end.code, said.startswith("fit no: ")) == (1, True), said
    assert said.endswith(f"→ use a smaller model or more GPUs: localjudge models plan {folder}")


def test_a_machine_without_a_library_of_the_judge_is_checked() -> None:
    program = "import sys; sys.modules['outlines_core'] = None; from localjudge.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--model", "bundled"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "cannot be checked: outlines_core is missing" in ended.stdout
    assert "temporary" in ended.stdout


def test_a_check_that_breaks_is_a_red_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, folder: Path) -> Check:
        raise RuntimeError("out of order\nand more of it")

    monkeypatch.setattr(doctor, "writable", broken)
    (check,) = [check for check in examine(model="none") if check.name == "temporary"]
    assert (check.state, check.found) == ("wrong", "RuntimeError: out of order … and more of it")


def test_without_its_libraries_the_program_says_what_to_install(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    end = cli("score", "examples", "--out", tmp_path / "out")
    assert end.code == 2
    assert end.err.startswith('localjudge: transformers is not installed: pip install "torch')


def test_an_engine_that_there_is_not_ends_with_2(cli: Cli) -> None:
    end = cli("doctor", "--engine", "fast")
    said = "--engine fast: give one of auto, vllm, transformers, server, dry-run"
    assert (end.code, said in end.err) == (2, True)


@pytest.mark.parametrize("command", [["doctor"], ["models", "verify"]])
def test_the_help_says_how_it_ends(cli: Cli, command: list[str]) -> None:
    end = cli(*command, "--help")
    assert (end.code, "Exits with 0" in " ".join(end.out.split())) == (0, True)
    assert all(len(line) <= 80 for line in end.out.splitlines())
