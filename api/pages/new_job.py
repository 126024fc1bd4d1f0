"""What a person enters for a new job: a dataset, a name, and options in groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

from fastapi import Request

from api.pages.option_fields import OptionField, entered_values, option_fields
from difficulty_service.bodies.jobs import JobCreate
from difficulty_service.settings.options import (
    EncodingOptions,
    FittingOptions,
    LabelOptions,
    ReadingOptions,
    ScorerOptions,
    TagOptions,
)

OF_BOXES = ("outlines", "missing_boxes")

GROUPS: Mapping[str, Sequence[str]] = {
    "How the dataset is read": [
        name for name in ReadingOptions.model_fields if name not in OF_BOXES
    ],
    "What is computed": [*ScorerOptions.model_fields, *FittingOptions.model_fields],
    "Labels for a dataset without any": list(LabelOptions.model_fields),
    "Tags: any number for each sample": list(TagOptions.model_fields),
    "Objects in boxes": OF_BOXES,
    "How samples are encoded": list(EncodingOptions.model_fields),
}
"""Options of a job that the form asks for below its first fields, by the titles of groups."""

OPTIONS = tuple(chain(*GROUPS.values()))

NEAR_COPIES = 0.97
"""Cosine of the features from which samples are near copies, where nobody enters another one."""


@dataclass(frozen=True)
class FieldGroup:
    """Fields of options below a title."""

    title: str  # what the options are about
    fields: Sequence[OptionField]  # a field for each option

    @property
    def is_changed(self) -> bool:
        """Whether one of them was changed, so that the form shows the group."""
        return any(each.shown != each.usual for each in self.fields)


@dataclass(frozen=True)
class NewJob:
    """What was entered in the form, as the browser sends it."""

    source: str = "root"  # "root" or "upload"
    root: str = ""
    path: str = ""
    upload: str = ""
    name: str = ""  # empty for that of the dataset
    near_copies: str = ""  # "1" to find near copies, at NEAR_COPIES unless a cosine is entered
    backbone: str = ""  # empty for the usual one
    token: str = ""  # of the page, by which a form that is sent twice is one job
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # texts of each

    @property
    def groups(self) -> list[FieldGroup]:
        """The fields of the options in their groups."""
        return [
            FieldGroup(title, option_fields(JobCreate, names, self.options))
            for title, names in GROUPS.items()
        ]

    @property
    def has_options(self) -> bool:
        """Whether something that the form hides at first was changed."""
        return bool(self.backbone) or any(group.is_changed for group in self.groups)

    def as_body(self) -> dict[str, Any]:
        """Body of the request that submits this job."""
        dataset = (
            {"upload": self.upload}
            if self.source == "upload"
            else {"root": self.root, "path": self.path.strip().strip("/")}
        )
        near = {"near_duplicates": NEAR_COPIES} if self.near_copies else {}
        entered = entered_values(chain.from_iterable(group.fields for group in self.groups))
        named = {"name": self.name.strip(), "backbone": self.backbone}
        return {
            "dataset": dataset,
            **near,
            **entered,
            **{name: text for name, text in named.items() if text},
        }


async def entered_job(request: Request) -> NewJob:
    """What the browser sent; files and fields that the form does not have are ignored."""
    async with request.form() as sent:
        texts = {name: tuple(map(str, sent.getlist(name))) for name in sent}
    own = {
        each.name: texts[each.name][-1]
        for each in fields(NewJob)
        if each.name in texts and each.name != "options"
    }
    return NewJob(**own, options={name: texts[name] for name in OPTIONS if name in texts})
