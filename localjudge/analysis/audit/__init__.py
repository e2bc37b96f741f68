"""Audit a judge with the user's own rows: perturb them in ways with a known effect, and judge them again.

rows → sample, perturbations → runs → results → findings
"""

from __future__ import annotations

from localjudge.analysis.audit.audit_results import read_audit
from localjudge.analysis.audit.audit_run import Sample, run_audit, sample_rows
from localjudge.analysis.audit.findings import Audit

__all__ = ["Audit", "Sample", "read_audit", "run_audit", "sample_rows"]
