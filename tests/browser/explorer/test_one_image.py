"""The page of one image leads on to the images like it."""

from collections.abc import Callable

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page

SHOWN = """() => {
    const box = document.getElementById("zoom").getBoundingClientRect();
    const picture = document.querySelector("#zoom img").getBoundingClientRect();
    return [picture.left - box.left, picture.top - box.top, picture.width / box.width];
}"""


def test_images_like_this_one_are_shown_with_labels_and_lead_on(
    page: Page, explorer: Explorer
) -> None:
    page.goto(f"/jobs/{explorer.job}/images/100")
    page.get_by_role("heading", name="Images like this one").wait_for()
    strip = page.locator("#similar a")
    rows = [
        int(link.rpartition("/")[2])
        for link in strip.evaluate_all("all => all.map(link => link.getAttribute('href'))")
    ]
    labels = page.locator("#similar .tag > span").all_inner_texts()

    assert (len(set(rows)), 100 in rows) == (12, False)
    assert labels == [explorer.scores[row]["label_name"] for row in rows]
    page.wait_for_function(
        "() => [...document.querySelectorAll('#similar img')].every(i => i.naturalWidth === 32)"
    )
    strip.first.click()
    page.wait_for_url(f"**/images/{rows[0]}")


def test_the_picture_is_zoomed_at_the_mouse_moved_and_shown_in_its_own_size(
    page: Page, explorer: Explorer
) -> None:
    page.goto(f"/jobs/{explorer.job}/images/100")
    box = page.locator("#zoom").bounding_box()
    at = (box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)

    page.mouse.move(*at)
    with page.expect_response("**/images/100/whole") as whole:
        page.mouse.wheel(0, -100)
    left, top, scale = page.evaluate(SHOWN)
    page.mouse.down()
    page.mouse.move(at[0] + 10, at[1] + 500, steps=3)
    page.mouse.up()
    moved = page.evaluate(SHOWN)
    page.get_by_role("button", name="Own size").click()
    own = page.evaluate(SHOWN)
    page.get_by_role("button", name="As large as the box").click()

    assert whole.value.ok
    assert scale > 1
    assert (left, top) == pytest.approx(
        (-(scale - 1) * box["width"] / 4, -(scale - 1) * box["height"] / 2), abs=1
    )
    assert moved == pytest.approx([left + 10, 0, scale], abs=1)  # not beyond its edge
    assert own[2] * box["width"] == pytest.approx(32, abs=0.1)
    assert own[0] == pytest.approx((box["width"] - 32) / 2, abs=1)
    assert page.evaluate(SHOWN) == pytest.approx([0, 0, 1], abs=0.01)


def test_the_next_picture_is_as_large_as_the_box_again(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}/images/100?sort=file")
    page.get_by_role("button", name="Larger").click()
    before = page.evaluate(SHOWN)

    page.locator("#next").click()
    page.wait_for_url("**/images/101?*")

    assert before[2] == pytest.approx(1.5, abs=0.01)
    assert page.evaluate(SHOWN) == pytest.approx([0, 0, 1], abs=0.01)


def test_long_names_of_classes_are_whole_where_there_is_room(
    signed_in_page: Callable[..., Page], explorer: Explorer
) -> None:
    page = signed_in_page(viewport={"width": 1440, "height": 900})
    page.goto(f"/jobs/{explorer.job}/images/1")
    page.locator("html.scripts-run").wait_for()
    name = page.locator(".fit bdi").first

    name.evaluate(
        "element => { element.textContent = 'black-and-white warbler, Mniotilta varia'; }"
    )

    sizes = name.evaluate(
        "({ scrollHeight, clientHeight, scrollWidth, clientWidth }) =>"
        " [scrollHeight - clientHeight, scrollWidth - clientWidth]"
    )
    assert max(sizes) <= 1
