"""Models in the local cache of the hub: where one is, and the download of one that is not there."""

from __future__ import annotations

from pathlib import Path

from localjudge.errors import ModelError, in_one_line
from localjudge.models.catalogue import model_path, profiles
from localjudge.models.digests import DECISIVE
from localjudge.system.machine import online

_DOWNLOADED = [f"*{suffix}" for suffix in DECISIVE] + ["*.md", "LICENSE*"]
"""The files to download for a model on the hub. Pickled weights and programs are not downloaded."""


def refused_gguf(name: str) -> ModelError:
    """Return the error for a model in a GGUF file, which no engine of this process loads."""
    return ModelError(
        f"model {name}: a GGUF file is judged through a server that runs it, such as llama.cpp or Ollama, with "
        "`engine` server (localjudge help server); or give a directory with the model's safetensors files"
    )


def cached_folder(name: str, *, allow_download: bool) -> Path:
    """Return the directory of a model in the local cache of the hub, by the model's id.

    Args:
        name: the id.
        allow_download: download the model if it is not in the cache.

    Raises:
        ModelError: it is not there, or it cannot be downloaded.
    """
    if name.lower().endswith(".gguf"):
        raise refused_gguf(name)
    if model_path(name).is_file():
        raise ModelError(f"model {name}: is a file; give the directory of a model")
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"model {name}: no such directory")
    from huggingface_hub import constants

    folder = _in_cache(name)
    if folder is not None:
        return folder
    not_here = f"model {name}: no such directory, and not in the local cache {constants.HF_HUB_CACHE}"
    if allow_download:
        return _download(name, not_here)
    raise ModelError(f"{not_here}; {_how_to_get(name)} (localjudge pack --model)")


def _in_cache(name: str) -> Path | None:
    """Return the directory of a model in the cache; None if it is not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        # A model that was downloaded without pickles and original files is complete enough.
        incomplete = getattr(error, "snapshot_path", None)
        return Path(incomplete) if incomplete else None


def _download(name: str, not_here: str) -> Path:
    """Download a model, and return its directory.

    Args:
        name: the id.
        not_here: the beginning of the message if that fails.

    Raises:
        ModelError: it cannot be downloaded.
    """
    from huggingface_hub import snapshot_download

    try:
        with online():
            return Path(snapshot_download(name, allow_patterns=_DOWNLOADED))
    except Exception as error:  # the errors of the hub, the network and the disk have no common base class
        raise ModelError(
            f"{not_here}; it cannot be downloaded: {in_one_line(error)}; without a network, bring a copy of "
            "its directory, or a pack: localjudge pack --model"
        ) from None


def _how_to_get(name: str) -> str:
    """Return what to do about a model that is not on this machine."""
    if "/" in name:
        return f"download it: hf download {name}, or score with --allow-download, or bring it in a pack"
    similar_ids = (profile.id for profile in profiles() if profile.name.startswith(name.lower()))
    similar = next(similar_ids, None)
    example = "OWNER/NAME" if similar is None else f"such as {similar}"
    return f"give a directory, or the whole id of a repository, {example}, or bring it in a pack"
