"""The machine for which wheels are collected: its Python, and the platforms whose wheels it runs."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass

from localjudge.errors import UsageError

_OLDEST_PYTHON = 11
"""The minor version of the oldest Python 3 that localjudge supports."""
_OLDEST_GLIBC = 5
"""The minor version of the oldest glibc 2 for which there are wheels."""
_LEGACY_TAGS = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
"""The names that glibc 2.5, 2.12 and 2.17 had before PEP 600, by the minor version."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target machine of the wheels.

    Attributes:
        python: its Python, such as 3.11.
        platforms: its platform tags.
        options: pip's options for another machine than this one; none for this one.
    """

    python: str
    platforms: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether it is like this machine."""
        return not self.options

    @classmethod
    def from_options(cls, python: str | None = None, platforms: Sequence[str] = ()) -> Target:
        """Return this machine as the target, or another one, for which only existing wheels can be used.

        Args:
            python: its Python, such as 3.11; None for this one.
            platforms: its platforms, such as manylinux_2_28_x86_64; none for this one.

        Raises:
            UsageError: it is no Python that localjudge supports.
        """
        this_python = f"{sys.version_info.major}.{sys.version_info.minor}"
        if python is None:
            python = this_python
        elif not re.fullmatch(r"3\.\d+", python):
            raise UsageError(f"--python {python}: write it like 3.11")
        elif int(python.removeprefix("3.")) < _OLDEST_PYTHON:
            raise UsageError(f"--python {python}: localjudge needs 3.{_OLDEST_PYTHON} or later")
        tags: list[str] = []
        for platform in platforms:
            tags += _with_older(platform)
        if python == this_python and not tags:
            return cls(python, (sysconfig.get_platform(),))
        options = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
        options += [f"--platform={tag}" for tag in tags]
        if not tags:
            tags = [sysconfig.get_platform()]
        return cls(python, tuple(tags), options=tuple(options))


def _with_older(platform: str) -> list[str]:
    """Return the tags of wheels that run on a platform: for glibc, also those of older glibc (PEP 600)."""
    match = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)
    if match is None:
        return [platform]
    newest_glibc = int(match[1])
    architecture = match[2]
    tags: list[str] = []
    for glibc in range(newest_glibc, _OLDEST_GLIBC - 1, -1):
        tags.append(f"manylinux_2_{glibc}_{architecture}")
        if glibc in _LEGACY_TAGS:
            tags.append(f"{_LEGACY_TAGS[glibc]}_{architecture}")
    return tags
