"""`difficulty report`, and the report that `score` and the demo write."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from difficulty_service.cli import demo

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


def test_a_report_finds_the_images_of_the_scores(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores = scored[0] / "scores.parquet"

    done = difficulty("report", scores, "--out", tmp_path / "page.html")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("data:image/webp") > 100
    assert f"the report is in {tmp_path / 'page.html'} (" in done.stdout
    assert f"difficulty clean {scores} --marks marks.csv --out cleaned.parquet" in done.stdout


def test_pictures_that_are_left_out_are_told_with_the_option_of_the_command(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"

    done = difficulty("report", scored[0] / "scores.parquet", "--out", page, "--max-mb", 0.01)

    assert done.returncode == 0, done.stderr
    assert "so that the file stays below 0.01 MB (--max-mb)" in done.stderr
    assert "MB (--max-mb)" in page.read_text("utf-8")


def test_scores_can_be_followed_by_a_report_at_once(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    out, report = tmp_path / "scores.parquet", tmp_path / "report.html"
    words = ("score", few_photos, "--out", out, *network, "--shrinkage", "leave-one-out")

    plain = difficulty(*words)
    done = difficulty(*words, "--report", report)

    assert done.returncode == 0, done.stderr
    assert "20 images" in report.read_text("utf-8")
    step = f"difficulty report {out}"
    assert plain.stdout.split("next:")[1].split("\n")[2].strip() == step
    assert step not in done.stdout


def test_a_report_that_could_not_be_written_is_refused_before_anything_is_read(
    difficulty: Command, tmp_path: Path
) -> None:
    done = difficulty(
        *("score", tmp_path / "no photos", "--out", tmp_path / "s.parquet"),
        *("--report", tmp_path / "report.pdf"),
    )

    assert done.returncode == 1
    assert "expected is .html, .htm" in done.stderr
    assert "no photos" not in done.stderr


def test_without_the_dataset_everything_but_pictures_is_there(
    difficulty: Command, scored: Scored, photos: Path, tmp_path: Path
) -> None:
    table = pq.read_table(scored[0] / "scores.parquet")
    described = table.schema.metadata[b"difficulty"].replace(b"/photos", b"/elsewhere")
    moved = tmp_path / "scores.parquet"
    pq.write_table(table.replace_schema_metadata({b"difficulty": described}), moved)

    without = difficulty("report", moved)
    page = (tmp_path / "scores.html").read_text("utf-8")
    named = difficulty("report", moved, "--images", photos)
    wrong = difficulty("report", moved, "--images", tmp_path / "nothing")

    assert without.returncode == named.returncode == 0, without.stderr + named.stderr
    assert "there are no pictures" in without.stderr
    assert "difficulty report … --images DATASET" in without.stderr
    assert "difficulty report … --images DATASET" in page
    assert "data:image/webp" in (tmp_path / "scores.html").read_text("utf-8")
    assert wrong.returncode == 1


@pytest.mark.slow
def test_a_map_is_drawn_of_the_features_beside_the_scores(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / "report.html"
    (tmp_path / "alone.parquet").write_bytes(scores.read_bytes())

    done = difficulty("report", scores, "--out", out, "--map")
    alone = difficulty("report", tmp_path / "alone.parquet", "--map")

    assert done.returncode == 0, done.stderr
    assert 'id="map-data"' in out.read_text("utf-8")
    assert alone.returncode == 1
    assert "alone.features holds none" in alone.stderr


def test_an_unknown_column_to_compare_is_named(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores = scored[0] / "scores.parquet"

    known = difficulty("report", scores, "--out", tmp_path / "r.html", "--compare", "md")
    unknown = difficulty("report", scores, "--out", tmp_path / "r.html", "--compare", "age")

    absent = difficulty("report", scores, "--out", tmp_path / "r.html", "--compare", "knn")

    assert known.returncode == 0, known.stderr
    assert unknown.returncode == absent.returncode == 1
    assert "'age'" in unknown.stderr
    assert "has no knn; score with --scorers knn" in " ".join(absent.stderr.split())


@pytest.mark.parametrize(
    ("display", "at_terminal", "expected"),
    [(":0", "yes", True), ("", "yes", False), (":0", "no", False)],
)
def test_a_browser_opens_only_before_a_person_at_a_desktop(
    monkeypatch: pytest.MonkeyPatch, display: str, at_terminal: str, expected: object
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stdout.isatty", lambda: at_terminal == "yes")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)

    assert demo.has_desktop() is expected


def test_columns_of_the_dataset_or_of_a_table_are_named_on_the_command_line(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, page = scored[0] / "scores.parquet", tmp_path / "page.html"
    ids = pq.read_table(scores)["sample_id"].to_pylist()
    table = tmp_path / "a.csv"
    table.write_text("sample_id,camera,boxes\n" + "".join(f"{each},A,1\n" for each in ids[1:]))

    done = difficulty("report", scores, "--out", page, "--columns", f"{table}:camera")
    refused = difficulty("report", scores, "--out", page, "--columns", f"{table}:camara")

    assert done.returncode == 0, done.stderr
    assert f"a.csv: 1 of {len(ids)} samples have no row" in " ".join(done.stderr.split())
    assert '"name":"camera"' in page.read_text("utf-8")
    assert refused.returncode == 1
    assert "did you mean 'camera'?" in " ".join(refused.stderr.split())
