"""Which options of scoring cannot be chosen together: each rule once, for every front end.

An option is chosen if its value is another one than its default, so that the same call means the
same in a shell, in Python and as JSON, where a program may state every default.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

from pydantic import BaseModel

from difficulty_service.settings.options import (
    FIT_ONLY,
    IMAGES_ONLY,
    LABELS_ONLY,
)

Spell = Callable[[str], str]
"""Writes the name of an option as the front end does."""


@dataclass(frozen=True)
class OptionRule:
    """Options that one of some others rules out.

    Attributes:
        options: Options of which one has to be chosen for the rule to apply.
        others: Options that cannot be chosen then.
        reason: Sentence with the places `{option}` and `{others}`.
        unless: Option that allows them all the same, where it is chosen.
    """

    options: tuple[str, ...]
    others: tuple[str, ...]
    reason: str
    unless: str = ""


RULES = (
    OptionRule(
        ("tags",),
        (*LABELS_ONLY, "labels", "gaussians", "marks", "undo_round", "json", "verbose"),
        "tags are judged in place of labels, so {others} cannot be used with {option}",
    ),
    OptionRule(("tags",), ("fail_above",), "{others} counts labels, and {option} judges tags"),
    OptionRule(
        ("unlabelled",),
        ("class_names",),
        "{others} would change nothing, because {option} ignores labels",
    ),
    OptionRule(
        ("modality", "text_column"),
        IMAGES_ONLY,
        "{others} would change nothing, because {option} makes the samples texts",
    ),
    OptionRule(
        ("gaussians",),
        FIT_ONLY,
        "{option} are fitted already, so {others} would change nothing",
    ),
    OptionRule(
        ("missing_boxes",),
        ("text_column", "tags", "augment_runs", "augmentation", "outlines"),
        "{option} compares windows beside the boxes of images with the boxes, which {others} would "
        "change or rule out",
    ),
    OptionRule(
        ("undo_round",),
        ("marks",),
        "{option} takes decisions back and {others} adds some: run them in turn",
    ),
    OptionRule(
        ("augmentation",),
        ("augment_runs",),
        "{option} says what views show, whose number is given by {others}",
        unless="augment_runs",
    ),
    OptionRule(
        ("ray_address", "ray_actors"), ("engine",), "{option} needs {others} ray", unless="engine"
    ),
)


@dataclass(frozen=True)
class Clash:
    """Chosen options that a rule forbids together."""

    option: str
    others: tuple[str, ...]
    reason: str

    def sentence(self, spell: Spell = str) -> str:
        """What is wrong."""
        others = " and ".join(map(spell, self.others))
        return self.reason.format(option=spell(self.option), others=others)


def chosen_in(*models: BaseModel) -> set[str]:
    """Names of the options of some models whose values are not the defaults."""
    return {
        name
        for model in models
        for name, field in type(model).model_fields.items()
        if not field.is_required() and getattr(model, name) != field.default
    }


def find_clash(chosen: Set[str]) -> Clash | None:
    """The first rule that the chosen options break; None where they fit together."""
    for rule in RULES:
        option = next((each for each in rule.options if each in chosen), None)
        if option is None:
            continue
        if rule.unless:
            others = () if rule.unless in chosen else rule.others
        else:
            others = tuple(each for each in dict.fromkeys(rule.others) if each in chosen)
        if others:
            return Clash(option, others, rule.reason)
    return None
