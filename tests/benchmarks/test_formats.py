"""The comparison with what other programs were given, and the page that is made of its table."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import benchmarks.formats.page
from benchmarks.formats import fields
from benchmarks.formats.case import Reading, Row
from benchmarks.formats.compare import changed_only, compared, decided, matched, truth_of
from benchmarks.formats.explained import EXPLANATIONS, explain, stale
from benchmarks.formats.ours import Decided, name_of
from benchmarks.formats.page import FIELDS, PAGE, TRIPS, page_of, rows_of
from benchmarks.formats.round_trips import counted
from benchmarks.formats.scenes import CATEGORIES, SITUATIONS, Scene, Thing
from benchmarks.formats.table import TableRow
from benchmarks.formats.tools.trip import ToolDecision
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample

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

    assert page_of(text, rows_of(), rows_of(TRIPS), rows_of(FIELDS)) == text


def test_every_decision_came_back_through_every_program() -> None:
    rows = rows_of(TRIPS)

    assert {row["not right"] for row in rows} == {"0"}
    programs = {row["program"] for row in rows if row["relabel"] == "30"}
    assert programs == {"label-studio", "datumaro", "fiftyone", "datasets"}


@pytest.mark.parametrize("table", [TRIPS, FIELDS], ids=["round trips", "fields"])
def test_the_versions_of_a_table_are_those_that_are_installed(table: Path) -> None:
    pins = [line for path in HERE.glob("requirements*.txt") for line in path.read_text().split()]

    used = {f"{row['program']}=={row['version']}" for row in rows_of(table)}

    assert len(used) >= 3
    assert all(any(pin.endswith(each) for pin in pins) for each in used)


def test_a_decision_that_is_lost_or_another_one_is_not_right() -> None:
    decisions = {
        "a": ToolDecision("keep", "cat"),
        "b": ToolDecision("relabel", "dog"),
        "c": ToolDecision("drop", "cat"),
        "d": ToolDecision("none", "cat"),
        "e": ToolDecision("relabel", "cat"),
    }
    marks = {
        "b": MarkedSample("b", Mark.RELABEL, "dog"),
        "c": MarkedSample("c", Mark.DROP),
        "e": MarkedSample("e", Mark.RELABEL, "bird"),
        "f": MarkedSample("f", Mark.KEEP),
    }

    found, wrong = counted(decisions, marks)

    assert +found == {"relabel": 1, "drop": 1, "none": 1}
    assert wrong == 3, "a is lost, e has another class, and f is none of the samples"


def test_images_of_other_fields_had_the_levels_of_the_formula() -> None:
    assert {row["levels apart"] for row in rows_of(FIELDS)} == {"0"}


@pytest.mark.parametrize(("change", "apart"), [(0, "0"), (14, "1"), (600, "52")])
def test_levels_that_are_not_of_the_formula_are_counted(
    tmp_path: Path, change: int, apart: str
) -> None:
    values = np.arange(100, 3000, 29, np.uint16).reshape(10, 10, 1)
    Image.fromarray(values[..., 0]).save(tmp_path / "a.tif")
    np.save(tmp_path / "a.npy", np.where(values == 1550, values + change, values))
    entry = {"program": "x", "version": "1", "kind": "grey", "image": "a.tif", "page": ""}
    entry |= {"low": 100, "high": 3000, "bands": [], "inverted": False, "missing": None}
    (tmp_path / "written.json").write_text(json.dumps([entry]))

    (row,) = fields.rows_of(tmp_path)

    assert str(row["levels apart"]) == apart


def test_the_table_has_forty_datasets_of_eight_programs_at_least() -> None:
    rows = rows_of()
    versions = {(row["writer"], row["version"]) for row in rows}

    assert len(rows) >= 40
    assert len({writer for writer, _ in versions}) == len(versions) >= 8
    pins = "".join(
        (HERE / name).read_text() for name in ("requirements.txt", "requirements-alone.txt")
    )
    assert all(f"{writer}=={version}\n" in pins for writer, version in versions)
