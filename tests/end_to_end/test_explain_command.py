"""`difficulty explain` with a small CLIP of random weights, in which a phrase is planted."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

import difficulty_service as ds
from difficulty_service.analyses.audit.explained_scores import read_attributes
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.base.checksums import load_checked
from difficulty_service.features.store import open_store
from difficulty_service.scores.explanation import read_explanation
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.small_clip import BACKBONE, known_to_open_clip, write_weights

pytestmark = pytest.mark.analysis("audit")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]

CLASSES, IMAGES_PER_CLASS = ("cat", "dog"), 120
PLANTED = "a mostly red photo"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Random weights of a small CLIP."""
    folder = tmp_path_factory.mktemp("clip")
    with known_to_open_clip(folder):
        yield write_weights(folder / "clip.safetensors")


@dataclass(frozen=True)
class ScoredPhotos:
    """Pictures of two classes, scores by which the red cats are hard, and their ids."""

    folder: Path
    scores: Path
    red: frozenset[str]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ScoredPhotos:
    root, rng = tmp_path_factory.mktemp("explain"), np.random.default_rng(0)
    ids, labels, red = [], [], set()
    for label, name in enumerate(CLASSES):
        (root / "photos" / name).mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            sample_id = f"{name}/{number:03d}.png"
            pixels = rng.integers(0, 256, size=(8, 8, 3)).astype(np.uint8)
            if name == "cat" and number % 10 == 3:
                pixels[..., 0], pixels[..., 1:] = 255, pixels[..., 1:] // 8
                red.add(sample_id)
            Image.fromarray(pixels).save(root / "photos" / sample_id)
            ids.append(sample_id)
            labels.append(label)
    scores = rng.normal(size=len(ids)) + 10 * np.isin(ids, list(red))
    table = pa.table(
        {
            "sample_id": ids,
            "label": labels,
            "label_name": [CLASSES[label] for label in labels],
            "rmd": scores,
            "nearest_label": [1 - label for label in labels],
            "label_margin": np.full(len(ids), -1.0),
            "percentile": scores.argsort().argsort() / (len(ids) - 1),
            "duplicate_of": pa.nulls(len(ids), pa.string()),
        }
    )
    write_scores(
        root / "scores.parquet",
        table,
        Provenance.of(
            {"dataset": str(root / "photos"), "backbone": "builtin", "fingerprint": "unknown"}
        ),
    )
    return ScoredPhotos(root / "photos", root / "scores.parquet", frozenset(red))


def plant(weights: Path, photos: ScoredPhotos, difficulty: Command, out: Path) -> None:
    """Changes the text projection so that one phrase points to what makes the red cats red.

    All other phrases are at a right angle to that direction.
    """
    features = out.with_suffix(".features")
    options = ("--backbone", BACKBONE, "--weights", weights, "--features", "projected")
    done = difficulty("extract", photos.folder, "--out", features, *options)
    assert done.returncode == 0, done.stderr
    table = open_store(features).read_shard(0)
    images = F.normalize(table.features, dim=1).double()
    is_red = torch.tensor([sample_id in photos.red for sample_id in table.sample_ids])
    is_cat = torch.tensor([sample_id.startswith("cat") for sample_id in table.sample_ids])
    direction = F.normalize(images[is_red].mean(0) - images[is_cat & ~is_red].mean(0), dim=0)

    phrases = read_attributes()
    tensors = load_file(weights)
    identity = load_text_encoder(BACKBONE, BackboneOptions(weights=str(weights)))
    identity.tower.text_projection = torch.nn.Parameter(torch.eye(384), requires_grad=False)
    pooled = identity.encode(phrases).double()
    targets = torch.randn(len(phrases), 24, generator=torch.Generator().manual_seed(0)).double()
    targets -= targets @ direction[:, None] * direction
    targets = F.normalize(targets, dim=1)
    targets[phrases.index(PLANTED)] = direction
    projection = torch.linalg.lstsq(pooled, targets, driver="gelsd").solution
    save_file({**tensors, "text_projection": projection.float().contiguous()}, out)


@pytest.fixture(scope="module")
def planted_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted") / "clip.safetensors"


@pytest.fixture
def clip(
    weights: Path, planted_weights: Path, photos: ScoredPhotos, difficulty: Command
) -> tuple[object, ...]:
    """The options that choose the CLIP with the planted phrase."""
    if not planted_weights.exists():
        plant(weights, photos, difficulty, planted_weights)
    return ("--backbone", BACKBONE, "--weights", planted_weights, "--device", "cpu")


@pytest.mark.slow
def test_the_planted_phrase_is_found_where_it_is_and_nowhere_else(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...]
) -> None:
    done = difficulty("explain", photos.scores, *clip)

    assert done.returncode == 0, done.stderr
    written = load_checked(photos.scores.with_suffix(".explained.json").read_text())
    groups = {group["class_name"]: group for group in written["groups"]}
    assert groups["cat"]["num_hard"] == 12
    assert groups["cat"]["num_easy"] == 60
    assert [finding["attribute"] for finding in groups["cat"]["findings"]] == [PLANTED]
    assert groups["cat"]["findings"][0]["effect"] > 1
    assert groups["dog"]["findings"] == []
    assert PLANTED in done.stdout
    assert "nothing stands out in 1 of 2 classes" in done.stdout
    assert written["backbone"] == BACKBONE
    assert read_explanation(photos.scores.with_suffix(".explained.json")) == written


