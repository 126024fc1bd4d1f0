"""Labels that several annotators gave to samples, and how far they agree with each other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import scipy.special
import torch
from torch import Tensor

from difficulty_service.gaussians.products import row_ranges

NUMBERS_PER_BLOCK = 1 << 20
"""Approximate number of probabilities that are worked on at a time, in several copies."""

NUMBERS_PER_LABEL = 8
"""Numbers that a label takes beside the probabilities of classes."""

INTERVAL = (0.025, 0.975)
"""Quantiles at the ends of a 95 % interval."""

FEWEST_BEFORE = 1.0
"""Smallest number of labels that all annotators together stand for at each of them."""

TWO = 2
"""Labels of a sample of which one can agree with another."""


@dataclass(frozen=True)
class GivenLabels:
    """A sparse matrix of labels, ordered by sample.

    Attributes:
        samples: Number of the sample of each label, ascending. Shape (labels,).
        annotators: Number of its annotator, who labels a sample once at most. Shape (labels,).
        classes: Index of the class that it names. Shape (labels,).
    """

    samples: Tensor
    annotators: Tensor
    classes: Tensor
    num_samples: int
    num_annotators: int
    num_classes: int

    @classmethod
    def of(
        cls, triples: Tensor, num_samples: int, num_annotators: int, num_classes: int
    ) -> "GivenLabels":
        """Labels in any order: the sample, annotator and class of each. Shape (labels, 3)."""
        samples, annotators, classes = triples[triples[:, 0].argsort(stable=True)].T.contiguous()
        return cls(samples, annotators, classes, num_samples, num_annotators, num_classes)

    def __len__(self) -> int:
        return len(self.samples)

    def of_samples(self, rows: slice) -> slice:
        """Where the labels of some consecutive samples are."""
        ends = torch.tensor([rows.start, rows.stop])
        first, last = torch.searchsorted(self.samples, ends).tolist()
        return slice(first, last)

    def only(self, chosen: Tensor) -> "GivenLabels":
        """The labels of some samples, by their numbers, ascending; these are numbered anew."""
        kept = torch.isin(self.samples, chosen)
        return replace(
            self,
            samples=torch.searchsorted(chosen, self.samples[kept]),
            annotators=self.annotators[kept],
            classes=self.classes[kept],
            num_samples=len(chosen),
        )

    def blocks(self) -> Iterator[slice]:
        """All samples, as many at a time as have about NUMBERS_PER_BLOCK numbers."""
        labels = -(-len(self) // max(1, self.num_samples))
        numbers = max(self.num_classes, NUMBERS_PER_LABEL * labels)
        return row_ranges(self.num_samples, max(1, NUMBERS_PER_BLOCK // numbers))

    def per_sample(self) -> Tensor:
        """Number of labels of each sample. Shape (samples,)."""
        return self.samples.bincount(minlength=self.num_samples)

    def per_annotator(self) -> Tensor:
        """Number of labels of each annotator. Shape (annotators,)."""
        return self.annotators.bincount(minlength=self.num_annotators)

    def votes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each sample and class that a label names, the number of labels that do, and which ones.

        Sample times classes plus class, ascending, and the number, of shape (pairs,); the pair of
        each label, of shape (labels,).
        """
        places = self.samples * self.num_classes + self.classes
        places, pairs, votes = places.unique(return_inverse=True, return_counts=True)
        return places, votes, pairs


def majority(labels: GivenLabels, otherwise: Tensor) -> Tensor:
    """The class that most labels of a sample name, or `otherwise` where none does. (samples,).

    Of several that are named as often, `otherwise` where it is among them, else the first.
    """
    places, votes, _ = labels.votes()
    samples, classes = places // labels.num_classes, places % labels.num_classes
    most = torch.zeros(labels.num_samples, dtype=votes.dtype)
    most = most.scatter_reduce(0, samples, votes, "amax")
    winning = votes == most[samples]
    samples, classes = samples[winning].flip(0), classes[winning].flip(0)
    result = otherwise.clone()
    # From the last to the first, which is written over the others.
    for chosen in (torch.ones_like(samples, dtype=torch.bool), classes == otherwise[samples]):
        result = _written(result, samples[chosen], classes[chosen])
    return result


