"""What scores and features say of the class of each sample, against what was fitted."""

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import StatisticsError
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring.class_evidence import (
    samples_of_features,
    samples_of_scores,
    witness_of_features,
    witness_of_scores,
)
from difficulty_service.scoring.fit_store import fit_store_posteriors
from tests.factories import score_table

CLASSES = ("ant", "bee", "cat", "dog", "elk")
LABELS = [0, 0, 1, 1, 1, 2, 2, 3, 3, 4]


def scores_of(**columns: object) -> ScoreFile:
    usual = {
        "first_label": LABELS,
        "p_first": [0.7] * 10,
        "second_label": [(label + 1) % 5 for label in LABELS],
        "p_second": [0.2] * 10,
        "third_label": [(label + 2) % 5 for label in LABELS],
        "p_third": [0.06] * 10,
    }
    return ScoreFile(score_table(LABELS, CLASSES, **usual | columns), Provenance())


def test_scores_give_the_likeliest_classes_and_leave_the_rest_to_others_by_their_prior() -> None:
    scores = scores_of()
    witness = witness_of_scores(scores, samples_of_scores(scores, CLASSES))

    joint = (witness.evidence(slice(2, 3)) + witness.log_prior).exp()[0]

    # The sample is a bee, then a cat or a dog. Nothing looks like the only elk.
    assert joint[[1, 2, 3]].tolist() == pytest.approx([0.7, 0.2, 0.06])
    assert joint[0] == pytest.approx(0.04)
    assert joint[4] == 0


def test_a_sample_without_a_likeliest_class_tells_nothing() -> None:
    scores = scores_of(first_label=[None, *LABELS[1:]], p_first=[None, *[0.7] * 9])
    witness = witness_of_scores(scores, samples_of_scores(scores, CLASSES))

    evidence = witness.evidence(slice(0, 2))

    assert evidence[0].isnan().all()
    assert evidence[1].isfinite().all()


def test_scores_of_one_class_are_an_error() -> None:
    table = score_table([0, 0], first_label=[0, 0], p_first=[1.0, 1.0])
    scores = ScoreFile(table, Provenance())

    with pytest.raises(StatisticsError, match="no two classes"):
        witness_of_scores(scores, samples_of_scores(scores, ("cat",)))


def test_features_give_the_log_densities_without_each_sample_in_the_fit() -> None:
    labels = np.arange(200) % 4
    rows = np.random.default_rng(0).standard_normal((200, 8)) + 2 * np.eye(4, 8)[labels]
    source = read_arrays(rows.astype(np.float32), labels, None)
    posteriors = fit_store_posteriors(source, ("suspicion",), torch.float32)
    assert posteriors is not None
    expected = posteriors.log_densities(torch.from_numpy(rows).float(), torch.from_numpy(labels))

    with witness_of_features(source, samples_of_features(source).given, None) as witness:
        found = witness.evidence(slice(0, 200)).clone()

    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    columns = posteriors.columns(torch.from_numpy(rows).float(), torch.from_numpy(labels))
    likely = (witness.scale * found.double() + witness.log_prior).softmax(dim=1).max(dim=1)
    assert likely.indices.tolist() == columns["first_label"].tolist()
    torch.testing.assert_close(likely.values.float(), columns["p_first"], rtol=1e-3, atol=1e-4)
