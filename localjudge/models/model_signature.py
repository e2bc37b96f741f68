"""The signature of a model: over the SHA-256 of each of its files, in the format of OpenSSF's model signing.

Any tool of that format can check it, and `check_model_signature` checks theirs. Only key pairs on elliptic
curves (P-256, P-384, P-521) are used. The format's default, which asks a server who the signer is, is not:
nothing here uses a network. (https://github.com/sigstore/model-transparency)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.digests import MANIFEST
from localjudge.system.durable import replacing
from localjudge.system.requirements import require

_LONGEST = 500
"""Characters of a library's message that a line shows."""


def signature_file(path: Path) -> Path:
    """Return the usual place of a signature: beside the model, because it is not one of the model's files."""
    return path.with_name(f"{path.name}.sig")


def sign_model(path: Path, key: Path, signature: Path, pass_phrase: bytes | None = None) -> None:
    """Sign all files of a model directory, or a model in a single file; the manifest is not one of them.

    Args:
        path: the directory or the file.
        key: the file of the private key (PEM).
        signature: the file to write.
        pass_phrase: the pass phrase of the key, if it has one.

    Raises:
        UsageError: the package model-signing is not installed.
        ModelError: the model has files of git, the key cannot be used, or a file cannot be read or written.
    """
    require("models sign", "signing")
    _check_git(path, "sign a copy without it")
    from model_signing import hashing, signing

    password: Any = pass_phrase  # bytes, whatever the library's annotation says
    try:
        signer = signing.Config().use_elliptic_key_signer(private_key=key, password=password)
    except Exception as error:  # any key file of a user
        raise ModelError(
            f"`key` {key}: cannot be used: {_one_line(error)}; give a private key of an elliptic curve (PEM)"
        ) from None
    try:
        # A model in the cache of a hub consists of links.
        files = hashing.Config().use_file_serialization(allow_symlinks=True)
        files.set_allow_symlinks(True).set_ignored_paths(paths=[MANIFEST])
        with replacing(signature) as scratch:
            signer.set_hashing_config(files).sign(path, scratch)
    except Exception as error:  # the library brings an OpenSSL of its own, which may lack a FIPS module
        raise ModelError(f"model {path}: cannot be signed: {_one_line(error)}") from None


def check_model_signature(path: Path, signature: Path, key: Path) -> None:
    """Check that a model's files, all and no others, are those that the owner of this key signed.

    Args:
        path: the directory or the file.
        signature: the file of the signature.
        key: the file of the public key (PEM).

    Raises:
        UsageError: the package model-signing is not installed.
        ModelError: the signature is by another key, or the files differ from the signed ones,
            or some are files of git.
    """
    require("models verify --signature", "signing")
    from model_signing import verifying

    _check_git(path, "verify a copy without it")
    for file in (signature, key):
        if not file.is_file():
            raise ModelError(f"{file}: no such file")
    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=key)
    except Exception as error:  # any key file of a user
        raise ModelError(
            f"`key` {key}: cannot be used: {_one_line(error)}; give a public key of an elliptic curve (PEM)"
        ) from None
    try:
        verifier.verify(path, signature)
    except Exception as error:  # a file from strangers can make the library raise anything
        # Digests, which the library prints as bytes, say nothing to a reader.
        said = re.sub(r": Expected .*?((?=Hash mismatch for )|$)", ", ", _one_line(error))
        said = re.sub(r'[][\\"]', "", said).rstrip(", ")
        raise ModelError(f"{signature}: does not fit {path}: {said}") from None


def _check_git(path: Path, advice: str) -> None:
    """Refuse a directory with files of git, because a signature of this format does not cover them.

    It does not cover `.gitattributes` and `.gitignore` either. Hubs add them, and nothing reads them.
    """
    for name in (".git", ".github", ".gitattributes", ".gitignore"):
        entry = path / name
        harmless = name not in (".git", ".github") and entry.is_file()
        if (entry.exists() or entry.is_symlink()) and not harmless:
            raise ModelError(f"model {path}: has {name}, which a signature does not cover; {advice}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
