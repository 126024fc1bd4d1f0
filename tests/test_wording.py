"""What people read is worded plainly: each option in one line, and no roundabout phrases."""

import re
from pathlib import Path

import pytest

from difficulty_service.cli import create_app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST = 140
"""Characters of the sentence of an option."""

CHOICES = ("--to", "--strategy")
"""Options whose sentence says something of each of their values."""

ROUNDABOUT = re.compile(
    r"\b(?:th(?:at|ose) of|where there (?:is|are)|all that (?:is|are|there)|somebody who"
    r"|as long as|it may be that|in which case|by means of|of what is|than that|whatever it)\b",
    re.IGNORECASE,
)
"""Phrases in whose place a noun, `if` or a shorter sentence serves."""

FENCED = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^\* `([^`]+)`: (.*?)(?: \*\*\[required\]\*\*| \*\[.*)*$", re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Each command and its help in Markdown, as the page of commands has it."""
    text = create_app().generate_docs("markdown")
    return re.findall(
        r"^##+ difficulty ([a-z][^\n]*)\n(.*?)(?=^##+ |\Z)", text, re.MULTILINE | re.DOTALL
    )


def options() -> list[tuple[str, str]]:
    """Each sentence of an option, with the commands and names that it is said of."""
    found: dict[str, str] = {}
    for command, text in commands():
        for names, sentence in OPTION.findall(text):
            found.setdefault(f"{names.split()[0].rstrip(',')} {sentence}", command)
    return [
        (f"{command} {each.split()[0]}", each.partition(" ")[2]) for each, command in found.items()
    ]


def description(text: str) -> str:
    """What a command says of itself, without its usage and options."""
    return FENCED.sub("", text).partition("**")[0].strip()


def roundabout(text: str) -> list[str]:
    """The roundabout phrases of a text, without its code."""
    prose = re.sub(r"`[^`]*`", "`", FENCED.sub("", text))
    return [" ".join(each.split()) for each in ROUNDABOUT.findall(" ".join(prose.split()))]


def is_one_sentence(text: str) -> bool:
    return text.endswith(".") and re.search(r"[.!?] [A-Z]", text) is None


@pytest.mark.parametrize(
    "text", ["its size is that of the image", "Where there\nis none", "as `this`, those of all"]
)
def test_a_roundabout_phrase_is_found(text: str) -> None:
    assert len(roundabout(text)) == 1


def test_code_may_have_any_words() -> None:
    assert roundabout("It is `that of`.\n```\nthose of\n```\n") == []


def test_every_option_has_one_short_sentence() -> None:
    sentences = options()

    assert len(sentences) > 100
    assert [option for option, sentence in sentences if not is_one_sentence(sentence)] == []
    assert [
        option
        for option, sentence in sentences
        if len(sentence) > LONGEST and option.split()[-1] not in CHOICES
    ] == []


def test_no_option_needs_a_quote_or_a_bar() -> None:
    assert [option for option, sentence in options() if re.search(r"['\"|]", sentence)] == []


@pytest.mark.slow
def test_options_and_commands_are_said_without_detours() -> None:
    texts = [*options(), *((command, description(text)) for command, text in commands())]

    assert [(name, found) for name, text in texts if (found := roundabout(text))] == []


def test_every_command_begins_with_a_sentence_of_one_line() -> None:
    summaries = [(command, description(text).split("\n\n")[0]) for command, text in commands()]

    assert len(summaries) > 20
    assert [
        (command, summary)
        for command, summary in summaries
        if not is_one_sentence(summary) or len(summary) > 100
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_written_without_detours(page: Path) -> None:
    assert roundabout(page.read_text()) == []
