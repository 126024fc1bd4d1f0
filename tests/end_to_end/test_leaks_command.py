"""`difficulty leaks` on real pictures, some of which are in the training and in the test set."""

import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from difficulty_service.marks.files import read_marks
from difficulty_service.scores.file import read_scores

pytestmark = pytest.mark.analysis("leaks")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]

TRAIN, TEST, COPIES = 200, 40, 40
KINDS = ("bytes", "lossless", "jpeg", "resized", "mirrored")
WRONG = "<b>wrong</b>"
"""The label of every eighth copy, which no picture of the training set has."""


@dataclass(frozen=True)
class Sets:
    """A training and a test set of pictures, and the features of both."""

    folder: Path

    @property
    def train(self) -> Path:
        return self.folder / "train.features"

    @property
    def test(self) -> Path:
        return self.folder / "test.features"


def encode(picture: Image.Image, kind: str, **options: object) -> bytes:
    target = io.BytesIO()
    picture.save(target, kind, **options)
    return target.getvalue()


def copy_of(data: bytes, kind: str) -> bytes:
    """A picture as it may come into another set."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = picture.size
    larger = picture.resize((3 * width, 3 * height), Image.Resampling.BICUBIC)
    return {
        "bytes": lambda: data,
        "lossless": lambda: encode(picture, "PNG"),
        "jpeg": lambda: encode(picture, "JPEG", quality=95),
        "resized": lambda: encode(larger, "PNG"),
        "mirrored": lambda: encode(ImageOps.mirror(picture), "PNG"),
    }[kind]()


@pytest.fixture(scope="session")
def tables(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of CIFAR-10 in two tables, in one of which are copies of pictures of the other."""
    folder = tmp_path_factory.mktemp("leaks")
    train, test = (
        pq.read_table(shared / "data" / f"cifar10_{name}.parquet", columns=["image", "label_name"])
        for name in ("train_1", "test")
    )
    train = train[:TRAIN].rename_columns(["image", "label"])
    own = test[:TEST].rename_columns(["image", "label"]).to_pylist()
    rows = [{"id": f"own-{row}", **each} for row, each in enumerate(own)]
    for row, each in enumerate(train.to_pylist()[:COPIES]):
        kind = KINDS[row % len(KINDS)]
        label = WRONG if row % 8 == 0 else each["label"]
        rows.append({"id": f"{kind}-{row}", "image": copy_of(each["image"], kind), "label": label})
    ids = [[str(row) for row in range(TRAIN)]]
    pq.write_table(train.append_column("id", ids), folder / "train.parquet")
    pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet")
    return folder


def extract(difficulty_process: Command, tables: Path, folder: Path, *options: str) -> Sets:
    for name in ("train", "test"):
        words = ("extract", tables / f"{name}.parquet", "--out", folder / f"{name}.features")
        chosen = ("--id-column", "id", "--backbone", "builtin", "--device", "cpu", *options)
        done = difficulty_process(*words, *chosen)
        assert done.returncode == 0, done.stderr
    return Sets(folder)


@pytest.fixture(scope="session")
def sets(difficulty_process: Command, tables: Path) -> Sets:
    """The features of both sets."""
    return extract(difficulty_process, tables, tables)


def found_in(path: Path) -> dict[str, tuple[str, str, bool]]:
    """Of each copied picture that was found, its first copy, the kind and whether labels differ."""
    found: dict[str, tuple[str, str, bool]] = {}
    for row in pq.read_table(path).to_pylist():
        found.setdefault(row["test_id"], (row["train_id"], row["kind"], row["conflict"]))
    return found


@pytest.mark.slow
def test_planted_copies_are_found_with_their_kind_and_their_conflicts(
    difficulty: Command, sets: Sets, tmp_path: Path
) -> None:
    out = tmp_path / "pairs.parquet"

    done = difficulty("leaks", sets.train, sets.test, "--out", out)

    assert done.returncode == 0, done.stderr
    found = found_in(out)
    for row in range(COPIES):
        kind = KINDS[row % len(KINDS)]
        name = f"{kind}-{row}"
        if kind in ("bytes", "lossless"):
            assert found[name] == (str(row), "exact", row % 8 == 0)
        elif kind in ("jpeg", "resized") and name in found:
            assert found[name] == (str(row), "near", row % 8 == 0)
    assert sum(name.startswith("jpeg") for name in found) >= 5
    assert sum(name.startswith("resized") for name in found) == 8
    assert not any(name.startswith("own") for name in found)
    conflicts = sum(conflict for _, _, conflict in found.values())
    words = " ".join(done.stdout.split())
    assert f"{conflicts} of 80 images of {sets.test} have a copy in {sets.train} with" in words
    assert f"{len(found)} of 80 images" in words
    assert "16 exact" in words
    assert words.index("another label") < words.index("exact")


@pytest.mark.slow
def test_mirrored_copies_are_found_in_features_of_both_sides(
    difficulty: Command, difficulty_process: Command, tables: Path, tmp_path: Path
) -> None:
    flipped = extract(difficulty_process, tables, tmp_path, "--flip")

    done = difficulty("leaks", flipped.train, flipped.test, "--out", tmp_path / "pairs.parquet")

    assert done.returncode == 0, done.stderr
    mirrored = {name for name in found_in(tmp_path / "pairs.parquet") if "mirrored" in name}
    assert len(mirrored) == COPIES // len(KINDS)


