"""The fields of a form, made of the options of a model, and what was entered in them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from difficulty_service.options import schemas_of, sentence_of

Kind = Literal["check", "checks", "choice", "number", "text"]


@dataclass(frozen=True)
class OptionField:
    """A field of a form.

    Attributes:
        name: Name of the option.
        kind: How it is entered.
        sentence: What it does.
        entered: What was entered: texts as the browser sends them, none where it was left alone.
        choices: Values to choose from, with a sentence on each where it needs one.
        usual: What holds where nothing is entered.
    """

    name: str
    kind: Kind
    sentence: str
    entered: tuple[str, ...]
    choices: Mapping[str, str] = field(default_factory=dict)
    usual: tuple[str, ...] = ()

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
    return OptionField(
        name=name,
        kind=kind,
        sentence=sentence_of(model, name),
        entered=entered,
        choices=choices,
        usual=_texts(model.model_fields[name].default),
    )


def _texts(default: object) -> tuple[str, ...]:
    if default is None or default is False:
        return ()
    return tuple(default) if isinstance(default, tuple) else (str(default),)


def entered_values(fields: Iterable[OptionField]) -> dict[str, Any]:
    """What was entered, as values of a JSON body; fields that were left alone are not there.

    Raises:
        ValueError: A number cannot be read; it begins with the name of the option.
    """
    values: dict[str, Any] = {}
    for each in fields:
        texts = [text.strip() for text in each.entered if text.strip()]
        if texts:
            values[each.name] = _value(each, texts)
    return values


def _value(field: OptionField, texts: list[str]) -> bool | float | str | list[str]:
    if field.kind == "checks":
        return texts
    if field.kind == "check":
        return True
    is_number = field.kind == "number" or (field.choices and texts[0] not in field.choices)
    return _number(field.name, texts[0]) if is_number else texts[0]


def _number(name: str, text: str) -> int | float:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(f"{name}: {text!r} is no number")
