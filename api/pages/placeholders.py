"""Pictures in place of images that cannot be shown, and of texts."""

from xml.sax.saxutils import escape

from starlette.responses import Response

LETTERS = 22
"""Largest number of letters of a line."""

TEXT_LETTERS, TEXT_LINES = 34, 14


def placeholder(status: int, reason: str) -> Response:
    """A picture with the reason why the image cannot be shown."""
    lines = _lines(reason[:140], LETTERS)
    text = "".join(
        f'<text x="80" y="{80 + 15 * (number - (len(lines) - 1) / 2)}">{escape(line)}</text>'
        for number, line in enumerate(lines[:8])
    )
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160" width="160" height="160" '
        'font-family="sans-serif" font-size="12" text-anchor="middle" fill="#777b74">'
        f"{text}</svg>"
    )
    headers = {"Cache-Control": "no-store"}
    return Response(svg, status, headers, "image/svg+xml")


def text_picture(content: str) -> Response:
    """A picture with the beginning of a text."""
    lines = _lines(content[: 2 * TEXT_LETTERS * TEXT_LINES], TEXT_LETTERS)
    if len(lines) > TEXT_LINES:
        lines[TEXT_LINES - 1 :] = [f"{lines[TEXT_LINES - 1]} …"]
    text = "".join(
        f'<text x="10" y="{16 + 14 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    # Grey is legible on the light and on the dark ground of the pages.
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 224 224" width="224" height="224" '
        f'font-family="sans-serif" font-size="11" fill="#777b74">{text}</svg>'
    )
    headers = {"Cache-Control": "private, max-age=600"}
    return Response(svg, 200, headers, "image/svg+xml")


def _lines(text: str, letters: int) -> list[str]:
    """Words in lines of so many letters, without what XML cannot have."""
    lines = [""]
    for word in "".join(sign if sign.isprintable() else " " for sign in text).split():
        if len(lines[-1]) + len(word) > letters and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word[:letters]}".strip()
    return lines
