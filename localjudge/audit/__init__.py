"""The judge on trial with the user's own rows: perturbed in ways whose effect is known, and judged again.

rows → sample, perturbations → trial (runs) → reading → findings
"""

from __future__ import annotations

from localjudge.audit.audit_results import read_audit
from localjudge.audit.audit_run import Sample, run_audit, sample_rows
from localjudge.audit.findings import Audit

__all__ = ["Audit", "Sample", "read_audit", "run_audit", "sample_rows"]
