"""Which backbone suits a dataset: each is tried on the same samples, judged by the labels given.

The features under which labels are most probable tell the classes apart best, and wrong labels with
them; no label need be known to be right. What a backbone takes is measured on the way.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path

import numpy as np
import torch

from difficulty_service.analyses.backbones.label_likelihood import (
    MIN_CLASSES,
    log_probabilities,
    log_probabilities_without_features,
    paired_difference,
)
from difficulty_service.backbones import Loader, find_loader, load_backbone
from difficulty_service.backbones.plugged import find_plugin
from difficulty_service.base.contract import Found, Printed
from difficulty_service.base.errors import (
    BackboneError,
    ConfigError,
    DifficultyError,
    EngineError,
    ImageError,
    StatisticsError,
)
from difficulty_service.base.wording import Noun, count_of, list_names
from difficulty_service.datasets.listing import choose_samples, draw_positions, usual_draw
from difficulty_service.datasets.sample import Dataset
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.speed import Speed
from difficulty_service.scoring.pipeline import (
    Callbacks,
    ExtractProgress,
    execute,
    ignore,
)
from difficulty_service.settings.command_options import TrialOptions
from difficulty_service.settings.run import Run

USELESS = ("backbone", "weights", "limit", "shard_size", "resume", "unlabelled")
"""Options of an extraction that would change nothing in a trial, or would break it."""

BATCHES_TO_SKIP_ONE = 10
"""Number of batches from which on the first one, in which libraries warm up, is not timed."""


class TriedBackbone(Found):
    """What a trial says of a backbone."""

    name: str
    """Name of the backbone."""

    nats: float
    """Mean log-probability of a label by the features of the other samples; zero or less, and the
    higher the better."""

    below_best: float
    """How much lower that is than with the best backbone."""

    below_best_95: float
    """Half the width of the 95 % interval of this difference, paired over the samples; 0 for the
    best."""

    images_per_second: float
    """Samples a second from the encoded image or text to features, on this machine."""

    hours: float
    """Hours that all samples of the dataset take at this speed."""


class NotTried(Found):
    """A backbone that could not be tried."""

    name: str
    """Its name."""

    reason: str
    """Why, in a sentence."""


class BackboneTrial(Printed):
    """Backbones that were tried on the same samples of a dataset."""

    dataset: str
    """The dataset."""

    noun: Noun
    """What a sample is in a word."""

    samples: int
    """Samples that were compared: those drawn, without unreadable ones."""

    samples_of_dataset: int
    """Samples of the dataset."""

    classes: int
    """Classes of the samples that were compared."""

    nats_without_features: float
    """Mean log-probability of a label by the sizes of the classes alone."""

    tried: tuple[TriedBackbone, ...]
    """Backbones that were tried, the best first."""

    not_tried: tuple[NotTried, ...]
    """Those that could not be tried, in the order they were named."""

    recommended: str | None
    """The fastest of those that are not worse than the best by more than the interval; null where
    even the best one does not tell the classes apart."""

    sentence: str
    """The recommendation and its reason."""

    warnings: tuple[str, ...]
    """Conditions of licences, and what to know of the dataset, in sentences."""


@dataclass(frozen=True)
class TrialCallbacks:
    """Functions that are called during a trial; whatever they raise ends it.

    Attributes:
        begun: Called with the name of each backbone before it is tried.
        progress: Called before the first sample and after every batch.
    """

    begun: Callable[[str], None] = ignore
    progress: Callable[[ExtractProgress], None] = ignore


NO_CALLBACKS = TrialCallbacks()


@dataclass
class _Clock:
    """When batches were done; the samples of the first one are left out where there are many."""

    start: float = 0.0
    batches: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, progress: ExtractProgress) -> None:
        """The last call before the first batch starts the clock."""
        now = time.perf_counter()
        if progress.done:
            self.batches.append((now, progress.done))
        else:
            self.start, self.batches = now, []

    def speed(self, name: str) -> Speed:
        """The speed of a backbone."""
        (first, few), (last, done) = self.batches[0], self.batches[-1]
        if len(self.batches) >= BATCHES_TO_SKIP_ONE:
            return Speed(name, done - few, last - first)
        return Speed(name, done, last - self.start)


@dataclass(frozen=True)
class _Encoded:
    """What a backbone made of the samples.

    Attributes:
        likelihoods: Log-probability of the label of each sample by its id.
        warnings: What is to be known of the backbone.
    """

    likelihoods: Mapping[str, float]
    speed: Speed
    warnings: Sequence[str]


def useless_options(run: Run) -> set[str]:
    """Names of the given options that a trial does not heed."""
    return run.given.intersection(USELESS)


def try_backbones(
    dataset: Dataset,
    plan: Plan,
    trial: TrialOptions,
    callbacks: TrialCallbacks = NO_CALLBACKS,
    load: Loader = load_backbone,
) -> BackboneTrial:
    """Tries backbones on samples of a dataset, drawn by the seed of the plan.

    A backbone that cannot be had, or does not suit the samples, is listed with the reason.

    Args:
        dataset: The whole dataset.
        plan: How features are extracted; its backbone and its folder do not matter.
        trial: The backbones, and how many samples to draw.

    Raises:
        ConfigError: No backbone is named.
        BackboneError: None of them can be tried; the message has the reason of each.
        StatisticsError: There are not two classes with two samples each.
        ImageError: An image is bad, and the options say to stop at one.
        EngineError: The cluster cannot be reached, has no room, or loses its actors.
    """
    if not trial.try_:
        raise ConfigError("no backbone is named", "name some", parameter="backbones")
    size = trial.sample or usual_draw(dataset.labels)
    drawn = draw_positions(dataset.labels, size, plan.options.seed)
    chosen = choose_samples(dataset, drawn)
    if len(np.unique(chosen.labels)) < MIN_CLASSES:
        raise StatisticsError(
            f"{dataset.location!r} lacks two classes with two samples each, which a comparison of "
            "backbones needs"
        )
    encoded: list[_Encoded] = []
    failed: list[NotTried] = []
    for name in trial.try_:
        callbacks.begun(name)
        try:
            _require_known(name)
            encoded.append(_encode(chosen, replace(plan, backbone=name), callbacks, load))
        except (EngineError, ImageError):
            raise
        except DifficultyError as error:
            failed.append(NotTried(name=name, reason=" ".join(error.problem.split())))
    if not encoded:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in failed)
        raise BackboneError(f"no backbone could be tried: {reasons}", parameter="backbones")
    return _compare(dataset, chosen, encoded, failed)


def _require_known(name: str) -> None:
    """Refuses a name that no backbone has, before a sample is read."""
    if find_plugin(name) is None:
        find_loader(name)


def _encode(dataset: Dataset, plan: Plan, callbacks: TrialCallbacks, load: Loader) -> _Encoded:
    """Extracts features as every other command does, and asks them for the labels."""
    clock, warnings = _Clock(), list[str]()

    def on_progress(progress: ExtractProgress) -> None:
        clock(progress)
        callbacks.progress(progress)

    def on_settled(settled: Plan) -> None:
        warnings.extend(settled.warnings)

    with tempfile.TemporaryDirectory(prefix="difficulty-") as folder:
        plan = replace(plan, out=Path(folder, "features"), resume=False)
        callbacks_of_extraction = Callbacks(progress=on_progress, settled=on_settled)
        store = execute(plan, callbacks_of_extraction, dataset, load).store
        shards = [store.read_shard(shard) for shard in range(store.num_shards)]
        runs = len(store.description.run_numbers)
        features = torch.cat([each.features for each in shards]).float()
        labels = torch.cat([each.labels for each in shards]).long()[::runs]
        ids = [sample_id for each in shards for sample_id in each.sample_ids[::runs]]
        found = log_probabilities(features, labels, runs).tolist()
    likelihoods = {
        sample_id: value for sample_id, value in zip(ids, found, strict=True) if not isnan(value)
    }
    return _Encoded(likelihoods, clock.speed(plan.backbone or ""), warnings)


def _compare(
    dataset: Dataset, chosen: Dataset, encoded: Sequence[_Encoded], failed: Sequence[NotTried]
) -> BackboneTrial:
    """Compares backbones on the samples that all of them could encode."""
    places = [
        place
        for place, sample_id in enumerate(chosen.sample_ids)
        if all(sample_id in each.likelihoods for each in encoded)
    ]
    ids = [chosen.sample_ids[place] for place in places]
    labels = torch.from_numpy(chosen.labels).long()
    without = log_probabilities_without_features(labels)[places]
    values = {
        each.speed.name: torch.tensor(
            [each.likelihoods[sample_id] for sample_id in ids], dtype=torch.float64
        )
        for each in encoded
    }
    best = values[max(values, key=lambda name: float(values[name].mean()))]
    tried = []
    for each in encoded:
        below = paired_difference(best, values[each.speed.name])
        tried.append(
            TriedBackbone(
                name=each.speed.name,
                nats=float(values[each.speed.name].mean()),
                below_best=below.mean,
                below_best_95=below.half_width,
                images_per_second=each.speed.images_per_second,
                hours=each.speed.hours(len(dataset.labels)),
            )
        )
    tried.sort(key=lambda each: each.nats, reverse=True)
    samples = count_of(len(ids), dataset.noun)
    gain = paired_difference(best, without)
    recommended: str | None = None
    sentence = (
        f"Take none of these: on {samples} not even {tried[0].name} tells the classes apart better "
        "than their sizes do."
    )
    if gain.mean > gain.half_width:
        recommended, sentence = recommend(tried, samples)
    warnings = [*dataset.warnings, *(sentence for each in encoded for sentence in each.warnings)]
    return BackboneTrial(
        dataset=dataset.location,
        noun=dataset.noun,
        samples=len(ids),
        samples_of_dataset=len(dataset.labels),
        classes=len(labels[places].unique()),
        nats_without_features=float(without.mean()),
        tried=tuple(tried),
        not_tried=tuple(failed),
        recommended=recommended,
        sentence=sentence,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def recommend(tried: Sequence[TriedBackbone], samples: str) -> tuple[str, str]:
    """The fastest backbone that is not worse than the best by more than the interval, and why.

    `tried` has the best first, and `samples` says in words what they were tried on.
    """
    best = tried[0]
    equal = [each for each in tried if each.below_best <= each.below_best_95]
    fastest = max(equal, key=lambda each: each.images_per_second)
    if len(tried) == 1:
        return best.name, f"Only {best.name} was tried, on {samples}: there is nothing to choose."
    start = f"Take {fastest.name}: on {samples} it"
    if fastest is not best:
        times = fastest.images_per_second / best.images_per_second
        return fastest.name, (
            f"{start} is not worse by more than chance than {best.name}, which makes the labels "
            f"likeliest, and it is {times:.1f} times as fast."
        )
    others = list_names([each.name for each in equal if each is not best])
    if others:
        end = f"{others}, not worse by more than chance, would be slower"
    else:
        end = "all others are worse by more than chance"
    return best.name, f"{start} makes the labels likeliest, and {end}."
