"""Which class each sample has, by its features and by the labels of several annotators together.

The model of Dawid and Skene (1979) with the features as one more witness: given the class, the
features and the labels are independent, but for how hard the sample is. A label is wrong with a
probability whose logit adds up what is usual, the annotator, how ambiguous the features are, and a
difficulty of the sample that all its labels share, because annotators who see the same picture err
together. Annotators and samples are random effects, so that few labels tell little. What a wrong
label names is learned from all labels. `docs/annotators.md` has the derivation.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.analyses.annotators.given_labels import GivenLabels
from difficulty_service.gaussians.label_noise import any_class
from difficulty_service.gaussians.products import one_thread_per_product
from difficulty_service.scoring.class_evidence import ClassEvidence

NODES = 7
"""Difficulties over which that of a sample is integrated, by the rule of Gauss and Hermite."""

USUAL_WRONG, USUAL_SPREAD = -2.0, 2.0
"""Logit of the share of wrong labels before any is seen (12 %), and its standard deviation."""

WRONG_BEFORE = 10.0
"""Wrong labels by chance that are known besides of each class. Else a pair of classes of its own
could explain each strange label of few."""

SPREAD_BEFORE = 0.5
"""Standard deviation of annotators, of whom one is known besides the given ones."""

SHARPNESS_SPREAD = 0.5
"""Standard deviation of the logarithm of the sharpness before any verified class is seen."""

LOG_SHARPNESS = (-3.0, 1.0)
"""Logarithms of the powers to look between."""

LEAST = -50.0
"""Smallest log-probability of a verified class that counts."""

LARGEST_STEP = 0.5
"""How far the logarithm of the scale may move at a time."""

SCALE_SAMPLES = 5_000
"""Approximate number of samples by which the scale is chosen."""

MOST_STEPS = 50
SMALLEST_GAIN = 1e-6
"""Gain of the mean log-likelihood of a label, in nats, below which nothing more is fitted."""

CANDIDATES = 5
"""Likeliest classes that one more label is imagined to name."""


@dataclass(frozen=True)
class AnnotatorModel:
    """How the labels of annotators come about; made by `fit_annotators`.

    Attributes:
        scale: Factor on the log-densities at which features are as certain as labels say.
        usual: Logit of the probability that a label of a usual annotator is wrong, at a sample of
            usual difficulty whose features are certain.
        deviations: What is added for each annotator. Shape (annotators,).
        spread: Their standard deviation.
        ambiguity: What is added for each nat of entropy of the features.
        difficulty: Standard deviation of what is added for each sample.
        named: Probability that a wrong label names a class, the column, where another one, the
            row, is right; zeros on the diagonal. Shape (classes, classes).
        log_prior: Logarithm of the prior of each class. Shape (classes,).
        sharpness: Power of the probabilities of the classes, below 1 where they claimed too much.
        likelihood: Mean log-probability of a label, in nats.
    """

    scale: float
    usual: float
    deviations: Tensor
    spread: float
    ambiguity: float
    difficulty: float
    named: Tensor
    log_prior: Tensor
    sharpness: float = 1.0
    likelihood: float = -torch.inf


@dataclass(frozen=True)
class JudgedRows:
    """What the features and all labels say of some samples.

    Attributes:
        features: Log-probability of each class by the features alone. Shape (rows, classes).
        posterior: Probability of each class by features and labels. Shape (rows, classes).
        gain: How much more probable it becomes, on average over what one more label of a usual
            annotator may be, that the likeliest class is right. Shape (rows,).
    """

    rows: slice
    features: Tensor
    posterior: Tensor
    gain: Tensor


@one_thread_per_product()
def fit_annotators(
    evidence: ClassEvidence,
    log_prior: Tensor,
    labels: GivenLabels,
    scale: float,
    verified: Tensor | None = None,
) -> AnnotatorModel:
    """The model under which labels are most probable, by expectation and maximisation.

    Args:
        evidence: Log-densities of the classes.
        log_prior: As for `AnnotatorModel`, with at least two classes that are not impossible.
        labels: At least one label.
        scale: Factor on the log-densities to begin with.
        verified: Class that each sample has for sure, -1 where that is not known; None for no
            such samples. Shape (samples,).
    """
    chance = any_class(log_prior).T.contiguous()
    known = torch.full((labels.num_samples,), -1) if verified is None else verified
    model = AnnotatorModel(
        scale=scale,
        usual=USUAL_WRONG,
        deviations=torch.zeros(labels.num_annotators, dtype=torch.float64),
        spread=SPREAD_BEFORE,
        ambiguity=0.0,
        difficulty=1.0,
        named=chance,
        log_prior=log_prior,
    )
    labelled = labels.samples.unique()
    some = _SomeSamples.read(
        evidence, labels, known, labelled[:: math.ceil(len(labelled) / SCALE_SAMPLES)].contiguous()
    )
    for _ in range(MOST_STEPS):
        named = WRONG_BEFORE * chance
        named_classes = []
        for rows in labels.blocks():
            block = _block(evidence(rows), rows, labels, model).knowing(known[rows])
            posterior = block.joint(model).softmax(dim=1)
            named.T.index_add_(0, block.classes, posterior[block.samples])
            named_classes.append(_NamedClasses.of(block))
        named.fill_diagonal_(0).div_(named.sum(dim=1, keepdim=True).clamp(min=TINY))
        before = model.likelihood
        model = replace(_maximise(model, named_classes, labels), named=named)
        model = replace(model, scale=some.likeliest_scale(model))
        if abs(model.likelihood - before) < SMALLEST_GAIN:
            break
    sure = (known >= 0).nonzero().flatten()
    if not len(sure):
        return model
    checked = _SomeSamples.read(evidence, labels, known, sure)
    return replace(model, sharpness=checked.likeliest_sharpness(model))


def judge_samples(
    evidence: ClassEvidence, labels: GivenLabels, model: AnnotatorModel
) -> Iterator[JudgedRows]:
    """What the features and all labels say of every sample, some at a time, in order."""
    for rows in labels.blocks():
        block = _block(evidence(rows), rows, labels, model)
        posterior = (model.sharpness * block.joint(model)).softmax(dim=1)
        gain = _gain(block, posterior, model)
        yield JudgedRows(rows, block.log_features, posterior, gain)


def _gain(block: "_Block", posterior: Tensor, model: AnnotatorModel) -> Tensor:
    """As in `JudgedRows`; only labels that name one of the likeliest classes change anything."""
    best = posterior.topk(min(CANDIDATES, posterior.shape[1]), dim=1)
    places = best.indices
    # How hard the sample is, if the class is right. Shape (rows, candidates, nodes).
    difficulty = block.by_difficulty(places, model).softmax(dim=2)
    likely = best.values[:, :, None] * difficulty
    usual = (model.usual + model.ambiguity * block.entropy)[:, None]
    wrong = (usual + _difficulties(model)).sigmoid()[:, None]
    named = model.named[places[:, :, None], places[:, None, :]]
    together = (likely * wrong).sum(dim=2)[:, :, None] * named
    together = together + torch.diag_embed((likely * (1 - wrong)).sum(dim=2))
    changed = together.amax(dim=1) - together[:, 0]  # for each class that the label may name
    return changed.sum(dim=1).clamp(min=0)


def _difficulties(model: AnnotatorModel) -> Tensor:
    """What each node of the integral adds to the logit of a wrong label. Shape (nodes,)."""
    return model.difficulty * RULE[0]


def _quadrature() -> tuple[Tensor, Tensor]:
    """Nodes of an integral over the standard normal distribution, and logarithms of weights."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum()).log()


