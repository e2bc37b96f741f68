"""The log of an engine: a file for what its libraries print."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localjudge.secret_texts import hide_in_file, without_secrets


@contextmanager
def output_to(log: Path | None) -> Iterator[None]:
    """Redirect the output of this process and its children to a file; None changes nothing.

    Child processes, and vLLM's loggers in this process, continue to write there after the block. At its end,
    the secrets that this process knows are overwritten in the file.
    """
    if log is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(stream) for stream in (1, 2)]
    with log.open("ab") as stream:
        for target in (1, 2):
            os.dup2(stream.fileno(), target)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, target)
            os.close(copy)
        _point_loggers_at(log)
        hide_in_file(log)


class LogFormatter(logging.Formatter):
    """The format of a line of the log, without the secrets that this process knows."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def _point_loggers_at(log: Path) -> None:
    logger = logging.getLogger("vllm")
    for handler in logger.handlers:
        handler.close()
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(LogFormatter())
    logger.handlers = [handler]
    logger.propagate = False
