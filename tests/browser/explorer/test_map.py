"""Points of the map are looked at, selected by a line around them, and marked."""

import json
from importlib.resources import files

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import DrawAround, OpenMap, OpenPage, Page, Places, Points, Route
from tests.browser.reports import axe_findings

pytestmark = pytest.mark.usefixtures("no_marks")


def of_class(points: Points, name: str, number: int) -> list[int]:
    """Indices of the first points of a class."""
    names = points["names"]
    return [i for i, label in enumerate(points["labels"]) if names[str(label)] == name][:number]


def stored(explorer: Explorer) -> dict[int, tuple[str, str | None]]:
    with explorer.client() as client:
        marks = client.get(f"/v1/jobs/{explorer.job}/marks?limit=1000").json()["marks"]
    return {mark["row"]: (mark["mark"], mark["label"]) for mark in marks}


def told(page: Page, text: str) -> None:
    page.locator("#lasso-text").get_by_text(text).wait_for()


def test_a_point_of_the_map_shows_its_image_and_leads_to_it(
    map_page: Page, explorer: Explorer, points: Points, places: Places
) -> None:
    assert sorted(points["rows"]) == list(range(len(explorer.scores)))
    x, y = places(map_page)[0]

    map_page.mouse.move(x, y)
    picture = map_page.locator("#map-tip img")
    row = int(picture.get_attribute("src").split("/")[-2])
    map_page.locator("#map-tip span").get_by_text(explorer.scores[row]["sample_id"]).wait_for()
    map_page.mouse.click(x, y)
    map_page.locator(".sample-id").wait_for()

    assert map_page.url == f"{explorer.url}/jobs/{explorer.job}/images/{row}"


def test_the_picture_of_the_point_below_the_mouse_is_shown(map_page: Page, places: Places) -> None:
    x, y = places(map_page)[5]

    map_page.mouse.move(x, y)
    map_page.wait_for_function(
        "() => document.querySelector('#map-tip:not([hidden]) img')?.naturalWidth === 32"
    )


def test_the_images_in_the_lasso_are_counted_and_listed(
    map_page: Page, points: Points, draw_around: DrawAround
) -> None:
    inside = draw_around(map_page, of_class(points, "dog", 4))
    told(map_page, f"{len(inside)} in the lasso")
    assert map_page.url.endswith("/map")  # the end of the line is no click on a point

    map_page.get_by_role("link", name="Show them").click()
    map_page.locator(".results-head b").get_by_text(str(len(inside)), exact=True).wait_for()

    rows = map_page.eval_on_selector_all(".card", "all => all.map(card => card.dataset.row)")
    assert sorted(map(int, rows)) == sorted(inside)
    map_page.get_by_label("In the area of the map").uncheck()
    map_page.locator(".results-head b").get_by_text("120", exact=True).wait_for()


def test_marks_of_a_lasso_are_stored_and_undone(
    map_page: Page, explorer: Explorer, points: Points, draw_around: DrawAround
) -> None:
    inside = draw_around(map_page, of_class(points, "bird", 5))
    earlier = {"row": inside[0], "decision": {"mark": "keep"}}
    with explorer.client() as client:
        client.post(f"/v1/jobs/{explorer.job}/marks", json={"marks": [earlier]}).raise_for_status()

    map_page.get_by_role("button", name="Drop them").click()
    told(map_page, f"{len(inside)} marked drop.")
    dropped = stored(explorer)
    map_page.get_by_role("button", name="Undo", exact=True).click()
    told(map_page, f"{len(inside)} as before.")

    assert dropped == dict.fromkeys(inside, ("drop", None))
    assert stored(explorer) == {inside[0]: ("keep", None)}
    assert not map_page.get_by_role("button", name="Undo", exact=True).is_visible()
    map_page.wait_for_selector("#tray-text:has-text('1 checked')")


def test_of_many_marks_only_those_that_were_made_elsewhere_meanwhile_are_left_out(
    map_page: Page, explorer: Explorer, points: Points, problems: list[str], draw_around: DrawAround
) -> None:
    inside = draw_around(map_page, of_class(points, "bird", 5))
    map_page.get_by_role("button", name="Drop them").click()
    told(map_page, f"{len(inside)} marked drop.")
    elsewhere = {"row": inside[1], "decision": {"mark": "keep"}}
    with explorer.client() as client:
        client.post(f"/v1/jobs/{explorer.job}/marks", json={"marks": [elsewhere]})

    map_page.get_by_role("button", name="Undo", exact=True).click()
    told(map_page, f"{len(inside) - 1} as before. 1 could not be changed:")

    assert stored(explorer) == {inside[1]: ("keep", None)}
    assert not map_page.get_by_role("button", name="Undo", exact=True).is_visible()
    assert [problem for problem in problems if "409" not in problem] == []
    problems.clear()


