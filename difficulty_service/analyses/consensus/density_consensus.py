"""What the features of several backbones say together: the mean of their log-densities.

Each store is fitted by itself, as for `suspicion` and `agree`. The log-densities of the classes at
each sample, left out of the fit, are averaged and then judged as those of one store are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.analyses.consensus.shared_samples import (
    AVERAGED,
    LabelledIds,
    SharedSamples,
    describe_consensus,
    share_samples,
)
from difficulty_service.base.errors import StatisticsError
from difficulty_service.base.tables import to_arrow, to_numpy
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.base.wording import list_names
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.feature_map import FeatureMap
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.label_noise import (
    SHARPNESS_OF_SUMS,
    add_label_sums,
    fit_noise,
    judge_labels,
    likeliest_classes,
    log_class_prior,
)
from difficulty_service.gaussians.label_rule import Rule
from difficulty_service.gaussians.products import (
    BATCH_ROWS,
    BLOCK_ROWS,
    Workspace,
    one_thread_per_product,
    row_ranges,
)
from difficulty_service.gaussians.ridge import MOST_SAMPLES
from difficulty_service.gaussians.row_sample import choose_samples
from difficulty_service.scorers.suspicion import POSTERIORS, LabelPosteriors
from difficulty_service.scores.file import ScoreFile, to_schema
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES
from difficulty_service.scoring.fit_store import fit_store, fit_store_posteriors
from difficulty_service.scoring.ranking import percentiles
from difficulty_service.scoring.rows import NAMED_LABELS
from difficulty_service.scoring.store import RMD_ONLY, score_in_memory


@dataclass(frozen=True)
class MeanDensities:
    """Mean log-densities of the classes at each sample, up to a constant for all classes.

    Attributes:
        agree: Without landmarks, at the scale that the labels chose. Shape (samples, classes).
        suspicion: With landmarks, at the scale that the labels chose. Shape (samples, classes).
    """

    agree: Tensor
    suspicion: Tensor

    @classmethod
    def zero(cls, samples: int, classes: int) -> "MeanDensities":
        """What the shares of all stores are added to."""
        return cls(*(torch.zeros(samples, classes) for _ in range(2)))

    def add_share(
        self, batches: Iterable[Sequence[Tensor]], rows: NDArray[np.int64], share: float
    ) -> None:
        """Adds a share of the log-densities of one store.

        Args:
            batches: Log-densities of its samples in their order, in the order of the fields.
            rows: Row in the store of each shared sample. Shape (samples,).
        """
        places = torch.full((int(rows.max()) + 1,), -1)
        places[torch.from_numpy(rows)] = torch.arange(len(rows))
        first = 0
        for batch in batches:
            found = places[first : first + len(batch[0])]
            kept = (found >= 0).nonzero().flatten()
            for mean, added in zip((self.agree, self.suspicion), batch, strict=True):
                mean.index_add_(0, found[kept], added[kept].float(), alpha=share)
            first += len(batch[0])


def density_consensus(stores: Mapping[str, FeatureSource], options: FitOptions) -> ScoreFile:
    """The consensus of the samples that all stores have, in the order of the first store.

    Two numbers for each sample and class are held in memory, and some more while they are judged.
    """
    fitted = {name: fit_store(store, options) for name, store in stores.items()}
    files = {name: score_in_memory(store, fitted[name], RMD_ONLY) for name, store in stores.items()}
    shared = share_samples(
        [
            LabelledIds(
                name,
                file.table["sample_id"].combine_chunks(),
                np.array(file.table["label_name"].cast(pa.string()).to_pylist(), dtype=object),
            )
            for name, file in files.items()
        ]
    )
    given = {*shared.label_names}
    names = [name for name in next(iter(stores.values())).class_names if name in given]
    if len(names) < 2:  # noqa: PLR2004 - another class to compare with
        raise StatisticsError(
            f"all shared samples are of one class, {list_names(names)}",
            "a consensus about labels needs at least two classes",
        )
    means = MeanDensities.zero(len(shared.sample_ids), len(names))
    for (name, store), rows in zip(stores.items(), shared.rows, strict=True):
        posteriors = fit_store_posteriors(store, POSTERIORS, fitted[name].gaussians.matmul_dtype)
        classes = torch.tensor([store.class_names.index(each) for each in names])
        means.add_share(_log_densities(store, posteriors, classes), rows, 1 / len(stores))
    index = {name: place for place, name in enumerate(names)}
    own = torch.tensor([index[name] for name in shared.label_names])
    return _assemble(files, shared, _judge(means, own), names)


@dataclass(frozen=True)
class _SliceDensities:
    """Log-densities of the samples of slices of shards; may be called by any thread.

    Attributes:
        feature_map: Map to the features of both densities; those of `agree` are the first of them.
        suspicion_map: Map to those of `suspicion`, which is the same unless samples are few.
    """

    store: FeatureSource
    feature_map: FeatureMap
    suspicion_map: FeatureMap
    agree: Rule
    suspicion: Rule
    classes: Tensor
    work: Workspace

    def __call__(self, where: tuple[int, slice]) -> list[Tensor]:
        """As in `MeanDensities`, in its order; empty for a slice without rows."""
        shard, rows = where
        runs = self.store.runs
        opened = self.store.open_shard(shard, [], rows)
        blocks = [
            self._of_block(opened.read_features(block), opened.labels[block][::runs].contiguous())
            for block in row_ranges(len(opened.labels), max(1, BLOCK_ROWS // runs) * runs)
        ]
        return [torch.cat(each) for each in zip(*blocks, strict=True)]

    def _of_block(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        plain = self.feature_map(features, self.work)[:, : len(self.feature_map.centre)]
        agree = _of_classes(self.agree, plain, labels, self.classes)
        mapped = self.suspicion_map(features, self.work)
        suspicion = _of_classes(self.suspicion, mapped, labels, self.classes)
        return (
            agree * self.agree.choice.scale,
            suspicion * self.suspicion.choice.scale,
        )


def _log_densities(
    store: FeatureSource, posteriors: LabelPosteriors | None, classes: Tensor
) -> Iterator[list[Tensor]]:
    """The log-densities of some classes at the samples of a store, a few thousand at a time."""
    if posteriors is None or posteriors.agree is None or posteriors.suspicion is None:
        raise ValueError("the posteriors lack one of their scorers")
    densities = _SliceDensities(
        store,
        posteriors.feature_map,
        posteriors.suspicion_map,
        posteriors.agree,
        posteriors.suspicion,
        classes,
        Workspace(),
    )
    with one_thread_per_product():
        for batch in map_in_order(densities, store.slices(BATCH_ROWS), num_workers()):
            if batch:
                yield batch


def _of_classes(rule: Rule, mapped: Tensor, labels: Tensor, classes: Tensor) -> Tensor:
    """Log-densities of some classes. Shape (samples, some classes)."""
    places = rule.densities.places(classes)
    blocks = rule.log_densities(mapped, rule.densities.places(labels))
    # Taken from each block before the next one overwrites it.
    return torch.cat([block[:, places] for _, block in blocks])


def _judge(means: MeanDensities, own: Tensor) -> dict[str, Tensor]:
    """The columns of a consensus that follow from the densities, classes as their places.

    Args:
        own: Place of the class of each label. Shape (samples,).
    """
    classes = means.agree.shape[1]
    prior = log_class_prior(own.bincount(minlength=classes))
    densities = means.suspicion.double()
    sums = torch.zeros(classes, classes, dtype=torch.float64)
    add_label_sums(SHARPNESS_OF_SUMS * densities + prior, own, sums)
    some = choose_samples(len(own), MOST_SAMPLES, 0)
    noise = fit_noise(densities[some], prior, own[some], sums, torch.ones(len(some)), 1.0)
    scale = 1.0 if noise is None else noise.scale
    verdict = judge_labels(
        scale * densities + prior,
        own,
        None if noise is None else noise.transitions_of(densities, own, Workspace()),
    )
    likely, probabilities = likeliest_classes(scale * densities + prior)
    probabilities[verdict.suspicion.isnan()] = torch.nan
    others = means.agree.double()
    place = own[:, None]
    label_density = others.gather(1, place)[:, 0]
    others[:, prior.isinf()] = -torch.inf  # nothing looks like a class of one sample
    best = others.scatter_(1, place, -torch.inf).max(dim=1)
    margin = 2 * (best.values - label_density)
    margin = torch.where(margin.isfinite(), margin, torch.nan)
    return {
        "label_margin": margin,
        "nearest_label": torch.where(margin > 0, best.indices, own),
        "suspicion": verdict.suspicion,
        "p_wrong": verdict.suspicion.sigmoid(),
        "suggested_label": verdict.suggested,
        **dict(zip(LIKELIEST_CLASSES, likely.T, strict=True)),
        **dict(zip(LIKELIEST_CLASSES.values(), probabilities.T.float(), strict=True)),
        "agree": judge_labels(means.agree.double() + prior, own).suspicion,
    }


def _assemble(
    files: Mapping[str, ScoreFile],
    shared: SharedSamples,
    judged: Mapping[str, Tensor],
    names: Sequence[str],
) -> ScoreFile:
    """The score file of a consensus."""
    tables = [
        file.table.take(pa.array(rows))
        for file, rows in zip(files.values(), shared.rows, strict=True)
    ]
    columns: dict[str, Any] = {
        name: to_arrow(
            np.mean([to_numpy(table[name].combine_chunks()) for table in tables], axis=0)
        )
        for name in AVERAGED
    }
    mean = to_numpy(columns["rmd"])
    columns["percentile"] = to_arrow(percentiles(mean, np.sort(mean[~np.isnan(mean)])))
    first = next(iter(files.values())).provenance
    number = {name: label for label, name in enumerate(first.class_names)}
    columns["label"] = pa.array([number[name] for name in shared.label_names], pa.int32())
    columns["label_name"] = pa.array(shared.label_names, pa.string()).dictionary_encode()
    known = {
        "nearest_label": judged["label_margin"].isfinite().numpy(),
        "suggested_label": judged["suspicion"].isfinite().numpy(),
        **{
            label: judged[probability].isfinite().numpy()
            for label, probability in LIKELIEST_CLASSES.items()
        },
    }
    dictionary = pa.array(names, pa.string())
    labels = np.array([number[name] for name in names])
    for name, values in judged.items():
        if name not in known:
            columns[name] = to_arrow(values.numpy())
            continue
        chosen = values.numpy()
        columns[name] = pa.array(labels[chosen], pa.int32(), mask=~known[name])
        if name not in NAMED_LABELS:
            continue
        places = pa.array(chosen, pa.int32(), mask=~known[name])
        columns[f"{name}_name"] = pa.DictionaryArray.from_arrays(places, dictionary)
    if "duplicate_of" in tables[0].column_names:
        copies = tables[0]["duplicate_of"]
        kept = pc.is_in(copies, value_set=shared.sample_ids)
        columns["duplicate_of"] = pc.if_else(kept, copies, None)
    table = to_schema(pa.table({"sample_id": shared.sample_ids, **columns}))
    provenances = {name: file.provenance for name, file in files.items()}
    return ScoreFile(
        table,
        describe_consensus("log-densities", provenances, table, first.class_names, shared.warnings),
    )