@pytest.mark.slow
def test_the_report_shows_what_was_found(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...], tmp_path: Path
) -> None:
    difficulty("explain", photos.scores, *clip)

    done = difficulty("report", photos.scores, "--out", tmp_path / "report.html")

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text("utf-8")
    assert f"more like <b><bdi>{PLANTED}</bdi></b>" in page
    assert "Nothing stands out in 1 of 2 classes" in page


@pytest.mark.slow
def test_a_second_run_reads_no_image_again_and_ends_with_the_same_file(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...], tmp_path: Path
) -> None:
    outs = [tmp_path / "first.json", tmp_path / "second.json"]

    difficulty("explain", photos.scores, *clip, "--out", outs[0])
    changed = photos.scores.with_suffix(".projected") / "part-00000.arrow"
    written_at = changed.stat().st_mtime_ns
    done = difficulty("explain", photos.scores, *clip, "--out", outs[1])

    assert done.returncode == 0, done.stderr
    assert changed.stat().st_mtime_ns == written_at
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.slow
def test_random_scores_stand_for_nothing(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...], tmp_path: Path
) -> None:
    contents = read_scores(photos.scores)
    column = contents.table.column_names.index("rmd")
    random = np.random.default_rng(5).normal(size=len(contents.table))
    scores = tmp_path / "random.parquet"
    write_scores(scores, contents.table.set_column(column, "rmd", [random]), contents.provenance)

    done = difficulty("explain", scores, "--images", photos.folder, *clip)

    assert done.returncode == 0, done.stderr
    assert "nothing stands out: hard images are described as easy ones are" in done.stdout
    written = load_checked((tmp_path / "random.explained.json").read_text())
    assert not any(group["findings"] for group in written["groups"])


@pytest.mark.slow
def test_samples_without_an_image_and_copies_are_left_out(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...], tmp_path: Path
) -> None:
    contents = read_scores(photos.scores)
    ids = ["gone.png", *contents.table["sample_id"].to_pylist()[1:]]
    copies = ["dog/000.png" if sample_id.startswith("dog/05") else None for sample_id in ids]
    table = contents.table
    for name, column in (("sample_id", ids), ("duplicate_of", pa.array(copies, pa.string()))):
        table = table.set_column(table.column_names.index(name), name, [column])
    write_scores(tmp_path / "scores.parquet", table, contents.provenance)

    done = difficulty("explain", tmp_path / "scores.parquet", *clip)

    assert done.returncode == 0, done.stderr
    assert "1 sample is left out without an image" in done.stderr
    groups = load_checked((tmp_path / "scores.explained.json").read_text())["groups"]
    assert [group["num_easy"] for group in groups] == [59 + 55, 59, 55]


@pytest.mark.slow
def test_projected_features_that_were_scored_are_used_without_the_images(
    difficulty: Command, clip: tuple[object, ...], photos: ScoredPhotos, tmp_path: Path
) -> None:
    folder, scores = tmp_path / "photos", tmp_path / "scores.parquet"
    shutil.copytree(photos.folder, folder)
    done = difficulty("score", folder, "--out", scores, *clip, "--features", "projected")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder)

    done = difficulty("explain", scores, *clip[2:])

    assert done.returncode == 0, done.stderr
    assert "the features are those that were scored" in done.stderr
    assert load_checked((tmp_path / "scores.explained.json").read_text())["backbone"] == BACKBONE


@pytest.mark.slow
def test_attributes_of_ones_own_take_the_place_of_those_of_the_package(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "own.txt").write_text("a mostly red photo\na mostly blue photo\n")

    done = difficulty(
        *("explain", photos.scores, *clip),
        *("--attributes", tmp_path / "own.txt", "--out", tmp_path / "own.json"),
    )

    assert done.returncode == 0, done.stderr
    assert "by 2 attributes" in done.stdout
    assert load_checked((tmp_path / "own.json").read_text())["num_attributes"] == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* images are found by their sample id")
def test_python_finds_what_the_command_finds(
    difficulty: Command, photos: ScoredPhotos, clip: tuple[object, ...], tmp_path: Path
) -> None:
    difficulty("explain", photos.scores, *clip, "--out", tmp_path / "command.json")
    scores, copy = ds.open_scores(photos.scores), tmp_path / "copy.parquet"
    shutil.copy(photos.scores, copy)
    call = partial(ds.explain, backbone=BACKBONE, weights=str(clip[3]), progress=False)

    found = call(scores, out=tmp_path / "own.json")
    call(copy, images=photos.folder)

    expected = (tmp_path / "command.json").read_bytes()
    assert [group.findings[0].attribute for group in found.groups if group.findings][-1] == PLANTED
    assert (tmp_path / "own.json").read_bytes() == expected
    assert (tmp_path / "copy.explained.json").read_bytes() == expected
    assert json.loads(expected)["scores"] == {"backbone": "builtin", "weights_sha256": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backbone", "builtin"), "no text encoder; use a CLIP, such as --backbone clip-vit-b16"),
        (("--weights", "missing.safetensors"), "there is no file missing.safetensors"),
        (("--attributes", "missing.txt"), "missing.txt cannot be read"),
        (("--out", "words.csv"), "expected is .json"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_image_is_read(
    difficulty: Command, photos: ScoredPhotos, options: tuple[str, ...], message: str
) -> None:
    done = difficulty("explain", photos.scores, *options)

    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""
