"""Label noise by loops over samples and classes."""

from collections.abc import Sequence

from difficulty_service.gaussians.label_noise import SAMPLES_BEFORE


def naive_rates(
    probabilities: Sequence[Sequence[float]], labels: Sequence[int], counted: Sequence[float]
) -> list[float]:
    """How much more often samples of each class have another label than all have.

    Args:
        probabilities: Of each class at each sample.
        labels: Class of each label.
        counted: How often each sample counts.
    """
    classes = len(probabilities[0])
    sizes, others = [0.0] * classes, [0.0] * classes
    for row, label, times in zip(probabilities, labels, counted, strict=True):
        for right, share in enumerate(row):
            sizes[right] += times * share
            others[right] += times * share * (right != label)
    mean = sum(others) / sum(sizes)
    drawn = [
        (other + SAMPLES_BEFORE * mean) / (size + SAMPLES_BEFORE)
        for other, size in zip(others, sizes, strict=True)
    ]
    weighed = sum(rate * size for rate, size in zip(drawn, sizes, strict=True)) / sum(sizes)
    return [rate / weighed for rate in drawn]
