"""Error rates of judges, against the example of the paper and against simulated judges."""

from __future__ import annotations

import numpy as np
import pytest

from localjudge.analysis.juries.jury_aspect import error_rates

# Table 1 of Dawid & Skene (1979): five anaesthetists assess 45 patients on four levels; the first assesses each
# patient three times. A patient is the seven assessments as digits.
PATIENTS = """
1111111 3334334 1122122 2223121 2223222 2223322 1222111 3333433 2222223 2322223 4444444 2223343 1111111 2223212
1211111 1112111 1111111 1111111 2222221 2221322 2222222 2222221 2223222 2212222 1111111 1111111 2322222 1111111
1111111 1121121 1111111 3333233 1111111 2222222 2223232 4334343 2212232 2323233 3333432 1111111 1111111 1212111
2322222 1211111 2222222
"""


def test_the_anaesthetists_of_the_paper_have_the_error_rates_of_the_paper() -> None:
    counts = np.zeros((45, 5, 4))
    for patient, assessments in enumerate(PATIENTS.split()):
        for observer, level in zip((0, 0, 0, 1, 2, 3, 4), assessments, strict=True):
            counts[patient, observer, int(level) - 1] += 1
    found = error_rates(counts)
    assert found.shares.round(2).tolist() == [0.40, 0.42, 0.11, 0.07]
    assert found.rates[0].round(2).tolist() == [
        [0.89, 0.11, 0, 0],
        [0.07, 0.88, 0.05, 0],
        [0, 0.34, 0.66, 0],
        [0, 0, 0.56, 0.44],
    ]
    assert found.probabilities.sum(axis=1) == pytest.approx(np.ones(45))


def test_simulated_judges_have_their_own_error_rates() -> None:
    rng = np.random.default_rng(0)
    true = rng.choice(3, 4000, p=[0.5, 0.3, 0.2])
    rates = np.array(
        [
            [[0.9, 0.1, 0], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]],
            [[0.7, 0.2, 0.1], [0, 1, 0], [0.2, 0.2, 0.6]],
            [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0, 0, 1]],
            [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]],
        ]
    )
    counts = np.stack([[rng.multinomial(1, judge[label]) for judge in rates] for label in true]).astype(float)
    found = error_rates(counts)
    assert found.shares == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert found.rates == pytest.approx(rates, abs=0.06)
    assert found.accuracies == pytest.approx(np.diagonal(rates, axis1=1, axis2=2) @ found.shares, abs=0.05)


def test_a_label_that_nobody_gave_has_no_rate() -> None:
    counts = np.zeros((20, 3, 3))
    counts[:10, :, 0] = counts[10:, :, 1] = 1
    found = error_rates(counts)
    assert found.shares.tolist() == [0.5, 0.5, 0]
    assert np.isnan(found.rates[:, 2]).all()
    assert found.accuracies.tolist() == [1, 1, 1]