def test_a_lasso_relabels_to_what_fits_best_or_to_a_chosen_class(
    map_page: Page, explorer: Explorer, draw_around: DrawAround
) -> None:
    scores = explorer.scores
    inside = draw_around(map_page, list(range(len(scores))))
    assert len(inside) == len(scores)
    better = {
        row: ("relabel", scores[row]["nearest_label_name"])
        for row in inside
        if scores[row]["nearest_label"] != scores[row]["label"]
    }
    dogs = [row for row, mark in better.items() if mark == ("relabel", "dog")]

    map_page.get_by_role("button", name="Relabel as suggested").click()
    told(map_page, f"{len(better)} marked relabel.")
    fitting = stored(explorer)
    map_page.get_by_role("button", name="Relabel to this class").click()
    told(map_page, "Choose a class first.")
    map_page.get_by_label("They are").fill("dog")
    map_page.get_by_role("button", name="Relabel to this class").click()
    told(map_page, f"{120 - len(dogs)} marked relabel. {len(dogs)} already had this mark.")

    assert fitting == better
    assert better
    assert stored(explorer) == dict.fromkeys(inside, ("relabel", "dog"))


def test_parts_that_fail_are_counted_with_the_reason(
    map_page: Page,
    explorer: Explorer,
    problems: list[str],
    draw_around: DrawAround,
    open_map: OpenMap,
) -> None:
    script = (files("api.pages") / "static" / "rest_marks.js").read_text()
    small = script.replace("AT_ONCE = 1000", "AT_ONCE = 50")
    map_page.route(
        "**/rest_marks.js", lambda route: route.fulfill(body=small, content_type="text/javascript")
    )
    open_map(map_page)
    draw_around(map_page, list(range(len(explorer.scores))))
    asked = []

    def refuse_the_second(route: Route) -> None:
        asked.append(len(json.loads(route.request.post_data)["marks"]))
        if len(asked) == 2:
            route.fulfill(status=503, json={"detail": "the service is busy"})
        else:
            route.continue_()

    map_page.route("**/v1/jobs/*/marks", refuse_the_second)
    map_page.get_by_role("button", name="Keep their labels").click()
    told(map_page, "70 marked keep. 50 could not be changed: the service is busy. Try again.")
    first = len(stored(explorer))
    map_page.get_by_role("button", name="Keep their labels").click()
    told(map_page, "50 marked keep. 70 already had this mark.")

    assert asked == [50, 50, 20, 50]
    assert (first, len(stored(explorer))) == (70, 120)
    assert len([problem for problem in problems if "503" in problem]) == len(problems)
    problems.clear()


def test_an_unknown_class_is_refused_in_words(
    map_page: Page, problems: list[str], draw_around: DrawAround
) -> None:
    draw_around(map_page, [0, 1])

    map_page.get_by_label("They are").fill("fish")
    map_page.get_by_role("button", name="Relabel to this class").click()
    told(map_page, "could not be changed: there is no class 'fish'")

    assert [problem for problem in problems if "422" not in problem] == []
    problems.clear()


def test_escape_clears_the_lasso(map_page: Page, draw_around: DrawAround) -> None:
    draw_around(map_page, [0, 1, 2])
    map_page.get_by_role("link", name="Show them").wait_for()

    map_page.keyboard.press("Escape")

    map_page.get_by_role("link", name="Show them").wait_for(state="hidden")


def test_a_key_that_may_only_read_selects_but_sees_no_marks_to_give(
    signed_in_page: OpenPage, explorer: Explorer, draw_around: DrawAround, open_map: OpenMap
) -> None:
    page = open_map(signed_in_page(explorer.read_only))
    inside = draw_around(page, [0, 1, 2])
    told(page, f"{len(inside)} in the lasso")

    shown = page.locator("#lasso button:visible, #lasso .link:visible").all_inner_texts()
    assert shown == ["Undo the last line", "Clear the lasso", "Show them"]


def test_a_finger_draws_once_the_lasso_is_switched_on(
    signed_in_page: OpenPage, places: Places, open_map: OpenMap
) -> None:
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_map(signed_in_page(**options))
    session = page.context.new_cdp_session(page)

    def drag() -> list[int]:
        all_places = places(page)
        (left, top), (right, bottom) = all_places.min(0) - 3, all_places.max(0) + 3
        corners = ((left, top), (right, top), (right, bottom), (left, bottom), (left, top + 9))
        for index, (x, y) in enumerate(corners):
            kind = "touchMove" if index else "touchStart"
            session.send(
                "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]}
            )
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    drag()
    assert not page.locator("#lasso").is_visible()
    page.get_by_role("button", name="Lasso", exact=True).click()
    drag()

    told(page, "120 in the lasso")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_while_points_are_selected(
    signed_in_page: OpenPage, scheme: str, draw_around: DrawAround, open_map: OpenMap
) -> None:
    page = open_map(signed_in_page(color_scheme=scheme))
    inside = draw_around(page, [0, 1, 2])
    page.get_by_role("button", name="Drop them").click()
    told(page, f"{len(inside)} marked drop.")

    assert axe_findings(page) == []


def test_a_line_around_points_is_drawn_again_in_the_colour_of_another_theme(
    map_page: Page, points: Points, draw_around: DrawAround
) -> None:
    drawn = "document.getElementById('lasso-canvas').toDataURL()"
    changed = f"light => {drawn} !== light"
    map_page.get_by_role("button", name="Theme: auto").click()
    draw_around(map_page, of_class(points, "dog", 4))
    light = map_page.evaluate(drawn)

    map_page.get_by_role("button", name="Theme: light").click()

    map_page.wait_for_function(changed, arg=light)
    map_page.reload()
    assert map_page.get_by_role("button", name="Theme: dark").is_visible()
