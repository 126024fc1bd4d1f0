"""FiftyOne: a dataset of the exported labels, tagged and exported by the package."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.formats.tools.trip import DROP, KEEP, KINDS, NONE, RELABEL, Trip, decisions_of

PACKAGE, EXPORT, FIELD = "fiftyone", "fiftyone", "ground_truth"


def trips(folder: Path, own: Path) -> Iterator[Trip]:
    """Imports the labels, tags and changes them, and exports both kinds of datasets."""
    os.environ |= {"FIFTYONE_DATABASE_DIR": str(own / "database"), "HOME": str(own)}
    os.environ |= {"FIFTYONE_DO_NOT_TRACK": "1", "FIFTYONE_DATABASE_VALIDATION": "0"}
    import fiftyone  # reads the variables

    kinds = fiftyone.types
    kind = kinds.FiftyOneImageClassificationDataset
    exported = folder / "exports" / EXPORT
    found = fiftyone.Dataset.from_dir(str(exported), dataset_type=kind, label_field=FIELD)
    images = sum(_is_image(Path(sample.filepath)) for sample in found)
    decisions = decisions_of(folder)
    for number, sample in enumerate(found):
        decision = decisions[sample[FIELD].sample_id]
        if decision.kind == RELABEL:
            sample[FIELD].label = decision.label
        elif decision.kind in {KEEP, DROP}:  # a person may tag the sample, or its label
            (sample if number % 2 else sample[FIELD]).tags.append(decision.kind)
        sample.save()

    forms: dict[str, dict[str, Any]] = {
        "FiftyOneDataset": {},
        kind.__name__: {"label_field": FIELD, "include_attributes": True},
    }
    for form, options in forms.items():
        written = own / form
        found.export(str(written), getattr(kinds, form), export_media=False, **options)
        # Labels alone have no tags, by which a person keeps and drops.
        carried = (RELABEL, NONE) if options else KINDS
        yield Trip(EXPORT, form, len(found), images, f"{own.name}/{form}", carried)


def _is_image(path: Path) -> bool:
    with Image.open(path) as image:
        image.load()
    return True
