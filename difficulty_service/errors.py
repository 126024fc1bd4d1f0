"""Every error this package raises on purpose.

DifficultyError
├── DatasetError           a dataset cannot be read, or its labels make no sense
│   ├── DuplicateSampleId  two samples share the id that must tell them apart
│   └── UnknownLabel       a label that was not there when the Gaussians were fitted
├── ImageError             one image cannot be read; counted and listed, or the end of the run
├── BackboneError          pretrained weights are missing, unreadable or of another network
├── EngineError            a cluster cannot be reached, has no room, or loses its actors
├── FeatureStoreError      a folder of features is incomplete, damaged or from another run
├── StatisticsError        features from which no trustworthy Gaussian can be fitted
│   ├── TooFewSamples      fewer samples than a covariance of that many dimensions needs
│   └── SingularCovariance a covariance without inverse, and no remedy allowed
├── ScoreFileError         a Parquet file does not follow the score schema
├── AuditError             scores and the data to judge them by do not fit together
├── ConfigError            a recipe has a key or a value that makes no sense
├── TrainingError          a run cannot start, go on or be resumed
│   └── UnmatchedScores    training samples without a score, or scores without a sample
├── MetricError            predictions that no metric can judge
└── MissingPackage         an optional package is needed for what was asked

A remedy names parameters as data, because the same library is used from the command line, over
HTTP and from Python, and each of them writes `shrinkage = auto` in its own way.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A parameter that a remedy names.

    Attributes:
        parameter: Name of the keyword argument, such as `shrinkage` or `batch_size`.
        value: What to set it to; None where the reader has to choose.
    """

    parameter: str
    value: object = None


def as_keyword(setting: Setting) -> str:
    """A setting as Python writes it: `shrinkage='auto'`, or `split` where the value is open."""
    if setting.value is None:
        return setting.parameter
    return f"{setting.parameter}={setting.value!r}"


class DifficultyError(Exception):
    """Base of all errors below.

    Args:
        problem: What is wrong: names the value and what was expected.
        remedy: What to do about it: text and settings, in the order of the sentence.
        parameter: Name of the keyword argument whose value is at fault, where there is one.

    Attributes:
        problem: As given.
        remedy: As given; empty where there is nothing to suggest.
        parameter: As given.
    """

    def __init__(self, problem: str, *remedy: str | Setting, parameter: str | None = None) -> None:
        super().__init__(problem, *remedy)
        self.problem = problem
        self.remedy = remedy
        self.parameter = parameter

    def __str__(self) -> str:
        return self.message(as_keyword)

    def message(self, spell: Callable[[Setting], str]) -> str:
        """The problem and the remedy in one line.

        Args:
            spell: Writes a setting as the reader would: an option, a field, a keyword argument.
        """
        remedy = self.remedy_text(spell)
        return f"{self.problem}; {remedy}" if remedy else self.problem

    def remedy_text(self, spell: Callable[[Setting], str]) -> str:
        """The remedy alone; empty where there is none."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self.remedy)


class DatasetError(DifficultyError):
    """A dataset cannot be read, or its labels make no sense."""


class DuplicateSampleId(DatasetError):
    """Two samples share the id that must tell them apart."""


class UnknownLabel(DatasetError):
    """A label that was not there when the Gaussians were fitted."""


class ImageError(DifficultyError):
    """One image cannot be read; the message is the reason, without the sample's id."""


class BackboneError(DifficultyError):
    """Pretrained weights are missing, unreadable or belong to another network."""


class EngineError(DifficultyError):
    """A cluster cannot be reached, has no room, has nodes that differ, or loses its actors."""


class FeatureStoreError(DifficultyError):
    """A folder of features is incomplete, damaged or was made by another run."""


class StatisticsError(DifficultyError):
    """Features from which no trustworthy Gaussian can be fitted."""


class TooFewSamples(StatisticsError):
    """Fewer samples than a covariance of that many dimensions needs."""


class SingularCovariance(StatisticsError):
    """A covariance has no inverse and the shrinkage asked for allows no remedy."""


class ScoreFileError(DifficultyError):
    """A Parquet file does not follow the score schema."""


class AuditError(DifficultyError):
    """Scores and the data to judge them by do not fit together."""


class ConfigError(DifficultyError):
    """A recipe has a key or a value that makes no sense."""


class TrainingError(DifficultyError):
    """A training run cannot start, go on or be resumed."""


class UnmatchedScores(TrainingError):
    """Training samples have no score, or scores no sample."""


class MetricError(DifficultyError):
    """Predictions that no metric can judge."""


class MissingPackage(DifficultyError):
    """An optional package is needed for what was asked; the message gives the pip command."""
