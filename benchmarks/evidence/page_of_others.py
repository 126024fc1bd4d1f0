"""Sections of the page about the paper's figures, training, choices, and how to repeat it."""

from benchmarks.evidence.names import label
from benchmarks.evidence.page_text import NOT_RUN, Tables, signed
from benchmarks.evidence.tables import markdown

ERROR_SCORES = ("rmd", "md", "suspicion")
ACCURACY = "accuracy (%)"
TRAINED = (("from scratch", "worst"), ("probe", "worst"))
METHODS = (
    "constant entropy",
    "difficulty-weighted entropy",
    "weighted by the label's probability",
    "soft targets",
    "suspects dropped",
    "suspects relabelled",
)
ANSWERS = ("helps", "helps in part", "does not help", "does harm")
CHOSEN = ("wrong_auroc", "people_spearman")
CHOICES = ("as shipped", "shrinkage none", "shrinkage ledoit-wolf", "3 augmentation runs")


def paper(tables: Tables) -> str:
    """Figures of Cui et al. (2023) that the data at hand can show."""
    clean, worst = (
        tables.text("severity", "mean_rmd", features="builtin", noise="gaussian_noise", step=step)
        for step in ("0", "5")
    )
    right, similar = (
        tables.text("severity", "mean_rmd", features="builtin", noise="label", step=step)
        for step in ("0", "1")
    )
    errors = [
        [
            label(score),
            *(
                " to ".join(
                    tables.text("errors", key, features=features, score=score)
                    for key in ("easiest_percent", "hardest_percent")
                )
                for features in ("builtin", "MobileNetV2")
            ),
        ]
        for score in ERROR_SCORES
    ]
    return f"""## The paper's figures

Of Cui et al. (2023), as far as CIFAR-10 shows them.

**Figure 1b**: mean RMD grows from {clean} to {worst} with Gaussian noise of severity 5, and from
{right} to {similar} with the label of the most similar class.

![Mean RMD grows with corruption and with label noise](images/evidence-severity.svg)

**Figures 2, 6 and 7**: mean error (%) of eight published CNNs, easiest to hardest of twenty bins.

{markdown(("score", "builtin", "MobileNetV2"), errors)}
![Errors of eight networks in bins of growing difficulty](images/evidence-errors.svg)
"""


def training(tables: Tables) -> str:
    """Does it help, and when?"""
    rows = []
    for method in METHODS:
        gains = [_gain(tables, method, *where) for where in TRAINED]
        rows.append([method, *gains, _cases(tables, method, "cross-entropy")])
    header = ("method", *(f"{network}, {labels}" for network, labels in TRAINED), "cases")
    listed = ", ".join(
        f"{row['network']} ({row['epochs']} epochs, {row['seeds']} seeds)"
        for row in tables.rows("networks")
    )
    return f"""## Training: does it help, and when?

9,000 training images of CIFAR-10: {listed or NOT_RUN}.
Points of accuracy above cross-entropy, ± 95 % over seeds, bold where sure. The cases count, by
accuracy, ranking of errors, calibration and NLL: helps/in part/does not/harms.

{markdown(header, rows)}
Difficulty-weighted beside constant entropy: {_cases(tables, METHODS[1], METHODS[0])}.
[Findings](findings.md#networks-trained-from-scratch-with-the-scores) has a larger network.
"""


def _cases(tables: Tables, method: str, beside: str) -> str:
    answers = [row["answer"] for row in tables.rows("verdicts", method=method, beside=beside)]
    return "/".join(str(answers.count(each)) for each in ANSWERS)


def _gain(tables: Tables, method: str, network: str, labels: str) -> str:
    found = tables.rows("training", network=network, labels=labels, method=method, measure=ACCURACY)
    if not found or not found[0]["difference"]:
        return NOT_RUN
    text = f"{signed(found[0]['difference'])} ± {found[0]['difference_95']}"
    return f"**{text}**" if found[0]["is"] == "better" else text


def choices(tables: Tables) -> str:
    """What each choice costs."""
    rows = [
        [name, *(tables.text("choices", key, choice=name, score="rmd") or "-" for key in CHOSEN)]
        for name in CHOICES
    ]
    few, many = (
        tables.text("choices", "wrong_auroc", choice=name, score="suspicion")
        for name in ("as shipped", "2,048 landmarks")
    )
    return f"""## What each choice costs

`rmd` of built-in features: AUROC under `worst`, correlation with the votes.

{markdown(("choice", "wrong", "people"), rows)}
`suspicion` under `worst`: {few} with 1,024 landmarks, {many} with 2,048.
"""


TASKS = {
    "tags": "tags",
    "objects": "boxes",
    "leaks": "copies",
    "selection": "what to label",
    "selection_networks": "what to label, by networks from scratch",
    "pruning": "what to keep",
}
"""Tables that have modules of their own, by their names, and what they are called."""


def other_tasks(tables: Tables) -> str:
    """Links to those tables that have been written."""
    links = [f"[{text}](evidence/{name}.csv)" for name, text in TASKS.items() if tables.rows(name)]
    return ", ".join(links) or NOT_RUN


def repeat(tables: Tables) -> str:
    """How to repeat the study, and what each table has."""
    study = tables.rows("study")
    took = (
        f"The {study[0]['cells']} cells took {study[0]['processor_hours']} processor hours "
        f"({study[0]['machine']}), besides extraction.\n"
        if study
        else ""
    )
    return f"""## How to repeat it

```
make evidence
```

`DIFFICULTY_SHARED` names a folder, no part of this project, with CIFAR-10, CIFAR-100, Tiny
ImageNet, labels by people and weights of MobileNetV2.
{took}
- **Features**: built-in encoder (896 dimensions, 32 px, trained on CIFAR-100); MobileNetV2 of
  ImageNet (1,280 dimensions, 128 px). CLIP, the product's default, is not at hand.
- **Peers** (`pip install '.[peers]'`) choose constants by held-out given labels: cleanlab with
  five-fold predictions of a logistic probe, AUM and EL2N with a linear probe of 20 epochs. **Ours**
  have default options.

## The tables

Half-widths of 95 % intervals end in `_95`; what has not run has no row.

- Wrong labels: [all scores](evidence/wrong_labels.csv), [paired](evidence/paired.csv),
  [planted](evidence/planted.csv), [sets won](evidence/best.csv), [cost](evidence/costs.csv),
  [counts](evidence/counts.csv), [`p_wrong` by range](evidence/p_wrong.csv),
  [random checks](evidence/random_checks.csv), [kinds of hardness](evidence/kinds.csv).
- Backbones: [likelihood of the labels](evidence/encoders.csv),
  [lengths of features](evidence/scalings.csv).
- [Several labels per image](annotators.md): [consensus](evidence/annotators.csv).
- People: [scores](evidence/people.csv), [differences](evidence/ambiguity.csv),
  [views](evidence/views.csv).
- The paper: [severity](evidence/severity.csv), [errors](evidence/errors.csv).
- Training: [measures](evidence/training.csv) (`is` is empty where rounded numbers do not tell),
  [what helps](evidence/verdicts.csv), [networks](evidence/networks.csv),
  [trust in labels](evidence/trust.csv).
- Other tasks: {other_tasks(tables)}.
- [Choices](evidence/choices.csv); [what the study took](evidence/study.csv).
"""
