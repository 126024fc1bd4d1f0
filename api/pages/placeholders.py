"""Pictures in place of images that cannot be shown."""

from xml.sax.saxutils import escape

from starlette.responses import Response

LETTERS = 22
"""Largest number of letters of a line."""


def placeholder(status: int, reason: str) -> Response:
    """A picture with the reason why the image cannot be shown."""
    words, lines = reason[:140].split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > LETTERS and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word[:LETTERS]}".strip()
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
