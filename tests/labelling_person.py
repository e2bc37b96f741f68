"""A person who labels on the page of `localjudge label`, and checks that each answer of the program is true.

The person labels all rows, undoes one label, and gives it again. After each answer the file of labels is read:
a label that was confirmed is in it, one that was refused or undone is not.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ANNOTATOR = "Ann"
VALUE = "2"
UNDONE = 2
"""Number of confirmed labels after which the last one is undone."""
PATIENCE = 3
"""Number of refusals after which the person gives up."""


class LabellingPerson:
    """A person at the page of one start of the program.

    Args:
        command: the program with its arguments.
        folder: where it runs.
        environment: its variables.
        file: the file of labels.
        keeps_failing: whether operations keep failing after the first. A label that could not be flushed then
            cannot be taken out of the file again, and is refused all the same.

    Attributes:
        untrue: each answer of the program that the file of labels contradicts, in words.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        file: Path,
        *,
        keeps_failing: bool = False,
    ) -> None:
        self._command, self._folder, self._environment = command, folder, environment
        self._file, self._keeps_failing = file, keeps_failing
        self._confirmed: set[str] = set()
        self._refusals = 0
        self._last = ""
        self.untrue: list[str] = []

    def label(self) -> subprocess.CompletedProcess[str]:
        """Start the program, label, stop it with Ctrl-C unless it ends by itself, and return how it ended.

        Raises:
            subprocess.TimeoutExpired: it does not end.
        """
        process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        said = []
        with process:
            address = ""
            for line in process.stderr:
                said.append(line)
                if line.startswith("open "):
                    address = line.split()[1]
                    break
            reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
            reader.start()
            if address:
                with suppress(OSError, http.client.HTTPException):  # the program is ending
                    self._label_all(address)
                    process.send_signal(signal.SIGINT)
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            reader.join()
        lost = self._confirmed - self._labelled()
        if lost:
            self.untrue.append(f"{len(lost)} confirmed labels are not in {self._file.name}")
        return subprocess.CompletedProcess(process.args, code, "", "".join(said))

    def _label_all(self, address: str) -> None:
        status, answer = self._ask(address, "/row")
        undone = False
        while self._refusals < PATIENCE:
            if status != 200:
                self._refusals += 1
                status, answer = self._ask(address, "/row")
                continue
            if len(self._confirmed) >= UNDONE and not undone:
                undone = True
                status, answer = self._undo(address)
                continue
            if answer["row"] is None:
                return
            status, answer = self._give(address, answer["row"]["key"])

    def _give(self, address: str, key: str) -> tuple[int, dict[str, Any]]:
        """Label a row, and return the answer."""
        values = {"tact": VALUE, "wit": VALUE}
        status, answer = self._ask(address, "/label", key=key, values=values)
        there = key in self._labelled()
        if status == 200:
            self._confirmed.add(key)
        is_untrue = not there if status == 200 else there and not self._keeps_failing
        if is_untrue:
            self.untrue.append(f"label answered {status}, {answer.get('error', '')}; in the file: {there}")
        self._last = key
        return status, answer

    def _undo(self, address: str) -> tuple[int, dict[str, Any]]:
        """Undo the last label, and return the answer."""
        self._confirmed.discard(self._last)
        status, answer = self._ask(address, "/undo")
        there = self._last in self._labelled()
        if there == (status == 200):
            self.untrue.append(f"undo answered {status}, {answer.get('error', '')}; in the file: {there}")
        return status, answer

    def _ask(self, address: str, path: str, **content: object) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of an answer.

        Raises:
            OSError: the program has ended.
        """
        base, _, token = address.partition("?token=")
        body = json.dumps({"annotator": ANNOTATOR, **content}).encode()
        request = urllib.request.Request(base.rstrip("/") + path, body, {"authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                said = error.read()
            return error.code, json.loads(said) if said.startswith(b"{") else {"error": said.decode()}

    def _labelled(self) -> set[str]:
        """Return the keys of the rows whose labels are in the file; an incomplete last line is none."""
        content = self._file.read_bytes() if self._file.exists() else b""
        lines = content.split(b"\n")[:-1]
        return {json.loads(line)["label"]["row"] for line in lines}
