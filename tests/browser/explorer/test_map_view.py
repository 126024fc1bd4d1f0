"""The map is zoomed and moved, coloured by any column, and drawn by either way."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from difficulty_service.reports.map_points import MapPoints
from tests.browser.explorer.service import Explorer
from tests.browser.kinds import DrawAround, OpenMap, Page, Places

pytestmark = pytest.mark.usefixtures("no_marks")

COLOURS = """() => {
    const canvas = document.createElement("canvas"), map = document.getElementById("map-canvas");
    canvas.width = map.width;
    canvas.height = map.height;
    const context = canvas.getContext("2d");
    context.drawImage(map, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height), found = new Set();
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] > 180) found.add([0, 1, 2].map((part) => data[at + part] >> 4).join());
    }
    return [...found];
}"""


def drawing(page: Page) -> str:
    """What is drawn on the map, once it is."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return str(page.evaluate("() => document.getElementById('map-canvas').toDataURL()"))


def colours(page: Page) -> set[tuple[int, ...]]:
    """Colours of opaque pixels of the map, sixteen steps each."""
    drawing(page)
    return {tuple(map(int, each.split(","))) for each in page.evaluate(COLOURS)}


def is_shown(page: Page, colour: str) -> bool:
    """Whether some pixels have about a colour."""
    wanted = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 16
    return any(np.abs(np.array(each) + 0.5 - wanted).max() <= 1.5 for each in colours(page))


def row_under(page: Page, x: float, y: float) -> int:
    page.mouse.move(x, y)
    picture = page.locator("#map-tip:not([hidden]) img")
    return int(picture.get_attribute("src").split("/")[-2])


def test_the_wheel_zooms_at_the_mouse_and_dragging_moves_the_map(
    map_page: Page, places: Places
) -> None:
    x, y = places(map_page)[7]
    row = row_under(map_page, x, y)

    map_page.mouse.wheel(0, -300)
    assert row_under(map_page, x + 1, y) == row
    map_page.mouse.down()
    map_page.mouse.move(x + 40, y + 25, steps=5)
    map_page.mouse.up()

    assert row_under(map_page, x + 40, y + 25) == row
    assert map_page.url.endswith("/map")  # the end of the drag is no click on a point
    map_page.get_by_role("button", name="Whole map").click()
    assert row_under(map_page, x, y) == row
    assert map_page.get_by_role("button", name="Whole map").is_disabled()


def test_keys_zoom_and_move_while_the_map_has_the_focus(map_page: Page, places: Places) -> None:
    whole = places(map_page)
    middle = np.argmin(((whole - whole.mean(0)) ** 2).sum(1))
    x, y = whole[middle]
    row = row_under(map_page, x, y)
    box = map_page.locator("#map-canvas").bounding_box()
    centre = np.array([box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
    map_page.locator("#map-canvas").focus()
    scrolled = map_page.evaluate("window.scrollY")

    map_page.keyboard.press("+")
    zoomed = centre + 1.5 * ((x, y) - centre)
    assert row_under(map_page, *zoomed) == row
    map_page.keyboard.press("ArrowRight")
    assert row_under(map_page, zoomed[0] - 0.2 * (box["width"] - 2), zoomed[1]) == row
    map_page.keyboard.press("0")
    assert row_under(map_page, x, y) == row
    assert map_page.evaluate("window.scrollY") == scrolled


def test_two_fingers_zoom(map_page: Page, places: Places) -> None:
    x, y = places(map_page)[7]
    row = row_under(map_page, x, y)
    session = map_page.context.new_cdp_session(map_page)

    def touch(kind: str, spread: int) -> None:
        points = [{"x": x - spread, "y": y, "id": 0}, {"x": x + spread, "y": y, "id": 1}]
        session.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [] if kind == "touchEnd" else points},
        )

    touch("touchStart", 20)
    for spread in range(24, 61, 4):
        touch("touchMove", spread)
    touch("touchEnd", 60)

    assert map_page.get_by_role("button", name="Whole map").is_enabled()
    assert row_under(map_page, x + 1, y) == row


