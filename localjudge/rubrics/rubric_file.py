"""The file of a rubric: one of those in the package, by its name, or a TOML file."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from localjudge.errors import RubricError

_SHIPPED = files("localjudge") / "rubrics"


def read_document(name_or_file: str | Path) -> dict[str, Any]:
    """Return the content of the included rubric of this name, or of this TOML file.

    Raises:
        RubricError: there is no such rubric, or the file cannot be read.
    """
    where = str(name_or_file)
    try:
        if where in shipped_rubrics():
            raw = (_SHIPPED / f"{where}.toml").read_bytes()
        else:
            raw = Path(name_or_file).read_bytes()
        return tomllib.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        raise RubricError(
            f"rubric {where}: no such file, and no included rubric of this name; "
            f"give a TOML file or one of {', '.join(shipped_rubrics())}"
        ) from None
    except OSError as error:
        raise RubricError(f"rubric {where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RubricError(f"rubric {where}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RubricError(f"rubric {where}: not TOML: {error}") from None


def shipped_rubrics() -> list[str]:
    """Return the names of the rubrics in the package."""
    return sorted(entry.name[:-5] for entry in _SHIPPED.iterdir() if entry.name.endswith(".toml"))
