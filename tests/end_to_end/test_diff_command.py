"""`difficulty diff` on two versions of a folder of images."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import CLASSES, make_photos

pytestmark = pytest.mark.analysis("versions")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@dataclass(frozen=True)
class Versions:
    """The features of a folder of images, and the scores of a later version of it."""

    folder: Path

    @property
    def old(self) -> Path:
        return self.folder / "old.features"

    @property
    def new(self) -> Path:
        return self.folder / "new.parquet"


@pytest.fixture(scope="module")
def versions(difficulty_process: Command, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """Sixty images; in the new version one is gone, one renamed, one relabelled, and one changed.

    Twelve others are added.
    """
    folder = tmp_path_factory.mktemp("versions")
    make_photos(folder / "old", CLASSES, 20)
    shutil.copytree(folder / "old", folder / "new")
    one, other, *_ = sorted(each for each in (folder / "new").iterdir() if each.is_dir())
    gone, renamed, relabelled, changed, *_ = sorted(one.iterdir())
    gone.unlink()
    renamed.rename(one / "renamed.png")
    relabelled.rename(other / "relabelled.png")
    changed.write_bytes((folder / "old" / other.name / changed.name).read_bytes() + b" ")
    for number, path in enumerate(sorted(other.iterdir())[:12]):
        (one / f"added-{number}.png").write_bytes(path.read_bytes() + b"%d" % number)
    words = ("--backbone", "builtin", "--device", "cpu", "--out")
    for command in (
        ("extract", folder / "old", *words, folder / "old.features"),
        ("score", folder / "new", *words, folder / "new.parquet", "--scorers", "rmd"),
    ):
        done = difficulty_process(*command)
        assert done.returncode == 0, done.stderr
    return Versions(folder)


@pytest.mark.slow
def test_the_changes_are_counted_listed_and_shown(
    difficulty: Command, versions: Versions, tmp_path: Path
) -> None:
    out, page = tmp_path / "changes.parquet", tmp_path / "changes.html"

    done = difficulty("diff", versions.old, versions.new, "--out", out, "--report", page)

    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert f"{versions.old}: 60 images; {versions.new}: 71 images" in words
    assert "12 added, 1 removed, 1 changed, 2 moved, 1 relabelled" in words
    rows = pq.read_table(out).to_pylist()
    assert rows[0]["relabelled"]
    assert rows[0]["new_id"].endswith("relabelled.png")
    assert sum(row["kind"] == "added" for row in rows) == 12
    assert all(row["score"] is not None for row in rows if row["kind"] == "added")
    html = page.read_text()
    assert "What is new and hard" in html
    assert html.count("data:image/webp;base64,") == 14  # new, changed and relabelled ones


@pytest.mark.slow
def test_a_limit_that_is_exceeded_ends_with_code_3(
    difficulty: Command, versions: Versions, tmp_path: Path
) -> None:
    words = ("diff", versions.old, versions.new, "--permutations", 0, "--fail-above")

    above = difficulty(*words, "relabelled: 0", "--out", tmp_path / "changes.csv")
    below = difficulty(*words, "removed: 1", "--fail-above", "added: 20%")

    assert above.returncode == 3
    assert "relabelled: 1 image, above the limit of 0" in above.stderr
    assert (tmp_path / "changes.csv").exists()
    assert below.returncode == 0, below.stderr


@pytest.mark.slow
def test_json_has_the_counts_and_the_classes_and_nothing_else_is_printed(
    difficulty: Command, versions: Versions
) -> None:
    words = ("--permutations", 19, "--json")

    done = difficulty("diff", versions.old, versions.new, *words)

    result = json.loads(done.stdout)
    assert (result["old_samples"], result["samples"], result["added"]) == (60, 71, 12)
    assert [each["name"] for each in result["classes"]] == [*sorted(CLASSES), ""]
    assert result["classes"][0]["p_value"] == 0.05
    assert 0 < result["separability"] <= 1


@pytest.mark.slow
def test_gaussians_tell_where_classes_moved_and_no_more(
    difficulty: Command, versions: Versions, tmp_path: Path
) -> None:
    paths = [tmp_path / "old.safetensors", tmp_path / "new.safetensors"]
    for path, features in zip(
        paths, (versions.old, versions.new.with_suffix(".features")), strict=True
    ):
        assert difficulty("fit", features, "--out", path).returncode == 0

    done = difficulty("diff", *paths, "--json")
    refused = difficulty("diff", *paths, "--fail-above", "added: 0", "--seed", 1)
    mixed = difficulty("diff", paths[0], versions.new)

    result = json.loads(done.stdout)
    assert result["added"] is None
    assert (result["old_samples"], result["samples"]) == (60, 71)
    assert result["classes"][0]["kl"] > 0
    assert result["classes"][0]["p_value"] is None
    assert "which samples differ" in done.stderr
    assert refused.returncode == mixed.returncode == 2
    assert "--fail-above, --seed needs features" in refused.stderr
    assert "features of both versions, or Gaussians of both" in mixed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("new", "--images", "photos"), "--images needs a page"),
        (("old",), "the same version is given twice"),
        (("new", "--out", "a.csv", "--report", "a.csv"), "written to the same file"),
        (("new", "--out", "old/a.csv"), "would be overwritten"),
        (("new", "--out", "new.marks.csv"), "holds decisions of people"),
        (("new", "--fail-above", "new: 1"), "one of added, removed, changed, moved, relabelled"),
    ],
)
def test_calls_that_cannot_work_are_refused_at_once(
    difficulty: Command, words: tuple[str, ...], message: str
) -> None:
    done = difficulty("diff", "old", *words)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