def test_a_class_of_the_key_is_highlighted_and_no_longer(map_page: Page) -> None:
    classes = map_page.locator("#map-key button")
    names = classes.all_inner_texts()
    first, second = ("#4e79a7", "#f28e2b")
    assert is_shown(map_page, first)
    assert is_shown(map_page, second)

    classes.nth(0).click()
    assert classes.nth(0).get_attribute("aria-pressed") == "true"
    assert is_shown(map_page, first)
    assert not is_shown(map_page, second)
    classes.nth(0).click()

    assert is_shown(map_page, second)
    assert sorted(names) == sorted(("bird", "<b>cat<", "dog"))


def test_marks_colour_the_map_as_they_are_made(map_page: Page, draw_around: DrawAround) -> None:
    map_page.get_by_label("marks", exact=True).check()
    map_page.locator("#map-key").get_by_text("no mark").wait_for()
    assert map_page.locator("#map-key li").all_inner_texts() == [
        "drop",
        "relabel",
        "keep",
        "no mark",
    ]
    before = is_shown(map_page, "#c0392b")

    draw_around(map_page, list(range(120)))
    map_page.get_by_role("button", name="Drop them").click()
    map_page.get_by_text("120 marked drop.").first.wait_for()
    marked = is_shown(map_page, "#c0392b")
    map_page.get_by_role("button", name="Undo", exact=True).click()
    map_page.get_by_text("120 as before.").first.wait_for()

    assert (before, marked, is_shown(map_page, "#c0392b")) == (False, True, False)


def test_any_column_colours_the_map(map_page: Page) -> None:
    script = """async () => {
        const { href } = document.querySelector("link[href$='map_colours.js']");
        const { colourBy } = await import(href);
        const number = (count) => Float32Array.from({ length: count }, (_, index) => index);
        const column = { values: number(5), low: 0, high: 4, texts: [[1, "many"]] };
        column.values[1] = NaN;
        const names = Object.fromEntries([...Array(24).keys()].map((each) => [each, `c${each}`]));
        const values = Uint8Array.from([3, 3, 3, 23, ...Array(24).keys()]);
        const of = (coloured) => [[...coloured.levels], coloured.key.map(({ text }) => text)];
        const plain = colourBy({ values, names, many: "countries" });
        const chosen = colourBy({ values, names, many: "countries" }, new Set([22]));
        return [of(colourBy(column)), of(plain), of(chosen), chosen.palette.length];
    }"""

    numbers, plain, chosen, num_levels = map_page.evaluate(script)

    assert numbers == [[1, 0, 128, 192, 255], ["many"]]
    frequent = [f"c{each}" for each in (*range(19), 23)]
    assert plain[1] == [*frequent, "the other 4 countries"]
    assert plain[0][:4] == [1, 1, 1, 2]
    assert [level for level in plain[0] if level == 0] == [0] * 4
    assert [place for place, level in enumerate(chosen[0]) if level] == [26]
    assert chosen[1][-2:] == ["c22", "the other 3 countries"]
    assert num_levels == 2


def test_of_many_classes_others_than_the_most_frequent_are_highlighted(
    page: Page, open_map: OpenMap
) -> None:
    labels = np.repeat(np.arange(24), np.arange(25, 1, -1)).astype("<i2")
    number = len(labels)
    facts = {
        "address": "/jobs/none/images",
        "count": number,
        "step": 1,
        "names": {label: f"class {label}" for label in range(24)},
        "tiers": ["probably wrong", "between two classes", "fits"],
    }
    columns = {
        "positions": np.random.default_rng(0).integers(0, 65536, 2 * number).astype("<u2"),
        "labels": labels,
        "nearest": labels,
        "percentiles": (np.arange(number) % 256).astype(np.uint8),
        "tiers": np.full(number, 2, np.uint8),
    }
    content = MapPoints(facts, columns).packed_bytes()
    page.route("**/map/points", lambda route: route.fulfill(body=content))
    open_map(page)
    key, pick = page.locator("#map-key li"), page.get_by_label("Highlight another class")

    first = key.all_inner_texts()
    offered = pick.locator("option").all_inner_texts()
    pick.select_option("class 22")

    assert first == [*(f"class {label}" for label in range(20)), "the other 4 classes"]
    assert offered == ["Highlight …", *(f"class {label}" for label in range(20, 24))]
    assert key.all_inner_texts()[-2:] == ["class 22", "the other 3 classes"]
    pressed = page.locator("#map-key [aria-pressed=true]").all_inner_texts()
    assert pressed == ["class 22"]
    page.locator("#map-key").get_by_text("class 22").click()
    assert key.all_inner_texts() == first


