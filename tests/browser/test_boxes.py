"""Boxes of objects are reviewed by keyboard, and their dataset follows in its own format."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import difficulty_service as ds
from difficulty_service.cli import create_app
from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from tests.boxed_images import Scene, many_scenes, write_coco, write_image
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

NUM_SCENES, WRONG = 12, 4


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scores of 36 boxes in a COCO dataset, of which one has a wrong category."""
    folder = tmp_path_factory.mktemp("boxes")
    scenes = many_scenes(NUM_SCENES)
    (category, *sides), *others = scenes[WRONG].boxes
    wrong = {"apple": "leaf", "leaf": "plum", "plum": "apple"}[category]
    labelled = Scene(scenes[WRONG].name, [(wrong, *sides), *others])
    write_coco(folder / "fruit", [*scenes[:WRONG], labelled, *scenes[WRONG + 1 :]])
    write_image(folder / "fruit" / "val" / f"{labelled.name}.png", scenes[WRONG])
    ds.score_dataset(
        folder / "fruit", out=folder / "scores.parquet", backbone="builtin", progress=False
    )
    return folder / "scores.parquet"


def annotations_of(path: Path) -> dict[int, dict[str, Any]]:
    return {each["id"]: each for each in json.loads(path.read_text())["annotations"]}


def test_a_review_by_keyboard_changes_the_decided_boxes_alone(
    open_page: OpenPage, boxes: Path, tmp_path: Path
) -> None:
    path = make_report(
        read_reported(boxes), tmp_path / "random.html", ReportOptions(order="random")
    ).path
    page = open_page(path)
    cards = page.evaluate("JSON.parse(document.getElementById('review-data').textContent).cards")
    ids = [card["id"] for card in cards]
    first = 100 + 3 * WRONG
    wrong = f"scene{WRONG:03}.png#{first}"
    kept, dropped, misplaced, spared = [each for each in ids if each != wrong][:4]

    for sample_id, keys in (
        (kept, "k"),
        (wrong, "r"),
        (dropped, "d"),
        (misplaced, "b"),
        (spared, "bu"),
    ):
        page.locator(".look").nth(ids.index(sample_id)).focus()
        for key in keys:
            page.keyboard.press(key)
    stamps = [
        page.locator(".stamp").nth(ids.index(each)).inner_text() for each in (misplaced, spared)
    ]
    tray = page.locator("#tray-text").inner_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download marks").click()
    download.value.save_as(tmp_path / "marks.csv")
    words = ("clean", boxes, "--marks", tmp_path / "marks.csv", "--out", tmp_path / "cleaned")
    create_app()(list(map(str, words)))

    assert stamps == ["misplaced", ""]
    assert tray.startswith("4 checked: 1 keep, 1 relabel, 1 drop, 1 misplaced.")
    file = Path("annotations") / "instances_val.json"
    before, after = (
        annotations_of(each / file) for each in (boxes.with_name("fruit"), tmp_path / "cleaned")
    )
    right = {"apple": 3, "leaf": 8, "plum": 13}[many_scenes(NUM_SCENES)[WRONG].boxes[0][0]]
    expected = {**before, first: {**before[first], "category_id": right}}
    del expected[int(dropped.partition("#")[2])]
    assert after == expected
    assert list(after) == list(expected)
    with (tmp_path / "cleaned" / "misplaced.csv").open(newline="") as rows:
        (row,) = csv.DictReader(rows)
    image, _, box = misplaced.partition("#")
    assert (row["sample_id"], row["image"], row["box"]) == (misplaced, image, box)
    assert int(box) in after


def test_a_box_that_is_misplaced_does_not_count_as_a_wrong_label(
    open_page: OpenPage, boxes: Path, tmp_path: Path
) -> None:
    make_report(read_reported(boxes), tmp_path / "random.html", ReportOptions(order="random"))
    page = open_page(tmp_path / "random.html")

    page.locator(".look").first.focus()
    for key in "bbbdd":
        page.keyboard.press(key)

    tray = page.locator("#tray-text").inner_text()
    assert "5 checked: 0 keep, 0 relabel, 2 drop, 3 misplaced." in tray
    assert "Of 5 labels in a random order, 2 were wrong" in tray


def test_the_dialog_shows_the_fourth_decision_on_every_device(
    open_page: OpenPage, boxes: Path, tmp_path: Path
) -> None:
    make_report(read_reported(boxes), tmp_path / "random.html", ReportOptions(order="random"))
    for device in ("desktop", "phone"):
        page = open_page(tmp_path / "random.html", device)
        page.locator(".look").first.click()
        dialog = page.get_by_role("dialog")
        verbs = dialog.locator(".verbs button")
        places = [button.bounding_box() for button in verbs.all()]

        dialog.get_by_role("button", name="Misplaced").click()
        page.keyboard.press("ArrowLeft")

        assert axe_findings(page) == []
        assert verbs.nth(3).get_attribute("aria-pressed") == "true"
        assert len({place["y"] for place in places}) == 1
        assert len({round(place["width"]) for place in places}) == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        page.context.close()


def test_samples_that_are_no_boxes_have_no_such_key_or_button(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)

    page.locator(".look").first.focus()
    page.keyboard.press("b")
    page.keyboard.press("?")

    assert page.locator("[data-mark]").count() == 0
    assert page.locator("[data-decision=misplaced]").count() == 0
    assert "box" not in page.locator("#keys").inner_text()
