"""The report shows what `difficulty explain` found, and never findings about other data."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difficulty_service.analyses.audit.explanation import explain
from difficulty_service.base.checksums import write_json
from difficulty_service.reports.assemble import ReportOptions, make_report
from difficulty_service.scores.explanation import Explanation, Finding, GroupFindings, scored_by
from difficulty_service.scores.file import ScoreFile
from tests.score_files import random_scores

pytestmark = pytest.mark.analysis("audit")


PHRASES = ["a blurry photo", "<b>snow</b> & ice", "a cage"]
SAMPLES = 600


def explanation_of(scores: ScoreFile, planted: int | None) -> Explanation:
    """Explains scores by random similarities; the hard samples are less like a planted phrase."""
    rmd = scores.table["rmd"].to_numpy()
    similarities = np.random.default_rng(1).normal(0, 0.01, (len(rmd), len(PHRASES)))
    if planted is not None:
        similarities[np.argsort(rmd)[-120:], planted] -= 0.05
    return explain(similarities, rmd, scores.table["label_name"].to_pylist(), PHRASES)


def words_of(
    scores: ScoreFile, folder: Path, explanation: Explanation | None, /, **changes: object
) -> tuple[str, str]:
    """The section of the page, as text, and the warnings about it."""
    file = folder / "scores.explained.json"
    if explanation is not None:
        origin = {
            "backbone": "clip",
            "fingerprint": scores.provenance.fingerprint,
            "scores": scored_by(scores.provenance),
        }
        write_json(file, {**explanation.to_json(), **origin, **changes})
    options = ReportOptions(explanation=file)
    written = make_report(scores, folder / "report.html", options)
    page = (folder / "report.html").read_text("utf-8")
    (section,) = re.findall(r'<section id="explained">(.*?)</section>', page, re.DOTALL) or [""]
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).split())
    notes = [note for note in written.warnings if "no pictures" not in note]
    assert all(note in html.unescape(page) for note in notes)
    return text, " ".join(notes)


def test_a_phrase_that_stands_out_is_shown_with_its_effect_and_interval(tmp_path: Path) -> None:
    scores = random_scores(SAMPLES)
    explanation = explanation_of(scores, planted=1)

    text, warnings = words_of(scores, tmp_path, explanation)

    (finding,) = explanation.groups[0].findings
    numbers = [finding.effect, *(100 * each for each in (finding.difference, finding.low))]
    shown = " ".join(f"{number:.2f}".replace("-", "\N{MINUS SIGN}") for number in numbers)
    assert finding.effect < -1
    assert f"All classes less like <b>snow</b> & ice {shown} to" in text
    assert "60 hard images, the hardest tenth of each class, beside 300 easy ones" in text
    assert "a blurry photo" not in text
    assert warnings == ""


def test_where_nothing_stands_out_the_page_says_so(tmp_path: Path) -> None:
    scores = random_scores(SAMPLES)

    text, warnings = words_of(scores, tmp_path, explanation_of(scores, planted=None))

    assert text.endswith("Nothing stands out: hard images are described as easy ones are.")
    assert "significant" not in text
    assert warnings == ""


def test_classes_and_phrases_beyond_the_limits_are_counted(tmp_path: Path) -> None:
    findings = [Finding(f"phrase {row}", 0.03, 0.02, 0.04, 1 - row / 10, 0.01) for row in range(7)]
    classes = [GroupFindings(f"class {row}", 20, 100, findings[row % 2 :]) for row in range(25)]
    silent = GroupFindings("quiet", 20, 100, [])
    groups = [GroupFindings(None, 520, 2600, []), *classes, silent]

    text, _ = words_of(random_scores(60), tmp_path, Explanation(9, 243, groups, 1))

    assert text.count("of 7 phrases") == 13
    assert text.count("of 6 phrases") == 7
    assert "class 1 5 of 6" not in text.split("class 24 ")[0]
    assert "All classes" not in text
    assert "Nothing stands out in 1 of 26 classes." in text
    assert "5 more classes have such phrases" in text
    assert "1 class has fewer than 100 images and is examined together" in text


def test_without_an_explanation_there_is_no_section(tmp_path: Path) -> None:
    assert words_of(random_scores(60), tmp_path, None) == ("", "")


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"fingerprint": "0"}, "it explains the scores of a dataset with another fingerprint"),
        (
            {"scores": {"backbone": "dinov2", "weights_sha256": "0"}},
            "it explains scores of the backbone dinov2, and these are those of",
        ),
        ({"scores": {}}, "it lacks values of an explanation"),
        ({"format_version": 9}, "has version 9 of explanations"),
        ({"groups": []}, "it lacks values of an explanation"),
        ({"groups": [{"findings": []}]}, "it lacks values of an explanation"),
    ],
)
def test_an_explanation_of_other_data_or_another_kind_is_left_out_with_a_warning(
    tmp_path: Path, changes: dict[str, Any], warning: str
) -> None:
    scores = random_scores(SAMPLES)

    text, warnings = words_of(scores, tmp_path, explanation_of(scores, planted=1), **changes)

    assert text == ""
    assert warning in warnings
    assert "run `difficulty explain` again" in warnings


def test_an_explanation_of_scores_by_other_weights_is_left_out(tmp_path: Path) -> None:
    scores = random_scores(SAMPLES)
    other = {**scored_by(scores.provenance), "weights_sha256": "0" * 64}

    text, warnings = words_of(scores, tmp_path, explanation_of(scores, planted=1), scores=other)

    assert text == ""
    assert "it explains scores of other weights" in warnings


def test_a_damaged_explanation_is_left_out_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "scores.explained.json").write_text(json.dumps({"format_version": 1})[:-1])

    text, warnings = words_of(random_scores(60), tmp_path, None)

    assert text == ""
    assert "scores.explained.json is damaged" in warnings
