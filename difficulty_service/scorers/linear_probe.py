"""Logits of a logistic regression for each sample, nearly as if it had not been fitted to it.

A multinomial logistic regression on standardised features is fitted once. Each sample is then left
out by one Newton step on each logit, whose Hessian has no products of two classes: the approximate
leave-one-out of Rad and Maleki (2020, J. R. Stat. Soc. B 82, arXiv 1801.10243) for a multinomial
model with a block-diagonal Hessian.
"""

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.gaussians.products import (
    BLOCK_ROWS,
    add_upper_gram,
    exp,
    logsumexp,
    matmul,
    mirror_upper,
    one_thread_per_product,
    row_ranges,
)
from difficulty_service.gaussians.ridge import label_likelihood

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""Weight decays to choose from, the strongest first: each fit starts from the one before."""

PENALTY_OF_BIAS = 1e-6
"""Keeps the Hessian of the bias regular in a class without doubtful samples."""

MOST_STEPS, SMALLEST_GRADIENT, SMALLEST_GAIN = 200, 1e-6, 1e-9
"""Where a fit ends: steps, largest element of the gradient, and relative gain of a step."""

WEIGHT_KEPT = 0.999
"""Share of the weight of each class in the samples whose logit of that class changes."""

LARGEST_LEVERAGE = 0.99
"""Where a sample alone decides a logit, leaving it out would change the logit without end."""

LOGITS_AT_ONCE = 1 << 20
"""Approximate number of logits that a thread computes at a time."""


@one_thread_per_product()
def logits_left_out(features: Tensor, labels: Tensor, num_classes: int, judged: Tensor) -> Tensor:
    """Logits of a logistic regression, approximately without each sample in its fit.

    With the probabilities p of the fit and x a row with a last 1, the logit of class k changes by
    h (p_k - y_k) / (1 - h p_k (1 - p_k)), where h = x' H_k^-1 x and H_k is the sum of
    p_k (1 - p_k) x x' over all samples and the penalty. Samples that the class hardly concerns,
    with a thousandth of the weight of H_k in all, are left out of H_k and keep their logit. The
    penalty, and a factor on all logits, are those under which labels are likeliest.

    The memory is that of the features once more and twice that of the logits. The time grows with
    the samples times the classes times the dimensions, and with the samples times the classes that
    each is undecided between times the square of the dimensions.

    Args:
        features: Shape (samples, dim).
        labels: Class indices from 0, each with a sample. Shape (samples,).
        judged: Numbers of the samples whose labels are to be likely.

    Returns:
        Float32, shape (samples, classes).
    """
    rows = standardise(features)
    path = [np.zeros((rows.shape[1], num_classes))]

    def left_out(place: int) -> tuple[float, Tensor]:
        """Mean log-probability of the labels judged, and the logits, at one of the penalties."""
        for penalty in PENALTIES[len(path) - 1 : place + 1]:
            path.append(fit(rows, labels, penalty, path[-1]))
        logits = leave_out(rows, labels, path[place + 1], PENALTIES[place])
        scale, likelihood = likeliest_scale(logits[judged], labels[judged])
        return likelihood, logits.mul_(scale)

    # From the middle: the strongest penalties leave all samples undecided, which takes long, and
    # fits with the weakest ones hardly come to their end.
    middle = len(PENALTIES) // 2
    likeliest, best = left_out(middle)
    for places in (range(middle - 1, -1, -1), range(middle + 1, len(PENALTIES))):
        before = likeliest
        for place in places:
            likelihood, logits = left_out(place)
            if likelihood <= likeliest:
                break
            likeliest, best = likelihood, logits
        if likeliest > before:
            break
    return best


def likeliest_scale(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Factor on logits under which labels are likeliest, and their mean log-probability then.

    Of shapes (samples, classes) and (samples,), with a sample or more.
    """
    return label_likelihood(-2 * logits, labels, logits.new_zeros(logits.shape[1]))


def standardise(features: Tensor) -> Tensor:
    """Features of mean 0 and variance 1, constant ones 0, and a last column of ones.

    From shape (samples, dim) to float32 of shape (samples, dim + 1).
    """
    mean = features.mean(dim=0, dtype=torch.float64)
    sums = torch.zeros_like(mean)
    for block in row_ranges(len(features), BLOCK_ROWS):
        sums += (features[block] - mean).square_().sum(dim=0)
    deviation = (sums / max(1, len(features))).sqrt()
    varies = deviation > 1e-6 * mean.abs()
    rows = torch.ones(len(features), len(mean) + 1)
    for block in row_ranges(len(features), BLOCK_ROWS):
        rows[block, :-1] = (features[block] - mean).mul_(torch.where(varies, 1 / deviation, 0.0))
    return rows


