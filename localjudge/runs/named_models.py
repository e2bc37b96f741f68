"""The models that the replies of a run's server name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from localjudge.runs.run_manifest import RunManifest, StartRecord


@dataclass(frozen=True, slots=True)
class NamedModels:
    """What the replies of a server say of the models that wrote them, in all starts of a run.

    Attributes:
        names: the different names, in the order of their first replies.
        fingerprint_changes: how often a reply had a `system_fingerprint` that no earlier one of its start had.
    """

    names: tuple[str, ...]
    fingerprint_changes: int

    @classmethod
    def of_run(cls, manifest: RunManifest) -> Self:
        """Return what the starts of a run have recorded."""
        names: list[str] = []
        changes = 0
        for start in manifest.starts:
            recorded = _recorded(start)
            names += recorded.get("named", [])
            changes += recorded.get("fingerprint_changes", 0)
        return cls(tuple(dict.fromkeys(names)), changes)

    @property
    def notices(self) -> list[str]:
        """What a reader of the scores must know of them; empty if all replies named one model."""
        found = []
        if len(self.names) > 1:
            found.append(
                f"several models: replies of the server named {', '.join(self.names)}; which of them wrote an "
                "answer is not recorded"
            )
        if self.fingerprint_changes:
            found.append(
                "changed fingerprint: the server's system_fingerprint changed "
                f"{self.fingerprint_changes:,} time(s), so its configuration was not the same for all rows"
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the names and the number of changes for `summary.json`."""
        return {"names": list(self.names), "fingerprint_changes": self.fingerprint_changes}


def _recorded(start: StartRecord) -> dict[str, Any]:
    """Return what a start has recorded of the model on its server; empty for any other engine."""
    model = None if start.engine is None else start.engine.details.get("model")
    return model if isinstance(model, dict) else {}
