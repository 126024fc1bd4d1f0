"""The comparison with what other programs were given, and the page that is made of its table."""

from pathlib import Path

import pytest

import benchmarks.formats.page
from benchmarks.formats.case import Reading, Row
from benchmarks.formats.compare import changed_only, compared, decided, matched, truth_of
from benchmarks.formats.explained import EXPLANATIONS, explain, stale
from benchmarks.formats.ours import Decided, name_of
from benchmarks.formats.page import PAGE, page_of, rows_of
from benchmarks.formats.scenes import CATEGORIES, SITUATIONS, Scene, Thing
from benchmarks.formats.table import TableRow

HERE = Path(benchmarks.formats.page.__file__).parent
PLAIN = SITUATIONS["plain"]
TRUTH = truth_of(PLAIN, "boxes")


def _reading(rows: list[Row], images: int = len(PLAIN)) -> Reading:
    return Reading(rows, CATEGORIES, images)


def _moved(row: Row, pixels: float) -> Row:
    return (*row[:3], (row[3][0] + pixels, *row[3][1:]))


def test_a_reading_that_is_the_truth_has_no_difference() -> None:
    found = compared(TRUTH, _reading(TRUTH[::-1]), PLAIN)

    assert (found.boxes, found.pixels, found.classes) == (len(TRUTH), 0, True)
    assert found.differences == ()


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        (TRUTH[1:], "1 missing"),
        ([*TRUTH, TRUTH[0]], "1 more"),
        ([_moved(TRUTH[0], 1.5), *TRUTH[1:]], "1.50 px"),
        ([(*TRUTH[0][:2], "leaf", TRUTH[0][3]), *TRUTH[1:]], "1 of another class"),
    ],
)
def test_a_reading_with_one_difference_has_that_one_alone(rows: list[Row], difference: str) -> None:
    assert compared(TRUTH, _reading(rows), PLAIN).differences == (difference,)


def test_names_that_are_no_classes_and_images_that_are_missing_are_differences() -> None:
    found = compared(TRUTH, Reading(TRUTH, (*CATEGORIES, "background"), 2), PLAIN)

    assert found.differences == ("classes 'background'", "1 image fewer")
    assert not found.classes


def test_the_nearest_boxes_are_of_the_same_object() -> None:
    row = TRUTH[0]
    near, nearer = _moved(row, 3), _moved(row, -1)

    pairs, missing, more = matched([row], [near, nearer])

    assert pairs == [(row, nearer)]
    assert (missing, more) == (0, 1)


def test_the_box_around_a_turned_one_is_that_of_its_corners() -> None:
    thing = Thing("leaf", (0, 0, 20, 20), degrees=45)

    ((*_, sides),) = truth_of([Scene("a", [thing])], "boxes")

    half = 10 * 2**0.5
    assert sides == pytest.approx((10 - half, 10 - half, 10 + half, 10 + half))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("images/train/day1/cam.0/a.png", "day1/cam.0/a"),
        ("day2/cam.0/a.png", "day2/cam.0/a"),
        ("c.png", "day2/c"),
        ("other/z.png", "other/z.png"),
    ],
)
def test_a_path_is_of_the_scene_whose_path_it_ends_with(path: str, name: str) -> None:
    assert name_of(path, SITUATIONS["sub-folders"]) == name


def test_two_decisions_and_nothing_else_are_what_should_have_changed() -> None:
    decisions = Decided(TRUTH[0], "leaf", TRUTH[-1])
    expected = [(*TRUTH[0][:2], "leaf", TRUTH[0][3]), *TRUTH[1:-1]]

    changed = decided(TRUTH, decisions)

    assert changed_only(changed, expected)
    assert not changed_only(changed, TRUTH)
    assert not changed_only(changed, [*expected[1:], _moved(expected[0], 1)])


def _row(*differences: str) -> TableRow:
    texts = {each: "-" for each in TableRow.__annotations__ if each != "differences"}
    return TableRow(**texts | {"name": "ultralytics-yolo-crowd"}, differences=differences)


def test_a_difference_has_the_sentence_of_its_pattern_or_none() -> None:
    assert explain(_row(), "ours 1 missing") == "Its converter leaves out crowds."
    assert explain(_row(), "ours 2 missing") is None


def test_an_explanation_without_a_difference_is_named() -> None:
    unused = stale([_row("ours 1 missing")])

    assert len(unused) == len(EXPLANATIONS) - 1
    assert not any("crowds" in each for each in unused)


def test_the_page_of_formats_is_made_of_its_table() -> None:
    text = PAGE.read_text()

    assert page_of(text, rows_of()) == text


def test_the_table_has_forty_datasets_of_eight_programs_at_least() -> None:
    rows = rows_of()
    versions = {(row["writer"], row["version"]) for row in rows}

    assert len(rows) >= 40
    assert len({writer for writer, _ in versions}) == len(versions) >= 8
    pins = "".join(
        (HERE / name).read_text() for name in ("requirements.txt", "requirements-alone.txt")
    )
    assert all(f"{writer}=={version}\n" in pins for writer, version in versions)
