"""Tests of the recipes that a pack brings: the images need no index, the Slurm array judges and merges.

`image_build.py` builds and runs the image for real, where this machine permits it; `.ci/run` does that.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from image_build import instructions
from preloaded import Preloaded

from localjudge.airgap.pack_files import RECIPES

CONTAINERFILE, DEFINITION, ARRAY, JOB = (
    RECIPES / name for name in ("Containerfile", "apptainer.def", "slurm-array.sh", "kubernetes-job.yaml")
)


def section(name: str) -> str:
    """Return a section of the Apptainer definition."""
    return DEFINITION.read_text().partition(f"\n%{name}\n")[2].partition("\n%")[0]


def test_the_image_is_built_of_the_pack_alone_on_a_base_that_the_user_names_by_its_digest() -> None:
    found = instructions(CONTAINERFILE.read_text())
    assert [value for name, value in found if name == "ARG"] == ["BASE"], (
        "without a default, which would grow old"
    )
    assert [value for name, value in found if name == "FROM"] == ["${BASE} AS install", "${BASE}"]
    steps = [json.loads(value) for name, value in found if name == "RUN"]
    assert [step[0] for step in steps] == ["python3", "install", "localjudge"]
    assert shlex.join(steps[0]) in section("post"), "both images install in the same way"
    copied = " ".join(value for name, value in found if name == "COPY").split()
    assert [word for word in section("files").split() if word != "/pack/"] == copied[:3]


def test_the_image_runs_as_a_user_without_rights() -> None:
    found = dict(instructions(CONTAINERFILE.read_text()))
    assert found["USER"] == "65532:65532"
    assert json.loads(found["ENTRYPOINT"]) == ["localjudge"]


@pytest.mark.parametrize("script", ["array", "post", "runscript"])
def test_a_shell_accepts_the_scripts(script: str, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(ARRAY.read_text() if script == "array" else f"#!/bin/sh\n{section(script)}")
    subprocess.run(["bash", "-n", file], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", file], check=True)


def test_a_linter_accepts_the_containerfile() -> None:
    if not shutil.which("hadolint"):
        pytest.skip("hadolint is not installed")
    subprocess.run(["hadolint", CONTAINERFILE], check=True)


@pytest.fixture
def cluster(tmp_path: Path, preloaded: Preloaded) -> dict[str, str]:
    """Return the environment of a job, with stand-ins for Slurm and Apptainer that run this checkout.

    The stand-in for Apptainer replaces the paths of its mounts by those of this machine.
    """
    programs = {
        "srun": '#!/bin/bash\nexec "$@"\n',
        "apptainer": """#!/bin/bash
[ "$1" = run ] || exit 64
while [ "$1" != "$IMAGE" ]; do
    if [ "$1" = --bind ]; then binds=$2; fi
    shift
done
shift
arguments=()
for argument; do
    for bind in ${binds//,/ }; do
        IFS=: read -r outside inside _ <<<"$bind"
        [[ "$argument/" == "$inside"/* ]] && argument=$outside${argument#"$inside"} && break
    done
    arguments+=("$argument")
done
exec localjudge "${arguments[@]}"
""",
        "localjudge": f'#!/bin/sh\nexec {shlex.join(preloaded.localjudge)} "$@"\n',
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    model = Path(__file__).parents[1] / "models" / "bundled"
    (tmp_path / "rows").mkdir()
    examples = (RECIPES.parents[1] / "rows" / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    for system, rows in (
        ("one", examples[:3]),
        ("other", [*examples[3:5], '{"id": "empty", "instruction": "A?"}']),
    ):
        (tmp_path / "rows" / f"{system}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "IMAGE": "localjudge.sif", "MODEL": str(model),
        "ROWS": str(tmp_path / "rows"), "OUT": str(tmp_path / "runs"), "SHARDS": "2",
    }  # fmt: skip


def job(environment: dict[str, str], *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ARRAY, *arguments], env=environment | variables, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_array_judges_its_shards_and_its_last_job_merges_them(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    early = job(cluster, "merge")
    assert early.returncode == 2
    for shard in ("1", "2"):
        done = job(cluster, "--seed", "7", SLURM_ARRAY_TASK_ID=shard)
        assert done.returncode == 0, done.stderr  # also that of the shard with a row that failed
    merged = job(cluster, "merge")
    assert merged.returncode == 0, merged.stderr
    whole = tmp_path / "runs" / "whole"
    lines = [json.loads(line) for line in (whole / "judgements.jsonl").read_bytes().splitlines()]
    assert [line["status"] for line in lines] == ["judged"] * 5 + ["failed"]
    assert {line["system"] for line in lines} == {"one", "other"}
    assert json.loads((whole / "run.json").read_bytes())["settings"]["seed"] == 7
    again = job(cluster, "--seed", "7", SLURM_ARRAY_TASK_ID="1")
    assert again.returncode == 0, "a complete shard ends at once"
    broken = job(cluster, "--seed", "8", SLURM_ARRAY_TASK_ID="1")
    assert (broken.returncode, "holds another run" in broken.stderr) == (2, True)


def test_the_array_says_what_it_lacks(cluster: dict[str, str]) -> None:
    ended = job({name: value for name, value in cluster.items() if name != "SHARDS"}, SLURM_ARRAY_TASK_ID="1")
    assert (ended.returncode, "SHARDS: the number of shards" in ended.stderr) == (1, True)


def test_each_pod_of_the_job_judges_its_shard_and_continues_it(cluster: dict[str, str], tmp_path: Path) -> None:
    spec = next(yaml.safe_load_all(JOB.read_text()))["spec"]
    [pod] = spec["template"]["spec"]["containers"]
    assert pod["env"] == [{"name": "SHARDS", "value": str(spec["completions"])}]
    (tmp_path / "model").symlink_to(cluster["MODEL"])
    command = [*pod["command"], *(each.replace("/data", str(tmp_path)) for each in pod["args"])]

    def run_pod(index: int) -> int:
        return subprocess.run(command, env=cluster | {"JOB_COMPLETION_INDEX": str(index)}).returncode

    assert [run_pod(index) for index in (0, 1)] == [0, 0], "also that of the shard with a row that failed"
    lines = [
        json.loads(line)
        for shard in ("1", "2")
        for line in (tmp_path / "runs" / "sweep" / shard / "judgements.jsonl").read_bytes().splitlines()
    ]
    assert sorted(line["status"] for line in lines) == ["failed"] + ["judged"] * 5
    assert run_pod(0) == 0, "a pod that is started again finds its shard complete"
