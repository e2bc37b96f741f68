"""The document of `localjudge jury --json`; `localjudge help audit` describes the numbers."""

from __future__ import annotations

from typing import Any

from localjudge.report.estimate_document import estimate_document
from localjudge.statistics.jury_agreement import JuryAspect, JuryErrors
from localjudge.studies.jury import Juror, Jury


def jury_document(jury: Jury) -> dict[str, Any]:
    """Return the document of the agreement of several judges, and of their errors on labelled rows."""
    return {
        "jurors": [_juror(juror) for juror in jury.jurors],
        "rows": jury.rows,
        "instructions": jury.instructions,
        "not_shared": jury.not_shared,
        "aspects": {name: _aspect(aspect) for name, aspect in jury.aspects.items()},
        "outlier": jury.outlier,
        "outlier_untested": jury.outlier_untested,
        "errors": {name: _errors(errors) for name, errors in jury.errors.items()},
        "notes": list(jury.label_notes),
        "notices": list(jury.notices),
    }


def _juror(juror: Juror) -> dict[str, Any]:
    return {
        "name": juror.name,
        "model": juror.model,
        "rows": juror.rows,
        "scored": juror.scored,
        "lost": juror.lost,
        "bias": dict(juror.bias),
    }


def _aspect(aspect: JuryAspect) -> dict[str, Any]:
    return {
        "level": aspect.level,
        "alpha": estimate_document(aspect.alpha),
        "unanimous": aspect.unanimous,
        "split": aspect.split,
    }


def _errors(errors: JuryErrors) -> dict[str, Any]:
    """Return the errors of the jury and of its best juror on one aspect."""
    return {
        "rows": errors.rows,
        "instructions": errors.instructions,
        "best": errors.best,
        "compared": errors.compared,
        "compared_instructions": errors.compared_instructions,
        "jury": estimate_document(errors.jury),
        "best_juror": estimate_document(errors.best_juror),
        "difference": estimate_document(errors.difference),
    }
