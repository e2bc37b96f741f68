"""The files beside the parts of a pack: the manifest, the unpacker with its instructions, recipes, checksums.

`manifest.json` has the SHA-256 of each part and each file in them, `SHA256SUMS` that of every file of the pack.
`unpack.py` needs only Python.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from localjudge.airgap import unpack
from localjudge.airgap.pack_manifest import PackManifest

RECIPES = Path(__file__).with_name("recipes")
"""A folder of recipes: an OCI image, an Apptainer image, a Slurm job array, a Kubernetes Job."""
_README = """This is localjudge {version} for Python {python} on {platform},
packed for a machine without a network. Bring all files of this folder there, in one folder or several, and run

    python{python} unpack.py

(`python{python} unpack.py FOLDER FOLDER ...` for several.) It needs Python alone, checks every part, unpacks,
and installs into a virtual environment. It prints the digest of the manifest. What `pack` printed was

    {sha256}

A pack with a {signature} is signed. With the public key of its signer, which must not come with the pack,
check that nothing was changed before you run anything of it:

    openssl dgst -sha256 -verify PUBLIC.pem -signature {signature} {sums}
    sha256sum --check {sums}

`python{python} unpack.py --key PUBLIC.pem` makes the same checks, but an unpack.py that was changed makes none.
{bill} lists what the pack brings, with licences, in the format CycloneDX.

Containerfile and apptainer.def make an image of these files, and slurm-array.sh and
kubernetes-job.yaml judge in it on a cluster; each
begins with its commands.
"""


def write_beside(manifest: PackManifest, folder: Path) -> None:
    """Write the manifest, the unpacker with its instructions, the recipes and checksums beside the parts."""
    (folder / unpack.MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unpacker = Path(unpack.__file__)
    shutil.copyfile(unpacker, folder / unpacker.name)
    for name in unpack.RECIPES:
        shutil.copyfile(RECIPES / name, folder / name)
    (folder / "README.txt").write_text(_instructions(manifest), encoding="utf-8")
    (folder / unpack.SUMS).write_text(_checksums(manifest, folder), encoding="utf-8")


def _instructions(manifest: PackManifest) -> str:
    """Return the text of `README.txt`: how to check, unpack and use the pack."""
    return _README.format(
        version=manifest.version,
        python=manifest.python,
        platform=manifest.platforms[0],
        sha256=manifest.sha256,
        signature=unpack.SIGNATURE,
        sums=unpack.SUMS,
        bill=unpack.BILL,
    )


def _checksums(manifest: PackManifest, folder: Path) -> str:
    """Return the SHA-256 of each file in the folder, one per line, in the format of `sha256sum`."""
    digests = {part.name: part.sha256 for part in manifest.parts}
    for file in folder.iterdir():
        if file.name not in digests:
            digests[file.name] = unpack.digest_of(file)
    lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
    return "".join(lines)
