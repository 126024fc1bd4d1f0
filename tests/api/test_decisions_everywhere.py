"""A decision means the same however it is made: by a file, in a notebook, over HTTP or explored.

Between the decision and the next scores, or after these, a label is changed, a file moved, and a
picture replaced. What was decided follows the picture, and no other one.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import difficulty_service as ds
from api.app import create_app
from api.explore import explorer_settings
from api.explored import ExploredFile, Rounds, add_round
from api.imported import make_features_files
from api.jobs.marks import JobMarks
from difficulty_service.cli import main
from difficulty_service.marks.files import write_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.scores.file import read_scores
from tests.boxed_images import CATEGORIES, Scene, write_coco, write_image
from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of, run_next_job
from tests.small_network import SMALL

pytestmark = pytest.mark.slow

CHANGES = ("nothing", "label", "place", "picture")
Row = tuple[str, str | None]  # label and mark of a sample
Rows = Mapping[str, Row]


class Photos:
    """Folders of classes, with a picture for each decision and each change."""

    classes = ("bird", "cat", "dog")
    kinds = (Mark.KEEP, Mark.RELABEL, Mark.DROP)

    def __init__(self, folder: Path) -> None:
        self.folder = write_image_folder(folder / "photos", each=12)
        wanted = [(kind, change) for kind in self.kinds for change in CHANGES]
        self.ids = {}
        for number, key in enumerate(wanted):
            name = f"cat/{'-'.join(key)}.png"
            (self.folder / "cat" / f"{number}.png").rename(self.folder / name)
            self.ids[key] = name

    def change(self) -> None:
        """Changes what the names of the pictures say."""
        for (kind, change), name in self.ids.items():
            path = self.folder / name
            if change == "label":
                path.rename(self.folder / "bird" / path.name)
            elif change == "place":
                path.rename(path.with_name(f"moved-{kind}.png"))
            elif change == "picture":
                path.write_bytes((self.folder / "dog" / "3.png").read_bytes() + kind.encode())

    def id_after(self, kind: Mark, change: str) -> str:
        """The id of a sample after the change."""
        name = self.ids[kind, change]
        if change == "label":
            return name.replace("cat/", "bird/")
        return f"cat/moved-{kind}.png" if change == "place" else name


class Boxes:
    """Boxes of objects, one in each image, which can also be in the wrong place."""

    classes = CATEGORIES
    kinds = tuple(Mark)

    def __init__(self, folder: Path) -> None:
        wanted = [(kind, change) for kind in self.kinds for change in CHANGES]
        scenes = [Scene("-".join(key), [("leaf", 40, 20, 48, 48)]) for key in wanted]
        others = [
            Scene(f"other{number:02}", [(CATEGORIES[number % 3], 20 + 3 * number, 30, 48, 48)])
            for number in range(30)
        ]
        self.folder = write_coco(folder / "photos", scenes + others)
        for number, scene in enumerate(scenes):
            write_image(self.images / f"{scene.name}.png", Scene("x" * number, scene.boxes))
        self.ids = {key: f"{'-'.join(key)}.png#{100 + row}" for row, key in enumerate(wanted)}

    @property
    def images(self) -> Path:
        """The folder of the images."""
        return self.folder / "val"

    def change(self) -> None:
        """Changes what the names of the images say."""
        path = self.folder / "annotations" / "instances_val.json"
        content = json.loads(path.read_text())
        for number, (kind, change) in enumerate(self.ids):
            name = f"{kind}-{change}.png"
            if change == "label":
                content["annotations"][number]["category_id"] = 3
            elif change == "place":
                (self.images / name).rename(self.images / f"moved-{kind}.png")
                content["images"][number]["file_name"] = f"moved-{kind}.png"
            elif change == "picture":
                scene = Scene("y" * (40 + number), [("plum", 40, 20, 48, 48)])
                write_image(self.images / name, scene)
        path.write_text(json.dumps(content))

    def id_after(self, kind: Mark, change: str) -> str:
        """The id of a sample after the change."""
        name = self.ids[kind, change]
        moved = name.replace(f"{kind}-{change}", f"moved-{kind}")
        return moved if change == "place" else name


Dataset = Photos | Boxes


def decisions(dataset: Dataset) -> Sequence[MarkedSample]:
    """What a person decides, as a page writes it down: without the content."""
    given, new = dataset.classes[1:]
    return [
        MarkedSample(
            sample_id, kind, new if kind is Mark.RELABEL else None, given, order="doubtful"
        )
        for (kind, _), sample_id in dataset.ids.items()
    ]


def expected(dataset: Dataset) -> Rows:
    """The samples that are left of those decided on: a sample that has changed is a new one."""
    rows = {}
    first, given, new = dataset.classes
    for kind, change in dataset.ids:
        follows = change in {"nothing", "place"}
        if kind is Mark.DROP and change != "picture":
            continue
        label = first if change == "label" else new if kind is Mark.RELABEL and follows else given
        rows[dataset.id_after(kind, change)] = (label, kind.value if follows else None)
    return rows


def as_table(marks: Iterable[MarkedSample]) -> pa.Table:
    names = ("sample_id", "mark", "label", "given_label", "order")
    return pa.table({name: [getattr(each, name) for each in marks] for name in names})


class Shell:
    """The command, with the file that a report downloads."""

    def __init__(self, folder: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.dataset = folder / "scores.parquet", dataset
        self.patch, self.marks = monkeypatch, folder / "marks.csv"

    def score(self, *options: str) -> None:
        words = ["score", self.dataset.folder, "--out", self.out, "--backbone", SMALL, *options]
        self.patch.setattr(sys, "argv", ["difficulty", *map(str, words)])
        assert main() in {None, 0}

    def decide(self) -> None:
        write_marks(self.marks, decisions(self.dataset))

    def score_again(self) -> None:
        new = ("--marks", str(self.marks)) if self.marks.exists() else ()
        self.score(*new)
        self.marks.unlink(missing_ok=True)

    def rows(self) -> pa.Table:
        return read_scores(self.out).table

    def remembered(self) -> Iterable[MarkedSample]:
        return ReviewFolder(self.out).remembered().samples.values()


class Notebook(Shell):
    """The Python interface, with the table that its widget has."""

    given: pa.Table | None = None

    def score(self, *_: str) -> None:
        ds.score_dataset(
            self.dataset.folder, out=self.out, backbone=SMALL, progress=False, marks=self.given
        )
        self.given = None

    def decide(self) -> None:
        self.given = as_table(decisions(self.dataset))


class Explorer(Shell):
    """The pages of `difficulty explore`, which is ended before the dataset changes."""

    def decide(self) -> None:
        content = read_scores(self.out)
        location, features = str(self.dataset.folder), self.out.with_suffix(".features")
        settings = explorer_settings(self.out, location, 0)
        settings.data_dir.mkdir()
        file = ExploredFile(self.out, location, settings, features)
        job = add_round(file, content)
        make_features_files(settings.artifact_root, job, features)
        app = create_app(settings, Rounds(file, job.id))
        with ServiceClient(app, base_url="http://localhost") as client:
            post_marks(client, job.id, self.dataset)

    def score_again(self) -> None:
        self.score()


class Service:
    """A server, whose jobs apply the marks of others."""

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.dataset, self.jobs = dataset, list[str]()
        roots = {"pictures": str(folder)}
        self.client = partial(client_of, folder / "data", roots=roots, max_queued_jobs=5)

    def score(self) -> None:
        body: dict[str, object] = {"dataset": {"root": "pictures", "path": "photos"}}
        body |= {"backbone": SMALL} | ({"marks": self.jobs[-1]} if self.jobs else {})
        with self.client() as client:
            answer = client.post("/v1/jobs", json=body)
            assert answer.status_code == 202, answer.text
            self.jobs.append(run_next_job(client).id)

    score_again = score

    def decide(self) -> None:
        with self.client() as client:
            post_marks(client, self.jobs[-1], self.dataset)

    def rows(self) -> pa.Table:
        with self.client() as client:
            content = client.get(f"/v1/jobs/{self.jobs[-1]}/scores.parquet").content
        return pq.read_table(pa.BufferReader(content))

    def remembered(self) -> Iterable[MarkedSample]:
        with self.client() as client:
            return JobMarks(client.engine, self.jobs[-1]).read().composed().samples.values()


def post_marks(client: ServiceClient, job: str, dataset: Dataset) -> None:
    changes = [
        {
            "sample_id": each.sample_id,
            "order": each.order,
            "decision": {"mark": each.mark, "label": each.label},
        }
        for each in decisions(dataset)
    ]
    client.post(f"/v1/jobs/{job}/marks", json={"marks": changes}).raise_for_status()


Way = Shell | Service


@pytest.fixture(params=["shell", "notebook", "explorer", "service"])
def way(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> Way:
    """One way in which people decide."""
    if request.param == "service":
        return Service(tmp_path, dataset)
    kinds = {"shell": Shell, "notebook": Notebook, "explorer": Explorer}
    return kinds[request.param](tmp_path, dataset, monkeypatch)


@pytest.fixture(params=[Photos, Boxes])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    """A dataset with a sample for each decision and each change."""
    made: Dataset = request.param(tmp_path)
    return made


@pytest.mark.filterwarnings("ignore::UserWarning")  # the notebook's, about marks not applied
@pytest.mark.parametrize("is_scored_before", [False, True])
def test_a_decision_follows_its_picture_and_label_whatever_way_it_was_made(
    way: Way, dataset: Dataset, *, is_scored_before: bool
) -> None:
    way.score()
    way.decide()
    if is_scored_before:
        way.score_again()

    dataset.change()
    way.score_again()

    columns = [way.rows()[name].to_pylist() for name in ("sample_id", "label_name", "mark")]
    found = {sample_id: (label, mark) for sample_id, label, mark in zip(*columns, strict=True)}
    after = {dataset.id_after(*key) for key in dataset.ids}
    assert {each: row for each, row in found.items() if each in after} == expected(dataset)
    remembered = {each.sample_id: each for each in way.remembered()}
    assert len(remembered) == len(dataset.ids), "none is forgotten, applied or not"
    assert {each.given_label for each in remembered.values()} == {dataset.classes[1]}
    assert all(each.content for each in remembered.values())
    assert {(each.order, each.round) for each in remembered.values()} == {("doubtful", 1)}
