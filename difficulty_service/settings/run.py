"""A run: what is computed from what, and how, as every front end describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from cyclopts import Parameter

from difficulty_service.base.errors import ConfigError
from difficulty_service.settings.machine import NetworkOptions, RunOptions
from difficulty_service.settings.option_rules import chosen_in, find_clash
from difficulty_service.settings.options import (
    EncodingOptions,
    ListingOptions,
    Options,
    ScoringOptions,
)

NO_OPTION = Parameter(parse=False)
"""Marks what a command has as an argument or an option of its own."""


@Parameter(name="*")
@dataclass(frozen=True)
class Run:
    """What is computed from what, and how: the shell, Python and HTTP each build one.

    What a run refers to is named as its front end does, and is only looked at by the rules between
    options. `scoring.pipeline.make_plan` settles what a run leaves open.

    Attributes:
        source: Location of the dataset; empty for samples that a program holds.
        features: Folder for the features.
        gaussians: Gaussians to score against; None to fit them.
        labels: Labels that are given beside the samples; None for those of the dataset.
        marks: What people decided; None for nothing new.
        undo_round: Number of a round of scores to go back to; None to go back to none.
    """

    dataset: ListingOptions = field(default_factory=ListingOptions)
    encoding: EncodingOptions = field(default_factory=EncodingOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    machine: RunOptions = field(default_factory=RunOptions)
    scoring: Annotated[ScoringOptions, NO_OPTION] = field(default_factory=ScoringOptions)
    source: Annotated[str, NO_OPTION] = ""
    features: Annotated[Path, NO_OPTION] = Path()
    gaussians: Annotated[object, NO_OPTION] = None
    labels: Annotated[object, NO_OPTION] = None
    marks: Annotated[object, NO_OPTION] = None
    undo_round: Annotated[int | None, NO_OPTION] = None

    @classmethod
    def of_options(cls, values: Mapping[str, Any], **others: object) -> Self:
        """The run of options by their names, as Python and JSON have them.

        Args:
            values: Values of options; what has another name is left out.
            **others: The fields of the run that are not made of options.

        Raises:
            ValidationError: A value is out of bounds.
        """
        models: Mapping[str, type[Options]] = {
            "scoring": ScoringOptions,
            "dataset": ListingOptions,
            "encoding": EncodingOptions,
            "network": NetworkOptions,
            "machine": RunOptions,
        }
        groups = {name: model.among(values) for name, model in models.items()}
        return cls(**groups, **others)  # type: ignore[arg-type]

    @property
    def given(self) -> set[str]:
        """Names of the options of the features that were given, also those with default values."""
        models = (self.dataset, self.encoding, self.network, self.machine)
        return set().union(*(model.model_fields_set for model in models))

    @property
    def chosen(self) -> set[str]:
        """Names of the options with other values than the defaults, and of what it refers to."""
        references = ("gaussians", "labels", "marks", "undo_round")
        return {
            *chosen_in(self.dataset, self.encoding, self.network, self.machine, self.scoring),
            *(name for name in references if getattr(self, name) is not None),
        }

    def require_compatible(self) -> None:
        """Refuses options that cannot be chosen together.

        Raises:
            ConfigError: A rule forbids it.
        """
        clash = find_clash(self.chosen)
        if clash is not None:
            name = clash.others[0]
            raise ConfigError.leave_out(clash.sentence(), name)

    @property
    def reading(self) -> Mapping[str, Any]:
        """How the dataset is read, as `DatasetOptions` takes it; for tags, without labels."""
        named = self.dataset.model_dump(exclude={"modality"})
        given = {"text_column": self.text_column, "class_names": self.dataset.names_in_order}
        return {**named, **given, **self.scoring.reading_for_tags}

    @property
    def is_of_texts(self) -> bool:
        """Whether the samples are texts."""
        return self.dataset.modality == "text" or self.dataset.text_column is not None

    @property
    def text_column(self) -> str | None:
        """The column with the texts; None where the samples are images."""
        return (self.dataset.text_column or "text") if self.is_of_texts else None
