"""The estimator keeps scikit-learn's promises and gives the scores of the commands."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from difficulty_service.base.errors import ConfigError
from difficulty_service.interface.estimator import RelativeMahalanobis
from difficulty_service.interface.scores import Scores
from tests.overlapping_classes import FEATURES, LABELS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the checks fit tiny datasets on purpose
@pytest.mark.parametrize("shrinkage", ["auto", "leave-one-out"])
def test_every_check_of_scikit_learn_passes(shrinkage: str) -> None:
    results = check_estimator(RelativeMahalanobis(shrinkage), on_fail=None, on_skip=None)

    failed = {
        result["check_name"]: result["exception"]
        for result in results
        if result["status"] not in ("passed", "skipped")
    }

    assert len(results) > 40
    assert failed == {}


def test_samples_get_the_scores_of_the_commands(scores: Scores) -> None:
    estimator = RelativeMahalanobis().fit(FEATURES, LABELS)

    np.testing.assert_allclose(estimator.score_samples(FEATURES, LABELS), scores["rmd"], atol=1e-5)


def test_without_labels_samples_are_scored_against_the_nearest_class() -> None:
    estimator = RelativeMahalanobis().fit(FEATURES, LABELS)

    against_each = [estimator.score_samples(FEATURES, np.full(300, label)) for label in range(3)]

    np.testing.assert_allclose(estimator.score_samples(FEATURES), np.min(against_each, axis=0))


def test_classes_are_predicted_as_by_discriminant_analysis() -> None:
    peer = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3).fit(FEATURES, LABELS)

    estimator = RelativeMahalanobis().fit(FEATURES, LABELS)

    assert (estimator.predict(FEATURES) == peer.predict(FEATURES)).all()
    np.testing.assert_allclose(
        estimator.predict_proba(FEATURES), peer.predict_proba(FEATURES), atol=1e-3
    )
    np.testing.assert_allclose(estimator.means_, peer.means_, atol=1e-5)
    np.testing.assert_allclose(estimator.covariance_, peer.covariance_, atol=1e-5)


def test_a_label_that_was_not_fitted_has_no_score() -> None:
    estimator = RelativeMahalanobis().fit(FEATURES[:, :2], ["cat", "dog"] * 150)

    scores = estimator.score_samples(FEATURES[:3, :2], ["dog", "bird", "zebra"])

    assert np.isnan(scores).tolist() == [False, True, True]


def test_text_tensors_and_frames_are_taken() -> None:
    expected = RelativeMahalanobis().fit(FEATURES, LABELS).predict(FEATURES)

    tensors = RelativeMahalanobis().fit(torch.from_numpy(FEATURES), torch.from_numpy(LABELS))
    frames = RelativeMahalanobis().fit(pd.DataFrame(FEATURES), pd.Series(LABELS))

    assert (tensors.predict(torch.from_numpy(FEATURES)) == expected).all()
    assert (frames.predict(pd.DataFrame(FEATURES)) == expected).all()


def test_it_is_cloned_pickled_and_cross_validated() -> None:
    estimator = RelativeMahalanobis(shrinkage="oas")

    assert clone(estimator).get_params() == {"shrinkage": "oas", "matmul_dtype": "auto"}
    assert cross_val_score(estimator, FEATURES, LABELS, cv=3).mean() > 0.5
    restored = pickle.loads(pickle.dumps(estimator.fit(FEATURES, LABELS)))  # noqa: S301 - our own
    assert (restored.predict(FEATURES) == estimator.predict(FEATURES)).all()


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(ValueError, match="invalid parameter 'alpha'"):
        RelativeMahalanobis().set_params(alpha=1)
    with pytest.raises(ConfigError, match="shrinkage='lw' should be 'auto', "):
        RelativeMahalanobis("lw").fit([[0.0], [1.0]], [0, 1])  # type: ignore[arg-type]


WITHOUT_SCIKIT_LEARN = """
import sys
sys.modules["sklearn"] = None
import numpy as np
import difficulty_service as ds

labels = np.arange(300) % 3
features = np.random.default_rng(0).standard_normal((300, 6))
estimator = ds.RelativeMahalanobis()
problems = []
for attempt in (
    lambda: estimator.predict(features),
    lambda: estimator.fit(features * np.nan, labels),
    lambda: estimator.fit(features, labels[1:]),
    lambda: estimator.fit(features, labels).predict(features[:, 1:]),
):
    try:
        attempt()
    except ds.errors.DifficultyError as error:
        problems.append(str(error))
print(problems)
assert len(problems) == 4
assert np.isfinite(estimator.score_samples(features, labels)).all()
assert estimator.score(features, labels) > 0
"""


@pytest.mark.long
def test_it_works_without_scikit_learn() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_SCIKIT_LEARN], check=False)  # noqa: S603

    assert run.returncode == 0
