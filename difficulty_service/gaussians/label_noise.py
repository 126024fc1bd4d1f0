"""How many labels are wrong, which ones, and how probable each class is, by the labels alone.

A label that differs from the class a sample looks like may be wrong, or the sample may be between
two classes. Which it is depends on how sure the classes are, how many labels are wrong, and which
classes are labelled as which; all of it is chosen by maximum likelihood. `docs/suspicion.md` has
the derivation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from difficulty_service.gaussians.label_shares import (
    ENDS_OF_WRONG,
    Explained,
    Shares,
    by_chance_before,
    interval,
    likeliest_shares,
)
from difficulty_service.gaussians.products import Workspace, argmax, logsumexp, row_ranges


@dataclass(frozen=True)
class LabelVerdict:
    """What is thought of the labels of some samples. Each of shape (samples,).

    Attributes:
        suspicion: Log-odds that the label is wrong, float64; NaN where there is no other class or
            none without the sample.
        suggested: Likeliest class other than the label.
    """

    suspicion: Tensor
    suggested: Tensor


def add_label_sums(log_joint: Tensor, labels: Tensor, total: Tensor) -> None:
    """Adds the probabilities of the classes of samples to sums by their given label, (samples,).

    `log_joint` is the log-density plus log-prior of each class, (samples, classes); samples with
    NaN do not count. The total, (classes, classes), has rows for given labels and columns for
    likely classes.
    """
    known = ~log_joint.gather(1, labels[:, None])[:, 0].isnan()
    total.index_add_(0, labels[known], log_joint[known].softmax(dim=1).to(total.dtype))


SHARPNESS_OF_SUMS = 2.0
"""Factor on the scale of the classes in the sums for `fit_noise`, in which samples between two
classes would else hide those that are labelled as another one."""

SAMPLES_BEFORE = 50.0
"""Samples of each class that are taken to have another label as often as all samples have."""


def relative_rates(sums: Tensor) -> Tensor:
    """How much more often samples of each class have another label than all have, (classes,).

    The sums are from `add_label_sums`. The mean of the samples is 1.
    """
    totals = sums.sum(dim=0)
    others = totals - sums.diagonal()
    if not others.sum() > 0:
        return torch.ones_like(totals)
    rates = (others + SAMPLES_BEFORE * others.sum() / totals.sum()) / (totals + SAMPLES_BEFORE)
    return rates * (totals.sum() / (rates * totals).sum())


LOG_SCALES = tuple(step / 4 for step in range(-4, 10))
"""Natural logarithms of the scales to try, as multiples of the one without wrong labels."""

ACCURACY_OF_SCALE = 1e-7
"""Of that logarithm."""

VALUES_IN_CACHE = 1 << 15
"""Approximate number of values of classes, in float64, that are worked on at a time."""


@dataclass(frozen=True)
class LabelNoise:
    """How labels come about: most are right, some name any class, some follow what was seen.

    Which labels samples of each class have was seen in `sums`. A label that some uncertainty about
    the class explains needs no mistake, so the shares are lower estimates where mistakes are made
    on ambiguous samples.

    Attributes:
        scale: Factor on the log-densities at which classes are as certain as labels say.
        wrong: Share of wrong labels.
        wrong_low: Lower end of its 95 % interval, whatever `seen` and the scale are.
        wrong_high: Upper end of it.
        seen: Share of the wrong labels that follow the sums; the others name any class.
        log_prior: As for `fit_noise`.
        sums: From `add_label_sums`, for all samples, with zeros for labels that agree. Shape
            (classes, classes).
        rates: From `relative_rates`: of the labels of a class that follow the sums, this multiple
            of `wrong` is wrong. Shape (classes,).
        sums_scale: Factor on the log-densities in the sums.
        own: Whether each sample to be judged has added 1 to the sums.
    """

    scale: float
    wrong: float
    wrong_low: float
    wrong_high: float
    seen: float
    log_prior: Tensor
    sums: Tensor
    rates: Tensor
    sums_scale: float
    own: bool

    def describe(self) -> dict[str, float]:
        """The numbers that the labels chose."""
        names = ("wrong", "wrong_low", "wrong_high", "seen")
        return {"noise_scale": self.scale} | {
            f"noise_{name}": getattr(self, name) for name in names
        }

    @cached_property
    def any_class(self) -> Tensor:
        """Probability of a given label, the row, if it is wrong by chance. (classes, classes)."""
        return any_class(self.log_prior)

    @cached_property
    def totals(self) -> Tensor:
        """The sums of each class, over the given labels. Shape (classes,)."""
        return self.sums.sum(dim=0)

    @cached_property
    def log_transitions(self) -> Tensor:
        """Log-probability of a given label, the row, where a class, the column, is right.

        No sample is left out. Shape (classes, classes).
        """
        labels = torch.arange(len(self.sums), device=self.sums.device)
        return self._log_transitions(labels, self.sums.new_zeros(1))

    @cached_property
    def _log_transitions_float32(self) -> Tensor:
        return self.log_transitions.float()

    def transitions_of(self, log_densities: Tensor, labels: Tensor, work: Workspace) -> Tensor:
        """`log_transitions` of each sample, (samples, classes), without what it added itself."""
        if not self.own:
            rows = work.like("transitions", log_densities)
            is_float32 = rows.dtype == torch.float32
            of_labels = self._log_transitions_float32 if is_float32 else self.log_transitions
            return torch.index_select(of_labels, 0, labels, out=rows)
        added = _classes_at(self.sums_scale, log_densities.double(), self.log_prior, work)
        return self._log_transitions(labels, added)

    def _log_transitions(self, labels: Tensor, added: Tensor) -> Tensor:
        """Rows for some labels without what was added to their sums. Shape (labels, classes)."""
        by_chance = self.any_class[labels]
        followed = _followed(self.sums[labels], self.totals, self.rates, labels, by_chance, added)
        given = followed.mul_(self.seen).add_(by_chance, alpha=1 - self.seen).mul_(self.wrong)
        given[torch.arange(len(labels), device=labels.device), labels] += 1 - self.wrong
        return given.log_()


def any_class(log_prior: Tensor) -> Tensor:
    """Probability of each given label, the row, among the classes that are not right, the column.

    By how probable classes are before a sample is looked at; zeros on the diagonal. Shape (classes,
    classes).
    """
    prior = log_prior.exp()
    flips = prior[:, None] / (1 - prior).clamp(min=torch.finfo(prior.dtype).tiny)
    return flips.fill_diagonal_(0)


def _classes_at(scale: float, log_densities: Tensor, log_prior: Tensor, work: Workspace) -> Tensor:
    """Probability of each class at each sample, before its label is read. (samples, classes).

    In memory that the next call overwrites.
    """
    joint = torch.mul(log_densities, scale, out=work.like("joint of classes", log_densities))
    classes = work.like("classes", log_densities)
    return torch.softmax(joint.add_(log_prior), dim=1, out=classes)


def _followed(
    sums: Tensor, totals: Tensor, rates: Tensor, labels: Tensor, by_chance: Tensor, added: Tensor
) -> Tensor:
    """Probability of the given labels where classes are right and labels follow the sums.

    One more sample of each class has a label by chance. Each of shape (samples, classes), but the
    totals and rates of the classes, (classes,), and the labels, (samples,); `added` is what a
    sample added to its sums and to the totals. It is negative for the label itself where that class
    has more than the average of wrong ones.
    """
    seen = (sums - added).clamp_(min=0).add_(by_chance)
    seen.mul_(rates).div_((totals - added).clamp_(min=0).add_(1))
    return seen.scatter_(1, labels[:, None], 1 - rates[labels][:, None])


def fit_noise(  # noqa: PLR0913 - the labels, what is known of them, and their sums
    log_densities: Tensor,
    log_prior: Tensor,
    labels: Tensor,
    sums: Tensor,
    counted: Tensor,
    scale: float,
    *,
    verified: Tensor | None = None,
) -> LabelNoise | None:
    """The scale and the shares under which the labels of some samples are most probable.

    The scale is searched for; at each one, the shares of a mixture are climbed to by their slopes.
    Where a person has verified the class of a sample, that class explains the label, or nothing
    does. Which samples are looked at may depend on features and labels, as that of the most doubted
    ones does: the shares are those of all labels all the same.

    Args:
        log_densities: Of each class at each sample, left out of the fit; samples with NaN do not
            count. Float64, shape (samples, classes).
        log_prior: Logarithm of the prior of each class. Shape (classes,).
        labels: Place of the class of each label, as it was given. Shape (samples,).
        sums: From `add_label_sums`, for all samples, at SHARPNESS_OF_SUMS times the scale. Shape
            (classes, classes).
        counted: How often each sample counts in the sums; 0 for one that they are not over. Shape
            (samples,).
        scale: Factor on the log-densities at which labels are likeliest if none is wrong; the
            search is around it.
        verified: Place of the class that each sample has for sure, -1 where nobody has looked; None
            for no such samples. Shape (samples,).

    Returns:
        None where no sample has a density or no class another one.
    """
    known = ~log_densities.isnan().any(dim=1)
    num_classes = int(log_prior.isfinite().sum())
    if not known.any() or num_classes < 2:  # noqa: PLR2004 - one and another
        return None
    log_densities, labels, counted = log_densities[known], labels[known], counted[known]
    impossible = _impossible(None if verified is None else verified[known], len(log_prior))
    rates = relative_rates(sums)
    sums = sums.clone().fill_diagonal_(0)
    sums_scale = SHARPNESS_OF_SUMS * scale
    by_chance = any_class(log_prior)[labels]
    added = _classes_at(sums_scale, log_densities, log_prior, Workspace()).mul_(counted[:, None])
    followed = _followed(sums[labels], sums.sum(dim=0), rates, labels, by_chance, added)

    labelled = _Labelled(
        log_densities,
        log_prior,
        labels,
        (by_chance, followed),
        impossible,
        by_chance_before=by_chance_before(num_classes),
        most_wrong=ENDS_OF_WRONG[1] / max(1.0, float(rates.max())),
    )
    tried = [math.log(scale) + step for step in LOG_SCALES]
    fits = {each: labelled.fit(each) for each in tried}

    def likelihood(log_scale: float) -> float:
        return fits[log_scale][1].log_likelihood

    best = max(tried, key=likelihood)
    place = tried.index(best)
    ends = tried[max(place - 1, 0)], tried[min(place + 1, len(tried) - 1)]
    peak = _peak(labelled.slope, ends)
    fits[peak] = labelled.fit(peak)
    # The peak may be one where nothing is wrong, and lower than that where much is.
    best = max(best, peak, key=likelihood)
    found = fits[best][1]
    low, high = interval([*fits.values()])
    return LabelNoise(
        scale=math.exp(best),
        wrong=found.wrong,
        wrong_low=low,
        wrong_high=high,
        seen=found.seen,
        log_prior=log_prior,
        sums=sums,
        rates=rates,
        sums_scale=sums_scale,
        own=bool((counted == 1).all()),
    )


@dataclass(frozen=True)
class _Labelled:
    """Samples with the labels that were given, of which `fit_noise` explains each.

    Attributes:
        flips: Probability of the labels where they are wrong by chance, and by what was seen. Each
            of shape (samples, classes).
        impossible: From `_impossible`.
        by_chance_before: As for `Explained`.
        most_wrong: As for `Explained`.
    """

    log_densities: Tensor
    log_prior: Tensor
    labels: Tensor
    flips: tuple[Tensor, Tensor]
    impossible: Tensor | None
    by_chance_before: float
    most_wrong: float

    def fit(self, log_scale: float) -> tuple[Explained, Shares]:
        """Labels, explained at a scale, and the likeliest shares."""
        sums = self._sums(log_scale, lambda classes, _: classes)
        sums[:2].clamp_(min=torch.finfo(sums.dtype).tiny)
        labels = Explained(sums.numpy(), self.by_chance_before, self.most_wrong)
        return labels, likeliest_shares(labels)

    def slope(self, log_scale: float) -> float:
        """Derivative of the log-likelihood by the logarithm of the scale.

        The shares are the likeliest ones, so that their own change changes nothing.
        """
        scale = math.exp(log_scale)

        def change_of(classes: Tensor, log_densities: Tensor) -> Tensor:
            moved = scale * (classes * log_densities).masked_fill_(classes == 0, 0)
            return moved - classes * moved.sum(dim=1, keepdim=True)

        labels, shares = self.fit(log_scale)
        changes = self._sums(log_scale, change_of).numpy()
        wrong, seen = shares.wrong, shares.seen
        weights = np.array([1 - wrong, wrong * (1 - seen), wrong * seen])[:, None]
        return float(
            ((weights * changes).sum(axis=0) / (weights * labels.probabilities).sum(axis=0)).sum()
        )

    def _sums(self, log_scale: float, value_of: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Sums over values of classes by each explanation of the labels. Shape (3, samples).

        The values are a function of the probabilities of the classes and of their log-densities, of
        some samples at a time, which fit into a core's cache.
        """
        scale, work = math.exp(log_scale), Workspace()
        sums = self.log_densities.new_empty(3, len(self.labels))
        for rows in row_ranges(len(self.labels), max(1, VALUES_IN_CACHE // len(self.log_prior))):
            densities = self.log_densities[rows]
            classes = _classes_at(scale, densities, self.log_prior, work)
            values = value_of(classes, densities)
            if self.impossible is not None:
                values = values.masked_fill(self.impossible[rows], 0)
            sums[0, rows] = values.gather(1, self.labels[rows, None])[:, 0]
            for total, flips in zip(sums[1:], self.flips, strict=True):
                weighted = torch.mul(values, flips[rows], out=work.like("weighted", values))
                torch.sum(weighted, dim=1, out=total[rows])
        return sums


def _peak(slope: Callable[[float], float], ends: tuple[float, float]) -> float:
    """Where a slope falls through zero between two ends; the end to which it rises all the way."""
    low, high = slope(ends[0]), slope(ends[1])
    if low <= 0 or high >= 0:
        return ends[0] if low <= 0 else ends[1]
    return float(scipy.optimize.brentq(slope, *ends, xtol=ACCURACY_OF_SCALE))


def _impossible(verified: Tensor | None, classes: int) -> Tensor | None:
    """Which classes samples do not have for sure, (samples, classes); None where nobody knows."""
    if verified is None or not (verified >= 0).any():
        return None
    return (verified >= 0)[:, None] & (torch.arange(classes) != verified[:, None])


def judge_labels(
    log_joint: Tensor, labels: Tensor, transitions: Tensor | None = None
) -> LabelVerdict:
    """Log-odds of all other classes together against the label; overwrites `log_joint`.

    That and the labels are as for `add_label_sums`. The transitions, of each sample, are from
    `LabelNoise`; None where every class is as likely to be given any label.
    """
    posterior = log_joint if transitions is None else log_joint.add_(transitions)
    place = labels[:, None]
    own = posterior.gather(1, place)[:, 0].double()
    posterior.scatter_(1, place, -torch.inf)
    suggested = argmax(posterior)
    largest = posterior.gather(1, suggested[:, None])[:, 0]
    suspicion = logsumexp(posterior, largest).double() - own
    return LabelVerdict(torch.where(suspicion.isfinite(), suspicion, torch.nan), suggested)


LIKELIEST = 3
"""Number of classes that are named for each sample."""


def likeliest_classes(log_joint: Tensor) -> tuple[Tensor, Tensor]:
    """The classes that fit samples best, whatever their labels are, and how probable they are.

    `log_joint` is as for `add_label_sums` and is the same afterwards. Both of shape (samples,
    LIKELIEST), the likeliest first; the probabilities are float64, and NaN where the sample has no
    density or the class is none.
    """
    best, found = [], []
    for _ in range(LIKELIEST):
        place = argmax(log_joint)[:, None]
        best.append(place)
        found.append(log_joint.gather(1, place))
        log_joint.scatter_(1, place, -torch.inf)
    # Where there are fewer classes, one is found again, after its value was taken.
    for place, value in reversed([*zip(best, found, strict=True)]):
        log_joint.scatter_(1, place, value)
    total = logsumexp(log_joint.clone(), found[0][:, 0]).double()[:, None]
    log_p = (torch.cat(found, dim=1).double() - total).clamp(max=0)  # rounding may exceed 0
    return torch.cat(best, dim=1), log_p.exp().where(log_p.isfinite(), torch.nan)


PSEUDO_COUNTS = (*(10.0 ** (half / 2) for half in range(-2, 13)), math.inf)
"""Samples that may be added to each class, from 0.1 to a million; inf for equal shares."""

FEWEST = 2
"""Samples of a class with which another one can be compared."""


def log_class_prior(counts: Tensor) -> Tensor:
    """Logarithm of the probability of each class, with the likeliest of PSEUDO_COUNTS.

    The share of a class among few labels is mostly chance, and wrong labels enlarge the class that
    they name, so that the wrong ones look right. So shares are drawn towards equal ones, as far as
    the numbers of labels themselves say that they should be.

    Every label is predicted from the numbers of the other ones, n_k, as (n_k + c) / (n + K c); the
    number c at which the labels are most probable is taken. Where classes are about equally large
    by chance, that is inf; where they differ for sure, it is too small to matter. In nats, float64,
    shape (classes,); minus infinity for a class of fewer than FEWEST samples, which nothing can be
    said to look like, unless all are. The exponentials sum to 1.
    """
    present = counts >= FEWEST
    if not present.any():
        present = counts > 0
    prior = torch.full(counts.shape, -torch.inf, dtype=torch.float64)
    counts = counts[present].double()
    best = max(reversed(PSEUDO_COUNTS), key=lambda added: _evidence(counts, added))
    prior[present] = _smoothed(counts, best)
    return prior


def _smoothed(counts: Tensor, added: float) -> Tensor:
    if math.isinf(added):
        return torch.full_like(counts, -math.log(len(counts)))
    return ((counts + added) / (counts.sum() + len(counts) * added)).log()


def _evidence(counts: Tensor, added: float) -> float:
    """Log-probability of all labels, each predicted from the others, in nats."""
    if math.isinf(added):
        return -float(counts.sum()) * math.log(len(counts))
    others = float(counts.sum()) - 1
    return float(counts @ ((counts - 1 + added) / (others + len(counts) * added)).log())
