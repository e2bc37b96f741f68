"""The judge on trial with the user's own rows: perturbed in ways whose effect is known, and judged again.

rows → sample, perturbations → trial (runs) → reading → findings
"""

from __future__ import annotations

from localjudge.audit.findings import Audit
from localjudge.audit.reading import read_audit
from localjudge.audit.trial import Sample, draw, hold

__all__ = ["Audit", "Sample", "draw", "hold", "read_audit"]
