"""Sections of the page about the figures of the paper, and about what each choice costs."""

import numpy as np

from benchmarks.evidence.choices import AUGMENT_RUNS, CHOICES, COLUMNS
from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.paper import ERROR_COLUMNS
from benchmarks.evidence.results import Results, label
from benchmarks.evidence.tables import NONE, NOT_RUN, Number, Shown, best_in_columns, markdown
from difficulty_service.images.corruptions import CORRUPTIONS

ABSENT = """What the data at hand cannot show:

- Figures 1a, 5, 8 to 10 and 12 are pictures of images. CIFAR-10 is not part of this project, and
  its images are not printed here; `difficulty report` shows the hardest and easiest of any score
  file.
- Figures 2 and 7 have four backbones, CLIP among them, and ImageNet. Here are two backbones and
  CIFAR-10: weights of CLIP, MAE or DINOv2 and the images of ImageNet are not at hand.
- Figures 3, 4 and 11 compare networks trained with each objective on whole datasets;
  [training](#training-does-it-help-and-when) has small ones, and
  [findings](findings.md#networks-trained-from-scratch-with-the-scores) a larger one.
"""


def paper(results: Results) -> str:
    """Figures of the paper."""
    return f"""## The paper's figures

Cui et al. (2023) show that RMD grows with corruptions and label noise (figure 1b), that trained
networks err more on harder images (2, 7), and that RMD orders them better than MD (6).

### Difficulty over corruption and label noise (figure 1b)

![Mean RMD grows with corruption and with label noise](images/evidence-severity.svg)

Mean RMD ± 95 % of test images under the Gaussians of the clean training images: 500 images under
each corruption, and all 10,000 with the label replaced by the class whose mean is the nearest to,
second nearest to, … farthest from that of their own. Clean images and right labels are in column 0.
Severities 1 and 2 of "saturate" take colour away and the others add some, so that it falls at 3.

{_severity_table(results)}
### Errors of trained networks over difficulty (figures 2, 6 and 7)

![Errors of eight networks in bins of growing difficulty](images/evidence-errors.svg)

Eight published CNNs, trained on CIFAR-10, on the test images in twenty bins of 500. Mean error of
the eight in the easiest bin and in the hardest; the steeper, the better the score orders what they
get wrong.

{_error_table(results)}
{ABSENT}"""


def _severity_table(results: Results) -> str:
    rows = []
    for name in CORRUPTIONS:
        cell = results.cell(f"paper/corruption/{name}")
        rows.append([f"{name.replace('_', ' ')}, builtin", *_means(cell)])
    for backbone in BACKBONES:
        cell = results.cell(f"paper/label-noise/{backbone.lower()}")
        rows.append([f"label, {backbone}", *_means(cell)])
    return markdown(("noise", *map(str, range(10))), rows)


def _means(cell: dict[str, list[list[float]]] | None) -> list[str]:
    if cell is None:
        return [NOT_RUN] * 10
    # Adding zero turns -0.0 into 0.0.
    texts = [f"{round(mean, 1) + 0.0:.1f} ± {error:.1f}" for mean, error in cell["rmd"]]
    return texts + [NONE] * (10 - len(texts))


def _error_table(results: Results) -> str:
    header, columns = ["score"], []
    for backbone in BACKBONES:
        cell = results.cell(f"paper/errors/{backbone.lower()}")
        header += [f"{backbone}, easiest", f"{backbone}, hardest"]
        easiest: list[Shown] = [NOT_RUN] * len(ERROR_COLUMNS)
        hardest = list(easiest)
        if cell is not None:
            rates = [np.mean(cell["rates"][column], axis=0) for column in ERROR_COLUMNS]
            easiest = [Number(-each[0], f"{each[0]:.1%}".replace("%", " %")) for each in rates]
            hardest = [Number(each[-1], f"{each[-1]:.1%}".replace("%", " %")) for each in rates]
        columns += [easiest, hardest]
    return best_in_columns(header, [label(column) for column in ERROR_COLUMNS], columns)


def choices(results: Results) -> str:
    """What each choice costs."""
    names = [choice.name for choice in CHOICES] + [f"{n} augmentation runs" for n in AUGMENT_RUNS]
    columns: list[list[Shown]] = []
    for labels, key in (("worst", "wrong"), ("official", "people")):
        cells = [results.cell(f"choices/{labels}/{name.replace(' ', '-')}") for name in names]
        columns += [[_choice(cell, key, column) for cell in cells] for column in COLUMNS]
    for column in columns[: len(COLUMNS)]:
        column[-len(AUGMENT_RUNS) :] = [NONE] * len(AUGMENT_RUNS)
    header = (
        "choice",
        *(f"wrong: {label(column)}" for column in COLUMNS),
        *(f"people: {label(column)}" for column in COLUMNS),
    )
    table = best_in_columns(header, names, columns)
    return f"""## What each choice costs

AUROC of the wrong labels of `worst` and rank correlation with the votes on the test images, on
built-in features. A choice that a column does not depend on leaves it as it is. Augmentation
runs are those of the test images only. Features before or after a projection cannot be compared
here: only CLIP has one, and its weights are not at hand.

{table}"""


def _choice(cell: dict[str, dict[str, object]] | None, key: str, column: str) -> Shown:
    if cell is None:
        return NOT_RUN
    found = cell[key][column]
    value = float(found["spearman"] if isinstance(found, dict) else found[0])  # type: ignore[index]
    return Number(value, f"{value:.4f}")
