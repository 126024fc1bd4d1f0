"""The page of objects without a box in a real browser, offline."""

import warnings
from pathlib import Path

import pytest

import difficulty_service as ds
from tests.boxed_images import WRITERS, Scene, many_scenes, write_image
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

pytestmark = pytest.mark.analysis("missing_boxes")


@pytest.fixture(scope="module")
def missing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of boxes of which one is missing, in an image with a hostile name."""
    folder = tmp_path_factory.mktemp("missing")
    scenes = many_scenes(12)
    scenes[3] = Scene("<img src=x onerror=alert(1)>", scenes[3].boxes)
    without = Scene(scenes[3].name, scenes[3].boxes[1:])
    data = WRITERS["coco"](folder / "fruit", [*scenes[:3], without, *scenes[4:]])
    write_image(next(data.rglob("<*.png")), scenes[3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are few boxes
        ds.score_dataset(data, backbone="builtin", out=folder / "s.parquet", progress=False)
    ds.missing_boxes(folder / "s.parquet", count=6, report=folder / "missing.html", progress=False)
    return folder / "missing.html"


def test_the_first_region_is_the_object_without_a_box(open_page: OpenPage, missing: Path) -> None:
    page = open_page(missing)
    page.wait_for_function(
        "[...document.querySelectorAll('.copies img')].every((each) => each.naturalWidth > 0)"
    )

    regions = page.locator(".copies > li")

    assert regions.count() == 6
    assert regions.first.locator(".ids").inner_text() == "<img src=x onerror=alert(1)>.png"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, missing: Path, device: str, scheme: str) -> None:
    page = open_page(missing, device, color_scheme=scheme)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
