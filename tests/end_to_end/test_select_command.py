"""`difficulty select` on a scored folder of images, and what is done with the choice."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from difficulty_service.marks.files import read_marks
from difficulty_service.scores.file import read_scores
from tests.end_to_end.conftest import CLASSES, make_photos
from tests.factories import png_of

pytestmark = pytest.mark.analysis("selection")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture(scope="module")
def scored(difficulty_process: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of sixty images, with their features beside them."""
    folder = tmp_path_factory.mktemp("select")
    make_photos(folder / "photos", CLASSES, 20)
    words = ("--backbone", "builtin", "--device", "cpu", "--out", folder / "scores.parquet")
    done = difficulty_process("score", folder / "photos", *words)
    assert done.returncode == 0, done.stderr
    return folder / "scores.parquet"


@pytest.mark.slow
def test_the_chosen_images_are_in_a_table_and_counted_by_class(
    difficulty: Command, scored: Path, tmp_path: Path
) -> None:
    out = tmp_path / "chosen.csv"
    words = ("--strategy", "hard,typical,random", "--balanced", "--batch-size", "4")

    done = difficulty("select", scored, "--count", 12, *words, "--out", out)

    assert done.returncode == 0, done.stderr
    assert f"12 images of 60 of {scored} are in {out}" in done.stdout
    assert "4 hard, 4 typical, 4 random" in done.stdout
    table = pyarrow.csv.read_csv(out)
    assert table.column_names == ["rank", "sample_id", "label", "strategy", "score", "batch"]
    assert {name: table["label"].to_pylist().count(name) for name in CLASSES} == dict.fromkeys(
        CLASSES, 4
    )
    assert table["batch"].to_pylist() == [1] * 4 + [2] * 4 + [3] * 4


def test_the_next_round_chooses_others_and_json_counts_them(
    difficulty: Command, scored: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"

    done = difficulty("select", scored, "--count", 40, "--strategy", "diverse", "--out", first)
    again = difficulty(
        *("select", scored.with_suffix(".features"), "--count", 20, "--chosen", first),
        *("--out", second, "--json"),
    )

    assert done.returncode == again.returncode == 0, again.stderr
    ids = [set(pq.read_table(each)["sample_id"].to_pylist()) for each in (first, second)]
    assert not ids[0] & ids[1]
    result = json.loads(again.stdout)
    assert (result["samples"], result["excluded"], result["chosen"]) == (60, 40, 20)
    assert result["strategies"] == {"random": 20}


@pytest.mark.parametrize("source", ["scores.parquet", "scores.features"])
def test_the_command_that_keeps_the_chosen_ones_works_for_images_in_a_table(
    difficulty: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    images = [{"bytes": png_of((row, 0, 0)), "path": None} for row in range(40)]
    pq.write_table(pa.table({"image": images, "label": ["cat", "dog"] * 20}), "photos.parquet")
    difficulty("score", "photos.parquet", "--backbone", "builtin", "--out", "scores.parquet")

    done = difficulty("select", source, "--count", 9, "--out", "a.csv", "--drop-others", "b.csv")
    command = done.stdout.split("difficulty ")[1].split("\n")[0]
    cleaned = difficulty(*command.split())

    assert cleaned.returncode == 0, cleaned.stderr
    assert pq.read_metadata("chosen.parquet").num_rows == 9


def test_a_core_set_is_cleaned_to_and_the_scores_of_it_are_exported(
    difficulty: Command, scored: Path, tmp_path: Path
) -> None:
    marks, chosen = tmp_path / "drop.csv", tmp_path / "chosen.parquet"
    words = ("--strategy", "easy", "--out", tmp_path / "table.csv")

    done = difficulty(
        *("select", scored, "--count", 15, *words, "--drop-others", marks, "--out-scores", chosen)
    )
    cleaned = difficulty("clean", scored, "--marks", marks, "--out", tmp_path / "core.parquet")
    exported = difficulty("export", chosen, "--to", "labelstudio", "--out", tmp_path / "tasks")

    assert done.returncode == cleaned.returncode == exported.returncode == 0, exported.stderr
    assert f"difficulty clean {scored} --marks {marks}" in done.stdout
    ids = pyarrow.csv.read_csv(tmp_path / "table.csv")["sample_id"].to_pylist()
    assert len(read_marks(marks, ()).samples) == 45
    core = pq.read_table(tmp_path / "core.parquet")["sample_id"].to_pylist()
    assert sorted(core) == sorted(ids)
    assert read_scores(chosen).table["sample_id"].to_pylist() == ids
    tasks = json.loads((tmp_path / "tasks" / "tasks.json").read_text())
    assert {task["data"]["sample_id"] for task in tasks} == set(ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "chosen.csv", "--by", "rmd"), "--by changes nothing for --strategy random"),
        (("--out", "chosen.csv", "--out-scores", "a.parquet"), "needs a score file"),
        (("--out", "a.csv", "--drop-others", "a.csv"), "written to the same file"),
        (("--out", "pool/a.csv"), "would be overwritten"),
        (("--out", "pool.marks.csv"), "holds decisions of people"),
        (("--out", "chosen.csv", "--strategy", "best"), "'best' is no strategy"),
        ((), "--out"),
    ],
)
def test_calls_that_cannot_work_are_refused_at_once(
    difficulty: Command, options: tuple[str, ...], message: str
) -> None:
    done = difficulty("select", "pool", "--count", "3", *options)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_a_call_without_a_number_is_refused(difficulty: Command) -> None:
    done = difficulty("select", "pool", "--out", "chosen.csv")

    assert done.returncode == 2
    assert "--count" in done.stderr
