"""Images of more than eight bits: errors in labels are found as in those of eight."""

import base64
import io
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import difficulty_service as ds
from api.online.encoder import BackbonePool
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.policy import settle_range
from difficulty_service.features.description import read_description
from difficulty_service.features.store import open_store
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels
from difficulty_service.pages.cards import read_pictures
from difficulty_service.pages.stored_images import open_images
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import make_plan
from difficulty_service.settings.machine import RunOptions
from difficulty_service.settings.run import Run

NUMBER, WRONG, SIDE = 180, 18, 64
Picture = NDArray[np.float64]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def planted(seed: int) -> tuple[list[Picture], NDArray[np.int64], set[int]]:
    """Images of three patterns, from 0 to 255, with labels of which some are wrong."""
    random = np.random.default_rng(seed)
    down, across = np.mgrid[:SIDE, :SIDE]
    stripes = (np.sin(across / 2), np.sin(down / 3), np.sin((down + across) / 4))
    classes = np.arange(NUMBER) % len(stripes)
    images = []
    for each in classes.tolist():
        row, column = random.integers(16, SIDE - 16, 2)
        inside = np.hypot(down - row, across - column) < random.integers(12, 16)
        values = random.normal(90, 12, (SIDE, SIDE)) + inside * (70 + 40 * stripes[each])
        images.append(values.clip(0, 255))
    wrong = random.choice(NUMBER, WRONG, replace=False)
    labels = classes.copy()
    labels[wrong] = (classes[wrong] + random.integers(1, 3, WRONG)) % len(stripes)
    return images, labels, set(wrong.tolist())


def in_kind(values: Picture, kind: str) -> NDArray[np.generic]:
    """The same image in other units."""
    if kind == "8 bits":
        return values.astype(np.uint8)
    if kind == "12 bits":
        return (values / 255 * 4095).astype(np.uint16)
    if kind == "100 to 1,000":
        return (100 + values / 255 * 900).astype(np.uint16)
    measured = (values / 255 * 3 - 1).astype(np.float32)
    measured[:6, :5] = -9999
    return measured


KINDS = ("8 bits", "12 bits", "100 to 1,000", "floats with nothing measured in a corner")


