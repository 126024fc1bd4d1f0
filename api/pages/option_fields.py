"""Fields of a form that are made of options, and the values that a browser sends for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from difficulty_service.settings.options import schemas_of, sentence_of

Kind = Literal["check", "checks", "choice", "number", "text", "lines"]

LONGEST_LINE = 10_000
"""Letters of a value up to which one line is enough to enter it."""


UNSET: Mapping[str, str] = {
    "format": "detected",
    "split": "the only one",
    "image_column": "detected",
    "label_column": "detected by its name",
    "id_column": "a column of paths, or file#row",
    "text_column": "none: images are scored",
    "class_names": "as in the dataset",
    "limit": "all samples",
    "near_duplicates": "0.97 where near copies are found",
    "pixel_range": "found in some of the images",
    "bands": "red, green and blue",
    "page": "the first",
    "corrupt": "no corruption",
    "classes": "none: labels of the dataset",
    "clusters": "none: labels of the dataset",
    "tags": "none: one label each",
    "tag_separator": "|",
    "missing_boxes": "none: not looked for",
}
"""What holds where nothing is entered, for the options whose default is no value."""


@dataclass(frozen=True)
class OptionField:
    """A field of a form."""

    name: str
    kind: Kind  # how it is entered
    sentence: str  # what it does
    entered: tuple[str, ...]  # as the browser sends it; none where it was left alone
    choices: Mapping[str, str] = field(default_factory=dict)  # with a sentence, or ""
    usual: tuple[str, ...] = ()  # what holds where nothing is entered
    unset: str = ""  # the same in words, where no value stands for it
    is_required: bool = False

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ").capitalize()

    @property
    def shown(self) -> tuple[str, ...]:
        """The values that the form shows."""
        return self.entered or self.usual


def option_fields(
    model: type[BaseModel], names: Iterable[str], entered: Mapping[str, tuple[str, ...]]
) -> list[OptionField]:
    """The fields of some options, by what the model's JSON Schema says of each."""
    properties = schemas_of(model)
    return [_field(model, name, properties[name], entered.get(name, ())) for name in names]


def _field(
    model: type[BaseModel], name: str, schema: Mapping[str, Any], entered: tuple[str, ...]
) -> OptionField:
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    choices = {value: "" for each in kinds for value in each.get("enum", ())}
    kind: Kind = "text"
    if schema.get("type") == "array":
        kind = "checks"
        choices = {each["const"]: each["description"] for each in schema["items"]["oneOf"]}
    elif schema.get("type") == "boolean":
        kind = "check"
    elif len(kinds) == 1 and kinds[0]["type"] in ("integer", "number"):
        kind = "number"
    elif choices and len(kinds) == 1:
        kind = "choice"
    elif any(each.get("maxLength", 0) > LONGEST_LINE for each in kinds):
        kind = "lines"
    known = model.model_fields[name]
    return OptionField(
        name=name,
        kind=kind,
        sentence=sentence_of(model, name),
        entered=entered,
        choices=choices,
        usual=() if known.is_required() else _texts(known.default),
        unset=UNSET.get(name, ""),
        is_required=known.is_required(),
    )


def _texts(default: object) -> tuple[str, ...]:
    if default is None or default is False:
        return ()
    return tuple(default) if isinstance(default, tuple) else (str(default),)


def entered_values(fields: Iterable[OptionField]) -> dict[str, Any]:
    """What was entered, as values of a JSON body; fields left as they were are not there.

    Raises:
        ValueError: A number cannot be read; it begins with the name of the option.
    """
    values: dict[str, Any] = {}
    for each in fields:
        texts = [text.strip() for text in each.entered if text.strip()]
        if tuple(texts) == each.usual:
            continue
        if texts and each.kind in ("checks", "check"):
            values[each.name] = texts if each.kind == "checks" else True
        elif texts:
            is_number = each.kind == "number" or (each.choices and texts[0] not in each.choices)
            values[each.name] = _number(each.name, texts[0]) if is_number else texts[0]
    return values


def _number(name: str, text: str) -> int | float:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(f"{name}: {text!r} is no number")
