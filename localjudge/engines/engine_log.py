"""The log of an engine: a file for what its libraries print."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_to(log: Path | None) -> Iterator[None]:
    """Redirect the output of this process and its children to a file; None changes nothing.

    Child processes, and vLLM's loggers in this process, continue to write there after the block.
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


def _point_loggers_at(log: Path) -> None:
    logger = logging.getLogger("vllm")
    for handler in logger.handlers:
        handler.close()
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.handlers, logger.propagate = [handler], False
