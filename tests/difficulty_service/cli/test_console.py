"""Tables for terminals of any width, whatever the names in them."""

import io
import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from difficulty_service.cli import console


@pytest.mark.parametrize("text", ["a/very/long/path/to/photo 0001.jpeg", "鳥" * 20, "😀/é" * 9])
@pytest.mark.parametrize("width", [16, 17, 25])
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, width: int) -> None:
    shortened = console.shorten_middle(text, width)

    head, tail = shortened.split("…")
    assert width - 3 <= cell_len(shortened) <= width
    assert head
    assert tail
    assert text.startswith(head)
    assert text.endswith(tail)


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert console.shorten_middle("0001.jpeg", 9) == "0001.jpeg"


@pytest.mark.parametrize("width", [60, 80])
def test_a_table_is_no_wider_than_the_console(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=printed, width=width, soft_wrap=True))
    rows = [(f"folder/{'x' * 200}/{number}.jpg", "cat → dog", 1.5) for number in range(2)]

    console.print_table(("sample", "class", "margin"), rows, shorten="sample")

    lines = printed.getvalue().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert all(line.startswith("folder/") and "/" in line[10:] for line in lines[1:])


def test_names_are_neither_markup_nor_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=printed, width=80, soft_wrap=True))

    console.print_table(("sample",), [("[red]a.jpg",), ("b\n\x1b[2J.jpg",)])

    assert printed.getvalue().split() == ["sample", "[red]a.jpg", "b��[2J.jpg"]


def test_a_path_with_brackets_is_printed_as_it_is() -> None:
    printed = io.StringIO()

    console.LastingConsole(file=printed).print("[red]/a.jpg")

    assert printed.getvalue() == "[red]/a.jpg\n"


def test_what_is_printed_does_not_control_the_terminal() -> None:
    printed = io.StringIO()

    console.LastingConsole(file=printed).print(
        "the first is \x1b[31mred/\x1b]0;t\x07.png,\na \x9b1m,\u202egnp.exe étage"
    )

    assert printed.getvalue() == (
        "the first is \\x1b[31mred/\\x1b]0;t\\x07.png,\na \\x9b1m,\\u202egnp.exe étage\n"
    )


def test_a_command_goes_on_when_nobody_reads_what_it_prints() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file:
        left = console.LastingConsole(file=file)

        left.print("nobody reads this")
        left.print("nor this")

        assert os.fstat(file.fileno()) == Path(os.devnull).stat()
    assert {type(each) for each in (console.out, console.err, console.alarm)} == {type(left)}
