"""People find, mark and export images with a real browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.scores.provenance import RandomCheck
from difficulty_service.scores.random_checks import describe_check
from tests.browser.explorer.service import Explorer
from tests.browser.kinds import BrowserContext, OpenPage, Page, Route
from tests.browser.reports import axe_findings

pytestmark = pytest.mark.usefixtures("no_marks")


def shown_rows(page: Page) -> list[int]:
    return [
        int(row) for row in page.eval_on_selector_all(".card", "a => a.map(c => c.dataset.row)")
    ]


def read_rows(content: bytes) -> list[dict[str, Any]]:
    return pq.read_table(pa.BufferReader(content)).to_pylist()


def images(explorer: Explorer, query: str = "?sort=doubtful") -> str:
    return f"/jobs/{explorer.job}/images{query}"


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def wait_for_count(page: Page, number: int) -> None:
    page.locator(".results-head b").get_by_text(str(number), exact=True).wait_for()


def wait_for_marks(page: Page, number: int) -> None:
    page.wait_for_selector(f"#tray-text:has-text('{number} checked')")


def test_signing_in_leads_to_the_page_that_was_wanted(
    new_context: Callable[..., BrowserContext], explorer: Explorer
) -> None:
    page = new_context().new_page()

    page.goto(images(explorer, "?label=dog"))
    page.get_by_label("API key").fill(explorer.secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector(".card")

    assert page.url == explorer.url + images(explorer, "?label=dog")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


def test_a_wrong_key_is_refused_in_words(
    new_context: Callable[..., BrowserContext], problems: list[str]
) -> None:
    page = new_context().new_page()

    page.goto("/")
    page.get_by_label("API key").fill("difficulty_wrong")
    page.get_by_role("button", name="Sign in").click()

    assert page.get_by_role("alert").inner_text() == "The key is unknown, revoked or replaced."
    # The browser itself notes the status 401.
    assert [problem for problem in problems if "401" not in problem] == []
    problems.clear()


def test_the_images_are_in_the_order_of_the_score_file(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer, "?sort=hardest"))

    order = sorted(range(len(explorer.scores)), key=lambda row: -explorer.scores[row]["rmd"])
    assert shown_rows(page) == order[:60]


def test_more_images_follow_without_a_gap(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer, "?sort=easiest"))

    page.locator(".more a").click()
    page.locator(".card").nth(60).wait_for()
    page.locator(".more a").wait_for(state="detached")

    order = sorted(range(len(explorer.scores)), key=lambda row: explorer.scores[row]["rmd"])
    assert shown_rows(page) == order


def test_a_filter_changes_the_address_and_going_back_restores_it(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer))
    all_rows = shown_rows(page)

    page.get_by_label("Label", exact=True).fill("dog")
    page.keyboard.press("Tab")
    wait_for_count(page, 40)
    filtered = shown_rows(page)
    page.go_back()
    wait_for_count(page, 120)

    assert {explorer.scores[row]["label_name"] for row in filtered} == {"dog"}
    assert shown_rows(page) == all_rows
    assert page.get_by_label("Label", exact=True).input_value() == ""


def test_a_filter_that_was_changed_before_the_scripts_ran_has_effect(
    page: Page, explorer: Explorer
) -> None:
    held: list[Route] = []
    page.route("**/htmx.min.js", lambda route: held.append(route))
    page.goto(images(explorer, "?margin=0"), wait_until="commit")
    page.locator(".results-head b").wait_for()
    before = len(shown_rows(page))

    page.get_by_label("Margin above").fill("")
    page.get_by_label("Order").select_option("file")
    held[0].continue_()

    wait_for_count(page, 120)
    assert before < 60
    assert shown_rows(page) == list(range(60))
    page.go_back()
    wait_for_count(page, before)
    assert page.get_by_label("Margin above").input_value() == "0"
    assert page.get_by_label("Order").input_value() == "doubtful"


def test_marks_of_the_keyboard_survive_a_reload_and_are_read_by_clean(
    page: Page, explorer: Explorer, tmp_path: Path
) -> None:
    page.goto(images(explorer, "?margin=0"))
    first, second, third = shown_rows(page)[:3]
    press(page, "ArrowRight", "k", "r", "d")
    wait_for_marks(page, 3)

    page.reload()
    stamps = page.eval_on_selector_all(".stamp", "all => all.slice(0, 3).map(s => s.textContent)")
    page.get_by_text("Downloads").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Decisions, CSV").click()
    download.value.save_as(tmp_path / "marks.csv")
    ids = [row["sample_id"] for row in explorer.scores]
    marks = read_marks(tmp_path / "marks.csv", ids).samples

    nearest = explorer.scores[second]["nearest_label_name"]
    assert stamps == ["keep", nearest, "drop"]
    assert {each: (mark.mark, mark.label) for each, mark in marks.items()} == {
        ids[first]: (Mark.KEEP, None),
        ids[second]: (Mark.RELABEL, nearest),
        ids[third]: (Mark.DROP, None),
    }


def test_undo_takes_the_last_mark_away(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer))
    press(page, "ArrowRight", "k", "d")
    wait_for_marks(page, 2)

    press(page, "u")
    wait_for_marks(page, 1)

    assert page.locator(".card[data-mark]").count() == 1


def test_several_images_are_selected_and_marked_together(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer))
    press(page, "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight")
    assert page.locator(".selected").count() == 3

    press(page, "d")
    wait_for_marks(page, 3)

    assert page.locator(".card[data-mark=drop]").count() == 3


def test_all_that_are_loaded_are_selected_by_one_key_also_while_more_follow(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer))
    press(page, "ArrowRight", "Control+a")
    page.locator(".more a").click()
    page.locator(".card .pick").nth(60).wait_for(state="attached")
    selected = page.locator(".card.selected").count()
    said = page.locator("#selection p").inner_text()
    findings = axe_findings(page)
    page.emulate_media(color_scheme="dark")
    findings += axe_findings(page)
    page.get_by_role("button", name="Keep 60").focus()
    press(page, "Escape")

    assert findings == []
    assert (selected, said) == (60, "60 selected")
    assert page.locator(".selected, .pick:checked, #selection:visible").count() == 0


def test_several_images_are_relabelled_each_as_what_fits_it_best(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer, "?margin=0"))
    rows = shown_rows(page)[:5]
    press(page, "ArrowRight", *["Shift+ArrowRight"] * 4, "r")
    wait_for_marks(page, 5)

    stamps = page.eval_on_selector_all(".stamp", "all => all.slice(0, 5).map(s => s.textContent)")
    assert stamps == [explorer.scores[row]["nearest_label_name"] for row in rows]


def test_a_digit_is_the_class_that_fits_as_well_also_for_a_selection(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer))
    rows = [explorer.scores[row] for row in shown_rows(page)[:2]]
    names = {row["label"]: row["label_name"] for row in explorer.scores}
    press(page, "ArrowRight", "3", "ArrowLeft", "Shift+ArrowRight", "2")
    wait_for_marks(page, 2)

    stamps = page.locator(".stamp").all_inner_texts()[:2]
    # The selection ends at the second image, whose classes are meant.
    chosen = names[rows[1]["second_label"]]
    assert stamps == ["keep" if row["label_name"] == chosen else chosen for row in rows]
    press(page, "u")
    wait_for_marks(page, 1)
    third = names[rows[0]["third_label"]]
    expected = "keep" if rows[0]["label_name"] == third else third
    assert page.locator(".stamp").first.inner_text() == expected


def test_text_in_a_filter_shows_all_classes_that_contain_it(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer))

    page.get_by_label("Label", exact=True).fill("d")  # of bird and dog
    options = page.locator("#label-options").get_by_role("option")
    listed = options.all_inner_texts()
    page.keyboard.press("Tab")
    wait_for_count(page, 80)
    page.get_by_label("Label", exact=True).fill("")
    page.keyboard.type("O")
    options.get_by_text("dog").wait_for()
    page.keyboard.press("Enter")
    wait_for_count(page, 40)

    assert listed == ["dog", "bird"]
    assert page.url.endswith("label=dog")


def test_keys_do_nothing_while_text_is_entered(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer))
    press(page, "ArrowRight", "/")
    page.keyboard.type("d1")
    page.wait_for_url("**q=d1*")
    wait_for_count(page, 10)

    assert page.locator(".card[data-mark]").count() == 0
    assert all("d1" in explorer.scores[row]["sample_id"] for row in shown_rows(page))


def test_two_tabs_agree_about_the_marks(context: BrowserContext, explorer: Explorer) -> None:
    one, other = context.new_page(), context.new_page()
    for page in (one, other):
        page.goto(images(explorer))

    press(one, "ArrowRight", "k")
    wait_for_marks(one, 1)

    wait_for_marks(other, 1)
    assert other.locator(".stamp").first.inner_text() == "keep"


def test_a_mark_that_was_made_elsewhere_meanwhile_is_shown_and_not_replaced(
    page: Page, explorer: Explorer, problems: list[str]
) -> None:
    page.goto(images(explorer))
    row = shown_rows(page)[0]
    with explorer.client() as client:
        body = {"marks": [{"row": row, "decision": {"mark": "drop"}}]}
        client.post(f"/v1/jobs/{explorer.job}/marks", json=body).raise_for_status()

    press(page, "ArrowRight", "k")
    page.get_by_text("was marked elsewhere meanwhile").wait_for()

    assert page.locator(".stamp").first.inner_text() == "drop"
    assert [problem for problem in problems if "409" not in problem] == []
    problems.clear()


def test_each_decision_leads_on_and_undo_back_also_after_another_page(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer, "?sort=hardest"))
    rows = shown_rows(page)[:6]
    address = f"{explorer.url}/jobs/{explorer.job}/images/{{}}?sort=hardest"
    press(page, "ArrowRight", "Enter")
    page.wait_for_url(address.format(rows[0]))
    page.locator("[data-decision=undo]:visible").wait_for()
    drop = page.get_by_role("button", name="Drop the image")
    box = drop.bounding_box()

    for _ in range(3):
        page.mouse.click(box["x"] + 9, box["y"] + 9)
    press(page, "k", "1")
    wait_for_marks(page, 5)
    page.wait_for_url(address.format(rows[5]))
    assert drop.bounding_box() == box
    page.goto(images(explorer, "?sort=hardest"))
    stamps = page.locator(".stamp").all_inner_texts()[:4]
    page.locator(".look").nth(5).click()
    page.locator("[data-decision=undo]:visible").click()
    page.wait_for_url(address.format(rows[4]))
    press(page, "u")
    page.wait_for_url(address.format(rows[3]))
    wait_for_marks(page, 3)

    assert stamps == ["drop", "drop", "drop", "keep"]
    assert page.locator(".stamp").inner_text() == ""


def test_single_decisions_in_a_random_order_tell_how_many_labels_are_wrong(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer, "?sort=random"))
    rows = shown_rows(page)
    press(page, "ArrowRight", "k", "d", "k")
    wait_for_marks(page, 3)
    press(page, "Enter")
    page.locator("[data-decision=undo]:visible").wait_for()
    press(page, "k", "d")
    wait_for_marks(page, 5)
    said = page.locator("#tray-text").inner_text()
    page.goto(images(explorer, "?sort=random&mark=none"))
    press(page, "ArrowRight", "Shift+ArrowRight", "d")
    wait_for_marks(page, 7)
    page.goto(images(explorer, "?sort=random&label=dog&mark=none"))
    press(page, "ArrowRight", "d")
    wait_for_marks(page, 8)

    with explorer.client() as client:
        marks = client.get(f"/v1/jobs/{explorer.job}/marks").json()["marks"]
    orders = {mark["row"]: mark["order"] for mark in marks}
    assert [orders[row] for row in rows[:7]] == ["random"] * 5 + ["", ""]
    assert sorted(orders.values()) == ["", "", "", *["random"] * 5]
    check = RandomCheck(checked=5, wrong=2, among=len(explorer.scores), since=0)
    assert describe_check(check) in said
    assert (
        describe_check(check.model_copy(update={"since": 3, "beside": 3, "wrong_beside": 3}))
        in page.locator("#tray-text").inner_text()
    )


def test_back_shows_the_image_again_that_lay_below_several_pages(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer, "?sort=easiest"))
    page.locator(".more a").click()
    look = page.locator(".look").nth(99)
    look.wait_for()
    row = shown_rows(page)[99]
    focused = "row => document.activeElement.closest('.card')?.dataset.row === String(row)"

    look.click()
    page.locator("[data-decision=undo]:visible").wait_for()
    page.go_back()
    page.wait_for_function(focused, arg=row)
    length = len(page.url)
    following = shown_rows(page)[100]
    press(page, "Enter")
    page.wait_for_url(f"**/images/{row}?*")
    page.locator("[data-decision=undo]:visible").wait_for()
    press(page, "k")
    page.wait_for_url(f"**/images/{following}?*")
    page.go_back()  # past the images between
    page.wait_for_function(focused, arg=following)

    assert len(shown_rows(page)) == 120
    assert length < 120
    assert page.locator(".card:focus-within").evaluate(
        "card => card.getBoundingClientRect().top < innerHeight"
    )


def test_everything_filtered_is_marked_at_once_and_can_be_undone(
    page: Page, explorer: Explorer
) -> None:
    page.goto(images(explorer, "?label=dog&margin=0"))
    number = len(shown_rows(page))
    press(page, "ArrowRight", "k")
    wait_for_marks(page, 1)

    page.get_by_text(f"Mark all {number} filtered").click()
    page.get_by_role("button", name=f"Drop {number}").click()
    page.wait_for_selector(f"#tray-text:has-text('{number} drop')")
    dropped = page.locator(".card[data-mark=drop]").count()
    page.reload()
    press(page, "u")
    wait_for_marks(page, 1)

    assert dropped == number > 1
    assert page.locator(".stamp").first.inner_text() == "keep"


def test_without_scripts_images_are_filtered_and_marked_by_forms(
    signed_in_page: OpenPage, explorer: Explorer
) -> None:
    page = signed_in_page(java_script_enabled=False)

    page.goto(images(explorer))
    page.get_by_label("Label", exact=True).fill("dog")
    page.get_by_role("button", name="Show").click()
    page.locator(".card a").first.click()
    page.get_by_role("button", name="Drop the image").click()

    assert page.locator("#tray-text").inner_text().startswith("1 checked")


def test_the_dataset_is_scored_again_with_the_marks(page: Page, explorer: Explorer) -> None:
    page.goto(images(explorer, "?margin=0"))
    first, second = shown_rows(page)[:2]
    press(page, "ArrowRight", "r", "d")
    wait_for_marks(page, 2)

    page.get_by_role("button", name="Score again (2 decisions)").click()
    page.get_by_text("Nothing is decided in this round yet.").wait_for()
    page.wait_for_load_state("networkidle")  # its pictures end with the job
    job = page.url.rpartition("/")[2]
    with explorer.client() as client:
        content = client.get(f"/v1/jobs/{job}/scores.parquet").raise_for_status().content
        client.delete(f"/v1/jobs/{job}").raise_for_status()
    again = {row["sample_id"]: row["label_name"] for row in read_rows(content)}

    expected = {row["sample_id"]: row["label_name"] for row in explorer.scores}
    moved = explorer.scores[first]
    expected[moved["sample_id"]] = moved["nearest_label_name"]
    del expected[explorer.scores[second]["sample_id"]]
    assert again == expected
    notes = page.locator(".notes").inner_text()
    said = r"Round 2: 1 relabelled, 1 dropped, 0 kept · \d+ newly doubtful, by the marks of job "
    assert re.search(said + explorer.job, notes), notes
