"""The page with all numbers of the study, drawn from the cells that have run."""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.evidence import label_sections, paper_sections
from benchmarks.evidence.figures import draw
from benchmarks.evidence.results import Results
from benchmarks.evidence.summary import summary
from benchmarks.evidence.tables import NOT_RUN
from benchmarks.evidence.training.section import training
from benchmarks.evidence.view_sections import views
from difficulty_service.base.files import replacing

PAGE, IMAGES = "evidence.md", "images"

SECTIONS: tuple[Callable[[Results], str], ...] = (
    summary,
    label_sections.people,
    label_sections.wrong_labels,
    label_sections.costs,
    views,
    label_sections.planted,
    paper_sections.paper,
    training,
    paper_sections.choices,
)
"""Sections in the order of the page; each makes Markdown of the cells that have run.

A study of another kind adds its section here, and its cells in `run.run`.
"""


def introduction(results: Results) -> str:
    """What the page is, and how it is made."""
    return f"""# Evidence

Every score of this project beside other packages and published methods, on the same features and
labels. One command fills the study and draws this page from it:

```
make evidence
```

It needs a folder with CIFAR-10, CIFAR-100, Tiny ImageNet, their labels by people and the weights of
MobileNetV2, named by `DIFFICULTY_SHARED`; none of them is part of this project. A run that was
stopped resumes. The {len(results.all_cells())} cells of this page took
{results.total_hours():.1f} hours of processor time ({results.machines()}),
besides the extraction of the features.
"{NOT_RUN}" stands where a cell has not run.

- **Features**: the built-in encoder (896 dimensions, 32 px, trained on CIFAR-100), and MobileNetV2
  with ImageNet weights (1,280 dimensions, 128 px). CLIP is the default of the product, but its
  weights are not at hand here.
- **Ours** are columns of [the score file](score-file.md) with default options.
- **Peers** (`pip install '.[peers]'`) get the same features. A learning rate, penalty, shrinkage or
  number of neighbours is the one under which given labels that were held out are likeliest;
  nothing is tuned on the truth. cleanlab gets five-fold predictions of a logistic probe; AUM, EL2N
  and forgetting come from a linear probe trained for 20 epochs; neighbours are by cosine of centred
  features, of which ten vote in SimiFeat as in its paper; LDA and LOF are scikit-learn's, LOF among
  the samples with the same label.
"""


def write_page(folder: Path, docs: Path) -> None:
    """Writes the page and its figures.

    Args:
        folder: Folder of the study.
        docs: Folder of the page.
    """
    results = Results(folder)
    text = "\n".join([introduction(results), *(section(results) for section in SECTIONS)])
    draw(results, docs / IMAGES)
    with replacing(docs / PAGE) as temporary:
        temporary.write_text(re.sub(r"\n{3,}", "\n\n", text))
