"""A person finds nearly all of forty moved photographs by following what the pages offer.

The person knows the truth and follows what is first: the copies with different labels, the labels
in question, twenty more at the end of each list, and scores again after twenty decisions.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.browser.kinds import Exploring, Page, RunWords

PLANTED, FEWEST_FOUND, MOST_DECISIONS = 40, 36, 140
BETWEEN_SCORES = 20  # decisions
MISTAKEN = {"Käfer 🐞", "fish", "single"}  # of copies with different labels
SHOWN = """
row => document.querySelector('.subject.card')?.dataset.row !== row
    && document.readyState === 'complete'
"""


@dataclass
class Sitting:
    """Who knows the true class of what was moved.

    Attributes:
        decided: Ids of the images, in the order of the decisions.
        since: Decisions since the scores were made.
    """

    page: Page
    truth: dict[str, str]
    decided: list[str] = field(default_factory=list)
    since: int = 0
    copies: int = 0

    @property
    def decisions(self) -> int:
        """Clicks on a decision: one for each image or group of copies."""
        return len(self.decided) + self.copies

    @property
    def found(self) -> int:
        return len({*self.decided} & self.truth.keys())

    def decide_copies(self) -> None:
        """Gives the copies of each group with different labels the right one."""
        page = self.page
        groups = page.locator("li.differ").evaluate_all("groups => groups.map(({ id }) => id)")
        for group in groups:
            wrong = re.compile("^All are (" + "|".join(map(re.escape, MISTAKEN)) + ")$")
            buttons = page.locator(f"#{group}").get_by_role("button", name=re.compile("^All are "))
            right = buttons.filter(has_not_text=wrong).first
            right.click()
            self.copies += 1
            self.since += 1
            page.get_by_text(f"{2 * self.copies} checked").wait_for()

    def check_list(self) -> bool:
        """Decides about the images of a list; whether its last one was reached."""
        page = self.page
        while self.decisions < MOST_DECISIONS and self.found < FEWEST_FOUND:
            card = page.locator(".subject.card")
            row, sample_id = card.get_attribute("data-row"), page.locator(".sample-id").inner_text()
            is_last = page.get_by_role("link", name="Next image").count() == 0
            self.decide(self.truth.get(sample_id))
            self.decided.append(sample_id)
            self.since += 1
            if is_last:
                page.get_by_text("This was the last one of this list.").wait_for()
                return True
            page.wait_for_function(SHOWN, arg=row)
        return False

    def decide(self, true: str | None) -> None:
        """Clicks what says that this class is the true one; None for the given one."""
        buttons = self.page.get_by_role("group", name="Decision")
        if true is None:
            buttons.get_by_role("button", name="Keep").click()
            return
        offered = self.page.locator(".fit:enabled").evaluate_all("all => all.map((b) => b.value)")
        if true in offered:
            self.page.locator(".fit").nth(offered.index(true)).click()
            return
        self.page.get_by_label("It is").fill(true)
        self.page.get_by_label("It is").press("Enter")


@pytest.mark.long
def test_one_sitting_finds_36_of_40_moved_photographs_by_following_the_pages(
    messy: Path,
    run_words: RunWords,
    exploring: Exploring,
    open_address: Callable[[str], Page],
    record_property: Callable[[str, object], None],
) -> None:
    with (messy / "moved.csv").open(newline="", encoding="utf-8") as file:
        truth = {row["path"]: row["true"] for row in csv.DictReader(file)}
    options = "--backbone builtin-photos --device cpu --out scores.parquet"
    run_words(f"difficulty score photos {options}", messy)

    with exploring("difficulty explore scores.parquet", messy) as output:
        page = open_address(output.split()[1])
        sitting = Sitting(page, truth)
        page.get_by_role("link", name="copies with different labels").click()
        sitting.decide_copies()
        page.locator(".crumb").click()
        while sitting.decisions < MOST_DECISIONS and sitting.found < FEWEST_FOUND:
            page.locator(".lead .solid").first.click()  # what the summary offers first
            page.locator(".card .look").first.click()
            page.wait_for_url(re.compile(r"/images/\d+"))
            while sitting.check_list() and sitting.since < BETWEEN_SCORES:
                row = page.locator(".subject.card").get_attribute("data-row")
                page.get_by_role("link", name=re.compile("^Check .* expected to be wrong$")).click()
                page.wait_for_function(SHOWN, arg=row)
            if sitting.found < FEWEST_FOUND and sitting.decisions < MOST_DECISIONS:
                page.get_by_role("button", name="Score again (").click()
                page.get_by_text(re.compile(r"^Round \d+: ")).wait_for()
                sitting.since = 0

        page.wait_for_load_state("networkidle")
        page.close()  # before the server ends

    record_property("decisions", sitting.decisions)
    assert len(truth) == PLANTED
    assert sitting.found >= FEWEST_FOUND, f"{sitting.found} after {sitting.decisions} decisions"
    assert sitting.decisions <= MOST_DECISIONS
    assert len({*sitting.decided}) == len(sitting.decided)  # none is shown twice
