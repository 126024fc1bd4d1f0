"""Pairs of samples whose features point in nearly the same direction, by inverted lists.

The features of one set are put into lists by the nearest of some centres, and a sample of the
other set is compared with those in the few lists whose centres are nearest to it. That takes a
small part of the time of comparing all with all, and misses a pair whose lists lie far apart. How
many lists are searched follows from the features: as many as find WANTED of the copies that are
made of samples, each as far from its original as a near copy may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from difficulty_service.scorers.faiss_package import load_faiss
from difficulty_service.scorers.near_copies import ROUNDING, Cosines, Rows

LISTS_PER_ROOT = 4
"""Lists for each unit of the square root of the number of samples: with few long lists the time
goes into the lists, with many short ones into the centres."""

SAMPLES_PER_LIST = 32
"""Samples for each list that the centres are fitted to; more change them little."""

ITERATIONS = 4

MADE = 1000
"""Copies that are made to tell how many lists to search."""

WANTED = 0.99
"""Share of them that is found."""

MOST_SEARCHED = 1 / 16
"""Share of the lists whose search takes about as long as comparing all with all: single rows of
features are multiplied there, which is slower than products of whole blocks."""


@dataclass(frozen=True)
class NearLists:
    """The features of one set in inverted lists.

    Attributes:
        index: Index of faiss.
        threshold: Smallest cosine of a pair.
    """

    index: Any
    threshold: float

    @property
    def saves_time(self) -> bool:
        """Whether searching them is quicker than comparing all with all."""
        return bool(self.index.nprobe <= MOST_SEARCHED * self.index.nlist)

    def pairs(self, others: Tensor) -> tuple[Rows, Rows, Cosines]:
        """Most pairs of a sample in the lists and one of another set.

        Args:
            others: Features of unit length, float32 on the CPU. Shape (others, dim).

        Returns:
            Rows of the lists, in the order in which their features were given, the rows of the
            others, and the cosines of both, which rounding may put a little above 1. Shapes
            (pairs,).
        """
        limits, cosines, found = self.index.range_search(others.numpy(), self.threshold - ROUNDING)
        counts = np.diff(limits.astype(np.int64))
        return found, np.repeat(np.arange(len(others)), counts), cosines


def build_lists(blocks: Sequence[Tensor], threshold: float, seed: int = 0) -> NearLists:
    """Puts features into inverted lists, which hold a copy of them.

    Args:
        blocks: Features of unit length, float32 on the CPU, finite; rows of zeros are in no pair.
            Shape (samples, dim) each, and at least one sample in all.
        threshold: Smallest cosine of a pair, in (0, 1].
        seed: Seed of the centres and of the copies that are made.

    Raises:
        MissingPackage: faiss is not installed.
    """
    faiss = load_faiss("near_duplicates")
    samples = sum(map(len, blocks))
    num_lists = min(samples, round(LISTS_PER_ROOT * samples**0.5))
    step = max(1, samples // (SAMPLES_PER_LIST * num_lists))
    fitted = torch.cat([block[::step] for block in blocks])
    num_lists = min(num_lists, len(fitted))
    dim = fitted.shape[1]
    quantizer = faiss.IndexFlatIP(dim)
    index: Any = faiss.IndexIVFFlat(quantizer, dim, num_lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed, index.cp.niter, index.cp.spherical = seed, ITERATIONS, True
    index.cp.min_points_per_centroid = 1
    index.train(fitted.numpy())
    for block in blocks:
        index.add(block.numpy())
    index.nprobe = _num_searched(quantizer, fitted, threshold, seed)
    return NearLists(index, threshold)


def _num_searched(quantizer: Any, features: Tensor, threshold: float, seed: int) -> int:  # noqa: ANN401
    """Number of lists among which are those of WANTED of the originals of made copies."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(features), generator=generator)[:MADE]
    towards = torch.randint(len(features), (len(chosen),), generator=generator)
    originals = features[chosen]
    copies = made_copies(originals, features[towards], threshold)
    _, own = quantizer.search(originals.numpy(), 1)
    _, nearest = quantizer.search(copies.numpy(), quantizer.ntotal)
    places: NDArray[np.int64] = (nearest == own).argmax(axis=1)
    return int(np.quantile(places, WANTED, method="higher")) + 1


def made_copies(features: Tensor, others: Tensor, cosine: float) -> Tensor:
    """Features that have this cosine with some features, in the direction of others.

    What differs between a picture and its copy also differs between pictures, so that a step
    towards another sample is harder to follow than one in any direction. Where both are the same,
    the features stay as they are.

    Args:
        features: Of unit length. Shape (samples, dim).
        others: Of unit length. Shape (samples, dim).
    """
    across = normalize(others - (features * others).sum(dim=1, keepdim=True) * features)
    return normalize(cosine * features + max(0.0, 1 - cosine**2) ** 0.5 * across)
