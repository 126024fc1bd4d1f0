"""Finds the quote by which the cells of a table of text are not what its writer meant.

A reader takes a quote that begins a cell for one around it, up to the next quote, whatever lines
are between. Where quotes are part of texts, that swallows rows.
"""

import re


def loose_quote(text: str, delimiter: str) -> int | None:
    """The line, from 1, of the first quote that takes lines into a cell and does not end with it.

    None where there is no such quote. What follows a quote that is closed in its line does no harm.
    """
    end = re.escape(delimiter)
    rest = rf"[^{end}\r\n]*"
    quoted, in_line = (f'"[^"{ends}]*+(?:""[^"{ends}]*+)*+"' for ends in ("", r"\r\n"))
    cell = re.compile(rf'(?:{quoted} *|{in_line}{rest}|(?!"){rest})(?:{end}|\r\n?|\n|\Z)')
    place = 1 if text.startswith("\ufeff") else 0
    while place < len(text):
        found = cell.match(text, place)
        if found is None:
            return len(re.findall(r"\r\n?|\n", text[:place])) + 1
        place = found.end()
    return None
