"""A person reviews photographs of which forty lie in a wrong folder, in two rounds.

They are those of `tools/messy_folder.py` of the real data, among damaged files, odd names and
copies. The person knows the truth, keeps what is right and relabels the rest, by the keyboard.
"""

import csv
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.samples import to_samples
from tests.browser.kinds import Exploring, OpenAddress, Page, RunWords

ROUNDS = (20, 100)  # decisions
MOST_KEYS = 1.1  # for each decision
OTHERS_WRONG = 15  # labels of Tiny ImageNet itself that a person would doubt, about
WEIGHTS = "--backbone timm:{} --weights {}"
LITE = ("tf_efficientnet_lite2", "tf_efficientnet_lite2.imagenet1k.fp16.safetensors")
MOBILE = ("mobilenetv2_100", "mobilenetv2_100.imagenet1k.safetensors")

pytestmark = [
    pytest.mark.skipif(
        "DIFFICULTY_REVIEWS" not in os.environ, reason="`make campaign` reviews the photographs"
    ),
]


@dataclass
class Reviewer:
    """Who knows the true class of what was moved, and presses keys."""

    page: Page
    truth: dict[str, str]
    keys: int = 0
    decided: dict[str, str | None] = field(default_factory=dict)

    def press(self, key: str) -> None:
        self.keys += 1
        self.page.keyboard.press(key)

    def review(self, number: int) -> None:
        """Decides about so many images in the order of the list, the first of which is shown."""
        self.page.wait_for_load_state("load")  # keys do nothing before
        for _ in range(number):
            card = self.page.locator(".subject.card")
            row = card.get_attribute("data-row")
            sample_id = self.page.locator(".sample-id").inner_text()
            self.decided[sample_id] = self.truth.get(sample_id)
            self.decide(self.decided[sample_id])
            self.page.wait_for_function(
                "row => document.querySelector('.subject.card')?.dataset.row !== row"
                " && document.readyState === 'complete'",
                arg=row,
            )

    def decide(self, true: str | None) -> None:
        """Presses what says that this class is the true one; None for the given one."""
        if true is None:
            self.press("k")
            return
        offered = self.page.locator(".fit").evaluate_all("all => all.map((each) => each.value)")
        if true in offered:
            self.press(str(1 + offered.index(true)))
            return
        self.press("/")
        for letter in true:
            self.press(letter)
            if self.page.locator("#other-options [aria-selected=true]").inner_text() == true:
                break
        self.press("Enter")


def counts_of(scores: Path) -> LabelCounts:
    counts = to_samples(read_scores(scores)).label_counts
    assert counts is not None
    return counts


@pytest.mark.parametrize(
    ("network", "found"), [(LITE, 36), (MOBILE, 33)], ids=["EfficientNet-Lite2", "MobileNetV2"]
)
def test_two_rounds_find_what_was_moved_with_three_commands_and_one_key_for_each_decision(
    network: tuple[str, str],
    found: int,
    messy: Path,
    run_words: RunWords,
    exploring: Exploring,
    open_address: OpenAddress,
) -> None:
    name, weights = network[0], messy / "weights" / network[1]
    if not weights.exists():
        pytest.skip(f"there is no {weights}")
    with (messy / "moved.csv").open() as file:
        truth = {row["path"]: row["true"] for row in csv.DictReader(file)}
    backbone = WEIGHTS.format(name, weights)
    scores = messy / f"{name}.parquet"
    run_words(f"difficulty score photos --out {scores.name} {backbone}", messy)
    with exploring(f"difficulty explore {scores.name}", messy) as output:
        page = open_address(output.split()[1])
        reviewer = Reviewer(page, truth)
        for number in ROUNDS:
            page.get_by_role("link", name="Review", exact=True).click()
            page.get_by_role("link", name="Show the others, too").click()
            page.get_by_label("Order").select_option("hardest")
            page.wait_for_url("**sort=hardest*")
            page.locator(".card .look").first.click()
            reviewer.review(number)
            job = page.url
            page.get_by_role("button", name="Score again").click()
            page.get_by_role("link", name="Before and after this round").wait_for()
            assert page.url != job
        page.close()  # before the server ends, which it may still ask for pictures
    run_words(f"difficulty clean {scores.name} --out {name}.csv", messy)

    decided = reviewer.decided
    corrected = {sample_id: label for sample_id, label in decided.items() if label is not None}
    remembered = read_marks(ReviewFolder(scores).file, decided).samples
    left = counts_of(scores).left
    with (messy / f"{name}.csv").open(encoding="utf-8-sig", newline="") as file:
        cleaned = {row["sample_id"]: row["label"] for row in csv.DictReader(file)}
    print(f"{len(corrected)} found, {reviewer.keys} keys, wrong labels left {left}")  # noqa: T201
    assert len(decided) == sum(ROUNDS) == len(remembered)
    assert {key: mark.label for key, mark in remembered.items() if mark.label} == corrected
    assert all(remembered[key].mark is Mark.KEEP for key in decided if key not in corrected)
    assert {key: cleaned[key] for key in corrected} == corrected
    assert len(corrected) >= found
    assert reviewer.keys <= MOST_KEYS * len(decided)
    assert left is not None
    assert left[0] <= len(truth) - len(corrected) + OTHERS_WRONG
    assert left[1] >= len(truth) - len(corrected)
