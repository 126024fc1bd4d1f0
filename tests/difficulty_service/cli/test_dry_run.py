"""A dry run says how a dataset would be read, and opens none of its images."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import difficulty_service as ds
from difficulty_service.cli import main
from difficulty_service.dataset_formats import DATASET_FORMATS
from difficulty_service.datasets import DATASETS
from difficulty_service.datasets.recognition import recognise
from difficulty_service.datasets.sample import DatasetOptions

Ran = tuple[int, str, str]
Run = Callable[..., Ran]

OPENED = """
import json, sys
from difficulty_service.cli import main
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
sys.argv = ["difficulty", *json.loads(sys.argv[1])]
code = main()
images = [path for path in opened if path.endswith(".png")]
print(json.dumps([code, images, "torch" in sys.modules]), file=sys.stderr)
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Class folders of files that are no images at all, with a few others beside them."""
    for name in ("cat/1.png", "cat/2.png", "cat/notes.txt", "dog/3.png", "stray.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no image")
    (tmp_path / "photos" / "empty").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process; gives its exit code, output and errors."""

    def call(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["difficulty", "score", *map(str, words)])
        code = main()
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_it_says_the_format_the_classes_and_what_is_left_out(photos: Path, run: Run) -> None:
    code, out, _ = run(photos, "--dry-run")

    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines == [
        f"{photos} would be read as one folder per class (image-folder)",
        "3 images of 2 classes:",
        "class images",
        "cat 2",
        "dog 1",
        "",
        "left out, with the reason:",
        "1 an image outside the class folders: 'stray.png'",
        "1 an empty class folder: 'empty'",
        "1 not an image file by its extension '.txt': 'cat/notes.txt'",
    ]


@pytest.mark.slow
def test_it_opens_no_image_and_loads_no_network(photos: Path) -> None:
    words = json.dumps(["score", str(photos), "--dry-run"])
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", OPENED, words], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stderr.splitlines()[-1]) == [0, [], False]


def test_it_writes_nothing_and_needs_no_name_for_scores(photos: Path, run: Run) -> None:
    before = sorted(photos.parent.rglob("*"))

    code, _, _ = run(photos, "--dry-run")

    assert code == 0
    assert sorted(photos.parent.rglob("*")) == before


def test_scores_need_a_name_without_it(photos: Path, run: Run) -> None:
    code, _, err = run(photos)

    assert code == 2
    assert "score needs --out" in err


def test_its_json_is_what_python_says(photos: Path, run: Run) -> None:
    _, out, _ = run(photos, "--dry-run", "--json", "--limit", "3")

    assert json.loads(out) == ds.preview(photos, limit=3).model_dump(mode="json")
    assert json.loads(out)["num_samples"] == 3


def test_its_details_say_why_it_is_of_no_other_kind(photos: Path, run: Run) -> None:
    _, out, _ = run(photos, "--dry-run", "--verbose")

    assert "coco: no, it lacks JSON with the lists images, annotations and categories" in out
    assert "image-folder: yes, no other kind is there" in out


def test_a_refusal_names_an_option_that_works(photos: Path, run: Run) -> None:
    (photos / "cat").rename(photos / "train")
    (photos / "dog").rename(photos / "test")

    code, _, err = run(photos, "--dry-run")
    answered, out, _ = run(photos, "--dry-run", "--split", "train")
    sure, classes, _ = run(photos, "--dry-run", "--format", "image-folder")

    assert (code, answered, sure) == (1, 0, 0)
    assert "choose one, for example --split train" in err
    assert "2 images without labels" in out
    assert "test" in classes


def test_an_unknown_format_is_answered_by_the_known_ones(photos: Path, run: Run) -> None:
    code, _, err = run(photos, "--dry-run", "--format", "imagefolder")

    assert code == 2
    assert "did you mean 'image-folder'?" in err


def test_features_are_no_dataset_to_be_read(tmp_path: Path, run: Run) -> None:
    (tmp_path / "features.npz").write_bytes(b"")

    code, _, err = run(tmp_path / "features.npz", "--dry-run")

    assert code == 2
    assert "holds features already" in err


def test_what_may_be_of_two_kinds_is_asked_about(photos: Path, run: Run) -> None:
    lists = '{"images": [], "annotations": [], "categories": []}'
    (photos / "data.yaml").write_text("names: [cat]\ntrain: cat\nval: dog\n")
    (photos / "all.json").write_text(lists)

    code, _, err = run(photos, "--dry-run")
    _, out, _ = run(photos, "--dry-run", "--format", "image-folder")

    assert code == 1
    assert "may be boxes in YOLO's format or boxes in COCO's format" in err
    assert "say which by --format yolo" in err
    assert "one folder per class" in out


def test_every_format_has_a_title_and_a_reader() -> None:
    assert set(DATASET_FORMATS) == set(DATASETS)


def test_each_kind_that_is_asked_says_what_it_misses(photos: Path) -> None:
    verdicts = recognise(str(photos), DatasetOptions()).verdicts

    assert [verdict.kind for verdict in verdicts if verdict.is_it] == ["image-folder"]
    assert all(verdict.why.startswith("it lacks ") for verdict in verdicts if not verdict.is_it)


@pytest.mark.parametrize("make", [dict, pa.table], ids=["dict", "table"])
def test_labels_of_a_table_in_memory_have_the_names_beside_them(
    make: Callable[[dict[str, list[object]]], object],
) -> None:
    columns: dict[str, list[object]] = {
        "path": ["1.png", "2.png", "3.png"],
        "label": [0, 1, 0],
        "label_name": ["cat", "dog", "cat"],
    }

    found = ds.preview(make(columns))

    assert [(each.name, each.num_samples) for each in found.classes] == [("cat", 2), ("dog", 1)]


def test_an_archive_is_previewed_by_its_directory_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name in ("cat/1.png", "dog/2.png"):
            archive.writestr(name, b"no image")

    found = ds.preview(tmp_path / "photos.zip")

    assert (found.format, found.num_samples) == ("archive", 2)
    assert [each.name for each in found.classes] == ["cat", "dog"]
