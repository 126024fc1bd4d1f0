"""Scores single images or feature vectors against the Gaussians of a finished job."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from api.http.problems import Problem
from api.online.batcher import Batcher
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.errors import ImageError
from difficulty_service.extraction.shards import suitable_batch_size
from difficulty_service.images.preparation import normalise, prepare, set_up_decoding_thread, stack
from difficulty_service.parallel import num_workers
from difficulty_service.scorers.mahalanobis import RelativeMahalanobis

IMAGES_PER_TASK = 4
"""Images that a thread decodes at a time: enough to make the hand-over cheap."""


@dataclass(frozen=True)
class ScoringModel:
    """What is needed to score new samples as a job scored its own.

    Attributes:
        scorer: Of the job's Gaussians.
        description: Of the features they were fitted to.
        class_names: Name of each class index.
        training_scores: RMD of the job's own samples, ascending, without NaN. Shape (samples,).
    """

    scorer: RelativeMahalanobis
    description: Mapping[str, Any]
    class_names: tuple[str, ...]
    training_scores: NDArray[np.float64]

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        return len(self.scorer.mean)

    def score(self, features: Tensor, labels: Tensor) -> list[dict[str, Any]]:
        """Distances and difficulty of samples.

        Args:
            features: Shape (samples, dim).
            labels: Class indices, -1 where unknown; then the nearest class stands in.
                Shape (samples,).

        Returns:
            One mapping per sample, of JSON values; None where there is no number.
        """
        found = self.scorer.distances(features, labels)
        nearest = found.nearest_label
        if (labels < 0).any():
            found = self.scorer.distances(features, torch.where(labels >= 0, labels, nearest))
        percentiles = self._percentiles(found.rmd.numpy())
        return [
            {
                "label": _known_label(label, self.class_names),
                "nearest_label": _known_label(int(nearest[row]), self.class_names),
                "md": _number(found.md[row]),
                "md_agnostic": _number(found.md_agnostic[row]),
                "rmd": _number(found.rmd[row]),
                "label_margin": _number(found.label_margin[row]) if label >= 0 else None,
                "percentile": _number(percentiles[row]),
            }
            for row, label in enumerate(labels.tolist())
        ]

    def _percentiles(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of the job's samples that are easier, ties counted half. Shape (samples,)."""
        if not len(self.training_scores):
            return np.full(len(scores), np.nan)
        below = np.searchsorted(self.training_scores, scores, side="left")
        below_or_equal = np.searchsorted(self.training_scores, scores, side="right")
        shares = (below + below_or_equal) / 2 / len(self.training_scores)
        return np.where(np.isnan(scores), np.nan, shares)


@dataclass(frozen=True)
class Network:
    """A backbone and the thread that runs it."""

    backbone: Backbone
    batcher: Batcher


class Networks:
    """Backbones in use, loaded once each and kept.

    Args:
        device: Where they run.
        max_pixels: Larger images are refused.
        capacity: Most backbones kept at a time.
    """

    def __init__(self, device: torch.device, max_pixels: int, capacity: int = 2) -> None:
        self._device = device
        self._max_pixels = max_pixels
        self._capacity = capacity
        self._kept: OrderedDict[tuple[str, ...], Network] = OrderedDict()
        self._lock = threading.Lock()
        # Asked before a decoder lowers it for itself and for every thread that comes later.
        self._torch_threads = torch.get_num_threads()
        # One pool for all requests: with one each, eight requests decode on eight times the cores.
        self._decoders = ThreadPoolExecutor(
            num_workers(), thread_name_prefix="decoder", initializer=set_up_decoding_thread
        )

    def encode(
        self, openers: Sequence[ImageOpener], description: Mapping[str, Any]
    ) -> list[Tensor | str]:
        """Features of some images as a job made its own.

        Args:
            openers: Each opens one encoded image.
            description: Of the job's features.

        Returns:
            For each image its features of shape (dim,), or why it cannot be read.

        Raises:
            Problem: The backbone is not the one that the job used any more.
        """
        network = self._network(description)
        preprocessing = network.backbone.preprocessing

        def view(opener: ImageOpener) -> Tensor | str:
            try:
                return prepare(opener, preprocessing, description["mode"], self._max_pixels)
            except ImageError as error:
                return str(error)

        encoded: list[tuple[list[Tensor | str], Future[Tensor] | None]] = []
        for views in self._decoded(view, openers):
            readable = [each for each in views if isinstance(each, Tensor)]
            # The network works on these while the next are decoded.
            features = network.batcher.submit(stack(readable)) if readable else None
            encoded.append((views, features))
        found: list[Tensor | str] = []
        for views, features in encoded:
            rows = iter(features.result()) if features is not None else iter(())
            found += [each if isinstance(each, str) else next(rows) for each in views]
        return found

    def _decoded(
        self, view: Callable[[ImageOpener], Tensor | str], openers: Sequence[ImageOpener]
    ) -> Iterator[list[Tensor | str]]:
        """Views of some images at a time, in order."""
        starts = range(0, len(openers), IMAGES_PER_TASK)
        groups = iter([openers[start : start + IMAGES_PER_TASK] for start in starts])

        def decode(group: Sequence[ImageOpener]) -> list[Tensor | str]:
            return [view(opener) for opener in group]

        # Only a few at a time, so that a single image need not wait for all of a large request.
        pending = deque(
            self._decoders.submit(decode, group) for group in islice(groups, num_workers() + 1)
        )
        while pending:
            views = pending.popleft().result()
            pending.extend(self._decoders.submit(decode, group) for group in islice(groups, 1))
            yield views

    def close(self) -> None:
        """Ends the threads."""
        self._decoders.shutdown()
        with self._lock:
            for network in self._kept.values():
                network.batcher.close()
            self._kept.clear()

    def _network(self, description: Mapping[str, Any]) -> Network:
        key = tuple(str(description[name]) for name in ("backbone", "features", "precision"))
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._load(description)
            self._kept.move_to_end(key)
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)[1].batcher.close()
            network = self._kept[key]
        if network.backbone.weights_sha256 != description["weights_sha256"]:
            raise Problem(
                409,
                "conflict",
                f"the weights of {description['backbone']!r} are not those that the job used",
                "score the dataset again as a new job, or send feature vectors instead of images",
            )
        return network

    def _load(self, description: Mapping[str, Any]) -> Network:
        precision: torch.dtype = getattr(torch, description["precision"])
        options = BackboneOptions(
            features=description["features"], device=self._device, precision=precision
        )
        backbone = load_backbone(description["backbone"], options)

        def encode(views: Tensor) -> Tensor:
            torch.set_num_threads(self._torch_threads)  # of the batcher's thread
            images = normalise(views.to(self._device), backbone.preprocessing, precision)
            return backbone.encode(images).float().cpu()

        batch_size = suitable_batch_size(self._device, backbone)
        return Network(backbone, Batcher(encode, batch_size))


def _known_label(label: int, class_names: Sequence[str]) -> dict[str, Any] | None:
    return None if label < 0 else {"index": label, "name": class_names[label]}


def _number(value: Tensor | np.float64) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