def write(folder: Path, images: list[Picture], labels: NDArray[np.int64], kind: str) -> Path:
    for number, (values, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        place = folder / f"class {label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(in_kind(values, kind)).save(place / f"{number:03}.tif")
    return folder


def number_of(sample_id: str) -> int:
    return int(Path(sample_id).stem)


@pytest.mark.long
def test_planted_errors_are_found_alike_in_four_kinds_of_pixels(tmp_path: Path) -> None:
    images, labels, wrong = planted(0)
    found, accused = dict[str, int](), dict[str, int]()

    for kind in KINDS:
        folder = write(tmp_path / kind, images, labels, kind)
        scores = ds.score_dataset(folder, backbone="builtin", out=tmp_path / f"{kind}.parquet")
        suspicion = np.nan_to_num(np.array(scores["suspicion"].to_pylist(), float), nan=-9.0)
        numbers = [number_of(each) for each in scores["sample_id"].to_pylist()]
        first = np.argsort(-suspicion)[:WRONG]
        found[kind] = len({numbers[row] for row in first} & wrong)
        accused[kind] = int((suspicion > 0).sum())
        assert not read_scores(tmp_path / f"{kind}.parquet").provenance.image_faults

    assert min(found.values()) >= WRONG - 1
    assert max(found.values()) - min(found.values()) <= 1
    assert max(accused.values()) - min(accused.values()) <= 1


@pytest.fixture(scope="module")
def dim(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A folder of dim images and its scores."""
    root = tmp_path_factory.mktemp("dim")
    images, labels, _ = planted(3)
    folder = write(root / "dim", images[:60], labels[:60], KINDS[2])
    ds.score_dataset(folder, backbone="builtin", out=root / "scores.parquet")
    return {"images": folder, "scores": root / "scores.parquet", "root": root}


def range_in(path: Path) -> PixelRange:
    found = PixelRange.of(read_scores(path).provenance.preprocessing)
    assert found is not None
    return found


@pytest.mark.slow
def test_the_range_is_said_and_kept(dim: Mapping[str, Path]) -> None:
    scores = ds.open_scores(dim["scores"])

    low, high = range_in(dim["scores"]).low, range_in(dim["scores"]).high
    assert 100 <= low < 400
    assert 700 < high <= 1000
    assert (
        f"in all of them values up to {low:g} become black and those from {high:g} on white, by a "
        "look at 60 images"
    ) in scores.warnings[0]
    assert PixelRange.of(
        read_description(dim["scores"].with_suffix(".features")).preprocessing
    ) == range_in(dim["scores"])


@pytest.mark.slow
def test_a_range_that_a_person_chooses_is_that_of_all_images(
    dim: Mapping[str, Path], tmp_path: Path
) -> None:
    scores = ds.score_dataset(
        dim["images"], backbone="builtin", pixel_range="100:1000", out=tmp_path / "s.parquet"
    )

    assert range_in(tmp_path / "s.parquet") == PixelRange(100, 1000)
    assert not any("more than 8 bits" in each for each in scores.warnings)


@pytest.mark.slow
def test_images_that_are_added_later_are_read_in_the_same_range(tmp_path: Path) -> None:
    images, labels, _ = planted(4)
    folder = write(tmp_path / "growing", images[:30], labels[:30], KINDS[2])
    out = tmp_path / "s.parquet"
    ds.score_dataset(folder, backbone="builtin", out=out)
    before = range_in(out)
    write(folder, [2 * each for each in images[30:60]], labels[30:60], KINDS[2])
    for path in sorted(folder.rglob("*.tif"))[:5]:
        path.rename(path.with_name(f"9{path.name[1:]}"))

    ds.score_dataset(folder, backbone="builtin", out=out)

    assert range_in(out) == before


def test_gaussians_say_in_which_range_new_images_are_read(
    dim: Mapping[str, Path], tmp_path: Path
) -> None:
    images, labels, _ = planted(5)
    folder = write(tmp_path / "dark", [0.5 * each for each in images[:30]], labels[:30], KINDS[2])
    plan = make_plan(Run(source=str(folder), features=tmp_path / "features"))
    dataset = open_dataset(str(folder), DatasetOptions())

    alone = settle_range(plan, dataset)
    with_gaussians = settle_range(
        plan, dataset, read_description(dim["scores"].with_suffix(".features"))
    )

    assert alone.options.pixels not in (None, Pixels(range_in(dim["scores"])))
    assert with_gaussians.options.pixels == Pixels(range_in(dim["scores"]))
    assert with_gaussians.pixel_notes[0].endswith("as for the features of the Gaussians")


def test_a_single_image_of_a_service_is_read_in_the_range_of_its_job(
    dim: Mapping[str, Path],
) -> None:
    store = open_store(dim["scores"].with_suffix(".features"))
    table = store.read_shard(0)
    path = dim["images"] / table.sample_ids[0]

    with closing(BackbonePool(RunOptions(device="cpu"))) as pool:
        (seen,) = pool.encode([lambda: io.BytesIO(path.read_bytes())], store.description)

    assert isinstance(seen, Tensor)
    torch.testing.assert_close(seen, table.features[0], rtol=1e-3, atol=1e-3)


def test_pictures_in_pages_are_of_the_same_range(dim: Mapping[str, Path]) -> None:
    provenance = read_scores(dim["scores"]).provenance
    ids = read_scores(dim["scores"]).table["sample_id"].to_pylist()[:1]
    source = open_images(provenance, ids)

    pictures = read_pictures(source, ids, ids)

    data = base64.b64decode(pictures.uris[ids[0]].partition(",")[2])
    assert np.asarray(Image.open(io.BytesIO(data))).max() > 200


@pytest.mark.slow
def test_arrays_of_uint16_are_scored_as_files_are(dim: Mapping[str, Path], tmp_path: Path) -> None:
    paths = sorted(dim["images"].rglob("*.tif"))
    arrays = [np.asarray(Image.open(path)) for path in paths]
    labels = [path.parent.name for path in paths]

    scores = ds.score_dataset(arrays, labels, backbone="builtin", out=tmp_path / "s.parquet")

    assert arrays[0].dtype == np.uint16
    assert range_in(tmp_path / "s.parquet") == range_in(dim["scores"])
    of_files = read_scores(dim["scores"]).table["rmd"].to_pylist()
    np.testing.assert_allclose(scores["rmd"].to_pylist(), of_files, rtol=1e-4, atol=1e-3)
