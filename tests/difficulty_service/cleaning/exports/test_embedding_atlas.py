"""What Embedding Atlas opens: it reads Parquet by pandas, and takes the columns by their names."""

import io
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.base.errors import CleaningError
from difficulty_service.cleaning.exports import embedding_atlas, export_file
from difficulty_service.features.store import open_store
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.pages.stored_images import open_images
from difficulty_service.reports.map import draw_map, place_samples
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import to_samples
from difficulty_service.scoring.fit_store import fit_store
from tests.difficulty_service.cleaning.exports.conftest import World, without_labels


def test_every_sample_has_names_scores_a_tier_and_its_small_image(
    tmp_path: Path, world: World
) -> None:
    export_file("embedding-atlas", world.scores, tmp_path / "atlas.parquet", world.images)

    rows = pq.read_table(tmp_path / "atlas.parquet").to_pylist()
    assert [row["sample_id"] for row in rows] == world.ids
    doubtful = rows[4]
    assert (doubtful["label"], doubtful["nearest_label"]) == ("cat", "dog")
    assert doubtful["suggested_label"] == "dog"
    assert [row["tier"] for row in rows if row["tier"] != "fits"] == ["probably wrong"]
    assert doubtful["label_score"] == pytest.approx(1 / (1 + np.e**2))
    assert [row["rmd"] for row in rows] == list(range(12))
    assert Path(doubtful["image"]["path"]).read_bytes()
    with Image.open(io.BytesIO(doubtful["image"]["bytes"])) as picture:
        assert picture.size == (32, 24)


def test_the_map_is_that_of_the_report_and_the_command_names_its_columns(
    tmp_path: Path, world: World
) -> None:
    path = tmp_path / "an atlas.parquet"

    exported = export_file("embedding-atlas", world.scores, path, world.images)

    table = pq.read_table(path)
    drawn = draw_map(to_samples(world.scores), open_store(world.path.with_suffix(".features")))
    assert drawn is not None
    for axis, name in enumerate(("projection_x", "projection_y")):
        np.testing.assert_allclose(table[name].to_numpy(), drawn.positions[:, axis], rtol=1e-6)
    words = shlex.split(exported.instructions[0].partition(": ")[2])
    assert words == [
        *("embedding-atlas", str(path), "--x", "projection_x", "--y", "projection_y"),
        *("--image", "image"),
    ]


def test_more_samples_than_t_sne_places_get_the_map_of_the_explorer(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_atlas, "MAX_POINTS", 11)

    export_file("embedding-atlas", world.scores, tmp_path / "atlas.parquet", world.images)

    store = open_store(world.path.with_suffix(".features"))
    placed = place_samples(store, fit_store(store, FitOptions("auto", "auto")).gaussians)
    assert placed is not None
    table = pq.read_table(tmp_path / "atlas.parquet")
    np.testing.assert_allclose(table["projection_x"].to_numpy(), placed["x"].to_numpy(), rtol=1e-6)


def test_scores_without_features_get_no_map_and_a_command_that_makes_one(
    tmp_path: Path, world: World
) -> None:
    scores = replace(world.scores, path=tmp_path / "elsewhere.parquet")

    exported = export_file("embedding-atlas", scores, tmp_path / "atlas.parquet", world.images)

    assert "projection_x" not in pq.read_schema(tmp_path / "atlas.parquet").names
    where = tmp_path / "elsewhere.features"
    assert exported.warnings == [f"there is no map, as there are no features in {where}"]
    assert exported.instructions[0].endswith("atlas.parquet --image image")


def test_images_without_labels_have_neither_labels_nor_tiers(tmp_path: Path, world: World) -> None:
    scores = without_labels(world.scores)

    export_file("embedding-atlas", scores, tmp_path / "atlas.parquet", world.images)

    names = pq.read_schema(tmp_path / "atlas.parquet").names
    assert names == ["sample_id", "md_agnostic", "percentile", "image"]


def test_an_image_that_cannot_be_read_is_left_out_and_counted(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile
) -> None:
    ids = photo_scores.table["sample_id"].to_pylist()
    table = photo_scores.table.append_column("percentile", pa.array([0.5] * 6))
    (photos / ids[1]).write_bytes(b"no image")
    images = open_images(photo_scores.provenance, ids)

    exported = export_file(
        "embedding-atlas", replace(photo_scores, table=table), tmp_path / "atlas.parquet", images
    )

    assert pq.read_table(tmp_path / "atlas.parquet")["sample_id"].to_pylist() == [
        *ids[:1],
        *ids[2:],
    ]
    assert f"the first is {ids[1]}: image: " in exported.warnings[-1]


def test_a_name_that_is_not_of_parquet_is_refused(tmp_path: Path, world: World) -> None:
    with pytest.raises(CleaningError, match=r"ends in '\.csv', expected is \.parquet"):
        export_file("embedding-atlas", world.scores, tmp_path / "atlas.csv", world.images)
