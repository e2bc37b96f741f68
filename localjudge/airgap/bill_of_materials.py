"""The bill of materials of a pack (SBOM), in CycloneDX 1.6: what it brings, with digests and licences.

Wheels are libraries, identified by their package URL; models are machine-learning models with
their files; files of rows are data. localjudge is the root, and requires all of them. The same pack gives the
same text: there is no time in it, and its serial number is the first half of the manifest's digest.
(https://cyclonedx.org/docs/1.6/json/)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from email.message import Message
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

from localjudge.airgap.pack_manifest import PackedFile, PackManifest
from localjudge.airgap.wheels import wheel_metadata
from localjudge.models.digests import decisive_digest

_UNKNOWN = ("", "UNKNOWN")
"""What a package writes in place of a licence if it declares none."""


def bill_of_materials(manifest: PackManifest, sources: Mapping[str, Path]) -> str:
    """Return the bill of materials of a pack as JSON.

    Args:
        manifest: the sealed manifest of the pack.
        sources: where each file of the manifest lies on this machine; licences are read from them.
    """
    components: list[Component] = []
    for path, files in _files_by_path(manifest).items():
        folder, _, name = path.partition("/")
        if folder == "wheels":
            components.append(_wheel(files[0], sources[path]))
        elif folder == "models":
            components.append(_model(path, files, sources=sources))
        elif folder == "rows":
            components.append(_file(files[0], name, component_type=ComponentType.DATA))
    root = next(component for component in components if component.name == manifest.name)
    root.type = ComponentType.APPLICATION
    required = [component for component in components if component is not root]
    bill = Bom(serial_number=UUID(hex=manifest.sha256[:32], version=4), components=required)
    bill.metadata.component = root
    bill.register_dependency(root, required)
    document = json.loads(JsonV1Dot6(bill).output_as_string())
    del document["metadata"]["timestamp"]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _files_by_path(manifest: PackManifest) -> dict[str, list[PackedFile]]:
    """Return the files of each component by its path: `wheels/FILE`, `models/NAME` or `rows/FILE`."""
    files_by_path: dict[str, list[PackedFile]] = {}
    for file in manifest.files:
        first_two = file.name.split("/")[:2]
        files_by_path.setdefault("/".join(first_two), []).append(file)
    return files_by_path


def _wheel(file: PackedFile, path: Path) -> Component:
    """Return the component of a package whose wheel is in the pack.

    Args:
        file: the wheel, with its digest.
        path: its path in the pack.
    """
    name, version, _, _ = parse_wheel_filename(path.name)
    return Component(
        name=name,
        version=str(version),
        bom_ref=file.name,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", None, name, str(version)),
        hashes=[_hash(file)],
        licenses=_licences(_package_licence(wheel_metadata(path))),
    )


def _package_licence(metadata: Message) -> str:
    """Return the licence that a package declares: the expression of PEP 639, a line, or its classifiers."""
    for header in ("License-Expression", "License"):
        line = metadata.get(header, "").strip()
        if line not in _UNKNOWN and "\n" not in line:
            return line
    licences: list[str] = []
    for classifier in metadata.get_all("Classifier", []):
        if classifier.startswith("License :: "):
            licences.append(classifier.rpartition(" :: ")[2])
    return " AND ".join(licences)


def _model(path: str, files: list[PackedFile], sources: Mapping[str, Path]) -> Component:
    """Return a model; its digest is the one that a run records.

    Args:
        path: its folder in the pack.
        files: its files.
        sources: where each file of the pack lies on this machine.
    """
    card = ""
    digests: dict[str, str] = {}
    components: list[Component] = []
    for file in files:
        name = file.name.removeprefix(f"{path}/")
        digests[name] = file.sha256
        components.append(_file(file, name, component_type=ComponentType.FILE))
        if name == "README.md":
            card = sources[file.name].read_text(encoding="utf-8", errors="replace")
    return Component(
        name=path.removeprefix("models/"),
        bom_ref=path,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        licenses=_licences(_model_licence(card)),
        properties=[Property(name="localjudge:digest", value=decisive_digest(digests))],
        components=components,
    )


def _model_licence(card: str) -> str:
    """Return the licence that the head of a model's card declares; empty if there is none."""
    head = re.match(r"---\s*\n(.*?)\n---", card, re.DOTALL)
    if head is None:
        return ""
    declared: dict[str, str] = dict(
        re.findall(r"^(license|license_name): *[\"']?([^\s\"'#]+)", head[1], re.MULTILINE)
    )
    for key in ("license_name", "license"):
        if key in declared:
            return declared[key]
    return ""


def _file(file: PackedFile, name: str, component_type: ComponentType) -> Component:
    return Component(name=name, bom_ref=file.name, type=component_type, hashes=[_hash(file)])


def _hash(file: PackedFile) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)


def _licences(declared: str) -> Iterable[License]:
    """Return a declared licence as a list; an empty list if it is unknown."""
    if declared in _UNKNOWN:
        return []
    licence = LicenseFactory().make_from_string(
        declared, license_acknowledgement=LicenseAcknowledgement.DECLARED
    )
    return [licence]
