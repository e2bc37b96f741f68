"""A model in a single GGUF file: its configuration and its tokenizer, as transformers reads its metadata."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.gguf_header import GGUF, GgufHeader

LINKED = f"model{GGUF}"
"""The name of the file in the directory that `alone` yields."""


def gguf_file(path: Path) -> Path | None:
    """Return the GGUF file that a model's path names; None if the path names no GGUF file.

    It is the file itself, or the only one in a directory that has no other weights.

    Raises:
        ModelError: the directory has several.
    """
    if path.is_file():
        return path.parent.resolve() / path.name if _has_suffix(path) else None
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    files = sorted(file for file in path.iterdir() if _has_suffix(file))
    if len(files) > 1:
        named = ", ".join(file.name for file in files[:4])
        raise ModelError(
            f"model {path}: has {len(files)} GGUF files ({named} …); give one of them as the model"
        )
    return path.resolve() / files[0].name if files else None


def is_gguf(name: str | None) -> bool:
    """Return whether a model's name is that of a GGUF file, or of a directory with only one."""
    return name is not None and gguf_file(Path(os.path.expanduser(name))) is not None


@contextmanager
def alone(file: Path) -> Iterator[Path]:
    """Yield a directory with only a link to a GGUF file, named `LINKED`.

    transformers would also read other files beside it, such as a chat template, which the model's digest does
    not cover.
    """
    with TemporaryDirectory(prefix="localjudge-") as scratch:
        Path(scratch, LINKED).symlink_to(file)
        yield Path(scratch)


def read_configuration(file: Path, header: GgufHeader) -> Any:
    """Return the configuration that transformers derives from the metadata; its `dtype` is the header's.

    Any error of the library is passed on.
    """
    from transformers import AutoConfig

    with alone(file) as folder:
        found = AutoConfig.from_pretrained(
            folder, gguf_file=LINKED, local_files_only=True, trust_remote_code=False
        )
    found.dtype = header.dtype
    return found


def read_tokenizer(file: Path) -> Any:
    """Return the tokenizer that transformers builds from the metadata.

    Any error of the library is passed on.
    """
    from transformers import AutoTokenizer

    with alone(file) as folder:
        return AutoTokenizer.from_pretrained(
            folder, gguf_file=LINKED, local_files_only=True, trust_remote_code=False, mistral_format=False
        )


def unknown_split(header: GgufHeader) -> str | None:
    """Return the rule by which a byte-level tokenizer splits text into words, if transformers does not know it.

    transformers then splits as GPT-2 does, which can give other tokens for digits and signs.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    named = str(header.metadata.get("tokenizer.ggml.pre", "gpt-2"))
    known = header.metadata.get("tokenizer.ggml.model") != "gpt2" or named in GGUF_PRE_TOKENIZER_SPLITS
    return None if known or named == "gpt-2" else named


def ignored_scaling(header: GgufHeader, configuration: Any) -> str | None:
    """Return what the metadata says of scaled rotary embeddings, if the configuration does not have it."""
    named = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    rope = getattr(configuration.get_text_config(), "rope_parameters", None) or {}
    return str(named) if named != "none" and rope.get("rope_type", "default") == "default" else None


def _has_suffix(path: Path) -> bool:
    return path.name.lower().endswith(GGUF)
