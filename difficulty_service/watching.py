"""A dataset that changes while it is watched: scored again whenever its files or marks differ.

A round is what `difficulty score` does. Features of images that were there before are kept, so that
only new ones are read; the Gaussians are fitted anew to all of them, or given.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import ConfigError, DifficultyError
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.files import replacing
from difficulty_service.command_options import WatchOptions
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset
from difficulty_service.marks.record import MarkHistory, Marks
from difficulty_service.marks.review_folder import Review, ReviewFolder
from difficulty_service.pipeline import (
    NO_CALLBACKS,
    Callbacks,
    ExtractRequest,
    ScoredDataset,
    ScoreRequest,
    score_dataset,
)
from difficulty_service.scores.file import ScoreFile, read_scores

LISTINGS = 10
"""Listings after which a dataset is scored although it is still changing."""

UNLIKE_QUANTILE = 0.95
"""Of the distances of earlier samples from all; as many of the new ones lie beyond it by chance."""

AGNOSTIC, PROBABILITY = "md_agnostic", "p_wrong"
MOST_LISTED = 10


@dataclass(frozen=True)
class Added:
    """Samples with a score that had none in the scores before.

    Attributes:
        samples: Their scores.
        num_removed: Number of samples that have no score any more.
        unlike: Share of them that is farther from all samples than 95 % of those before; None
            without either, or without that distance.
    """

    samples: ScoreFile
    num_removed: int
    unlike: float | None

    @property
    def wrong(self) -> pa.Table | None:
        """Those whose label is almost certainly wrong, the surest first; None without `p_wrong`."""
        table = self.samples.table
        if PROBABILITY not in table.column_names:
            return None
        sure = table.filter(pc.greater(table[PROBABILITY], 0.5))
        return sure.sort_by([(PROBABILITY, "descending")])


@dataclass(frozen=True)
class Round:
    """One time that the dataset was scored.

    Attributes:
        number: From 1.
        added: What is new beside the score file that was there before the round.
        seconds: Wall-clock time of the round.
    """

    number: int
    scored: ScoredDataset
    added: Added
    seconds: float


@dataclass(frozen=True)
class FailedRound:
    """A time that the dataset could not be scored; the scores before are untouched.

    Attributes:
        number: Number of failures since the last round, from 1.
    """

    number: int
    error: DifficultyError


@dataclass(frozen=True)
class _State:
    """What decides whether scores are those of the present dataset."""

    fingerprint: str
    marks: Marks


def watch(
    extraction: ExtractRequest,
    scoring: ScoreRequest,
    options: WatchOptions,
    callbacks: Callbacks = NO_CALLBACKS,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Round | FailedRound]:
    """Scores a dataset, and again whenever it has changed.

    What people decided is read beside the score file before every round.

    Args:
        extraction: The dataset, the backbone and where the features go.
        scoring: Settings by which to score, and the score file; its marks are ignored.
        wait: Waits for a number of seconds; whatever it raises ends the watch.

    Yields:
        Every round. Errors of the first one are raised, and of later ones yielded, since a dataset
        that could be read will be again.

    Raises:
        ConfigError: Tags are to be judged.
        DifficultyError: As for `score_dataset`, in the first round.
    """
    if scoring.options.tags is not None:
        raise ConfigError(
            "a watch scores labels, and not tags",
            "judge the tags by `difficulty score` when the table has changed",
            parameter="tags",
        )
    known: _State | None = None
    number = failures = 0
    while True:
        try:
            dataset = open_dataset(extraction.location, extraction.dataset)
            state = _state(dataset, scoring.out)
            if state != known:
                if known is not None:
                    dataset = _settled(dataset, extraction, options.settle, wait)
                    state = _state(dataset, scoring.out)
                began = time.monotonic()
                before = _known_samples(scoring.out)
                scored = score_dataset(
                    extraction,
                    replace(scoring, review=Review(MarkHistory(state.marks))),
                    callbacks,
                    dataset,
                )
                number, failures, known = number + 1, 0, state
                added = added_since(before, read_scores(scoring.out))
                yield Round(number, scored, added, time.monotonic() - began)
                if number == options.rounds:
                    return
        except DifficultyError as error:
            if known is None:
                raise
            failures += 1
            yield FailedRound(failures, error)
        wait(options.every)


def _state(dataset: Dataset, out: Path) -> _State:
    return _State(dataset.fingerprint, ReviewFolder(out).remembered())


def _settled(
    dataset: Dataset, extraction: ExtractRequest, seconds: float, wait: Callable[[float], None]
) -> Dataset:
    """The dataset once two listings are the same, so that no file is read while it is copied."""
    for _ in range(LISTINGS):
        wait(seconds)
        again = open_dataset(extraction.location, extraction.dataset)
        if again.fingerprint == dataset.fingerprint:
            break
        dataset = again
    return dataset


def _known_samples(scores: Path) -> pa.Array | None:
    """Ids of the samples of a score file; None where there is none."""
    if not scores.exists():
        return None
    return read_scores(scores, ["sample_id"]).table["sample_id"].combine_chunks()


def added_since(before: pa.Array | None, scores: ScoreFile) -> Added:
    """What scores have that those before did not.

    Args:
        before: Ids of the samples before; None where there were no scores.
    """
    table = scores.table
    if before is None:
        return Added(scores, 0, None)
    is_old = pc.is_in(table["sample_id"].combine_chunks(), value_set=before)
    new, old = table.filter(pc.invert(is_old)), table.filter(is_old)
    unlike = None
    if AGNOSTIC in table.column_names and len(new) and len(old):
        bound = np.quantile(old[AGNOSTIC].to_numpy(), UNLIKE_QUANTILE)
        unlike = float((new[AGNOSTIC].to_numpy() > bound).mean())
    return Added(ScoreFile(new, scores.provenance), len(before) - len(old), unlike)


GAUGES = {
    "samples": "Samples of the dataset with features",
    "scored": "Samples with a score",
    "unreadable": "Samples that could not be read",
    "almost_certainly_wrong": "Labels whose p_wrong is above 1/2",
    "added": "Samples with a score that had none before the last round",
    "added_almost_certainly_wrong": "Those of them whose p_wrong is above 1/2",
    "added_unlike": "Share of them farther from all samples than 95 % of those before",
    "removed": "Samples that lost their score in the last round",
    "round_seconds": "Wall-clock seconds of the last round",
    "round_timestamp_seconds": "When the last round ended, in seconds since 1970",
    "rounds": "Rounds since the watch began",
    "failures": "Failed rounds since the last one that did not fail",
}
"""Names of metrics below `difficulty_watch_`, with their meaning."""


def gauges_of(last: Round, failures: int, ended: float) -> dict[str, float]:
    """Values of GAUGES; those that are not known are absent.

    Args:
        last: The last round.
        failures: Failed rounds since.
        ended: When it ended, in seconds since 1970.
    """
    summary, extracted = last.scored.labels, last.scored.extracted
    wrong = last.added.wrong
    values: dict[str, float | None] = {
        "samples": summary.num_samples,
        "scored": summary.num_scored,
        "unreadable": len(extracted.bad_images),
        "almost_certainly_wrong": None if summary.labels is None else summary.labels.wrong,
        "added": len(last.added.samples.table),
        "added_almost_certainly_wrong": None if wrong is None else len(wrong),
        "added_unlike": last.added.unlike,
        "removed": last.added.num_removed,
        "round_seconds": last.seconds,
        "round_timestamp_seconds": ended,
        "rounds": last.number,
        "failures": failures,
    }
    return {name: value for name, value in values.items() if value is not None}


def write_gauges(path: Path, values: dict[str, float], dataset: str) -> None:
    """Writes metrics for the textfile collector of Prometheus; the file appears whole.

    Raises:
        MissingPackage: prometheus-client is not installed.
        OSError: The file cannot be written.
    """
    client = load_prometheus()
    registry = client.CollectorRegistry()
    for name, value in values.items():
        gauge = client.Gauge(
            f"difficulty_watch_{name}", GAUGES[name], ["dataset"], registry=registry
        )
        gauge.labels(dataset).set(value)
    with replacing(path) as temporary:
        temporary.write_bytes(client.generate_latest(registry))


def load_prometheus() -> Any:  # noqa: ANN401 - a module
    """Imports prometheus-client.

    Raises:
        MissingPackage: It is not installed.
    """
    with needs_extra("metrics for Prometheus", "prometheus", parameter="metrics"):
        import prometheus_client
    return prometheus_client
