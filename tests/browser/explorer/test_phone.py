"""A review by thumb on the narrowest phone."""

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import OpenPage, Page, Route

WIDTH, HEIGHT = 320, 640
UNDER_THE_THUMB = 44  # CSS pixels
SMALLEST_TARGET = 24  # CSS pixels, WCAG 2.2 criterion 2.5.8
TARGETS = (
    "#results a, #results button, #results summary, .tray a, .tray button, .decisions button,"
    " header a, header button, .steps a, .side-box summary, .side-box input, .side-box select,"
    " .side-box button, .side-box a, .other-class input, .other-class button, .pick,"
    " .selection button"
)

pytestmark = pytest.mark.usefixtures("no_marks")


@pytest.fixture
def phone(signed_in_page: OpenPage) -> Page:
    """A page of a signed-in phone."""
    return signed_in_page(
        viewport={"width": WIDTH, "height": HEIGHT}, is_mobile=True, has_touch=True
    )


def small_targets(page: Page) -> list[str]:
    """What is shown and smaller than a fingertip can hit."""
    return [
        f"{name} {width:.0f} x {height:.0f}"
        for name, width, height in page.locator(TARGETS).evaluate_all(
            """all => all.map(each => [each, each.getBoundingClientRect()])
                .filter(([each, box]) => box.width && box.height)
                .map(([each, box]) => [each.outerHTML.slice(0, 90), box.width, box.height])"""
        )
        if min(width, height) < SMALLEST_TARGET
    ]


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def mark_by_thumb(page: Page, explorer: Explorer, number: int) -> None:
    """Opens some images, drops each and goes back to the list."""
    page.goto(f"/jobs/{explorer.job}/images?sort=doubtful")
    for place in range(number):
        page.locator(".look").nth(place).tap()
        page.locator("[data-decision=undo]:visible").wait_for()
        page.get_by_role("button", name="Drop the image").tap()
        page.locator("#tray-text", has_text=f"{place + 1} checked").wait_for()
        page.get_by_role("link", name="All images").tap()
        page.locator("#grid").wait_for()


def test_images_are_marked_by_thumb_and_the_tray_offers_the_marks(
    phone: Page, explorer: Explorer
) -> None:
    mark_by_thumb(phone, explorer, 6)
    phone.locator(".pick").nth(7).tap()

    tray, bar = phone.locator(".tray"), phone.locator("#selection").bounding_box()
    assert bar["y"] + bar["height"] <= tray.bounding_box()["y"]
    assert (
        phone.get_by_role("checkbox", name="Select")
        .nth(20)
        .evaluate("box => getComputedStyle(box).opacity === '1'")
    )
    assert "6 checked: 0 keep, 0 relabel, 6 drop." in tray.inner_text()
    assert fits(phone)
    assert small_targets(phone) == []
    assert tray.bounding_box()["height"] < HEIGHT / 3
    phone.get_by_text("Downloads").tap()
    assert phone.get_by_role("link", name="Decisions, CSV").is_visible()


def test_a_finger_on_the_images_scrolls_and_selects_nothing(
    phone: Page, explorer: Explorer
) -> None:
    phone.goto(f"/jobs/{explorer.job}/images?sort=doubtful")
    phone.locator(".pick").first.wait_for()
    box = phone.locator(".look").first.bounding_box()

    phone.evaluate(
        """() => {
            window.added = [];
            new MutationObserver((all) => all.forEach((each) => added.push(...each.addedNodes)))
                .observe(document.body, { childList: true });
        }"""
    )

    session = phone.context.new_cdp_session(phone)
    for kind, moved in [("touchStart", 0), *(("touchMove", 20 * step) for step in range(1, 11))]:
        point = {"x": box["x"] + 20, "y": box["y"] + 20 - moved}
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    phone.wait_for_function("() => window.scrollY > 100")
    assert phone.evaluate("added.length") == 0
    assert phone.locator(".selected").count() == 0
    assert phone.locator(".pick-row:visible").count() == 0


def test_every_target_of_the_page_of_an_image_can_be_hit(phone: Page, explorer: Explorer) -> None:
    phone.goto(f"/jobs/{explorer.job}/images?margin=0")
    phone.locator("summary", has_text="Filters").tap()
    in_filters = small_targets(phone)
    fits_with_filters = fits(phone)
    phone.locator(".look").first.tap()
    phone.locator("[data-decision=undo]:visible").wait_for()
    phone.get_by_role("button", name="Drop the image").tap()
    phone.locator("#tray-text", has_text="1 checked").wait_for()
    decisions = phone.locator(".decisions button:visible, .decisions input:visible")
    boxes = [each.bounding_box() for each in decisions.all()]

    assert in_filters == []
    assert fits_with_filters
    assert len(boxes) == 8  # three classes, keep, relabel, drop, any class and undo
    assert min(box["height"] for box in boxes) >= UNDER_THE_THUMB
    assert min(box["y"] for box in boxes) > HEIGHT * 3 / 4
    assert phone.locator(".subject").bounding_box()["width"] == WIDTH
    assert small_targets(phone) == []
    assert fits(phone)


def test_images_stay_where_they_are_when_the_scripts_arrive_late(
    phone: Page, explorer: Explorer
) -> None:
    held: list[Route] = []
    phone.route("**/explorer.js", lambda route: held.append(route))
    phone.goto(f"/jobs/{explorer.job}/images", wait_until="commit")
    first = phone.locator(".look").first
    first.wait_for()
    before = first.bounding_box()

    for route in held:
        route.continue_()
    phone.locator(".side-box:not([open])").wait_for()

    assert len(held) == 1
    assert first.bounding_box() == before


def stays_covered(phone: Page) -> bool:
    """Whether something lies over the focused image, also once the page has scrolled."""
    for _ in range(400):  # a busy machine may take seconds to scroll
        covered = phone.evaluate(
            """() => {
                const card = document.activeElement.closest(".card").getBoundingClientRect();
                const foot = document.querySelector(".foot").getBoundingClientRect();
                const header = document.querySelector("header").getBoundingClientRect();
                return card.bottom > foot.top || card.top < header.bottom;
            }"""
        )
        if not covered:
            return False
        phone.wait_for_timeout(50)
    return True


def test_the_tray_covers_neither_the_focused_image_nor_the_end_of_the_list(
    phone: Page, explorer: Explorer
) -> None:
    mark_by_thumb(phone, explorer, 1)
    phone.locator(".side-box:not([open])").wait_for()  # the scripts run, which hear the keys

    covered = []
    phone.locator(".look").first.focus()
    phone.keyboard.press("x")
    for _ in range(30):
        phone.keyboard.press("ArrowRight")
        covered.append(stays_covered(phone))
    phone.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    end = phone.locator(".more a").bounding_box()
    foot = phone.locator(".foot").bounding_box()

    assert phone.locator("#selection").is_visible()
    assert not any(covered)
    assert end["y"] + end["height"] <= foot["y"]
