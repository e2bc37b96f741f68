"""What is known about the systems of a run that is not complete: a random sample of its instructions, or
nothing but the means of the rows that are done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from localjudge.matching.run_rows import first_seen
from localjudge.matching.scores import Scores
from localjudge.runs.reader import finished_instructions, is_complete


def random_sample(scores: Scores) -> Scores:
    """Return the scores of the first finished instructions of an incomplete run, in their random order.

    The scores of complete runs stay as they are. Those of other incomplete runs get no intervals.
    """
    incomplete = [folder for folder in scores.folders if not is_complete(folder)]
    if not incomplete or scores.calibrated:
        return scores
    where = ", ".join(map(str, incomplete))
    finished = finished_instructions(incomplete[0]) if len(scores.folders) == 1 else None
    if len(scores.folders) > 1:
        why = f"{where}: not complete, and several runs are compared"
    elif finished is None:
        why = (
            f"{where}: not complete, and the rows that finish first are not a random sample; `score --shuffle` "
            "judges in random order"
        )
    else:
        place = np.array([finished.places.get(digest or "", -1) for digest, _ in scores.shown], dtype=np.int64)
        rows = np.argsort(place, kind="stable")[int((place < 0).sum()) :]
        if len(rows):
            return replace(scores.take(rows), group=first_seen(place[rows]), planned=finished.planned)
        why = f"{where}: not complete, and its first instruction in random order is not done"
    return replace(scores, untested=why)