def test_a_limit_that_is_exceeded_ends_with_code_3_after_everything_is_written(
    difficulty: Command, sets: Sets, tmp_path: Path
) -> None:
    words = ("leaks", sets.train, sets.test, "--near-duplicates", "none", "--fail-above")
    out = tmp_path / "pairs.csv"

    above = difficulty(*words, "exact copies: 15", "--out", out)
    below = difficulty(*words, "copies: 20%", "--fail-above", "exact copies: 16")

    assert above.returncode == 3
    assert f"{sets.test}: exact copies: 16 images, above the limit of 15" in above.stderr
    assert len(pyarrow.csv.read_csv(out)) == 16
    assert below.returncode == 0, below.stderr


def test_an_unknown_kind_is_a_wrong_call_with_the_kinds(difficulty: Command, sets: Sets) -> None:
    done = difficulty("leaks", sets.train, sets.test, "--fail-above", "copy: 1")

    assert done.returncode == 2
    assert "did you mean 'copies'? expected KIND: NUMBER with one of copies, exact copies" in (
        " ".join(done.stderr.split())
    )


def test_json_has_the_counts_and_nothing_else_is_printed(difficulty: Command, sets: Sets) -> None:
    done = difficulty("leaks", sets.train, sets.test, "--near-duplicates", "none", "--json")

    result = json.loads(done.stdout)
    assert (result["train"], result["samples"]) == (str(sets.train), TRAIN)
    assert result["near_duplicates"] is None
    (test,) = result["tests"]
    assert (test["samples"], test["copies"], test["exact_copies"]) == (80, 16, 16)
    assert test["conflicting_copies"] == 2
    assert (test["search"], test["lists"]) == ("exact", None)


def test_inverted_lists_say_what_they_find(difficulty: Command, sets: Sets) -> None:
    exact, lists = (
        difficulty("leaks", sets.train, sets.test, "--search", search, "--json")
        for search in ("exact", "lists")
    )

    (complete,), (test,) = (json.loads(done.stdout)["tests"] for done in (exact, lists))
    assert test["search"] == "lists"
    assert test["lists"]["samples"] == 4
    assert test["exact_copies"] == complete["exact_copies"] == 16
    assert test["copies"] <= complete["copies"]
    assert "were looked for in inverted lists" in " ".join(lists.stderr.split())


def test_a_search_is_refused_where_only_exact_copies_are_looked_for(
    difficulty: Command, sets: Sets
) -> None:
    options = ("--near-duplicates", "none", "--search", "lists")
    done = difficulty("leaks", sets.train, sets.test, *options)

    assert done.returncode == 1
    assert "lists searches near copies" in " ".join(done.stderr.split())


def test_the_page_has_pairs_of_pictures_and_hostile_names_are_text(
    difficulty: Command, sets: Sets, tmp_path: Path
) -> None:
    page = tmp_path / "leaks.html"

    done = difficulty("leaks", sets.train, sets.test, "--report", page)

    assert done.returncode == 0, done.stderr
    html = page.read_text()
    assert html.count("data:image/webp;base64,") == 2 * html.count('<ul class="strip">')
    assert WRONG not in html
    assert "&lt;b&gt;wrong&lt;/b&gt;" in html


@pytest.mark.slow
def test_clean_drops_what_leaks_from_the_training_set(
    difficulty: Command, difficulty_process: Command, sets: Sets, tmp_path: Path
) -> None:
    marks, scores = tmp_path / "drop.csv", tmp_path / "scores.parquet"
    done = difficulty_process("score", sets.train, "--out", scores, "--scorers", "rmd")
    assert done.returncode == 0, done.stderr

    leaks = difficulty("leaks", sets.train, sets.test, "--drop-train", marks)
    cleaned = difficulty("clean", scores, "--marks", marks, "--out", tmp_path / "cleaned.parquet")

    assert leaks.returncode == cleaned.returncode == 0, cleaned.stderr
    dropped = set(read_marks(marks, ()).samples)
    assert {str(row) for row in range(COPIES) if row % len(KINDS) < 2} <= dropped
    kept = set(pq.read_table(tmp_path / "cleaned.parquet")["sample_id"].to_pylist())
    assert kept == set(read_scores(scores).table["sample_id"].to_pylist()) - dropped
    again = tmp_path / "again.features"
    words = ("extract", tmp_path / "cleaned.parquet", "--out", again, "--id-column", "sample_id")
    done = difficulty_process(*words, "--backbone", "builtin", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    checked = difficulty("leaks", again, sets.test, "--fail-above", "copies: 0")
    assert checked.returncode == 0, checked.stderr


def test_a_set_is_not_compared_with_itself(difficulty: Command, tmp_path: Path) -> None:
    done = difficulty("leaks", tmp_path, tmp_path / ".." / tmp_path.name)

    assert done.returncode == 2
    assert "given twice" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--drop-test", "drop.csv"), "--drop-test needs a single test set, but 2 are given"),
        (("--train-images", "photos"), "need a page"),
        (("--out", "a.csv", "--drop-train", "a.csv"), "written to the same file"),
        (("--out", "train/part.csv"), "would be overwritten"),
        (("--drop-train", "train.marks.csv"), "holds decisions of people"),
        (("--search", "some"), "--search"),
        (
            ("--near-duplicates", "2"),
            "--near-duplicates 2 should be 'none' or be less than or equal to 1",
        ),
    ],
)
def test_calls_that_cannot_work_are_refused_at_once(
    difficulty: Command, options: tuple[str, ...], message: str
) -> None:
    done = difficulty("leaks", "train", "one", "two", *options)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
