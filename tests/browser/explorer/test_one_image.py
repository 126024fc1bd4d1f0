"""The page of one image leads on to the images like it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

Explorer = Any  # of conftest.py, which tests cannot import


def test_images_like_this_one_are_shown_with_labels_and_lead_on(
    page: "Page", explorer: Explorer
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