RULE = _quadrature()
TINY = torch.finfo(torch.float64).tiny

IMPOSSIBLE = -1e30
"""Log-probability of what cannot be, where the slope of minus infinity would be undefined."""


@dataclass(frozen=True)
class _Block:
    """Some consecutive samples with their labels.

    Attributes:
        log_features: Log-probability of each class by the features. Shape (rows, classes).
        entropy: Of these probabilities, in nats. Shape (rows,).
        samples: Row of each label. Shape (labels,), as of the two that follow.
        named: Log-probability of what the labels of a sample name, given the class, if those that
            name another class are wrong. Shape (rows, classes).
        places: Row times classes plus class of each pair of both that a label names, ascending.
            Shape (pairs,).
        pairs: Number of the pair of each label. Shape (labels,).
    """

    log_features: Tensor
    entropy: Tensor
    samples: Tensor
    annotators: Tensor
    classes: Tensor
    named: Tensor
    places: Tensor
    pairs: Tensor

    def knowing(self, verified: Tensor) -> "_Block":
        """The same where some samples have a class for sure, as for `fit_annotators`."""
        classes = torch.arange(self.log_features.shape[1])
        impossible = (verified >= 0)[:, None] & (classes != verified[:, None])
        return replace(self, log_features=self.log_features.masked_fill(impossible, -torch.inf))

    def logits(self, model: AnnotatorModel) -> Tensor:
        """Logit of the probability that each label is wrong. Shape (labels, nodes)."""
        usual = model.usual + model.ambiguity * self.entropy[self.samples]
        return (usual + model.deviations[self.annotators])[:, None] + _difficulties(model)

    def all_wrong(self, logits: Tensor) -> Tensor:
        """Log-probability of each difficulty and that all labels are wrong. (rows, nodes)."""
        total = RULE[1].expand(len(self.entropy), -1).clone()
        return total.index_add_(0, self.samples, F.logsigmoid(logits))

    def of_pairs(self, logits: Tensor) -> Tensor:
        """Sums over the labels of each pair, and zeros last. Shape (pairs + 1, nodes)."""
        sums = torch.zeros(len(self.places) + 1, NODES, dtype=torch.float64)
        return sums.index_add_(0, self.pairs, logits)

    def joint(self, model: AnnotatorModel) -> Tensor:
        """Log-probability of each class and the labels. Shape (rows, classes)."""
        logits = self.logits(model)
        wrong = self.all_wrong(logits)
        joint = self.log_features + self.named
        rows = self.places // joint.shape[1]
        # Labels that name the class are right: log(1 - p) - log(p) is minus the logit of p.
        right = (wrong[rows] - self.of_pairs(logits)[:-1]).logsumexp(dim=1)
        pairs = joint.view(-1)[self.places] + right
        joint += wrong.logsumexp(dim=1, keepdim=True)
        joint.view(-1)[self.places] = pairs
        return joint

    def by_difficulty(self, classes: Tensor, model: AnnotatorModel) -> Tensor:
        """Log-probability of each difficulty and the labels, given some classes of each sample.

        Up to a constant for each class. Shape (rows, some classes, nodes), of `classes` (rows, some
        classes).
        """
        logits = self.logits(model)
        rows = torch.arange(len(classes))[:, None]
        place = rows * self.log_features.shape[1] + classes
        pair = torch.searchsorted(self.places, place)
        last = len(self.places)
        is_named = torch.zeros_like(place, dtype=torch.bool)
        if last:
            is_named = self.places[pair.clamp(max=last - 1)] == place
        sums = self.of_pairs(logits)[torch.where(is_named, pair, last)]
        return self.all_wrong(logits)[:, None] - sums


