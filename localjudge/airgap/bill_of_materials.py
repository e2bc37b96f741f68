"""The bill of materials of a pack (SBOM), in CycloneDX 1.6: what it brings, with digests and licences.

Wheels are libraries, identified by their package URL; models are machine-learning models with
their files; files of rows are data. localjudge is the root, and requires all of them. The same pack gives the
same text: there is no time in it, and its serial number is the first half of the manifest's digest.
(https://cyclonedx.org/docs/1.6/json/)
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from uuid import UUID

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import parse_wheel_filename

from localjudge.airgap.pack_files import PackedFile, PackManifest
from localjudge.models.digests import decisive_digest

_UNKNOWN = ("", "UNKNOWN")


def bill_of_materials(manifest: PackManifest, sources: Mapping[str, Path]) -> str:
    """Return the bill of materials of a pack as JSON.

    Args:
        manifest: the sealed manifest of the pack.
        sources: where each file of the manifest lies on this machine; licences are read from them.
    """
    groups: dict[str, list[PackedFile]] = {}
    for file in manifest.files:
        kind, *rest = file.name.split("/")
        groups.setdefault("/".join([kind, *rest[:1]]), []).append(file)
    components = []
    for place, files in groups.items():
        kind, _, name = place.partition("/")
        if kind == "wheels":
            components.append(_wheel(files[0], sources[place]))
        elif kind == "models":
            components.append(_model(place, name, files, sources))
        elif kind == "rows":
            components.append(_file(files[0], name, ComponentType.DATA))
    root = next(each for each in components if each.name == manifest.name)
    root.type = ComponentType.APPLICATION
    others = [each for each in components if each is not root]
    bill = Bom(serial_number=UUID(hex=manifest.sha256[:32], version=4), components=others)
    bill.metadata.component = root
    bill.register_dependency(root, others)
    document = json.loads(JsonV1Dot6(bill).output_as_string())
    del document["metadata"]["timestamp"]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _wheel(file: PackedFile, path: Path) -> Component:
    with zipfile.ZipFile(path) as wheel:
        metadata = next(name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        about = BytesParser().parsebytes(wheel.read(metadata))
    name, version, *_ = parse_wheel_filename(path.name)
    return Component(
        name=name,
        version=str(version),
        bom_ref=file.name,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", None, name, str(version)),
        hashes=[_hash(file)],
        licenses=_licences(_declared(about)),
    )


def _declared(about: Message) -> str:
    """Return the licence that a package declares: the expression of PEP 639, a line, or its classifiers."""
    lines: list[str | None] = [about.get("License-Expression"), about.get("License")]
    for line in lines:
        if line and line.strip() not in _UNKNOWN and "\n" not in line.strip():
            return line.strip()
    classifiers = [line for line in about.get_all("Classifier") or [] if line.startswith("License :: ")]
    return " AND ".join(line.rpartition(" :: ")[2] for line in classifiers)


def _model(place: str, name: str, files: list[PackedFile], sources: Mapping[str, Path]) -> Component:
    """Return a model; its digest is the one that a run records."""
    within = {file.name.removeprefix(f"{place}/"): file for file in files}
    digests = {inside: file.sha256 for inside, file in within.items()}
    return Component(
        name=name,
        bom_ref=place,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        licenses=_licences(_model_licence({inside: sources[file.name] for inside, file in within.items()})),
        properties=[Property(name="localjudge:digest", value=decisive_digest(digests))],
        components=[_file(file, inside, ComponentType.FILE) for inside, file in within.items()],
    )


def _model_licence(files: Mapping[str, Path]) -> str:
    """Return the licence that a model's card declares; empty without one."""
    if "README.md" not in files:
        return ""
    card = files["README.md"].read_text(encoding="utf-8", errors="replace")
    head = re.match(r"---\s*\n(.*?)\n---", card, re.DOTALL)
    said: dict[str, str] = dict(
        re.findall(r"^(license|license_name): *[\"']?([^\s\"'#]+)", head[1] if head else "", re.MULTILINE)
    )
    return said.get("license_name", "") or said.get("license", "")


def _file(file: PackedFile, name: str, kind: ComponentType) -> Component:
    return Component(name=name, bom_ref=file.name, type=kind, hashes=[_hash(file)])


def _hash(file: PackedFile) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)


def _licences(declared: str) -> Iterable[License]:
    if declared in _UNKNOWN:
        return []
    return [
        LicenseFactory().make_from_string(declared, license_acknowledgement=LicenseAcknowledgement.DECLARED)
    ]
