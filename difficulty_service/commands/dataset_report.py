"""What is known about a dataset from its listing, said before the first image is read."""

from typing import TYPE_CHECKING

from difficulty_service.commands.console import err, print_warnings

if TYPE_CHECKING:
    from difficulty_service.datasets.sample import Dataset


def report_dataset(dataset: "Dataset") -> None:
    """Prints the numbers of images and classes, and a warning about classes that are too small."""
    import numpy as np

    from difficulty_service.files.wording import count_of, list_names

    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    present = np.flatnonzero(sizes)
    what = dataset.modality
    line = f"found {count_of(len(dataset.labels), what)} of "
    line += count_of(len(present), "class", "classes")
    if len(present) > 1:
        smallest, largest = (int(pick(sizes[present])) for pick in (np.min, np.max))
        each = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
        line += f", {each} in each"
    err.print(line, markup=False)
    single = [dataset.class_names[label] for label in np.flatnonzero(sizes == 1)]
    sentences = []
    if len(present) == 1:
        sentences.append(
            f"all {what}s are of one class, {dataset.class_names[present[0]]!r}, so none can look "
            "more like another: scores need a folder or a label for each class"
        )
    elif single:
        sentences.append(
            f"classes with a single {dataset.modality}, which gets no score: {list_names(single)}"
        )
    print_warnings(sentences)
