"""The models that the replies of a run's server name, and the fingerprints of its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from localjudge.engines.server.replying_models import MOST_VALUES
from localjudge.runs.run_manifest import RunManifest, StartRecord


@dataclass(frozen=True, slots=True)
class NamedModels:
    """What the replies of a server say of the models that wrote them, in all starts of a run.

    Attributes:
        names: the different names, in the order of their first replies.
        fingerprints: the different values of `system_fingerprint`, in the order of their first replies.
        may_lack_fingerprints: whether a start has recorded as many fingerprints as it can, and so perhaps not
            all.
    """

    names: tuple[str, ...]
    fingerprints: tuple[str, ...]
    may_lack_fingerprints: bool

    @classmethod
    def of_run(cls, manifest: RunManifest) -> Self:
        """Return what the starts of a run have recorded."""
        names: list[str] = []
        fingerprints: list[str] = []
        may_lack_fingerprints = False
        for start in manifest.starts:
            model = _recorded_model(start)
            names += model.get("named", [])
            start_fingerprints = model.get("fingerprints", [])
            fingerprints += start_fingerprints
            if len(start_fingerprints) == MOST_VALUES:
                may_lack_fingerprints = True
        return cls(
            names=tuple(dict.fromkeys(names)),
            fingerprints=tuple(dict.fromkeys(fingerprints)),
            may_lack_fingerprints=may_lack_fingerprints,
        )

    @property
    def fingerprint_changes(self) -> int:
        """The number of different fingerprints after the first one."""
        return max(0, len(self.fingerprints) - 1)

    @property
    def notices(self) -> list[str]:
        """What a reader of the scores must know of them; empty if all replies were of one model."""
        lines = []
        if len(self.names) > 1:
            lines.append(
                f"several models: replies of the server named {', '.join(self.names)}; which of them wrote an "
                "answer is not recorded"
            )
        if self.fingerprint_changes:
            number = f"{len(self.fingerprints)}"
            if self.may_lack_fingerprints:
                number += " or more"
            lines.append(
                f"several fingerprints: replies of the server had {number} values of system_fingerprint, so "
                "its configuration was not the same for all rows"
            )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return the names, the fingerprints and the number of changes for `summary.json`."""
        return {
            "names": list(self.names),
            "fingerprints": list(self.fingerprints),
            "fingerprint_changes": self.fingerprint_changes,
        }


def _recorded_model(start: StartRecord) -> dict[str, Any]:
    """Return what a start has recorded of the model on its server; empty for any other engine."""
    if start.engine is None:
        return {}
    model = start.engine.details.get("model")
    return model if isinstance(model, dict) else {}
