"""What a page keeps in the browser, which writes it down after the page has gone on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def reload(page: "Page") -> None:
    """Reloads a page once others of its origin see what it has kept.

    They do before a person could press a key.
    """
    kept = "JSON.stringify(Object.entries(localStorage).sort())"
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_function(f"kept => {kept} === kept", arg=page.evaluate(kept))
    other.close()
    page.bring_to_front()
    page.reload()
