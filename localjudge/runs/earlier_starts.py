"""Earlier starts of a run: whether the folder holds the same run, and what this start changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import RunMismatchError
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_files import MANIFEST
from localjudge.runs.run_manifest import FORMAT, RunManifest, StartRecord, read_manifest


def recorded_run(folder: Path, described: Mapping[str, Any]) -> RunManifest | None:
    """Return the manifest of a folder that holds the same run; None for a new run.

    Args:
        folder: the run directory.
        described: settings of this start, by the fields of the manifest.

    Raises:
        RunMismatchError: the folder holds another run, or something else.
    """
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_manifest(folder)
    differences = changes(manifest, described)
    if differences:
        raise RunMismatchError(
            f"`out` {folder}: holds another run; it differs in {'; '.join(differences)}. "
            "Choose another folder, or give the settings of that run"
        )
    return manifest


def with_start(before: RunManifest | None, described: Mapping[str, Any], now: StartRecord) -> RunManifest:
    """Return the manifest with another start.

    Args:
        before: the manifest of the earlier starts; None for a new run.
        described: the settings, by the fields of the manifest.
        now: the start.
    """
    if before is None:
        return RunManifest.model_validate({"format": FORMAT, **described, "starts": [now]})
    # What decides no judgement, such as a weight, is that of the last start.
    rubric = RunManifest.model_validate({**before.as_dict(), **described}).rubric
    return before.model_copy(update={"rubric": rubric, "starts": before.starts + [now]})


def changes(manifest: RunManifest, described: Mapping[str, Any]) -> list[str]:
    """Return how the settings differ, one phrase for each difference.

    Args:
        manifest: the manifest of the run.
        described: the same fields of a judge, by name; its settings may be incomplete.
    """
    recorded = manifest.settings.as_dict()
    settings = described["settings"]
    recorded_names = {"rubric": manifest.rubric.name, "model": manifest.model.name}
    new_names = {"rubric": described["rubric"]["name"], "model": described.get("model", {}).get("name")}
    phrases = []
    for setting in differing_settings(recorded, settings):
        recorded_value = _shown(setting, recorded.get(setting), names=recorded_names)
        new_value = _shown(setting, settings.get(setting), names=new_names)
        phrases.append(f"{setting}: {recorded_value} there, {new_value} now")
    recorded_shard = manifest.shard
    new_shard = described.get("shard")
    if recorded_shard != new_shard:
        phrases.append(
            f"shard: {recorded_shard or 'the whole input'} there, {new_shard or 'the whole input'} now"
        )
    return phrases


def differing_settings(recorded: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that differ from those of a run.

    Args:
        recorded: the settings of the run.
        settings: the settings of a judge. Without `engine`, they are those that are known before the engine is
            open, and a setting that they lack is not compared.
    """
    names = list(settings)
    if "engine" in settings:
        names += [name for name in recorded if name not in settings]
    return [name for name in names if recorded.get(name) != settings.get(name)]


def _shown(setting: str, value: Any, *, names: Mapping[str, str | None]) -> Any:
    """Return the value of a setting for a message; of a digest, the beginning.

    Args:
        setting: the name of the setting.
        value: its value.
        names: the names of what has a digest, by its setting.
    """
    if setting in names:
        return f"{names[setting]} ({value[:8]})" if value else "none"
    if setting == "chat_template" and value is None:
        return "the model's own"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:8]
    return value


def changed_weights(rubric: Rubric, before: Rubric) -> str:
    """Return in words which weights and best labels differ from those of a rubric of the same digest."""
    changed = []
    for name, aspect in rubric.aspects.items():
        earlier = before.aspects[name]
        if aspect.weight == earlier.weight and aspect.best == earlier.best:
            continue
        change = f"{name} {aspect.weight:g} instead of {earlier.weight:g}"
        if aspect.best != earlier.best:
            change += f", best {aspect.best} instead of {earlier.best}"
        changed.append(change)
    return "; ".join(changed)
