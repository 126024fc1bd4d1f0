"""How much people would disagree about a label, by a generative and a discriminative classifier.

`agree` compares the classes by Gaussians, a logistic probe by planes between them, each without the
sample itself. Both err in their own way, so that their product, a logarithmic opinion pool with
equal weights (Genest and Zidek 1986, Statistical Science 1), agrees better with people. People are
as doubtful about images that are alike, while classifiers are right about one by chance and wrong
about the next: part of the score is therefore the mean over samples that are alike.
"""

import torch
from torch import Tensor

from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.label_noise import judge_labels
from difficulty_service.gaussians.label_rule import PRODUCTS_PER_BLOCK
from difficulty_service.gaussians.products import BLOCK_ROWS, one_thread_per_product, row_ranges
from difficulty_service.gaussians.row_sample import choose_samples
from difficulty_service.scorers import ScorerInput
from difficulty_service.scorers.alike import mean_of_alike
from difficulty_service.scorers.linear_probe import likeliest_scale, logits_left_out
from difficulty_service.scorers.suspicion import PosteriorOptions, fit_posteriors

ALIKE = 1 / 3
"""Weight of the samples that are alike."""

MOST_SAMPLES = 5000
"""Samples whose labels choose the scales."""


def score_samples(samples: ScorerInput) -> Tensor:
    """The column `ambiguity`: log-odds of all other classes together against the label.

    With A the log of density and prior of each class by `agree`, and Z the logits of the probe from
    `linear_probe.logits_left_out`, the class k has the logit b (A_k + Z_k), where the labels of up
    to 5,000 samples are likeliest under b. The score is a weighted mean: two parts the log-odds of
    the sample, one part their mean over those that are most alike (`mean_of_alike`).

    Larger is harder. Float64, shape (samples,); NaN for the only sample of a class, and everywhere
    where there is one class. Memory grows with the samples times the dimensions and classes.

    Raises:
        StatisticsError: All features are the same, or one is not finite.
    """
    classes, labels = samples.labels.unique(return_inverse=True)
    usable = (labels.bincount() > 1)[labels].nonzero()[:, 0]
    if len(classes) == 1 or not len(usable):
        return torch.full(labels.shape, torch.nan, dtype=torch.float64)
    options = PosteriorOptions(("agree",), samples.num_classes, seed=samples.seed)
    posteriors = fit_posteriors(TensorBatches(samples.features, samples.labels), options)
    judged = usable[choose_samples(len(usable), MOST_SAMPLES, samples.seed)]
    logits = logits_left_out(samples.features, labels, len(classes), judged)
    with one_thread_per_product():
        for rows in _blocks(logits):
            logits[rows] += posteriors.log_joint_of_agree(samples.features[rows], labels[rows])
        logits *= likeliest_scale(logits[judged], labels[judged])[0]
        verdicts = [judge_labels(logits[rows], labels[rows]) for rows in _blocks(logits)]
    scores = torch.cat([each.suspicion for each in verdicts])
    means = mean_of_alike(samples.features, labels, scores, samples.seed)
    return scores + ALIKE * (means - scores)


def _blocks(logits: Tensor) -> list[slice]:
    """Samples whose logits are looked at at a time."""
    rows = max(1, min(BLOCK_ROWS, PRODUCTS_PER_BLOCK // logits.shape[1]))
    return list(row_ranges(len(logits), rows))
