"""The signature of a pack: over its checksums, by the program openssl, with ECDSA (or RSA) and SHA-256.

The program, because nearly every Linux has it: a machine with Python alone checks the signature before it uses
anything else of the pack. (Python's standard library checks no signature.) ECDSA, because every version of the
program knows it, and FIPS 186 approves it. A pair of keys:

    openssl ecparam -name prime256v1 -genkey -noout -out private.pem
    openssl ec -in private.pem -pubout -out public.pem
"""

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
    """Sign the checksums of a pack with a private key. The program asks for the key's pass phrase, if any.

    Raises:
        LocalJudgeError: the program could not; the pack stays, and the message has the command to sign it.
    """
    scratch = folder / f"{unpack.SIGNATURE}.partial"
    command = [_PROGRAM, "dgst", "-sha256", "-sign", str(key), "-out"]
    sums, signature = folder / unpack.SUMS, folder / unpack.SIGNATURE
    done = subprocess.run(
        [*command, str(scratch), str(sums)], stderr=subprocess.PIPE, text=True, errors="replace"
    )
    if done.returncode:
        scratch.unlink(missing_ok=True)
        said = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        again = join([*command, str(signature), str(sums)])
        raise LocalJudgeError(
            f"{folder}: the pack is written, but not signed: {said}; to sign it with this or another key "
            f"(elliptic curve or RSA): {again}"
        )
    scratch.rename(signature)
