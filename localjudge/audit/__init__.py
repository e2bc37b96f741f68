"""The judge on trial with the user's own rows: perturbed in ways whose effect is known, and judged again.

rows → sample → perturbations → runs → reading
"""

from __future__ import annotations

from localjudge.audit.reading import Audit, read_audit
from localjudge.audit.trial import Sample, draw, hold

__all__ = ["Audit", "Sample", "draw", "hold", "read_audit"]
