"""Scores as tasks of Label Studio, whose predictions put the most doubtful labels first."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from difficulty_service.cleaning.exports.samples import (
    Exported,
    class_list,
    image_files,
    most_doubtful_first,
    sample_rows,
)
from difficulty_service.marks.annotations import (
    DROP,
    GIVEN_LABEL,
    LABEL_CONTROL,
    LABEL_STUDIO_TASKS,
    MARK_CONTROL,
    SAMPLE_ID,
)
from difficulty_service.pages.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile

LOCAL_FILES = "/data/local-files/?d="
"""Address at which Label Studio serves files of its document root."""

SHOWN = (SAMPLE_ID, "nearest_label", "label_margin", "rmd", "percentile")
"""Columns that are data of the task, as is the label, and so can be sorted and filtered by."""


def write_label_studio(
    scores: ScoreFile, images: ImageSource, folder: Path, final: Path
) -> Exported:
    """Writes `tasks.json` and `label_config.xml`.

    Label Studio shows tasks in the order of the file: those come first whose label fits worst.
    The prediction of a task is its label, with a score from 0 to 1 that is low where another class
    fits better; all columns of the score file are the `meta` of the task. Images in files of their
    own stay where they are, others are copied into the folder; texts are part of the tasks.
    """
    missing = MissingImages()
    rows = sample_rows(scores)
    version = f"difficulty-service {scores.provenance.package_version or ''}".strip()
    if images.is_text:
        texts = images.images(list(rows), missing.add)
        tasks = {
            key: _task(rows[key], "text", each.read().decode(), version) for key, each in texts
        }
        _write(folder, scores, tasks, "text")
        return Exported(missing.warnings())
    copies = folder / "images"
    copies.mkdir()
    files = {
        sample_id: final / "images" / path
        for sample_id, path in image_files(images, list(rows), copies, missing)
    }
    folders = [file.parent for file in files.values()] or [final]
    # A storage cannot be the root itself, so the root is one folder further up.
    root = Path(os.path.commonpath(folders)).parent
    tasks = {
        key: _task(rows[key], "image", _address(path, root), version) for key, path in files.items()
    }
    _write(folder, scores, tasks, "image")
    return Exported(missing.warnings(), _steps(root, folders))


def _address(path: Path, root: Path) -> str:
    return LOCAL_FILES + quote(path.relative_to(root).as_posix())


def _steps(root: Path, folders: Sequence[Path]) -> list[str]:
    """What makes Label Studio serve the images."""
    storages = sorted({root.joinpath(*each.relative_to(root).parts[:1]) for each in folders})
    return [
        "Label Studio serves the images if it is started with "
        "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
        f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root}",
        "and if the project has a source storage of the type Local Files with the absolute local "
        f"path {' and another with '.join(map(str, storages))}: under Settings > Cloud Storage, "
        "add it and do not sync it, as each file would become a task of its own",
    ]


def _write(folder: Path, scores: ScoreFile, tasks: Mapping[str, Any], kind: str) -> None:
    ordered = [tasks[key] for key in most_doubtful_first(scores) if key in tasks]
    (folder / LABEL_STUDIO_TASKS).write_text(
        json.dumps(ordered, indent=1, ensure_ascii=False), "utf-8"
    )
    (folder / "label_config.xml").write_text(label_config(class_list(scores), kind), "utf-8")


def label_config(names: Sequence[str], kind: str) -> str:
    """The labelling interface: an `image` or `text`, the choice of a class, and that to drop it."""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in names)
    return (
        f'<View>\n  <{kind.capitalize()} name="{kind}" value="${kind}"/>\n'
        f'  <Choices name="{LABEL_CONTROL}" toName="{kind}" choice="single">\n{choices}\n'
        "  </Choices>\n"
        f'  <Choices name="{MARK_CONTROL}" toName="{kind}" choice="single">\n'
        f'    <Choice value="{DROP}"/>\n  </Choices>\n</View>\n'
    )


def _task(row: Mapping[str, Any], kind: str, sample: str, version: str) -> dict[str, Any]:
    choice = {
        "from_name": LABEL_CONTROL,
        "to_name": kind,
        "type": "choices",
        "value": {"choices": [row["label"]]},
    }
    prediction = {"model_version": version, "result": [choice]}
    if "label_score" in row:
        prediction["score"] = row["label_score"]
    return {
        # Not as `label`: Label Studio's smaller exports put the choice of that name in its place.
        "data": {
            kind: sample,
            GIVEN_LABEL: row["label"],
            **{name: row[name] for name in SHOWN if name in row},
        },
        "meta": dict(row),
        "predictions": [prediction],
    }
