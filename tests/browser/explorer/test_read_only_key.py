"""A browser that is signed in with a key that may only read."""

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import OpenPage, Page

SCOPE = "the key has the scopes read, read-all, this needs write"


@pytest.fixture
def visitor(signed_in_page: OpenPage, explorer: Explorer) -> Page:
    """A page of a profile that may look at all jobs."""
    return signed_in_page(explorer.read_only)


def refused(problems: list[str]) -> bool:
    """Whether the browser noted one answer 403 and nothing else; forgets it."""
    found = len(problems) == 1 and "403" in problems[0]
    problems.clear()
    return found


def test_the_images_are_shown_without_anything_that_marks_them(
    visitor: Page, explorer: Explorer
) -> None:
    visitor.goto(f"/jobs/{explorer.job}/images?label=dog")
    visitor.locator(".card").first.wait_for()
    offered = visitor.get_by_text("filtered", exact=False).count()
    visitor.locator(".card a").first.click()
    visitor.locator(".one-image").wait_for()

    assert offered == 0
    assert visitor.locator("main form, main button:not([data-zoom])").count() == 0


def test_a_key_of_the_keyboard_is_answered_in_words_and_marks_nothing(
    visitor: Page, explorer: Explorer
) -> None:
    visitor.goto(f"/jobs/{explorer.job}/images")
    visitor.keyboard.press("ArrowRight")
    visitor.keyboard.press("d")

    visitor.get_by_text("This key may only read. Sign in with one that has the scope").wait_for()
    assert visitor.locator("[data-mark]").count() == 0


def test_neither_a_new_job_nor_the_end_of_one_is_offered(visitor: Page, explorer: Explorer) -> None:
    visitor.goto("/")
    listed = visitor.locator(".job").count()
    forms = visitor.locator("main form").count()
    visitor.goto(f"/jobs/{explorer.job}")

    assert listed > 0
    assert forms + visitor.locator("main form").count() == 0


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("/", "source=root"),
        ("/jobs/{job}/images/0", "mark=drop"),
        ("/jobs/{job}/images/mark-matching", "mark=drop"),
        ("/jobs/{job}/score-again", "token=1"),
        ("/jobs/{job}/try-again", "token=1"),
        ("/jobs/{job}/copies", "row=0"),
        ("/jobs/{job}/remove", "sure=1"),
    ],
)
def test_a_form_that_is_sent_nevertheless_is_refused_on_a_page_that_says_why(
    visitor: Page, explorer: Explorer, problems: list[str], address: str, field: str
) -> None:
    visitor.goto(f"/jobs/{explorer.job}")
    send = """([address, name, value]) => {
        const form = document.createElement("form");
        form.method = "post";
        form.action = address;
        form.append(Object.assign(document.createElement("input"), {name, value}));
        document.body.append(form);
        form.submit();
    }"""

    with visitor.expect_navigation():
        visitor.evaluate(send, [address.format(job=explorer.job), *field.split("=")])

    assert visitor.get_by_role("heading", level=1).inner_text() == "The key does not allow this"
    words = visitor.locator("main").inner_text()
    assert SCOPE in words
    assert "What to do: use a key made with `--scopes write`." in words
    assert refused(problems)
