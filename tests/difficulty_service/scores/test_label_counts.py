"""How many labels are of which kind is said in a sentence."""

import pyarrow as pa
import pytest

from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.provenance import Provenance, RandomCheck
from difficulty_service.scores.samples import to_samples

SCORES = {
    "sample_id": ["a", "b", "c", "d", "e", "f"],
    "label": pa.array([0, 0, 0, 1, 1, 2], pa.int32()),
    "label_name": ["cat", "cat", "cat", "dog", "dog", "owl"],
    "nearest_label": pa.array([1, 1, 0, 0, 1, 0], pa.int32()),
    "label_margin": [9.0, 1.0, -1.0, 2.0, -4.0, 3.0],
    "percentile": pa.array([0.5] * 6, pa.float32()),
    "rmd": [1.0] * 6,
    "suspicion": [3.0, -2.0, -5.0, -0.5, 0.1, None],
    "suggested_label": pa.array([1, 1, 1, 0, 0, None], pa.int32()),
}


def sentence_of(scores: dict[str, object], provenance: dict[str, object]) -> str:
    samples = to_samples(ScoreFile(pa.table(scores), Provenance.of(provenance)))
    return str(samples.label_counts)


def test_labels_are_wrong_between_two_classes_or_fit() -> None:
    found = sentence_of(SCORES, {})

    assert found == (
        "2 of 5 labels are probably wrong (p_wrong above 1/2), 1 of them almost certainly (above "
        "0.95), 2 are between two classes (ambiguous: the labels may still be right), and 1 fits."
    )


def test_the_interval_of_the_share_is_that_of_so_many_labels() -> None:
    fit = {"noise_wrong": 0.5, "noise_wrong_low": 0.33, "noise_wrong_high": 0.7}

    found = sentence_of(SCORES, {"suspicion": fit})

    assert found.endswith("1 fits. At least 1 label is wrong.")


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ((0.0312, 0.0446), "At least 53 labels are wrong."),
        ((0.0, 0.0011), "There may be no wrong labels."),
    ],
)
def test_the_lower_end_is_what_is_sure(shares: tuple[float, float], sentence: str) -> None:
    assert str(LabelCounts(2000, 70, 20, 90, shares)).endswith(f" 1,840 fit. {sentence}")


def test_after_a_round_the_sentence_is_about_the_labels_that_nobody_has_verified() -> None:
    counts = LabelCounts(2000, 3, 1, 90, (0.016, 0.0252), verified=120, relabelled=30)

    assert counts.left == (1, 21)
    assert str(counts) == (
        "3 of the 1,880 labels that nobody has verified are probably wrong (p_wrong above 1/2), 1 "
        "of them almost certainly (above 0.95), 90 are between two classes (ambiguous: the labels "
        "may still be right), and 1,787 fit. At least 1 label is wrong and not found yet."
    )


def test_a_random_choice_tells_how_many_are_wrong() -> None:
    check = RandomCheck(checked=100, wrong=5, among=1000, since=10)
    counts = LabelCounts(1060, 3, 1, 90, (0.02, 0.03), verified=200, relabelled=30, check=check)

    assert counts.beside.endswith(
        "and 767 fit. Of 100 labels in a random order, 5 were wrong, so that about 35 labels are "
        "wrong and not found yet (95 % interval 3 to 94)."
    )


def test_no_more_labels_can_be_wrong_than_nobody_has_verified() -> None:
    counts = LabelCounts(100, 0, 0, 0, (0.1, 0.9), verified=80, relabelled=30)

    assert counts.left == (0, 20)


def test_scores_without_suspicion_say_nothing_about_wrong_labels() -> None:
    plain = {name: values for name, values in SCORES.items() if "su" not in name}

    assert to_samples(ScoreFile(pa.table(plain), Provenance())).label_counts is None
