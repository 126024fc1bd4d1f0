"""What a score is on average for the samples of the same label that are most alike."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from difficulty_service.gaussians.products import BLOCK_ROWS, matmul, row_ranges
from difficulty_service.gaussians.row_sample import choose_samples

NUM_ALIKE = 50
"""Samples whose values are averaged."""

MOST_COMPARED = 5000
"""Samples of a class among which they are found."""


def mean_of_alike(features: Tensor, labels: Tensor, values: Tensor, seed: int) -> Tensor:
    """The mean value of the `NUM_ALIKE` samples of the same label with the largest cosine.

    Cosines are those of the features minus their mean. A sample is not alike itself. A class of
    fewer samples gives all of them, one of more than `MOST_COMPARED` those among so many that the
    seed chooses. The time grows with the samples times those of a class times the dimensions.

    Args:
        features: Shape (samples, dim).
        labels: Class indices. Shape (samples,).
        values: Shape (samples,).

    Returns:
        As `values`, which the only sample of a class keeps.
    """
    means = values.clone()
    centre = features.mean(dim=0, dtype=torch.float32)
    for members in labels.argsort(stable=True).split(labels.bincount().tolist()):
        others = members[choose_samples(len(members), MOST_COMPARED, seed)]
        if len(others) < 2:  # noqa: PLR2004 - itself and another one
            continue
        directions = normalize(features[others].float() - centre).T.contiguous()
        for rows in row_ranges(len(members), BLOCK_ROWS):
            some = members[rows]
            cosines = matmul(normalize(features[some].float() - centre), directions)
            cosines[some[:, None] == others] = -torch.inf
            alike = cosines.topk(min(NUM_ALIKE, len(others) - 1)).indices
            means[some] = values[others][alike].mean(dim=1)
    return means
