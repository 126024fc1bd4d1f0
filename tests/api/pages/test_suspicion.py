"""The pages order, filter and count images by suspicion where the scores have it."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.explore import explorer_settings
from api.imported import import_scores
from api.storage.artifacts import open_artifacts
from api.storage.database import open_database
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

NO_BREAK = "\N{NO-BREAK SPACE}"
SCORES = score_table(
    [0, 0, 1, 1],
    rmd=[4.0, 3.0, 2.0, 1.0],
    nearest_label=[1, 0, 1, 1],
    label_margin=[2.0, -1.0, -2.0, -3.0],
    percentile=[0.9, 0.6, 0.3, 0.0],
    suspicion=[-4.5, 1.5, 6.5, -2.5],
    suggested_label=[1, 2, 0, 0],
)


def opened(folder: Path, table: pa.Table = SCORES) -> tuple[TestClient, str]:
    """A client of the pages of the scores, and the address of the job."""
    (folder / "photos").mkdir()
    scores = folder / "scores.parquet"
    provenance = {"class_names": ["cat", "dog", "owl"], "num_doubtful": 1}
    write_scores(scores, table, Provenance.of(provenance))
    settings = explorer_settings(scores, str(folder / "photos"), 0)
    with open_database(settings) as engine:
        artifacts = open_artifacts(settings.artifact_root)
        job = import_scores(engine, artifacts, read_scores(scores), str(folder / "photos"))
    return TestClient(create_app(settings), base_url="http://localhost"), f"/jobs/{job.id}"


def rows_of(page: str) -> list[int]:
    return [int(row) for row in re.findall(r'id="image-(\d+)"', page)]


def numbers_of(page: str) -> list[str]:
    return re.findall(r'class="number named">([^<]*)<', page)


def test_images_are_ordered_and_filtered_by_suspicion(tmp_path: Path) -> None:
    client, address = opened(tmp_path)

    with client:
        every = client.get(f"{address}/images?sort=doubtful").text
        doubtful = client.get(f"{address}/images").text
        hardest = client.get(f"{address}/images?sort=hardest").text
        owls = client.get(f"{address}/images?near=owl").text

    assert rows_of(every) == [2, 1, 3, 0]
    assert rows_of(doubtful) == [2, 1]
    assert rows_of(owls) == [1]
    assert numbers_of(doubtful) == [f"suspicion 99.8{NO_BREAK}%", f"suspicion 81.8{NO_BREAK}%"]
    assert all(each.startswith("RMD ") for each in numbers_of(hardest))
    assert f'<a href="{address}/images?sort=doubtful">Show the others, too</a>' in doubtful
    assert f'href="{address}/images/2?margin=0"' in doubtful
    assert '<option value="0" selected>above 50' in doubtful
    assert f'href="{address}/images?margin=0&amp;sort=doubtful">Only doubtful labels<' in every
    assert "Mark all" not in every
    assert "Only doubtful labels" not in owls
    assert "Chance of a wrong label" in every
    assert "Margin above" not in every


@pytest.mark.slow
def test_without_doubtful_labels_the_list_begins_with_all_images(tmp_path: Path) -> None:
    calm = SCORES.set_column(
        SCORES.column_names.index("suspicion"), "suspicion", pa.array([-4.0, -3.0, -2.0, -1.0])
    )
    calm = calm.set_column(
        calm.column_names.index("label_margin"), "label_margin", pa.array([-1.0] * 4)
    )
    client, address = opened(tmp_path, calm)

    with client:
        page = client.get(f"{address}/images").text

    assert len(rows_of(page)) == 4
    assert "Only doubtful labels" not in page


def test_the_summary_and_the_job_count_the_images_that_the_list_shows(tmp_path: Path) -> None:
    client, address = opened(tmp_path)

    with client:
        summary = client.get(address).text
        image = client.get(f"{address}/images/2").text
        job = client.get(f"/v1{address}").json()

    assert "<b>2</b> of 4 labels are probably wrong, 1 of them almost certainly." in summary
    assert "1 ambiguous · 1 fits" in summary
    assert job["result"]["num_doubtful"] == 2
    chance = f"<dd>99.8{NO_BREAK}%: another class fits better</dd>"
    assert f"<dt>Chance that the label is wrong</dt>{chance}" in image
    assert re.search(r"<dt>Label margin</dt><dd>.2\.0</dd>", image)
