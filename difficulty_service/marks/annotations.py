"""What people decided in Label Studio, CVAT or FiftyOne about the samples of an export.

The names that an export writes and these readers expect are stated here. Each sample carries its id
and the class that it had, so that a file is understood without the scores: another class is a new
label, the same class confirms it.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.wording import count_of
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, Marks

SAMPLE_ID, GIVEN_LABEL = "sample_id", "given_label"
"""Keys of each exported sample: its id, and the class that it had."""

ANNOTATION_ID = "annotation_id"
"""Column of the tables of Label Studio alone."""

LABEL_CONTROL, MARK_CONTROL = "label", "mark"
"""Choices of Label Studio: of the class, and of what to do with the sample."""

DROP, KEEP = "drop", "keep"
DROP_WORDS = (DROP, "remove")
"""Choices and tags that drop a sample."""

LABEL_STUDIO_TASKS, CVAT_ANNOTATIONS = "tasks.json", "annotations.xml"
FIFTYONE_SAMPLES, FIFTYONE_LABELS = "samples.json", "labels.json"
"""Files of a FiftyOneDataset, and of a FiftyOneImageClassificationDataset."""

CVAT_VERSION = "1.1"
LONGEST_NAME = 255
"""Bytes of the name of a file or folder."""

_ADDED = "+"
"""What precedes the extension of an image whose id has none; `quote` leaves no other."""

_CVAT_NAME = re.compile(r"(?:^|/)\d{7,}/([^/]+)/(.+)$")

Json: TypeAlias = Mapping[str, Any]


def _decided(sample_id: str, given: str, chosen: str | None) -> MarkedSample:
    """The mark that a decision in another tool stands for.

    `given` is the class that the sample had, `chosen` the one that it gets, which may be the same;
    None where it is dropped.
    """
    if chosen is None:
        return MarkedSample(sample_id, Mark.DROP, given_label=given)
    if chosen == given:
        return MarkedSample(sample_id, Mark.KEEP, given_label=given)
    return MarkedSample(sample_id, Mark.RELABEL, chosen, given)


@dataclass
class _Annotations:
    """The decisions in a file.

    Attributes:
        samples: The decisions by the id of their sample.
        undecided: Number of samples that nobody annotated.
        repeated: Ids of samples with several decisions, of which the last counts.
        unclear: Ids of samples whose annotations contradict each other; they have no decision.
    """

    samples: dict[str, MarkedSample] = field(default_factory=dict)
    undecided: int = 0
    repeated: set[str] = field(default_factory=set)
    unclear: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, decided: MarkedSample) -> None:
        """Takes a decision into account."""
        if decided.sample_id in self.samples:
            self.repeated.add(decided.sample_id)
        self.samples[decided.sample_id] = decided

    def marks(self, path: Path) -> Marks:
        """The decisions, with warnings about the file."""
        sentences = list(self.notes)
        if self.repeated:
            number = count_of(len(self.repeated), "sample")
            sentences.append(f"{number} annotated more than once in {path}: the last one counts")
        if self.unclear:
            number = count_of(len(self.unclear), "sample")
            sentences.append(
                f"{number} without a mark, because the annotations in {path} contradict each "
                f"other: the first is {self.unclear[0]}"
            )
        if self.undecided:
            number = count_of(self.undecided, "sample")
            sentences.append(f"{number} without a mark, because nobody annotated them in {path}")
        return Marks(self.samples, tuple(sentences))


def read_annotations(path: Path) -> Marks | None:
    """Reads what a tool exported, recognised by its content; None where it is a table.

    These are JSON or JSON-MIN of Label Studio, "CVAT for images" as XML or in a ZIP file, and
    a FiftyOneDataset or FiftyOneImageClassificationDataset, as folder or by its JSON file. The
    tables of Label Studio are for `read_label_studio_table`.

    Raises:
        CleaningError: The file cannot be read, or is not of samples that were exported from scores.
    """
    if path.is_dir():
        return _read_fiftyone_folder(path)
    try:
        with path.open("rb") as file:
            start = file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return None  # what reads tables says why
    if start.startswith(b"PK\x03\x04"):
        return _read_zip(path)
    if start.startswith(b"<"):
        with path.open("rb") as file:
            return _read_cvat(path, file)
    return _read_json(path) if start.startswith((b"[", b"{")) else None


def _foreign(path: Path, problem: str) -> CleaningError:
    return CleaningError(
        f"{path} cannot be read as marks: {problem}",
        "it must come from samples that were exported from scores, or be a table of marks",
        parameter="marks",
    )


def _read_json(path: Path) -> Marks:
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _foreign(path, f"it is no JSON: {error}") from error
    if isinstance(content, list) and all(isinstance(task, dict) for task in content):
        return _of_label_studio(path, content)
    if isinstance(content, dict) and isinstance(content.get("samples"), list):
        return _of_fiftyone(path, _classifications(content["samples"]))
    if isinstance(content, dict) and isinstance(content.get("labels"), dict):
        return _of_fiftyone(path, _labels(content))
    raise _foreign(path, "its JSON is neither of Label Studio nor of FiftyOne")


def _of_label_studio(path: Path, tasks: Iterable[Json]) -> Marks:
    """Decisions of JSON, whose tasks have annotations, or of JSON-MIN, with data among them."""
    read = _Annotations()
    dated: list[tuple[str, MarkedSample]] = []
    for task in tasks:
        data = task.get("data", task)
        if not isinstance(data, dict) or not {SAMPLE_ID, GIVEN_LABEL} <= data.keys():
            raise _foreign(path, f"a task of Label Studio lacks {SAMPLE_ID} or {GIVEN_LABEL}")
        annotations = task.get("annotations") or [] if "data" in task else [task]
        decided = [
            (
                str(annotation.get("updated_at") or ""),
                _decided(str(data[SAMPLE_ID]), str(data[GIVEN_LABEL]), chosen),
            )
            for annotation in annotations
            for chosen in _chosen(annotation)
        ]
        read.undecided += not decided
        dated += decided
    for _, each in sorted(dated, key=lambda pair: pair[0]):
        read.add(each)
    return read.marks(path)


def is_of_label_studio(columns: Collection[str]) -> bool:
    """Whether a table with these columns is what Label Studio exports of exported samples."""
    return {SAMPLE_ID, GIVEN_LABEL, ANNOTATION_ID} <= {*columns}


def read_label_studio_table(
    path: Path, rows: Iterable[Mapping[str, str]], warnings: Sequence[str]
) -> Marks:
    """Decisions of the CSV or TSV of Label Studio, with a row for each annotation.

    A cell holds the choice itself, and is empty where there is none.
    """
    filled = ({name: cell for name, cell in row.items() if cell} for row in rows)
    read = _of_label_studio(path, filled)
    return Marks(read.samples, (*warnings, *read.warnings))


def _chosen(annotation: Json) -> list[str | None]:
    """The class that an annotation chooses, None where it drops the sample; empty for neither."""
    if annotation.get("was_cancelled"):
        return []
    choices: Json = annotation
    if "result" in annotation:
        choices = {each.get("from_name"): each.get("value") for each in annotation["result"] or ()}
    if _single(choices.get(MARK_CONTROL)) in DROP_WORDS:
        return [None]
    label = _single(choices.get(LABEL_CONTROL))
    return [] if label is None else [label]


def _single(choice: object) -> str | None:
    """The text of a choice, which the formats wrap differently; None where it is not one."""
    while isinstance(choice, dict | list):
        inner = choice.get("choices") if isinstance(choice, dict) else choice
        choice = inner[0] if isinstance(inner, list) and len(inner) == 1 else None
    return choice if isinstance(choice, str) else None


def cvat_name(order: int, given: str, sample_id: str, extension: str) -> str | None:
    """The path of an image in CVAT, which holds what its tags would lose when they are replaced.

    None where the name of a folder would be too long.

    Args:
        order: Place of the sample; CVAT shows images in the order of their names.
        extension: Usual extension of images of its kind, which CVAT needs.
    """
    parts = sample_id.split("/")
    name = "/".join(map(_component, parts)) if all(parts) else _component(sample_id)
    endings = {".jpg": (".jpg", ".jpeg"), ".tif": (".tif", ".tiff")}.get(extension, (extension,))
    if not name.lower().endswith(endings):
        name += _ADDED + extension
    path = f"{order:07d}/{_component(given)}/{name}"
    return None if max(map(len, path.split("/"))) > LONGEST_NAME else path


def _component(text: str) -> str:
    """A text as the name of a file or folder, in ASCII, which `unquote` reverses."""
    name = quote(text, safe="")
    return name.replace(".", "%2E") if name.startswith(".") else name


def _read_zip(path: Path) -> Marks:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.rpartition("/")[2] == CVAT_ANNOTATIONS:
                    with archive.open(name) as file:
                        return _read_cvat(path, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise _foreign(path, f"the ZIP file is damaged: {error}") from error
    raise _foreign(path, f"it is a ZIP file without {CVAT_ANNOTATIONS} of CVAT")


def _read_cvat(path: Path, file: IO[bytes]) -> Marks:
    """Decisions of the tags of images; one that is as it was confirms the label."""
    read, unchanged, has_images = _Annotations(), 0, False
    try:
        for image in _cvat_images(path, file):
            has_images = True
            match = _CVAT_NAME.search(image.get("name", ""))
            if match is None:
                raise _foreign(path, f"CVAT's image {image.get('name')!r} has another name")
            given, name = unquote(match[1]), match[2]
            sample_id = unquote(name.rpartition(_ADDED)[0] or name)
            tags = {tag.get("label", "") for tag in image.iter("tag")}
            others = sorted(tags - {given})
            if not tags:
                read.undecided += 1
            elif not tags.isdisjoint(DROP_WORDS):
                read.add(_decided(sample_id, given, None))
            elif len(others) > 1:
                read.unclear.append(sample_id)
            else:
                unchanged += not others
                read.add(_decided(sample_id, given, others[0] if others else given))
    except ET.ParseError as error:
        raise _foreign(path, f"it is no XML: {error}") from error
    if not has_images:
        raise _foreign(path, 'its XML has no images, as "CVAT for images" has')
    if unchanged:
        number_kept = count_of(unchanged, "sample")
        read.notes.append(
            f"{number_kept} with an unchanged tag count as kept: CVAT does not tell which were "
            "checked, so export only jobs that are done"
        )
    return read.marks(path)


def _cvat_images(path: Path, file: IO[bytes]) -> Iterator[ET.Element]:
    """The elements of images, of which one is in memory at a time."""
    # Expat, from 2.4.1 on, stops at entities that would grow without bounds.
    events = ET.iterparse(file, events=("start", "end"))  # noqa: S314
    _, root = next(events)
    if root.tag != "annotations":
        raise _foreign(path, f"its XML is of {root.tag!r}, not of annotations as CVAT's is")
    for event, element in events:
        if event == "end" and element.tag == "image":
            yield element
            root.clear()


def _read_fiftyone_folder(path: Path) -> Marks:
    for name in (FIFTYONE_SAMPLES, FIFTYONE_LABELS):
        if (path / name).is_file():
            return _read_json(path / name)
    raise _foreign(
        path, f"the folder holds neither {FIFTYONE_SAMPLES} nor {FIFTYONE_LABELS} of FiftyOne"
    )


def _of_fiftyone(path: Path, labels: Iterable[tuple[Json, set[str]]]) -> Marks:
    """Decisions of classifications with the tags of each: a tag, or another label than before."""
    read, known = _Annotations(), False
    for label, tags in labels:
        if not {SAMPLE_ID, GIVEN_LABEL, "label"} <= label.keys():
            continue
        known = True
        sample_id, given = str(label[SAMPLE_ID]), str(label[GIVEN_LABEL])
        drops, keeps = not tags.isdisjoint(DROP_WORDS), KEEP in tags
        if drops and keeps:
            read.unclear.append(sample_id)
        elif drops:
            read.add(_decided(sample_id, given, None))
        elif label["label"] is not None and (keeps or label["label"] != given):
            read.add(_decided(sample_id, given, str(label["label"])))
        else:
            read.undecided += 1
    if not known:
        raise CleaningError(
            f"{path} cannot be read as marks: no label of FiftyOne has {SAMPLE_ID} and "
            f"{GIVEN_LABEL}, which its FiftyOneImageClassificationDataset leaves out by default",
            "export a FiftyOneDataset, or labels with include_attributes=True, of samples that "
            "were exported from scores",
            parameter="marks",
        )
    return read.marks(path)


def _classifications(samples: Iterable[Json]) -> Iterator[tuple[Json, set[str]]]:
    """The exported label of each sample of a FiftyOneDataset, with the tags of both."""
    for sample in samples:
        for value in sample.values():
            if isinstance(value, dict) and GIVEN_LABEL in value:
                tags = (*(sample.get("tags") or ()), *(value.get("tags") or ()))
                yield value, {str(tag).casefold() for tag in tags}


def _labels(content: Json) -> Iterator[tuple[Json, set[str]]]:
    """The labels of a FiftyOneImageClassificationDataset, which has no tags."""
    classes = content.get("classes")
    for each in content["labels"].values():
        if isinstance(each, dict) and isinstance(each.get("attributes"), dict):
            label = each.get("label")
            if isinstance(label, int) and isinstance(classes, list) and label < len(classes):
                label = classes[label]
            yield {**each["attributes"], "label": label}, set()