def test_webgl_and_pixels_draw_the_same_points(
    page: Page, open_map: OpenMap, problems: list[str]
) -> None:
    pixels = colours(open_map(page))
    page.add_init_script(
        """addEventListener("DOMContentLoaded", () => {
            const get = HTMLCanvasElement.prototype.getContext;
            HTMLCanvasElement.prototype.getContext = function (kind, options) {
                return get.call(this, kind, { ...options, preserveDrawingBuffer: true });
            };
            WebGL2RenderingContext.prototype.getExtension = () => null;
            const parameter = WebGL2RenderingContext.prototype.getParameter;
            WebGL2RenderingContext.prototype.getParameter = function (name) {
                return name === this.RENDERER ? "a graphics processor" : parameter.call(this, name);
            };
        });"""
    )
    page.reload()
    page.locator("#map-box").wait_for()

    drawn = colours(page)
    way = page.evaluate("() => document.getElementById('map-canvas').getContext('2d') === null")

    assert way  # a canvas has one kind of context
    for colour in ("#4e79a7", "#f28e2b", "#59a14f"):
        assert is_shown(page, colour)
    assert pixels & drawn
    # Browsers complain that it is slow without a graphics processor.
    assert [each for each in problems if "GPU stall" not in each and "ReadPixels" not in each] == []
    problems.clear()


def test_the_better_map_is_swapped_in_and_keeps_zoom_and_colours(
    page: Page, explorer: Explorer, draw_around: DrawAround
) -> None:
    pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    answers = iter([0.4, 0.8])

    def progress(route: Any) -> None:  # noqa: ANN401 - a class of an optional package
        share = next(answers, None)
        if share is None:
            route.continue_()
        else:
            route.fulfill(status=202, json={"share": share, "failure": None})

    with explorer.client() as client:
        while client.get(f"/jobs/{explorer.job}/map/tsne").status_code == 202:
            page.wait_for_timeout(200)
    html = page.request.get(f"/jobs/{explorer.job}/map").text()
    page.route("**/map/tsne", progress)
    page.route(
        "**/map",
        lambda route: route.fulfill(
            body=html.replace('"ready"', '"possible"'), content_type="text/html"
        ),
    )
    page.goto(f"/jobs/{explorer.job}/map")
    page.get_by_text("t-SNE 40 %").wait_for()
    page.get_by_role("radio", name="difficulty").check()
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_label("t-SNE", exact=True).wait_for()

    assert page.get_by_label("t-SNE", exact=True).is_checked()
    assert page.locator("#map-status").inner_text() == ""
    assert page.get_by_role("radio", name="difficulty").is_checked()
    zoomed = drawing(page)
    page.get_by_role("button", name="Whole map").click()
    assert drawing(page) != zoomed
    draw_around(page, list(range(120)))
    page.get_by_role("link", name="Show them").click()
    page.locator(".results-head b").get_by_text("120", exact=True).wait_for()
    assert "area=tsne~" in page.url


def test_the_whole_map_is_in_a_window_of_900_pixels(
    signed_in_page: Callable[..., Page], open_map: OpenMap
) -> None:
    page = open_map(signed_in_page(viewport={"width": 1440, "height": 900}))

    box = page.locator("#map-canvas").bounding_box()
    text = page.locator(".map-lead").bounding_box()

    assert box["y"] + box["height"] <= 900
    assert text["height"] < 60  # two lines
