"""The log of an engine, which has all that its libraries print, but no secret."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localjudge.engines.engine_log import output_to
from localjudge.secret_texts import remember_secret

SECRET = "hf_InNoLogOfAnEngine"


def test_what_libraries_and_their_processes_print_is_in_the_log_without_secrets(tmp_path: Path) -> None:
    remember_secret(SECRET)
    log, logger = tmp_path / "engine.log", logging.getLogger("vllm")
    before = logger.handlers, logger.propagate
    try:
        with output_to(log):
            os.write(1, f"token {SECRET} of a library\n".encode())
            program = f"print('token', {SECRET!r}, 'of a process')"
            subprocess.run([sys.executable, "-c", program], check=True)
        logger.error("token %s of a logger", SECRET)
        try:
            raise ValueError(f"token {SECRET} of an error")
        except ValueError:
            logger.exception("it failed")
    finally:
        for handler in logger.handlers:
            handler.close()
        logger.handlers, logger.propagate = before
    text = log.read_text()
    for source in ("of a library", "of a process", "of a logger", "of an error"):
        assert source in text
    assert SECRET not in text
    assert text.count("*" * len(SECRET)) == 2, "what is on the disk keeps its length"


@pytest.mark.parametrize("text", ["", "no secret\n", f"{SECRET}\n" * 3])
def test_a_log_of_an_earlier_start_loses_its_secrets_and_nothing_else(tmp_path: Path, text: str) -> None:
    remember_secret(SECRET)
    log = tmp_path / "engine.log"
    log.write_text(text)
    with output_to(log):
        pass
    assert log.read_text() == text.replace(SECRET, "*" * len(SECRET))
