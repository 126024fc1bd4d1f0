"""Features that hardly tell the classes apart are said to, with a stronger backbone by name."""

import numpy as np
import pytest

from difficulty_service.backbones import BACKBONES
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import to_samples
from difficulty_service.scores.separation import STRONGER, Separation
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_in_memory
from difficulty_service.settings.options import ScorerOptions


def scored(distance: float, *, wrong: float = 0.0, scorers: tuple[str, ...] = ()) -> ScoreFile:
    """Scores of 400 samples of four classes whose means have this distance from the origin."""
    generator = np.random.default_rng(0)
    labels = np.arange(400) % 4
    features = generator.standard_normal((400, 8)) + distance * np.eye(4, 8)[labels]
    labels = np.where(generator.random(400) < wrong, (labels + 1) % 4, labels)
    source = read_arrays(features, labels, None)
    named = {"scorers": scorers} if scorers else {}
    return score_in_memory(source, fit_store(source, FitOptions()), ScorerOptions(**named))


def caution_of(scores: ScoreFile) -> str | None:
    """The caution among the warnings, which is the one that the pages show."""
    caution = to_samples(scores).caution
    assert [caution] == [*scores.provenance.warnings[:1]] or caution is None
    return caution


@pytest.mark.parametrize("scorers", [(), ("rmd",)])
def test_it_is_0_by_chance_and_1_where_every_label_is_the_class_that_fits_best(
    scorers: tuple[str, ...],
) -> None:
    assert caution_of(scored(0, scorers=scorers)) is not None
    assert caution_of(scored(8, scorers=scorers)) is None
    assert Separation.of(300, [100] * 4, None).value == pytest.approx(0)
    assert Separation.of(0, [100] * 4, None).value == pytest.approx(1)


def scored_few(each: int) -> ScoreFile:
    """Scores of 40 classes that lie far apart, with labels of which a twentieth are wrong."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), each)
    features = generator.standard_normal((len(labels), 64)) + 6 * np.eye(40, 64)[labels]
    given = np.where(generator.random(len(labels)) < 0.05, (labels + 1) % 40, labels)
    source = read_arrays(features, given, None)
    return score_in_memory(source, fit_store(source, FitOptions()), ScorerOptions())


def test_many_small_classes_are_said_to_make_right_labels_look_wrong() -> None:
    caution = caution_of(scored_few(3))

    assert "are in classes of fewer than 5" in caution
    assert "classes of fewer" not in (caution_of(scored_few(12)) or "")


def test_few_samples_are_no_matter_where_no_label_is_accused() -> None:
    sizes = [2] * 10 + [4] * 10
    told = Separation.of(0, sizes, None, num_accused=1)

    assert told.caution(Provenance()).startswith("100 % of the images are in classes of fewer")
    assert Separation.of(0, sizes, None).caution(Provenance()) is None
    assert Separation.of(0, [*sizes, 60], None, num_accused=1).caution(Provenance()) is None


def test_wrong_labels_do_not_count_against_the_features() -> None:
    assert Separation.of(200, [250, 250], (0.1, 0.4)).value == pytest.approx(1)
    assert Separation.of(200, [250, 250], None).value == pytest.approx(0.2)
    assert caution_of(scored(4, wrong=0.3)) is None


def test_nothing_is_said_where_nothing_is_compared() -> None:
    assert Separation.of(0, [], None) is None
    assert Separation.of(0, [10], None).caution(Provenance()) is None


@pytest.mark.parametrize(
    ("features", "remedy"),
    [
        ({"backbone": "builtin"}, "a stronger backbone may do better: clip-vit-b16"),
        ({"backbone": "clip-vit-b16"}, "a stronger backbone may do better: dinov2-vit-l14"),
        ({"backbone": "dinov2-vit-l14"}, "a network that was trained on similar images"),
        ({}, "a network that was trained on similar images"),
        ({"backbone": "builtin-text", "modality": "text"}, "the backbone transformers:NAME"),
    ],
)
def test_what_may_do_better_is_named(features: dict[str, str], remedy: str) -> None:
    caution = Separation(0.4, 0.25).caution(Provenance.of(features))

    assert "only 40 % of the" in caution
    assert "25 % would by chance" in caution
    assert remedy in caution.partition("uncertain; ")[2]


def test_the_stronger_backbones_exist() -> None:
    assert {*STRONGER} <= {*BACKBONES}