def _written(values: Tensor, places: Tensor, new: Tensor) -> Tensor:
    """Values with new ones in some places; of several for a place, the last one counts."""
    changed = values.numpy().copy()
    changed[places.numpy()] = new.numpy()  # in order, which scatter does not promise
    return torch.from_numpy(changed)


def sample_agreement(labels: GivenLabels) -> Tensor:
    """Share of the pairs of labels of each sample that agree, as in Fleiss' kappa.

    Float64, shape (samples,); NaN where there are fewer than two labels.
    """
    places, votes, _ = labels.votes()
    agreeing = torch.zeros(labels.num_samples, dtype=torch.float64)
    agreeing.index_add_(0, places // labels.num_classes, (votes * (votes - 1)).double())
    number = labels.per_sample()
    return agreeing / (number * (number - 1))


def agreement_with_others(labels: GivenLabels) -> Tensor:
    """Share of the labels of others of the same samples that say the same as each annotator.

    Float64, shape (annotators,); NaN for one whose samples have no other label.
    """
    _, votes, pairs = labels.votes()
    others = labels.per_sample()[labels.samples] - 1
    agreeing = votes[pairs] - 1
    sums = [
        torch.zeros(labels.num_annotators).double().index_add_(0, labels.annotators, each.double())
        for each in (agreeing, others)
    ]
    return sums[0] / sums[1]


def krippendorff_alpha(labels: GivenLabels) -> float:
    """Krippendorff's alpha of nominal labels: 1 is agreement, 0 what chance would give.

    From the numbers of labels of each sample and class, so that the memory grows with the labels
    and not with samples times annotators. NaN where no sample has two labels, or all name one
    class.
    """
    places, votes, _ = labels.votes()
    of_sample = labels.per_sample()[places // labels.num_classes]
    paired = of_sample >= TWO
    places, votes, of_sample = places[paired], votes[paired].double(), of_sample[paired]
    number = float(votes.sum())
    if not number:
        return float("nan")
    of_class = torch.bincount(places % labels.num_classes, votes)
    disagreeing = float((votes * (of_sample - votes) / (of_sample - 1)).sum())
    by_chance = (number**2 - float(of_class.square().sum())) / (number - 1)
    return 1 - disagreeing / by_chance if by_chance else float("nan")


@dataclass(frozen=True)
class ErrorRates:
    """Share of wrong labels of each annotator with its 95 % interval. Each (annotators,)."""

    rate: Tensor
    low: Tensor
    high: Tensor


def error_rates(labels: GivenLabels, wrong: Tensor, spread: float) -> ErrorRates:
    """Error rates of annotators, drawn to that of all as far as these resemble each other.

    All annotators together stand for as many labels of each as have the same variance: a beta
    distribution, of which the mean and the quantiles are taken. It is as sure of the probabilities
    as they are.

    Args:
        labels: Labels of all.
        wrong: Probability that each one is wrong. Shape (labels,).
        spread: Standard deviation of annotators in the logit of their error rate.
    """
    number = labels.per_annotator().double()
    of_each = torch.zeros_like(number).index_add_(0, labels.annotators, wrong)
    mean = wrong.mean().clamp(1e-6, 1 - 1e-6)
    before = (1 / (spread**2 * mean * (1 - mean)) - 1).clamp(min=FEWEST_BEFORE)
    first = of_each + before * mean
    second = number - of_each + before * (1 - mean)
    low, high = (
        torch.from_numpy(scipy.special.betaincinv(first.numpy(), second.numpy(), end))
        for end in INTERVAL
    )
    return ErrorRates(first / (first + second), low, high)
