"""Labels for samples that have none: names that fit them best, or clusters of their features."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.wording import count_of
from difficulty_service.datasets.sample import has_labels
from difficulty_service.features.description import MadeLabels
from difficulty_service.features.source import FeatureSource
from difficulty_service.scorers.kmeans import fit_kmeans, nearest_centroids
from difficulty_service.scoring.marked_features import ChangedFeatures
from difficulty_service.scoring.words import PROMPT, load_words, needing_words, require_words
from difficulty_service.settings.options import ScoringOptions

DIRECTIONS = 64
"""Largest number of principal directions in which clusters are looked for."""

FEWEST, MOST = 2, 100
"""Bounds of the number of clusters that `auto` chooses."""


def make_labels(
    source: FeatureSource,
    options: ScoringOptions,
    weights: str | None = None,
    device: torch.device | None = None,
) -> FeatureSource:
    """Features with the labels that the options ask for; as they are where they ask for none.

    The fingerprint stays that of the dataset, whose samples these are.

    Args:
        weights: File of the CLIP that made the features; None for that of the hub.
        device: Device of the search for clusters; None for a GPU where faiss has one.

    Raises:
        DatasetError: The samples have labels.
        BackboneError: The backbone knows no words, or its weights are missing.
        StatisticsError: There are fewer samples than clusters.
        MissingPackage: Clusters need faiss, which is not installed.
    """
    if options.makes_labels is None:
        return source
    require_unlabelled(source.class_names, options)
    features = _all_features(source)
    known = source.description
    if options.class_list:
        require_words(known.backbone, known.features, options)
        with needing_words(options):
            labels = _closest_names(features, source, options, weights)
        names = options.class_list
        made = MadeLabels(classes=names, prompt=PROMPT)
        how = f"those of {count_of(len(names), 'name')} that fit best, by {known.backbone}"
    else:
        chosen = options.clusters
        number = chosen if isinstance(chosen, int) else suitable_clusters(len(features))
        labels = find_clusters(features, number, known.seed, device)
        names = tuple(f"cluster {place}" for place in range(1, int(labels.max()) + 2))
        made = MadeLabels(clusters=number)
        how = f"{count_of(len(names), 'cluster')} of their features"
    return _Relabelled(
        source,
        labels,
        names,
        made,
        f"the labels are {how}: nobody has checked any, and the same features made and judge them",
    )


class _Relabelled(ChangedFeatures):
    """Features with labels that were made for them."""

    def __init__(
        self,
        source: FeatureSource,
        labels: Tensor,
        names: Sequence[str],
        made: MadeLabels,
        warning: str,
    ) -> None:
        super().__init__(source, labels)
        self.class_names = tuple(names)
        self.warnings = (warning, *source.warnings)
        self.description = source.description.model_copy(
            update={"class_names": self.class_names, "made_labels": made}
        )


def require_unlabelled(class_names: Sequence[str], options: ScoringOptions) -> None:
    """Refuses to make labels for samples that have some."""
    option = options.makes_labels
    if option is not None and has_labels(class_names):
        raise DatasetError(
            f"the samples have labels, of {count_of(len(class_names), 'class', 'classes')}, and "
            f"{option} would replace them",
            "leave it out, or score the dataset without its labels by ",
            Setting("unlabelled", value=True),
            parameter=option,
        )


def _all_features(source: FeatureSource) -> Tensor:
    """Mean features of each sample over its runs, float32. Shape (samples, dim)."""
    parts = [source.open_shard(shard, []).features() for shard in range(source.num_shards)]
    return torch.cat([part.view(-1, source.runs, part.shape[1]).mean(dim=1) for part in parts])


def _closest_names(
    features: Tensor, source: FeatureSource, options: ScoringOptions, weights: str | None
) -> Tensor:
    """Index of the name that each image is closest to. Shape (samples,)."""
    words = load_words(source.description, options.class_list, weights)
    return words.cosines(features).argmax(dim=1)


def suitable_clusters(num_samples: int) -> int:
    """The number of clusters of `auto`: the square root of half the samples, within bounds."""
    return min(MOST, max(FEWEST, round((num_samples / 2) ** 0.5)))


def find_clusters(
    features: Tensor, number: int, seed: int, device: torch.device | None = None
) -> Tensor:
    """Cluster of each sample, the largest first, by K-means of principal directions.

    Features are scaled to unit length first, so that cosines count and not lengths. The same
    features and seed give the same clusters.

    Args:
        features: Shape (samples, dim).

    Returns:
        Numbers from 0, each with a sample. Shape (samples,).
    """
    scaled = F.normalize(features.double(), dim=1)
    centred = scaled - scaled.mean(dim=0)
    # In ascending order of the variance.
    _, directions = torch.linalg.eigh(centred.T @ centred)
    placed = (centred @ directions[:, -DIRECTIONS:]).float()
    found = nearest_centroids(placed, fit_kmeans(placed, number, seed, device))
    sizes = found.bincount(minlength=number)
    order = sizes.argsort(descending=True, stable=True)
    return order.argsort()[found]
