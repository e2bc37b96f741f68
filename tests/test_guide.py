"""The guide and README: every command in them runs, and every option in them exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli, random_model
from preloaded import Preloaded
from scripted_server import chat, serving

from localjudge.cli.help import TOPICS
from localjudge.rubrics.rubric_file import shipped_rubrics

ROOT = Path(__file__).parents[1]
PAGES = {topic: ROOT / "localjudge" / "cli" / "guide" / f"{topic}.md" for topic in TOPICS}
BLOCK = re.compile(
    r"(?:<!-- (not run: .*?|first|test) -->\n)?^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN = {
    "needs a GPU",
    "needs DeepEval",
    "needs DuckDB",
    "needs Ray",
    "needs Slurm; the tests run its four tasks one after another",
    "needs a harness; tests/with_harnesses runs the same",
    "needs a host of yours",
    "needs files of yours",
    "needs Docker",
    "needs Kubernetes",
    "needs a person in a browser",
    "needs Slurm and Apptainer",
    "needs the server that this command starts",
    "`.ci/run` packs and unpacks",
    "`.ci/run` makes the model",
}
"""Why a command of the guide does not run in these tests."""
OF_OTHER_PROGRAMS = {
    "--hf-overrides",
    "--key",
    "--log_samples",
    "--logits-processors",
    "--logprobs-mode",
    "--max-samples",
}
SIX = ("safety", "engagement", "clarity", "factuality", "depth", "helpfulness")


def script_of(text: str, folder: Path) -> str:
    """Return the commands of a page as one shell script, and write the files that the page says to save."""
    script = ["set -eo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for comment, language, name, code in BLOCK.findall(text):
        if comment:
            assert comment in {"first", "test"} or comment.removeprefix("not run: ") in NOT_RUN, comment
        elif name:
            (folder / name).write_text(code)
        elif language == "bash":
            script.append(code)
        elif language == "python":
            file = folder / f"block-{len(script)}.py"
            file.write_text(code)
            script.append(f"python3 {file.name}\n")
        if name and "#SBATCH --array=1-4" in code:
            script.append(f"for task in 1 2 3 4; do SLURM_ARRAY_TASK_ID=$task bash {name}; done\n")
        elif name and "#SBATCH" in code:
            script.append(f"bash {name}\n")
    return "\n".join(script)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment of a user with `localjudge`, `srun`, and Qwen/Qwen3-8B in the local cache."""
    folder = tmp_path_factory.mktemp("desk")
    snapshot = folder / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    random_model(snapshot, context=1 << 14)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(snapshot.name)
    programs = folder / "bin"
    programs.mkdir()
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HF_HUB_CACHE": str(folder / "hub"),
        "PYTHONPATH": str(ROOT),
    }
    with Preloaded(environment) as preloaded:
        script = f'case $1 in *.py) exec {shlex.join(preloaded.client)} "$@" ;; esac'
        for name, command in (
            ("localjudge", f"exec {shlex.join(preloaded.localjudge)}"),
            ("python3", f"{script}\nexec {sys.executable}"),
            ("srun", "exec"),
        ):
            (programs / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
            (programs / name).chmod(0o755)
        yield environment


def run_script(script: str, folder: Path, environment: dict[str, str]) -> None:
    ended = subprocess.run(["bash", "-xc", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "server"])
def test_every_command_of_a_page_runs(topic: str, tmp_path: Path, desk: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    run_script(script_of(PAGES[topic].read_text().replace("8700", port), tmp_path), tmp_path, desk)


@pytest.mark.slow
def test_every_command_of_the_page_on_servers_runs(tmp_path: Path, desk: dict[str, str]) -> None:
    answer = json.dumps({"rationale": "Seen.", "scores": dict.fromkeys(SIX, "4")}, separators=(",", ":"))
    script = script_of(PAGES["server"].read_text(), tmp_path)
    with serving(lambda text, count: chat(answer)) as server:
        server.models = ["Qwen/Qwen3-8B", "qwen3:8b"]
        for port in ("8000", "11434"):
            script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{server.server_address[1]}")
        run_script(script, tmp_path, desk)


@pytest.mark.slow
def test_every_command_of_readme_runs(tmp_path: Path, desk: dict[str, str]) -> None:
    run_script(script_of((ROOT / "README.md").read_text(), tmp_path), tmp_path, desk)


def helps(cli: Cli) -> dict[str, str]:
    """Return the help of each command, by its name with the group."""
    found = {}
    for name in re.findall(r"^  ([a-z][a-z-]*)  ", cli("--help").out, re.MULTILINE):
        found[name] = cli(name, "--help").out
        for inner in re.findall(r"^  ([a-z]+)  ", found[name].partition("Commands:")[2], re.MULTILINE):
            found[f"{name} {inner}"] = cli(name, inner, "--help").out
    return found


def test_every_option_in_the_guide_and_readme_is_one_of_the_program(cli: Cli) -> None:
    known = set(re.findall(r"--[a-z-]+", cli("--help").out + "".join(helps(cli).values())))
    text = "".join(file.read_text() for file in [*PAGES.values(), ROOT / "README.md"])
    named = set(
        re.findall(
            r"(?<![\w-])--[a-z][a-z_-]+",
            re.sub(
                r"^#SBATCH.*|^ *(curl|docker|apptainer|python3|sbatch|shards|inspect|lm_eval|kubectl|\(cd|"
                r"--volume).*",
                "",
                text,
                flags=re.MULTILINE,
            ),
        )
    )
    assert named - known == OF_OTHER_PROGRAMS


def test_every_option_of_the_program_is_in_the_guide_or_readme(cli: Cli) -> None:
    text = "".join(file.read_text() for file in [*PAGES.values(), ROOT / "README.md"])
    known = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", cli("--help").out + "".join(helps(cli).values())))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert known - named == {"--show-completion"}, "say in a sentence what it is for, or delete it"


def test_readme_lists_the_commands_in_the_words_of_their_help(cli: Cli) -> None:
    rows = re.findall(
        r"^\| `localjudge ([a-z-]+)` \| (.*?) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    commands = {name: " ".join(text.split()) for name, text in helps(cli).items()}
    assert [name for name, said in rows if said not in commands[name]] == []
    assert {name for name, _ in rows} == {name for name in commands if " " not in name}


def test_readme_lists_the_topics_in_the_words_of_their_pages(cli: Cli) -> None:
    rows = re.findall(
        r"^\| `localjudge help ([a-z-]+)` \| (.*?) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert rows == re.findall(r"^  ([a-z-]+) +(.*)$", cli("help").out, re.MULTILINE)
    assert {file.stem for file in PAGES["rows"].parent.glob("*.md")} == set(TOPICS)


def test_the_page_on_rubrics_lists_all_that_are_included() -> None:
    assert set(re.findall(r"^\| .*? \| `([a-z-]+)`", PAGES["rubrics"].read_text(), re.MULTILINE)) == set(
        shipped_rubrics()
    )


def test_a_page_in_a_pipe_is_its_markdown_without_the_notes_for_tests(cli: Cli) -> None:
    page = cli("help", "airgap").out
    assert page.startswith("# airgap: ")
    assert "<!--" not in page
    assert "python3 pack/unpack.py" in page


def test_help_of_a_command_is_its_help(cli: Cli) -> None:
    assert cli("help", "merge").out.split() == cli("merge", "--help").out.split()


def test_an_unknown_topic_is_answered_with_those_that_there_are(cli: Cli) -> None:
    ended = cli("help", "slurm")
    assert ended.code == 2
    assert ended.err.startswith("localjudge: no topic 'slurm'; there are: rows, rubrics, ")
