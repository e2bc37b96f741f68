"""A report as its reader has it: the data in the file, and the page in a browser."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest


def data(page: Path, name: str) -> bytes:
    """Return the data that the page reads by this name."""
    packed = re.search(rf'<script type="application/gzip" id="data-{name}">([^<]*)</script>', page.read_text())
    assert packed
    return gzip.decompress(base64.b64decode(packed[1]))


def head(page: Path) -> dict[str, Any]:
    """Return everything that the page shows besides the judgements."""
    return dict(json.loads(data(page, "head")))


def section(page: Path, name: str) -> dict[str, Any]:
    """Return the sentences and the tables of a section."""
    return dict(head(page)["sections"][name])


def held_rows(page: Path) -> list[list[Any]]:
    """Return the texts of each judgement, in the order of the page's columns."""
    chunks = [json.loads(data(page, f"chunk-{number}")) for number in range(len(head(page)["chunks"]))]
    return [row for chunk in chunks for row in chunk["rows"]]


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        pytest.skip("no Chromium here")
    return found


def open_in_browser(page: Path, folder: Path) -> tuple[str, set[str]]:
    """Return the final document in a browser, and the network requests of the page."""
    log = folder / "net.json"
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--log-net-log={log}", "--virtual-time-budget=20000",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    # Requests of the browser itself have no origin.
    return dumped, {each["url"] for each in events if each.get("initiator", "not an origin") != "not an origin"}


READY = "document.documentElement.dataset.ready"
"""A report shows its tables and its list."""


class OpenPage(AbstractContextManager["OpenPage"]):
    """A page that stays open in a browser, to use it by its script and by keys.

    Args:
        page: a report, or the address of a page of this machine.
        folder: a folder for the browser's files.
        ready: an expression that is true as soon as the page can be used.
    """

    def __init__(self, page: Path | str, folder: Path, ready: str = READY) -> None:
        command = [
            chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--window-size=1280,900",
            "--remote-debugging-pipe",
        ]  # fmt: skip
        commands, self._to = os.pipe()
        self._from, events = os.pipe()
        # The browser reads commands from file 3 and writes events to file 4.
        given = f'exec "$@" 3<&{commands} 4>&{events}'
        self._browser = subprocess.Popen(
            ["bash", "-c", given, "bash", *command], pass_fds=(commands, events), stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(events)
        self._received, self._sent, self._session = b"", 0, ""
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self._call("Page.enable")
            self._load("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
            self.wait(ready)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        self._browser.kill()
        self._browser.wait()
        os.close(self._to)
        os.close(self._from)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression in the page is true, for at most half a minute."""
        look = f"() => {condition} ? done(true) : tries++ > 1500 ? done(false) : setTimeout(look, 20)"
        is_true = self.run(f"new Promise((done) => {{ let tries = 0; const look = {look}; look(); }})")
        assert is_true, f"{condition} stays false"

    def reload(self) -> None:
        """Load the page again, and return when it is loaded."""
        self._load("Page.reload")

    def press(self, *keys: str) -> None:
        """Press keys one after the other: a character, or the name of a key."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        for key in keys:
            code = codes.get(key, ord(key.upper()[0]))
            known: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            self._call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **known)
            self._call("Input.dispatchKeyEvent", type="keyUp", **known)

    def screenshot(self, file: Path, width: int, height: int, dark: bool = False) -> None:
        """Write a picture of the page."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def texts(self, selector: str) -> list[str]:
        """Return the text of each element that the selector finds."""
        return list(
            self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")
        )

    def select(self, box: str, option: str) -> None:
        """Choose an option of a box, by the box's id and the option's text."""
        self.run(
            f"(() => {{ const box = document.getElementById({json.dumps(box)}); box.selectedIndex = "
            f"[...box.options].findIndex((one) => one.textContent === {json.dumps(option)}); "
            "box.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )

    def _load(self, method: str, **parameters: Any) -> None:
        self._call(method, **parameters)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._sent:
            pass
        assert "result" in answer, answer
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        """Return the next message of the browser."""
        while b"\0" not in self._received:
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser ended"
            self._received += piece
        one, self._received = self._received.split(b"\0", 1)
        return dict(json.loads(one))