def fit(
    rows: Tensor, labels: Tensor, penalty: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Parameters of the least mean cross-entropy with a penalty, by L-BFGS from a start.

    Args:
        rows: From `standardise`. Shape (samples, dim + 1).
        labels: Shape (samples,).
        penalty: Weight decay of all coefficients but the last.
        start: Shape (dim + 1, classes).

    Returns:
        Shape (dim + 1, classes).
    """

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        parameters = flat.reshape(start.shape)
        loss, gradient = _loss(rows, labels, torch.from_numpy(parameters).float())
        gradient[:-1] += penalty * parameters[:-1]
        return loss + penalty * float(np.square(parameters[:-1]).sum()) / 2, gradient.ravel()

    found = scipy.optimize.minimize(
        objective,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_STEPS, "gtol": SMALLEST_GRADIENT, "ftol": SMALLEST_GAIN},
    )
    parameters: NDArray[np.float64] = found.x.reshape(start.shape)
    return parameters


def _loss(rows: Tensor, labels: Tensor, parameters: Tensor) -> tuple[float, NDArray[np.float64]]:
    """Mean cross-entropy, and its gradient by the parameters."""

    def of_block(block: slice) -> tuple[float, NDArray[np.float32]]:
        inputs, own = rows[block], labels[block, None]
        errors = matmul(inputs, parameters)
        evidence = logsumexp(errors.clone())
        loss = float((evidence - errors.gather(1, own)[:, 0]).sum(dtype=torch.float64))
        exp(errors.sub_(evidence[:, None]), out=errors)
        errors.scatter_add_(1, own, errors.new_full(own.shape, -1))
        return loss, matmul(inputs.T, errors).numpy()

    loss, gradient = 0.0, np.zeros(parameters.shape)
    blocks = _blocks(len(rows), parameters.shape[1])
    for part, change in map_in_order(of_block, blocks, num_workers()):
        loss += part
        gradient += change
    return loss / len(rows), gradient / len(rows)


def leave_out(
    rows: Tensor, labels: Tensor, parameters: NDArray[np.float64], penalty: float
) -> Tensor:
    """Logits of each row approximately without it in the fit; see `logits_left_out`.

    Args:
        rows: From `standardise`. Shape (samples, dim + 1).
        labels: Shape (samples,).
        parameters: From `fit`. Shape (dim + 1, classes).
        penalty: That of the fit.

    Returns:
        Float32, shape (samples, classes).
    """
    coefficients = torch.from_numpy(parameters).float()
    logits = rows.new_empty(len(rows), coefficients.shape[1])
    for block in _blocks(*logits.shape):
        matmul(rows[block], coefficients, out=logits[block])
    evidence = torch.cat([logsumexp(logits[b].clone()) for b in _blocks(*logits.shape)])
    ridge = torch.full((rows.shape[1],), penalty * len(rows), dtype=torch.float64)
    ridge[-1] = PENALTY_OF_BIAS * len(rows)

    def change(number: int) -> tuple[Tensor, Tensor]:
        """Samples whose logit of a class changes, and by how much."""
        probabilities = (logits[:, number] - evidence).double().exp_()
        weights = probabilities * (1 - probabilities)
        kept = _heaviest(weights)
        leverage = _leverages(rows, kept, weights[kept], ridge)
        errors = probabilities[kept] - (labels[kept] == number).double()
        left = (1 - leverage * weights[kept]).clamp_(min=1 - LARGEST_LEVERAGE)
        return kept, leverage * errors / left

    # A column is written after its own thread has read it, and no other thread reads it.
    for number, (kept, changes) in enumerate(
        map_in_order(change, range(logits.shape[1]), num_workers())
    ):
        logits[kept, number] += changes.float()
    return logits


def _heaviest(weights: Tensor) -> Tensor:
    """Places of the largest weights, ascending, that are nearly all of the sum together."""
    descending, order = weights.sort(descending=True, stable=True)
    missing = descending.cumsum(dim=0) < WEIGHT_KEPT * descending.sum()
    return order[: int(missing.sum()) + 1].sort().values


def _leverages(rows: Tensor, kept: Tensor, weights: Tensor, ridge: Tensor) -> Tensor:
    """Leverages x' H^-1 x of some rows, where H is the sum of w x x' over them and a diagonal.

    Args:
        kept: Places of the rows. Shape (kept,).
        weights: Shape (kept,).
        ridge: Shape (dim + 1,).

    Returns:
        Float64, shape (kept,).
    """
    hessian = ridge.diag()
    for block in row_ranges(len(kept), BLOCK_ROWS):
        add_upper_gram(rows[kept[block]].double() * weights[block, None].sqrt(), hessian)
    factor = torch.linalg.cholesky(mirror_upper(hessian))
    leverages = torch.empty_like(weights)
    for block in row_ranges(len(kept), BLOCK_ROWS):
        whitened = torch.linalg.solve_triangular(factor, rows[kept[block]].double().T, upper=False)
        leverages[block] = whitened.square_().sum(dim=0)
    return leverages


def _blocks(num_rows: int, num_classes: int) -> list[slice]:
    """Rows whose logits are computed at a time."""
    return list(row_ranges(num_rows, max(1, LOGITS_AT_ONCE // num_classes)))
