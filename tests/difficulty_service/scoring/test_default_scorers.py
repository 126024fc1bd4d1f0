"""Which scorers are computed where nobody named them."""

import numpy as np
import pytest

from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.score_columns import SCORERS
from difficulty_service.scoring import store as score_store
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_in_memory
from difficulty_service.settings.options import ScorerOptions

SUSPICION = {*SCORERS["suspicion"].columns}


def samples(num_classes: int, of_each: int = 20) -> FeatureSource:
    generator = np.random.default_rng(0)
    labels = np.arange(num_classes * of_each) % num_classes
    features = generator.standard_normal((len(labels), 6)) + 4 * np.eye(num_classes, 6)[labels]
    return read_arrays(features, labels, None)


def scored(source: FeatureSource, **options: object) -> ScoreFile:
    return score_in_memory(source, fit_store(source, FitOptions()), ScorerOptions(**options))


def test_suspicion_is_computed_beside_rmd() -> None:
    scores = scored(samples(3))

    assert {*scores.table.column_names} >= SUSPICION
    assert not scores.provenance.warnings


def test_rmd_alone_is_computed_where_it_is_named() -> None:
    assert not SUSPICION & {*scored(samples(3), scorers=("rmd",)).table.column_names}


@pytest.mark.parametrize(("classes", "of_each"), [(1, 20), (6, 1)])
def test_suspicion_is_absent_where_no_label_can_be_compared(classes: int, of_each: int) -> None:
    source = samples(classes, of_each)

    scores, plain = scored(source), scored(source, scorers=("rmd",))

    assert scores.table == plain.table
    assert scores.provenance == plain.provenance


def test_suspicion_of_too_many_classes_is_left_out_with_a_warning_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_store, "MOST_CLASSES", 2)

    left_out, named = scored(samples(3)), scored(samples(3), scorers=("suspicion",))

    assert not SUSPICION & {*left_out.table.column_names}
    (warning,) = left_out.provenance.warnings
    assert "3: name the scorer suspicion to have it above 2" in warning
    assert {*named.table.column_names} >= SUSPICION
    assert not named.provenance.warnings
