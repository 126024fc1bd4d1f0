"""What hard images share, on the page of the report in a real browser, offline."""

from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.base.checksums import write_json
from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.explanation import (
    Explanation,
    Finding,
    GroupFindings,
    explanation_file,
    scored_by,
)
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

pytestmark = pytest.mark.analysis("audit")

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def explained(make_scored: Callable[..., Path]) -> Path:
    """A report with findings in all classes together and in one with a hostile name."""
    scores = make_scored((HOSTILE, "cat", "dog"))
    reported = read_reported(scores)
    findings = [
        Finding(HOSTILE, -0.021, -0.03, -0.012, -0.9, 0.001),
        Finding("an animal in a cage", 0.01, 0.004, 0.016, 0.5, 0.01),
    ]
    groups = [
        GroupFindings(None, 30, 150, findings),
        GroupFindings(HOSTILE, 10, 50, findings[:1]),
        GroupFindings("cat", 10, 50, []),
    ]
    values = Explanation(350, 1050, groups, 1).to_json()
    provenance = reported.provenance
    origin = {"backbone": "clip", "fingerprint": provenance.fingerprint}
    write_json(explanation_file(scores), {**values, **origin, "scores": scored_by(provenance)})
    path = scores.with_suffix(".html")
    make_report(reported, path, ReportOptions(explanation=explanation_file(scores)))
    return path


def test_the_phrases_are_reached_from_the_top_and_are_text(
    open_page: OpenPage, explained: Path
) -> None:
    page = open_page(explained)

    page.get_by_role("navigation").get_by_role("link", name="Words").click()

    rows = page.locator("#explained tbody tr").all_inner_texts()
    assert [" ".join(row.split()) for row in rows] == [
        f"All classes less like {HOSTILE} −0.90 −2.10 −3.00 to −1.20",  # noqa: RUF001
        "more like an animal in a cage +0.50 +1.00 +0.40 to +1.60",
        f"{HOSTILE} less like {HOSTILE} −0.90 −2.10 −3.00 to −1.20",  # noqa: RUF001
    ]


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_no_number_is_cut_off(open_page: OpenPage, explained: Path, device: str) -> None:
    page = open_page(explained, device)

    cut_off = page.locator("#explained :is(.r, .interval)").evaluate_all(
        "(cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).length"
    )

    assert cut_off == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, explained: Path, device: str, scheme: str) -> None:
    page = open_page(explained, device, color_scheme=scheme)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