def _block(
    log_densities: Tensor, rows: slice, labels: GivenLabels, model: AnnotatorModel
) -> _Block:
    chosen = labels.of_samples(rows)
    samples, classes = labels.samples[chosen] - rows.start, labels.classes[chosen]
    joint = model.scale * log_densities.double() + model.log_prior
    unknown = joint.isnan().any(dim=1, keepdim=True)
    log_features = torch.where(unknown, model.log_prior, joint).log_softmax(dim=1)
    # A class that is never confused with another one is not impossible to be.
    log_named = model.named.clamp(min=TINY).log().fill_diagonal_(0)
    named = torch.zeros_like(log_features).index_add_(0, samples, log_named.T[classes])
    places, pairs = (samples * labels.num_classes + classes).unique(return_inverse=True)
    entropy = torch.special.entr(log_features.exp()).sum(dim=1)
    annotators = labels.annotators[chosen]
    return _Block(log_features, entropy, samples, annotators, classes, named, places, pairs)


@dataclass(frozen=True)
class _NamedClasses:
    """What error rates are fitted to: the classes that labels of some samples name.

    Attributes:
        others: Log-probability that none of these classes is right, and of what labels name.
            Shape (rows,).
        weights: Log-probability that each of these classes is right, and of what labels of others
            name; IMPOSSIBLE in places that are left. Shape (rows, most classes of a sample).
        places: Row and place in it of each label, as one number. Shape (labels,).
    """

    entropy: Tensor
    samples: Tensor
    annotators: Tensor
    others: Tensor
    weights: Tensor
    places: Tensor

    @classmethod
    def of(cls, block: _Block) -> "_NamedClasses":
        """Those of a block."""
        weights = block.log_features + block.named
        rows, classes = weights.shape
        row_of_pair = block.places // classes
        number = row_of_pair.bincount(minlength=rows)
        first = number.cumsum(0) - number
        most = max(1, int(number.max()))
        place = row_of_pair * most + torch.arange(len(row_of_pair)) - first[row_of_pair]
        named = torch.full((rows, most), -torch.inf, dtype=torch.float64)
        named.view(-1)[place] = weights.view(-1)[block.places]
        weights.view(-1)[block.places] = -torch.inf
        return cls(
            block.entropy,
            block.samples,
            block.annotators,
            weights.logsumexp(dim=1).clamp(min=IMPOSSIBLE),
            named.clamp(min=IMPOSSIBLE),
            place[block.pairs],
        )

    def log_likelihood(self, parameters: Tensor) -> Tensor:
        """Of the labels, a scalar, under parameters in the order of `_maximise`."""
        usual, ambiguity, difficulty = parameters[:SHARED]
        logits = usual + ambiguity * self.entropy[self.samples]
        logits = (logits + parameters[SHARED:][self.annotators])[:, None] + difficulty * RULE[0]
        rows, most = self.weights.shape
        wrong = torch.zeros(rows, NODES, dtype=torch.float64)
        wrong = wrong.index_add(0, self.samples, F.logsigmoid(logits)) + RULE[1]
        right = torch.zeros(rows * most, NODES, dtype=torch.float64)
        right = right.index_add(0, self.places, -logits).view(rows, most, NODES)
        named = (self.weights[:, :, None] + right).logsumexp(dim=1)
        either = torch.logaddexp(self.others[:, None], named)
        return (either + wrong).logsumexp(dim=1).sum()


