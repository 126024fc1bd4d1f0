"""Reports and the service have one review: the same scripts, keys, cards and decisions."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.marks.mark_kinds import kinds_for, script_data
from difficulty_service.pages.scripts import module_body
from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page

Keys = dict[str, list[str]]

SHARED = (
    *("page.js", "theme.js", "keys.js", "marks.js", "review.js", "rubber_band.js"),
    *("class_choice.js", "decisions.js"),
    *("base.css", "report.css", "review.css"),
)
CAPS = {"←": "arrowleft", "→": "arrowright", "↑": "arrowup", "↓": "arrowdown", "Esc": "escape"}
KEY_NAMES = {
    **{f"arrow{way}": f"Arrow{way.capitalize()}" for way in ("left", "right", "up", "down")},
    "home": "Home",
    "end": "End",
    "escape": "Escape",
}

pytestmark = pytest.mark.usefixtures("no_marks")


def text_of(name: str) -> str:
    return (files("difficulty_service.pages") / "static" / name).read_text("utf-8")


@pytest.fixture
def keys(browser: Any) -> Keys:  # noqa: ANN401 - a browser
    """The table of keys, as the script has it."""
    page = browser.new_page()
    known = json.dumps(script_data(kinds_for(boxes=False)))
    page_parts = f"const byId = (id) => id === 'mark-kinds', readJson = () => {known};"
    table = page.evaluate(
        f"(() => {{ {page_parts} {module_body(text_of('keys.js'))}; return KEYS; }})()"
    )
    page.close()
    assert len(table) > 15
    return table


@pytest.fixture(params=["report", "service"])
def reviewed(request: pytest.FixtureRequest, explorer: Explorer) -> Page:
    """The doubtful samples of a report or of a job."""
    if request.param == "report":
        page = request.getfixturevalue("open_page")(request.getfixturevalue("report"))
    else:
        page = request.getfixturevalue("page")
        page.goto(f"/jobs/{explorer.job}/images?margin=0")
    page.locator(".look[tabindex='0']").wait_for()  # scripts have run
    return page


def is_service(page: Page) -> bool:
    return page.url.startswith("http")


def focused(page: Page) -> int:
    """Place of the card with the focus among all cards."""
    return page.evaluate(
        "[...document.querySelectorAll('.card')].indexOf(document.activeElement.closest('.card'))"
    )


def focus(page: Page, place: int) -> None:
    page.locator(".look").nth(place).focus()


def expected_place(page: Page, move: str, place: int) -> int:
    """Where a move leads, by where the cards are drawn."""
    boxes = page.locator(".card").evaluate_all(
        "all => all.map(card => card.getBoundingClientRect()).map(box => [box.x, box.y])"
    )
    left, _ = boxes[place]
    column = [number for number, box in enumerate(boxes) if box[0] == left]
    row = column.index(place)
    return {
        "right": place + 1,
        "left": place - 1,
        "down": column[row + 1],
        "up": column[row - 1],
        "first": 0,
        "last": len(boxes) - 1,
    }[move]


def test_every_move_of_the_table_leads_to_the_card_that_is_drawn_there(
    reviewed: Page, keys: Keys
) -> None:
    below = expected_place(reviewed, "down", 1)
    moves = {key: what[0] for key, (action, *what) in keys.items() if action == "move"}
    led = {}
    for key in moves:
        focus(reviewed, below)
        reviewed.keyboard.press(KEY_NAMES[key])
        led[key] = focused(reviewed)

    assert led == {key: expected_place(reviewed, move, below) for key, move in moves.items()}


def test_every_mark_of_the_table_is_stamped_and_undone_at_its_place(
    reviewed: Page, keys: Keys
) -> None:
    facts = reviewed.locator(".card").nth(1).evaluate("card => ({...card.dataset})")
    nearest, given = facts["nearest"], facts["given"]
    likely = [name for name, _ in json.loads(facts.get("likely", "[]"))] or [nearest]
    assert len(likely) == (3 if is_service(reviewed) else 1)  # its score file has no shares
    marks = {key: what[0] for key, (action, *what) in keys.items() if action == "mark"}
    stamps, places = {}, {}
    for key in marks:
        focus(reviewed, 1)
        reviewed.keyboard.press(key)
        stamps[key] = reviewed.locator(".stamp").nth(1).inner_text()
        reviewed.keyboard.press("u")
        places[key] = (focused(reviewed), reviewed.locator(".stamp").nth(1).inner_text())

    in_words = {"keep": "keep", "drop": "drop", "relabel": nearest}
    digits = dict(zip("123", [*likely, "", ""], strict=False))
    digits = {key: "keep" if name == given else name for key, name in digits.items()}
    assert stamps == {key: in_words.get(mark, digits.get(mark)) for key, mark in marks.items()}
    assert places == dict.fromkeys(marks, (1, ""))


def test_the_other_keys_help_search_and_select_nothing(reviewed: Page, keys: Keys) -> None:
    others = {key: action for key, (action, *_) in keys.items() if action not in ("mark", "move")}
    focus(reviewed, 0)
    reviewed.keyboard.press("Shift+ArrowRight")
    selected = reviewed.locator(".selected").count()
    reviewed.keyboard.press("Escape")

    reviewed.keyboard.press("?")
    is_shown = reviewed.locator("#keys").is_visible()
    reviewed.keyboard.press("d")  # for no card, as a dialog is open
    reviewed.keyboard.press("Escape")
    marked = reviewed.locator(".card[data-mark]").count()
    reviewed.keyboard.press("/")
    is_searching = reviewed.evaluate("document.activeElement.id === 'q'")

    actions = {"x": "select", "s": "row", "ctrl+a": "all", "l": "like"}
    actions |= {"u": "undo", "z": "pixels", "/": "search"}
    assert others == {**actions, "?": "help", "escape": "close"}
    assert (selected, reviewed.locator(".selected").count()) == (2, 0)
    assert (is_shown, reviewed.locator("#keys").is_visible(), marked) == (True, False, 0)
    assert is_searching == is_service(reviewed)


def test_keys_with_a_modifier_are_those_of_the_browser(reviewed: Page, keys: Keys) -> None:
    focus(reviewed, 1)
    for key in keys:
        reviewed.evaluate(
            """key => ["ctrlKey", "metaKey", "altKey"].forEach((held) => {
                document.activeElement.dispatchEvent(
                    new KeyboardEvent("keydown", {key, [held]: true, bubbles: true}));
            })""",
            key,
        )

    assert (focused(reviewed), reviewed.locator(".card[data-mark]").count()) == (1, 0)
    assert not reviewed.locator("#keys").is_visible()


def test_the_dialog_lists_every_key_of_the_table(reviewed: Page, keys: Keys) -> None:
    reviewed.keyboard.press("?")
    caps = reviewed.locator("#keys kbd").all_inner_texts()

    listed = {CAPS.get(cap, cap.lower()) for cap in caps} - {"enter", "shift"}
    alike = set() if is_service(reviewed) else {"l"}  # a report has no list of them
    assert listed == set(keys) - alike


def test_several_samples_are_selected_and_marked_together(reviewed: Page) -> None:
    focus(reviewed, 0)
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "d"):
        reviewed.keyboard.press(key)

    assert reviewed.locator(".card[data-mark=drop]").count() == 3
    reviewed.keyboard.press("u")
    assert reviewed.locator(".card[data-mark]").count() == 0


def selected_places(page: Page) -> list[int]:
    """Places of the selected cards, as their boxes say, too."""
    by_box = page.locator(".pick").evaluate_all(
        "all => all.flatMap((box, place) => (box.checked ? [place] : []))"
    )
    by_look = page.locator(".card").evaluate_all(
        "all => all.flatMap((card, p) => (card.classList.contains('selected') ? [p] : []))"
    )
    assert by_box == by_look
    return by_look


def test_clicks_with_a_modifier_and_boxes_select_and_open_nothing(reviewed: Page) -> None:
    address, looks, bar = reviewed.url, reviewed.locator(".look"), reviewed.locator("#selection")
    is_shown = [bar.is_visible()]
    seen = []
    focus(reviewed, 1)
    looks.nth(4).click(modifiers=["Shift"])
    seen.append(selected_places(reviewed))
    looks.nth(2).click(modifiers=["Shift"])  # from the same card
    seen.append(selected_places(reviewed))
    looks.nth(5).click(modifiers=["ControlOrMeta"])
    looks.nth(1).click(modifiers=["ControlOrMeta"])
    seen.append(selected_places(reviewed))
    reviewed.locator(".card").nth(0).hover()
    reviewed.get_by_role("checkbox", name="Select").nth(0).click()
    for key in ("ArrowRight", "x", "ArrowRight", "x"):  # selects 1 again, and 2 no more
        reviewed.keyboard.press(key)
    seen.append(selected_places(reviewed))
    said = (reviewed.locator("#announcer").inner_text(), bar.locator("p").inner_text())
    is_shown.append(bar.is_visible())
    assert reviewed.context.pages == [reviewed]
    assert (reviewed.url, reviewed.locator("dialog[open]").count()) == (address, 0)

    bar.get_by_role("button", name="Drop 3").click()
    is_shown.append(bar.is_visible())
    marked = reviewed.locator(".card").evaluate_all(
        "all => all.flatMap((card, place) => (card.dataset.mark === 'drop' ? [place] : []))"
    )
    reviewed.keyboard.press("u")

    assert seen == [[1, 2, 3, 4], [1, 2], [2, 5], [0, 1, 5]]
    assert said == ("3 selected", "3 selected")
    assert is_shown == [False, True, False]
    assert (marked, reviewed.locator(".card[data-mark]").count()) == ([0, 1, 5], 0)


def middle(page: Page, place: int) -> tuple[float, float]:
    """Where the middle of a picture is in the window."""
    box = page.locator(".look").nth(place).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Moves the mouse with its button down, which stays down."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=5)
    page.locator(".band").wait_for()


def columns_of(page: Page) -> int:
    """Number of cards in a row."""
    tops = page.locator(".card").evaluate_all(
        "all => all.map(card => card.getBoundingClientRect().y)"
    )
    return tops.count(tops[0])


def test_a_drag_of_the_mouse_selects_what_it_touches_and_opens_nothing(reviewed: Page) -> None:
    address, columns = reviewed.url, columns_of(reviewed)
    said = reviewed.locator("#announcer"), reviewed.locator("#selection p")
    reviewed.locator(".look").nth(columns).scroll_into_view_if_needed()
    seen = []
    drag(reviewed, middle(reviewed, 0), middle(reviewed, columns + 1))
    reviewed.mouse.up()
    seen.append(selected_places(reviewed))

    left, top = middle(reviewed, columns + 3)
    reviewed.keyboard.down("Shift")
    beside = reviewed.locator(".card").nth(columns + 3).bounding_box()["x"] - 4
    drag(reviewed, (beside, top), (left, top + 9))  # from the space between two images
    reviewed.mouse.up()
    reviewed.keyboard.up("Shift")
    seen.append(selected_places(reviewed))
    words = [each.inner_text() for each in said]

    drag(reviewed, middle(reviewed, 2), middle(reviewed, 3))
    seen.append(selected_places(reviewed))
    reviewed.keyboard.press("Escape")
    seen.append(selected_places(reviewed))
    reviewed.mouse.up()
    seen.append(selected_places(reviewed))

    first = [0, 1, columns, columns + 1]
    assert seen == [first, [*first, columns + 3], [2, 3], *[[*first, columns + 3]] * 2]
    assert words == ["5 selected", "5 selected"]
    assert (reviewed.url, reviewed.locator("dialog[open], .band").count()) == (address, 0)
    reviewed.keyboard.press("d")
    assert reviewed.locator(".card[data-mark=drop]").count() == 5
    reviewed.locator(".look").nth(1).click()  # which is no drag
    reviewed.locator("#decisions").wait_for()


def test_a_drag_at_the_edge_of_the_window_scrolls_on(reviewed: Page) -> None:
    last = reviewed.locator(".card").count() - 1
    reviewed.set_viewport_size({"width": 1000, "height": 500})
    x, y = middle(reviewed, 0)
    if y > 300:
        reviewed.mouse.wheel(0, y - 200)
        reviewed.wait_for_function("() => window.scrollY > 0")
        x, y = middle(reviewed, 0)

    drag(reviewed, (x, y), (x + 20, 495))
    reviewed.wait_for_function(
        """last => document.querySelectorAll(".card")[last].getBoundingClientRect().top < 400""",
        arg=last,
    )
    reviewed.mouse.up()

    columns = columns_of(reviewed)
    assert selected_places(reviewed) == list(range(0, last + 1, columns))


def test_a_key_and_a_button_select_a_row(reviewed: Page) -> None:
    columns = columns_of(reviewed)
    bar = reviewed.locator("#selection p")
    seen = []
    focus(reviewed, columns + 1)
    reviewed.keyboard.press("s")
    seen.append((selected_places(reviewed), bar.inner_text()))
    reviewed.keyboard.press("Shift+Tab")
    button = reviewed.get_by_role("button", name="Select row 2", exact=True)
    reached = button.evaluate("each => each === document.activeElement")
    pressed = [button.get_attribute("aria-pressed")]
    reviewed.keyboard.press("Enter")
    pressed.append(button.get_attribute("aria-pressed"))
    seen.append((selected_places(reviewed), ""))
    focus(reviewed, 2)
    reviewed.keyboard.press("x")
    reviewed.locator(".card").first.hover()
    reviewed.get_by_role("button", name="Select row 1", exact=True).click()
    seen.append((selected_places(reviewed), bar.inner_text()))
    reviewed.set_viewport_size({"width": 1000, "height": 800})  # other rows
    reviewed.wait_for_function(
        """columns => document.querySelectorAll(".card:has(.pick-row)")[1]
            !== document.querySelectorAll(".card")[columns]""",
        arg=columns,
    )
    fewer = columns_of(reviewed)
    second = reviewed.get_by_role("button", name="Select row 2", exact=True)

    assert seen == [
        (list(range(columns, 2 * columns)), f"{columns} selected"),
        ([], ""),
        (list(range(columns)), f"{columns} selected"),
    ]
    assert reached
    assert pressed == ["true", "false"]
    second.click()
    assert selected_places(reviewed) == list(range(max(columns, 2 * fewer)))


def test_tab_reaches_one_card_and_leaves_the_others_to_the_arrows(reviewed: Page) -> None:
    focus(reviewed, 0)
    reviewed.keyboard.press("ArrowRight")
    reviewed.keyboard.press("Tab")
    after = focused(reviewed)
    reviewed.keyboard.press("Shift+Tab")

    assert (after, focused(reviewed)) == (-1, 1)


def test_the_decisions_about_one_sample_have_the_same_words(reviewed: Page) -> None:
    card = reviewed.locator(".card").first
    given = card.locator(".given").inner_text()
    nearest = card.get_attribute("data-nearest")
    card.locator(".look").click()
    bar = reviewed.locator("#decisions")
    bar.wait_for()
    words = bar.locator(".verbs").get_by_role("button").all_inner_texts()
    reviewed.locator("[data-decision=undo]:visible").wait_for()  # scripts have run
    about = reviewed.locator("#dialog-text, .sample-id").inner_text()
    reviewed.keyboard.press("k")
    reviewed.wait_for_function(  # as the next image follows
        "about => document.querySelector('#dialog-text, .sample-id').innerText !== about",
        arg=about,
    )
    reviewed.keyboard.press("ArrowLeft")
    pressed = bar.locator(".verbs [aria-pressed=true]")
    pressed.wait_for()

    assert [" ".join(each.split()) for each in words] == [
        f"K Keep {given}",
        f"R Relabel as {nearest}",
        "D Drop the image",
    ]
    assert pressed.get_attribute("value") == "keep"


def test_a_report_holds_the_files_that_the_service_sends(report: Path, explorer: Explorer) -> None:
    page = report.read_text("utf-8")
    with explorer.client() as client:
        shown = client.get(f"/jobs/{explorer.job}/images", headers={"Accept": "text/html"}).text
        sent = {name: client.get(f"/static/report/{name}").text for name in SHARED}
        first = client.get(re.search(r'<script src="(.*theme_first.js)"></script>', shown)[1]).text

    assert sent == {name: text_of(name) for name in SHARED}
    assert [name for name in SHARED if module_body(text_of(name)) not in page] == []
    assert [name for name in {*SHARED} - {"theme.js"} if f'/report/{name}"' not in shown] == []
    assert module_body(text_of("theme.js")) in first


def test_an_undo_that_does_not_reach_the_service_is_kept_for_another_try(
    page: Page, explorer: Explorer, problems: list[str]
) -> None:
    page.goto(f"/jobs/{explorer.job}/images?margin=0")
    for key in ("ArrowRight", "k"):
        page.keyboard.press(key)
    page.wait_for_selector("#tray-text:has-text('1 checked')")
    page.route("**/v1/jobs/*/marks", lambda route: route.abort())

    page.keyboard.press("u")
    page.get_by_text("The service does not answer. The mark is not stored.").wait_for()
    stamp = page.locator(".stamp").first.inner_text()
    page.unroute("**/v1/jobs/*/marks")
    page.keyboard.press("u")
    page.locator("#tray-text").wait_for(state="detached")

    assert (stamp, page.locator(".stamp").first.inner_text()) == ("keep", "")
    assert [problem for problem in problems if "ERR_FAILED" not in problem] == []
    problems.clear()
