"""JSON objects that one room writes and another reads, as frozen models that own their keys.

A key that is absent stays absent when the object is written again, and one that no field describes
is kept, so that what is read and written is the same to the byte.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Strict, ValidationError

Names = Annotated[tuple[str, ...], Strict(strict=False)]
"""Texts in order, which JSON has as a list."""


class Contract(BaseModel):
    """A JSON object with known keys; the docstring of a field says what its value means."""

    model_config = ConfigDict(
        frozen=True, extra="allow", strict=True, use_attribute_docstrings=True
    )

    @classmethod
    def of(cls, values: object) -> Self:
        """The object that JSON values describe.

        Raises:
            ValueError: Keys are missing, or values are of another type; the message names each.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ValueError(_faults(error)) from error

    def to_json(self) -> dict[str, Any]:
        """JSON values by their key: those that were given, and no others."""
        return self.model_dump(mode="json", exclude_unset=True)

    @classmethod
    def marked(cls, *marks: Enum) -> frozenset[str]:
        """Names of the fields whose annotation has one of these marks."""
        return frozenset(
            name
            for name, field in cls.model_fields.items()
            if any(mark in field.metadata for mark in marks)
        )


class Found(BaseModel):
    """Named numbers that a command prints or a service answers, with a docstring for each."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Printed(Found):
    """The object that a command prints as JSON, whose names and meanings stay."""

    version: Literal[1] = 1
    """Version of this object: another number where a name goes or changes its meaning."""


def given(**values: object) -> Mapping[str, Any]:
    """Those fields that are not None, for a contract that leaves out what does not apply."""
    return {name: value for name, value in values.items() if value is not None}


def _faults(error: ValidationError) -> str:
    """What is wrong with JSON values, as the end of a sentence about them."""
    faults = error.errors(include_url=False)
    absent = [str(fault["loc"][-1]) for fault in faults if fault["type"] == "missing"]
    lacking = [f"lacks the keys {absent}"] if absent else []
    wrong = [
        f"has {fault['input']!r:.60} as {'.'.join(map(str, fault['loc'])) or 'its value'}: "
        f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
        for fault in faults
        if fault["type"] != "missing"
    ]
    return "; ".join([*lacking, *wrong])