SHARED = 3
"""Number of parameters before those of the annotators: usual, ambiguity and difficulty."""


def _maximise(
    model: AnnotatorModel, blocks: list[_NamedClasses], labels: GivenLabels
) -> AnnotatorModel:
    """The likeliest error rates, given what wrong labels name."""

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        parameters = torch.from_numpy(values).requires_grad_()
        usual, *scales = (
            (parameters[0] - USUAL_WRONG) / USUAL_SPREAD,
            *parameters[1:SHARED],
            parameters[SHARED:] / model.spread,
        )
        terms = [each.square().sum() / 2 for each in (usual, *scales)]
        losses = [torch.stack(terms).sum(), *(-each.log_likelihood(parameters) for each in blocks)]
        total = 0.0
        for each in losses:
            (each / len(labels)).backward()
            total += float(each.detach()) / len(labels)
        assert parameters.grad is not None  # noqa: S101 - the prior depends on all of them
        return total, parameters.grad.numpy()

    start = np.array([model.usual, model.ambiguity, model.difficulty, *model.deviations.tolist()])
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", tol=1e-9)
    usual, ambiguity, difficulty = found.x[:SHARED].tolist()
    deviations = torch.from_numpy(found.x[SHARED:].copy())
    number = labels.per_annotator()
    rate = (usual + deviations).sigmoid()
    unknown = 1 / (number * rate * (1 - rate) + model.spread**-2)
    total = float((deviations.square() + unknown).sum()) + SPREAD_BEFORE**2
    return replace(
        model,
        usual=usual,
        deviations=deviations,
        spread=(total / (labels.num_annotators + 1)) ** 0.5,
        ambiguity=ambiguity,
        difficulty=abs(difficulty),
        likelihood=-float(found.fun),
    )


@dataclass(frozen=True)
class _SomeSamples:
    """Some samples that are held in memory: their log-densities, labels and known classes."""

    log_densities: Tensor
    labels: GivenLabels
    known: Tensor

    @classmethod
    def read(
        cls, evidence: ClassEvidence, labels: GivenLabels, known: Tensor, chosen: Tensor
    ) -> "_SomeSamples":
        """Samples by their numbers, ascending."""
        rows = [evidence(slice(row, row + 1)) for row in chosen.tolist()]
        return cls(torch.cat(rows), labels.only(chosen), known[chosen])

    def blocks(self, model: AnnotatorModel) -> Iterator[tuple[Tensor, _Block]]:
        """A few samples at a time: the classes that they have for sure, and what else is known."""
        for rows in self.labels.blocks():
            yield self.known[rows], _block(self.log_densities[rows], rows, self.labels, model)

    def likeliest_scale(self, model: AnnotatorModel) -> float:
        """The scale of the log-densities under which the labels are likeliest."""

        def loss(log_scale: float) -> float:
            tried = replace(model, scale=math.exp(log_scale))
            return -sum(
                float(block.knowing(known).joint(tried).logsumexp(dim=1).sum())
                for known, block in self.blocks(tried)
            )

        middle = math.log(model.scale)
        found = scipy.optimize.minimize_scalar(
            loss,
            bounds=(middle - LARGEST_STEP, middle + LARGEST_STEP),
            method="bounded",
            options={"xatol": 1e-3},
        )
        return math.exp(found.x)

    def likeliest_sharpness(self, model: AnnotatorModel) -> float:
        """The power of the probabilities under which the known classes are likeliest."""
        joints, classes = [], []
        for known, block in self.blocks(model):
            joints.append(block.joint(model))
            classes.append(known[:, None])
        joint, known = torch.cat(joints), torch.cat(classes)

        def loss(log_power: float) -> float:
            right = (math.exp(log_power) * joint).log_softmax(dim=1).gather(1, known)
            # One that the model holds for impossible counts as a mistake like any other.
            return -float(right.clamp(min=LEAST).sum()) + (log_power / SHARPNESS_SPREAD) ** 2 / 2

        found = scipy.optimize.minimize_scalar(loss, bounds=LOG_SHARPNESS, method="bounded")
        return math.exp(found.x)
