"""Where a model is on this machine: its path, the files of this installation, the local cache of the hub."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from localjudge.errors import ModelError, first_line
from localjudge.models.digests import DECISIVE
from localjudge.models.gguf import GGUF
from localjudge.system.offline import online

BUNDLED = "bundled"
"""The name of the model that is part of the package."""

_REAL_JUDGE = (
    "Give a real judge with --model, a model directory or an id in the local cache, such as "
    "--model Qwen/Qwen3-8B"
)
BUNDLED_NOTICE = (
    "These scores come from the small bundled model. It only compares words: which words of the reference "
    "the response keeps, changes or omits, and how it is written. Use its scores to try the program, not as "
    f"results.\n{_REAL_JUDGE}"
)
BUNDLED_RUBRIC_NOTICE = (
    "These scores come from the small bundled model. It was trained for the prompt of just-eval alone; its "
    "scores and rationales by any other prompt mean nothing. Use them only to try the program.\n"
    f"{_REAL_JUDGE}"
)

# The files to download for a model on the hub. Pickled weights and programs are not downloaded.
_FETCHED = [*(f"*{ending}" for ending in DECISIVE), "*.md", "LICENSE*"]


def shipped_folder(name: str) -> Path | None:
    """Return `models/NAME` of the checkout or its copy in the installed package; None if neither exists."""
    package = Path(__file__).parents[1]
    for folder in (package / "_models" / name, package.parent / "models" / name):
        if folder.is_dir():
            return folder
    return None


def model_path(name: str | Path) -> Path:
    """Return a model's name as a path; `~` stays if there is no known home folder."""
    return Path(os.path.expanduser(name))


def bundled_folder() -> Path:
    """Return the directory of the bundled model.

    Raises:
        ModelError: it is missing from this installation.
    """
    folder = shipped_folder(BUNDLED)
    if folder is None or not (folder / "config.json").is_file():
        raise ModelError("the bundled model is missing from this installation; give another with --model")
    return folder


def cached_folder(name: str, allow_download: bool, known: Iterable[str] = ()) -> Path:
    """Return the directory of a model in the local cache of the hub, by the model's id.

    Args:
        name: the id.
        allow_download: download the model if it is not in the cache.
        known: ids of models, for advice.

    Raises:
        ModelError: it is not there, or it cannot be downloaded.
    """
    if model_path(name).is_file():
        raise ModelError(f"model {name}: is a file; give a GGUF file, or the directory of a model")
    if name.lower().endswith(GGUF):
        raise ModelError(f"model {name}: no such file")
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"model {name}: no such directory")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        # A model that was downloaded without pickles and original files is complete enough.
        if incomplete := getattr(error, "snapshot_path", None):
            return Path(incomplete)
        looked = f"model {name}: no such directory, and not in the local cache {constants.HF_HUB_CACHE}"
    if not allow_download:
        fetch = f"download it: hf download {name}, or score with --allow-download, or bring it in a pack"
        if "/" not in name:
            ids = (each for each in known if each.partition("/")[2].lower().startswith(name.lower()))
            whole = next(ids, None)
            such = "OWNER/NAME" if whole is None else f"such as {whole}"
            fetch = f"give a directory, or the whole id of a repository, {such}, or bring it in a pack"
        raise ModelError(f"{looked}; {fetch} (localjudge pack --model)")
    try:
        with online():
            return Path(snapshot_download(name, allow_patterns=_FETCHED))
    except Exception as error:  # the errors of the hub, the network and the disk have no common base class
        raise ModelError(
            f"{looked}; it cannot be downloaded: {first_line(error)}; without a network, bring a copy of its "
            "directory, or a pack: localjudge pack --model"
        ) from None
