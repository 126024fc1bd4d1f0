"""Every error that this package raises on purpose.

DifficultyError
├── DatasetError           a dataset cannot be read, or its labels are invalid
│   ├── DuplicateSampleId  two samples have the same id
│   └── UnknownLabel       a label is not among the fitted classes
├── ImageError             an image cannot be read; it is listed, or ends the run
├── BackboneError          pretrained weights are missing, unreadable or do not fit the network
│   ├── DeviceError        a device is not there, cannot compute or has failed
│   ├── MissingWeights     they are neither on this machine nor can they be downloaded
│   └── WeightsTooLarge    they are larger than what may be downloaded
├── EngineError            a cluster cannot be reached, has no room, or loses its actors
├── FeatureStoreError      a folder of features is incomplete, damaged or from another run
├── StatisticsError        no Gaussian can be fitted to the features
├── ScoreFileError         a Parquet file does not follow the score schema
│   └── NoScores           it is not a score file at all
├── AuditError             scores cannot be compared with a column
├── CleaningError          scores cannot be used to clean or export a dataset as requested
├── ReportError            no report can be written as requested
├── ConfigError            a recipe has an invalid key or value
├── TrainingError          a run cannot be started, continued or resumed
│   └── UnmatchedScores    training samples have no score, or scores have no sample
├── MetricError            no metric can be computed from the predictions
├── ServiceError           the service refuses a request, or cannot be reached
├── MissingAnalysis        an analysis is asked for that this installation does not have
└── MissingPackage         an optional package is not installed

A remedy names parameters as data, because the library is used from the command line, over HTTP and
from Python, and each of these spells the setting `split = test` differently.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias


@dataclass(frozen=True)
class Setting:
    """A parameter in a remedy, with or without a recommended value.

    Attributes:
        parameter: Name of the keyword argument, such as `split` or `batch_size`.
        value: Recommended value; None if the reader has to choose one.
    """

    parameter: str
    value: object = None


Spell: TypeAlias = Callable[[Setting], str]
"""Writes a setting as the caller of a front end does."""


def as_keyword(setting: Setting) -> str:
    """Spells a setting as in Python: `split='test'`, or `split` without a value."""
    if setting.value is None:
        return setting.parameter
    return f"{setting.parameter}={setting.value!r}"


class DifficultyError(Exception):
    """Base class of all errors of this package.

    Args:
        problem: Description of the problem, with the value and what was expected.
        remedy: Suggested solution: text and settings, in the order of the sentence.
        parameter: Name of the keyword argument that caused the error, if there is one.

    Attributes:
        remedy: Parts of the suggested solution; empty if there is none.
        parameter: Name of the keyword argument that caused the error, or None.
    """

    def __init__(self, problem: str, *remedy: str | Setting, parameter: str | None = None) -> None:
        super().__init__(problem, *remedy)
        self.problem = problem
        self.remedy = remedy
        self.parameter = parameter

    @classmethod
    def leave_out(cls, problem: str, name: str) -> Self:
        """The error of a setting that has to be left out."""
        return cls(problem, "leave out ", Setting(name), parameter=name)

    def __str__(self) -> str:
        return self.message(as_keyword)

    def message(self, spell: Spell) -> str:
        """The problem and the remedy in one sentence."""
        remedy = self.remedy_text(spell)
        return f"{self.problem}; {remedy}" if remedy else self.problem

    def remedy_text(self, spell: Spell) -> str:
        """The remedy without the problem; empty if there is none."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self.remedy)


class DatasetError(DifficultyError):
    """A dataset cannot be read, or its labels are invalid."""

    @classmethod
    def of_location(cls, problem: str, *remedy: str | Setting) -> Self:
        """The error of a location at which no dataset can be read."""
        return cls(problem, *remedy, parameter="location")


class DuplicateSampleId(DatasetError):
    """Two samples have the same id."""


class UnknownLabel(DatasetError):
    """A label is not among the fitted classes."""


class ImageError(DifficultyError):
    """An image cannot be read; the message is the reason, without the sample's id."""


class BackboneError(DifficultyError):
    """Pretrained weights are missing, unreadable or do not fit the network."""


class DeviceError(BackboneError):
    """A device is not there, cannot compute or has failed."""


class MissingWeights(BackboneError):
    """Pretrained weights are neither on this machine nor can they be downloaded."""


class WeightsTooLarge(BackboneError):
    """Pretrained weights are larger than what may be downloaded."""


class EngineError(DifficultyError):
    """A cluster cannot be reached, has no room, has nodes that differ, or loses its actors."""


class FeatureStoreError(DifficultyError):
    """A folder of features is incomplete, damaged or from another run."""


class StatisticsError(DifficultyError):
    """No Gaussian can be fitted to the features."""


class ScoreFileError(DifficultyError):
    """A Parquet file does not follow the score schema."""


class NoScores(ScoreFileError):
    """A Parquet file holds no scores."""


class AuditError(DifficultyError):
    """Scores cannot be compared with a column."""


class CleaningError(DifficultyError):
    """Scores cannot be used to clean or export a dataset as requested."""


class ReportError(DifficultyError):
    """No report can be written as requested."""


class ConfigError(DifficultyError):
    """A recipe has an invalid key or value."""


class TrainingError(DifficultyError):
    """A training run cannot be started, continued or resumed."""


class UnmatchedScores(TrainingError):
    """Training samples have no score, or scores have no sample."""


class MetricError(DifficultyError):
    """No metric can be computed from the predictions."""


class ServiceError(DifficultyError):
    """The service refuses a request, or cannot be reached.

    Attributes:
        status: Status of the answer; None where there was none.
        title: What kind of problem it is, in words.
        detail: What is wrong.
        kind: Stable name of the kind, such as `not-found`; empty where the answer has none.
        field: Field of the request that is at fault, if it is known.
    """

    def __init__(
        self,
        detail: str,
        remedy: str = "",
        *,
        status: int | None = None,
        title: str = "",
        kind: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(detail, *filter(None, [remedy]))
        self.status = status
        self.title = title
        self.kind = kind
        self.field = field

    @property
    def detail(self) -> str:
        """What is wrong, without the remedy."""
        return self.problem


class MissingAnalysis(DifficultyError):
    """Something asks for an analysis that this installation does not have."""


class MissingPackage(DifficultyError):
    """An optional package is not installed; the remedy is the pip command."""
