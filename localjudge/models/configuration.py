"""The JSON files of a model, and the programs that its `config.json` asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError


def read_document(file: Path, owner: str) -> dict[str, Any]:
    """Read one of the JSON files of a model.

    Args:
        file: the file, such as `config.json`.
        owner: what it belongs to, for the message: `model NAME`.

    Raises:
        ModelError: the file is missing, or is not a JSON object.
    """
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{owner}: {file.parent} has no {file.name}; give a model directory") from None
    except OSError as error:
        raise ModelError(f"{owner}: {file.name}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{owner}: {file.name}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ModelError(f"{owner}: {file.name}: not a JSON object")
    return document


def remote_kernels(config: Mapping[str, Any]) -> list[str]:
    """Return the repositories of compiled kernels that a configuration tells transformers to download.

    They occur as the name of an implementation: `"attn_implementation": "kernels-community/flash-attn3"`, also
    in a nested configuration, or in a mapping with a name for each part of the model.
    """
    repositories: set[str] = set()
    for key, value in config.items():
        if "implementation" in key:
            names = value.values() if isinstance(value, Mapping) else [value]
            repositories |= {str(name) for name in names if isinstance(name, str) and "/" in name}
        elif isinstance(value, Mapping):
            repositories |= set(remote_kernels(value))
    return sorted(repositories)


def remote_code(configuration: Mapping[str, Any]) -> Iterator[str]:
    """Yield the code files that a configuration tells the library to run.

    Its `auto_map` names a class, or a list of classes, for each purpose: `REPOSITORY--MODULE.CLASS`, where the
    repository is optional.
    """
    auto_map = configuration.get("auto_map")
    if not isinstance(auto_map, dict):
        return
    for value in auto_map.values():
        references = value if isinstance(value, list) else [value]
        for reference in references:
            if reference:
                in_repository = str(reference).rpartition("--")[2]
                module = in_repository.partition(".")[0]
                yield f"{module}.py"
