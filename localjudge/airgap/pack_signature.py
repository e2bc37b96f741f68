"""The signature of a pack: of the digests of all its files, by the program openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from shlex import join

from localjudge.airgap import unpack
from localjudge.errors import LocalJudgeError, UsageError

_PROGRAM = "openssl"


def check_signer(key: Path) -> None:
    """Check that there are a key and a program that could sign.

    Raises:
        UsageError: one of them is missing.
    """
    if not key.is_file():
        raise UsageError(f"--sign {key}: no such file; give a private key, such as openssl ecparam makes")
    if shutil.which(_PROGRAM) is None:
        raise UsageError(f"--sign needs the program {_PROGRAM}: install it, or sign the pack elsewhere")


def sign_pack(folder: Path, key: Path) -> None:
    """Sign the checksums of a pack with ECDSA (or RSA) and SHA-256; the program asks for a pass phrase.

    The program openssl signs, because nearly every Linux has it: a machine with Python alone can check the
    signature before it uses anything else of the pack. (Python's standard library cannot check signatures.)
    ECDSA is used because every version of openssl supports it and FIPS 186 approves it. To make a key pair:

        openssl ecparam -name prime256v1 -genkey -noout -out private.pem
        openssl ec -in private.pem -pubout -out public.pem

    Raises:
        LocalJudgeError: openssl failed; the pack is kept, and the message has the command to sign it.
    """
    sums = folder / unpack.SUMS
    signature = folder / unpack.SIGNATURE
    scratch = folder / f"{unpack.SIGNATURE}.partial"
    command = _signing_command(key, sums, signature=scratch)
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode == 0:
        scratch.rename(signature)
        return
    scratch.unlink(missing_ok=True)
    lines = done.stderr.strip().splitlines()
    reason = lines[0] if lines else "no reason given"
    command_again = join(_signing_command(key, sums, signature=signature))
    raise LocalJudgeError(
        f"{folder}: the pack is written, but not signed: {reason}; to sign it with this or another key "
        f"(elliptic curve or RSA): {command_again}"
    )


def _signing_command(key: Path, sums: Path, *, signature: Path) -> list[str]:
    """Return the command that writes the signature of a file of checksums."""
    return [_PROGRAM, "dgst", "-sha256", "-sign", str(key), "-out", str(signature), str(sums)]
