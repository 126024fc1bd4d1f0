"""Attributes that hard samples share: found where they are planted, silent where they are not."""

import json
from pathlib import Path

import numpy as np
import pytest

from difficulty_service.analyses.audit.explanation import explain
from difficulty_service.base.errors import AuditError
from difficulty_service.scores.explanation import Explanation, read_explanation

CLASSES = ("bird", "cat", "dog")
ATTRIBUTES = [f"attribute {number}" for number in range(40)]


def random_similarities(rng: np.random.Generator, number: int) -> np.ndarray:
    """Similarities that depend on each other, as those of phrases do, with heavy tails."""
    features = rng.standard_t(5, size=(number, 12))
    return features @ rng.normal(size=(12, len(ATTRIBUTES)))


def class_names(number: int) -> list[str]:
    return [CLASSES[row % 3] for row in range(number)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def findings_of(explanation: Explanation) -> dict[str | None, list[str]]:
    return {
        group.class_name: [finding.attribute for finding in group.findings]
        for group in explanation.groups
    }


def test_random_scores_are_silent_in_at_least_95_of_100_datasets(
    rng: np.random.Generator,
) -> None:
    silent = []
    for _ in range(300):
        similarities, scores = random_similarities(rng, 450), rng.normal(size=450)
        explanation = explain(similarities, scores, class_names(450), ATTRIBUTES)
        silent.append(not any(group.findings for group in explanation.groups))

    assert np.mean(silent) >= 0.95


def test_small_classes_with_random_scores_are_silent_as_well(rng: np.random.Generator) -> None:
    silent = []
    for _ in range(300):
        names = [f"class {row % 40}" for row in range(600)]
        similarities = random_similarities(rng, 600)
        explanation = explain(similarities, rng.normal(size=600), names, ATTRIBUTES)
        assert explanation.small_classes == 40
        silent.append(not explanation.groups[0].findings)

    assert np.mean(silent) >= 0.95


def test_an_attribute_of_the_hard_samples_of_one_class_is_found_in_that_class(
    rng: np.random.Generator,
) -> None:
    similarities, scores = rng.normal(size=(900, 40)), rng.normal(size=900)
    cats = np.arange(900) % 3 == 1
    similarities[cats & (scores > np.quantile(scores[cats], 0.9)), 7] += 2

    explanation = explain(similarities, scores, class_names(900), ATTRIBUTES)

    assert findings_of(explanation) == {
        None: ["attribute 7"],
        "bird": [],
        "cat": ["attribute 7"],
        "dog": [],
    }
    finding = explanation.groups[2].findings[0]
    assert finding.low < 2 < finding.high
    assert finding.low < finding.difference < finding.high
    assert finding.effect == pytest.approx(2, abs=0.5)
    assert finding.p_value < 0.001


def test_an_attribute_that_hard_samples_lack_has_a_negative_effect(
    rng: np.random.Generator,
) -> None:
    similarities, scores = rng.normal(size=(900, 40)), rng.normal(size=900)
    similarities[scores > 1, 3] -= 3

    finding = explain(similarities, scores, class_names(900), ATTRIBUTES).groups[0].findings[0]

    assert finding.attribute == "attribute 3"
    assert finding.effect < 0
    assert finding.high < 0


def test_an_attribute_of_a_hard_class_is_not_one_of_hard_samples(
    rng: np.random.Generator,
) -> None:
    similarities, scores = rng.normal(size=(900, 40)), rng.normal(size=900)
    cats = np.arange(900) % 3 == 1
    similarities[cats, 0] += 5
    scores[cats] += 5

    explanation = explain(similarities, scores, class_names(900), ATTRIBUTES)

    assert not any(findings_of(explanation).values())


def test_a_group_is_the_hardest_tenth_and_the_easiest_half(rng: np.random.Generator) -> None:
    names = ["cat"] * 200 + ["dog"] * 60

    explanation = explain(rng.normal(size=(260, 40)), rng.normal(size=260), names, ATTRIBUTES)

    sizes = [(group.class_name, group.num_hard, group.num_easy) for group in explanation.groups]
    assert sizes == [(None, 26, 130), ("cat", 20, 100)]
    assert explanation.small_classes == 1
    assert explanation.num_tests == 80


def test_a_single_class_is_examined_once(rng: np.random.Generator) -> None:
    explanation = explain(
        rng.normal(size=(200, 40)), rng.normal(size=200), ["cat"] * 200, ATTRIBUTES
    )

    assert [group.class_name for group in explanation.groups] == [None]


def test_too_few_samples_are_refused_with_the_number_that_is_needed(
    rng: np.random.Generator,
) -> None:
    with pytest.raises(AuditError, match=r"60 samples in 3 classes are too few.*100 samples"):
        explain(rng.normal(size=(60, 40)), rng.normal(size=60), class_names(60), ATTRIBUTES)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is damaged"), ('{"format_version": 9}', "has version 9 of explanations")],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "scores.explained.json").write_text(text)

    with pytest.raises(AuditError, match=message):
        read_explanation(tmp_path / "scores.explained.json")


def test_there_is_no_explanation_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_explanation(tmp_path / "scores.explained.json") is None


def test_the_result_is_plain_json(rng: np.random.Generator) -> None:
    similarities, scores = rng.normal(size=(300, 40)), rng.normal(size=300)
    similarities[scores > 1, 3] += 3

    explanation = explain(similarities, scores, class_names(300), ATTRIBUTES)

    values = json.loads(json.dumps(explanation.to_json(), allow_nan=False))
    assert values["format_version"] == 1
    assert values["groups"][0]["findings"][0]["attribute"] == "attribute 3"
