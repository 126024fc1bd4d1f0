"""What a page keeps in the browser, which writes it down after the page has gone on."""

import time

from tests.browser.kinds import Page

SECONDS = 60


def reload(page: Page) -> None:
    """Reloads a page once others of its origin see what it has kept.

    They do before a person could press a key. What a page keeps as it opens, the first one sees as
    late, so that both are asked again.
    """
    kept = "JSON.stringify(Object.entries(localStorage).sort())"
    deadline = time.monotonic() + SECONDS
    while True:
        # A page that opens while another one writes may never hear of it: ask a new one each time.
        other = page.context.new_page()
        other.goto(page.url)
        here, there = page.evaluate(kept), other.evaluate(kept)
        other.close()
        if here == there:
            break
        assert time.monotonic() < deadline, (here, there)
    page.bring_to_front()
    page.reload()
