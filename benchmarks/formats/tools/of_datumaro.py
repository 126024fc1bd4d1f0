"""Datumaro: tags of CVAT, changed and written again as CVAT writes them."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from datumaro.components.annotation import AnnotationType, Label
from datumaro.components.dataset import Dataset

from benchmarks.formats.tools.trip import DROP, NONE, Trip, decisions_of

PACKAGE, EXPORT = "datumaro", "cvat"


def trips(folder: Path, own: Path) -> Iterator[Trip]:
    """Reads annotations and images, changes the tags, and writes them."""
    exported, given = folder / "exports" / EXPORT, own / "given"
    with zipfile.ZipFile(exported / "images.zip") as archive:
        archive.extractall(given / "images")
    (given / "annotations.xml").write_bytes((exported / "annotations.xml").read_bytes())
    found = Dataset.import_from(str(given), "cvat")
    labels = [each.name for each in found.categories()[AnnotationType.label]]
    decisions, decided, images = decisions_of(folder), [], 0
    for item in found:
        images += item.media.data is not None
        decision = decisions[_sample_id(item.id)]
        chosen = [labels.index(decision.label)] if decision.kind != NONE else []
        if decision.kind == DROP:  # a person may add it to the tag that is there
            chosen.append(labels.index(DROP))
        decided.append(item.wrap(annotations=[Label(each) for each in chosen]))
    written = Dataset.from_iterable(
        decided, categories=found.categories(), media_type=found.media_type()
    )
    written.export(str(own / "written"), "cvat", save_media=False)
    yield Trip(
        EXPORT, "CVAT for images 1.1", len(found), images, f"{own.name}/written/annotations.xml"
    )


def _sample_id(name: str) -> str:
    """The id in the name of an image, which has lost its extension."""
    rest = name.split("/", 2)[2]
    return unquote(rest[:-1]) if rest.endswith("+") else unquote(f"{rest}.png")
