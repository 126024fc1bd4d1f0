"""Writes the table of settings in docs/api.md from their model.

Run: python docs/settings.py
"""

from datetime import timedelta
from pathlib import Path

from pydantic.fields import FieldInfo

from api.settings import Settings
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("api.md")
UNITS = {30: "GiB", 20: "MiB", 10: "KiB"}


def page() -> str:
    """The page with the table of the present settings."""
    return with_parts(PAGE, "settings.py", {"settings": table()})


def table() -> str:
    """One row for each setting."""
    rows = [
        f"| `{name.upper()}{_default(field.get_default(call_default_factory=True))}` "
        f"| {_sentence(name, field)} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable and default | meaning |", "| --- | --- |", *rows, ""])


def _default(value: object) -> str:
    """The default as it would be set; nothing where there is none."""
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return f"={str(value).lower()}"
    return f"={value:.0f}" if isinstance(value, float) else f"={value}"


def _sentence(name: str, field: FieldInfo) -> str:
    """The sentence, with a size or a time of many digits in a larger unit, too."""
    sentence = " ".join((field.description or "").split())
    if name.endswith("_bytes"):
        power = next(power for power in UNITS if field.default >> power)
        return f"{sentence[:-1]} ({field.default >> power} {UNITS[power]})."
    if name.startswith("keep_"):
        return f"{sentence[:-1]} ({timedelta(seconds=field.default).days} days)."
    return sentence


if __name__ == "__main__":
    PAGE.write_text(page())
