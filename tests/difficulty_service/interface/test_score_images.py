"""Images are scored from whatever object holds them, as from files."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import timm
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file

from difficulty_service.base.errors import ConfigError, DatasetError, ImageError
from difficulty_service.interface.encoder import Encoder, backbone
from difficulty_service.interface.score import score, score_dataset
from difficulty_service.interface.scores import Scores
from tests.small_network import SMALL

NUM_IMAGES = 24
CLASSES = ("cat", "dog")
OPTIONS: dict[str, Any] = {"progress": False, "shrinkage": "leave-one-out", "device": "cpu"}

Pixels = NDArray[np.uint8]


@pytest.fixture(scope="module")
def pixels() -> Pixels:
    pixels = np.random.default_rng(0).integers(0, 256, (NUM_IMAGES, 32, 32, 3), dtype=np.uint8)
    pixels[1::2] //= 4  # dogs are darker
    return pixels


@pytest.fixture(scope="module")
def labels() -> list[int]:
    return [row % 2 for row in range(NUM_IMAGES)]


@pytest.fixture(scope="module")
def folder(pixels: Pixels, labels: list[int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for row, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        path = folder / CLASSES[label] / f"{row:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


@pytest.fixture(scope="module")
def scores(folder: Path) -> Scores:
    return score_dataset(folder, **OPTIONS, backbone=SMALL)


def by_row(scores: Scores) -> list[float]:
    """The scores of images from files, in the order of the other objects."""
    rows = zip(scores["sample_id"].to_pylist(), scores["rmd"].to_pylist(), strict=True)
    return [score for _, score in sorted(rows, key=lambda row: row[0][-6:])]


@pytest.mark.slow
def test_a_licence_with_a_condition_and_the_size_of_the_input_are_told_of(
    folder: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file(timm.create_model("resnet18").state_dict(), weights)
    name = "timm:resnet18.fb_ssl_yfcc100m_ft_in1k"
    options = OPTIONS | {"weights": weights, "image_size": 40}

    with pytest.warns(UserWarning, match=f"the weights of {name} have a licence .* commercial"):
        scored = score_dataset(folder, backbone=name, **options)
    with pytest.warns(UserWarning, match="no commercial use"):
        backbone(name, weights=weights, device="cpu")

    assert scored.provenance.preprocessing["size"] == 40


class MapDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A dataset as people write them."""

    def __init__(self, pixels: Pixels, labels: list[int]) -> None:
        self.pixels, self.labels = torch.from_numpy(pixels).permute(0, 3, 1, 2), labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.pixels[row], self.labels[row]


def of_paths(pixels: Pixels, folder: Path) -> list[tuple[Path, str]]:
    return [
        (folder / CLASSES[row % 2] / f"{row:02d}.png", CLASSES[row % 2])
        for row in range(len(pixels))
    ]


def as_hugging_face(pixels: Pixels, _: Path) -> datasets.Dataset:
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    )
    images = [Image.fromarray(image) for image in pixels]
    rows = {"image": images, "label": [row % 2 for row in range(len(pixels))]}
    return datasets.Dataset.from_dict(rows, features=features)


SOURCES: dict[str, Callable[[Pixels, Path], Any]] = {
    "paths": of_paths,
    "bytes": lambda x, folder: [(path.read_bytes(), name) for path, name in of_paths(x, folder)],
    "PIL images": lambda x, _: [(Image.fromarray(image), row % 2) for row, image in enumerate(x)],
    "arrays": lambda x, _: [(image, row % 2) for row, image in enumerate(x)],
    "a torch dataset": lambda x, _: MapDataset(x, [row % 2 for row in range(len(x))]),
    "a Hugging Face dataset": as_hugging_face,
}


@pytest.mark.parametrize("convert", SOURCES.values(), ids=SOURCES)
def test_the_object_that_holds_the_images_does_not_change_the_scores(
    convert: Callable[[Pixels, Path], Any], pixels: Pixels, folder: Path, scores: Scores
) -> None:
    converted = score_dataset(convert(pixels, folder), **OPTIONS, backbone=SMALL)

    # Sums over samples in another order differ by rounding.
    np.testing.assert_allclose(converted["rmd"], by_row(scores), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_mirror_images_are_averaged_with_the_images_on_request(
    pixels: Pixels, labels: list[int]
) -> None:
    brighter = [
        image // 2 + np.uint8(100 * label) for image, label in zip(pixels, labels, strict=True)
    ]
    images = list(zip(brighter, labels, strict=True))
    features = backbone("builtin", device="cpu", flip=True).encode(brighter)
    expected = score(features, labels, shrinkage="leave-one-out")

    flipped = score_dataset(images, flip=True, **OPTIONS, backbone="builtin")
    plain = score_dataset(images, **OPTIONS, backbone="builtin")

    assert (flipped.provenance.flip, plain.provenance.flip) == (True, False)
    np.testing.assert_allclose(flipped["rmd"], expected["rmd"], rtol=1e-3, atol=1e-3)
    assert not np.allclose(flipped["rmd"], plain["rmd"], rtol=0.01, atol=0.01)


def test_a_file_of_scores_and_the_features_are_kept_if_a_file_is_named(
    folder: Path, scores: Scores, tmp_path: Path
) -> None:
    kept = score_dataset(folder, out=tmp_path / "scores.parquet", **OPTIONS, backbone=SMALL)

    assert kept.table == scores.table
    assert (tmp_path / "scores.parquet").is_file()
    assert (tmp_path / "scores.features" / "store.json").is_file()


def test_images_in_memory_are_extracted_again_because_they_may_have_changed(
    pixels: Pixels, tmp_path: Path
) -> None:
    def score(images: Pixels) -> Scores:
        pairs = [(image, row % 2) for row, image in enumerate(images)]
        return score_dataset(pairs, out=tmp_path / "scores.parquet", **OPTIONS, backbone=SMALL)

    assert score(pixels)["rmd"] != score(pixels[::-1])["rmd"]


def test_images_that_cannot_be_read_are_listed(pixels: Pixels) -> None:
    pairs: list[tuple[object, int]] = [
        (image // 4 if row % 2 else image, row % 2) for row, image in enumerate(pixels)
    ]
    pairs[3] = (np.full((32, 32, 3), 300.0), 1)
    pairs[5] = (b"GIF8", 1)

    with pytest.warns(UserWarning, match="reason: 1 image, 3: .*; 1 image, 5: "):
        scores = score_dataset(pairs, **OPTIONS, backbone=SMALL)

    assert scores.bad_images["sample_id"].to_pylist() == ["3", "5"]
    assert "float64" in scores.bad_images["reason"][0].as_py()
    assert len(scores) == 22


def test_an_image_without_a_label_is_left_out(pixels: Pixels) -> None:
    pairs = [(image, None if row == 4 else row % 2) for row, image in enumerate(pixels)]

    with pytest.warns(UserWarning, match="1 of 24 images are left out: they have no label"):
        scores = score_dataset(pairs, **OPTIONS, backbone=SMALL)

    assert "4" not in scores["sample_id"].to_pylist()


def test_labels_and_names_are_taken_from_a_torchvision_dataset(pixels: Pixels) -> None:
    dataset = MapDataset(pixels, [row % 2 for row in range(NUM_IMAGES)])
    dataset.targets = [1 - row % 2 for row in range(NUM_IMAGES)]  # type: ignore[attr-defined]
    dataset.classes = list(CLASSES)  # type: ignore[attr-defined]

    scores = score_dataset(dataset, **OPTIONS, backbone=SMALL)

    assert scores["label_name"].to_pylist()[:2] == ["dog", "cat"]


def test_several_splits_need_a_name(pixels: Pixels, folder: Path) -> None:
    rows = as_hugging_face(pixels, folder)
    splits = datasets.DatasetDict({"train": rows, "test": rows})

    with pytest.raises(
        DatasetError,
        match=r"holds the splits \['train', 'test'\]; choose one, for example split='train'",
    ):
        score_dataset(splits, **OPTIONS, backbone=SMALL)
    assert len(score_dataset(splits, split="test", **OPTIONS, backbone=SMALL)) == NUM_IMAGES


def stream() -> Iterator[tuple[Image.Image, int]]:
    yield Image.new("RGB", (32, 32)), 0


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (stream(), "generator has no length"),
        ([Image.new("RGB", (32, 32))], "element 0 is Image, expected a pair"),
        ([], "no samples"),
        ("/nowhere", "'/nowhere'"),
        ([(0, Image.new("RGB", (32, 32)))], "its image in the second place"),
        ([("A text. It ends", 0), ("with no file name.", 1)], "are texts.*modality='text'"),
        ({"text": ["a", "b"], "label": [0, 1]}, "for texts, pass text_column='text'"),
        ([(np.zeros(3072, np.uint8), 0)], r"reshape it to \(height, width\)"),
        ([(np.zeros((8, 8, 5), np.uint8), 0)], "choose 1, 3 or 4 of its channels"),
    ],
)
def test_objects_that_are_no_labelled_images_are_named(images: object, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        score_dataset(images, **OPTIONS, backbone=SMALL)


def test_an_option_that_does_not_exist_is_a_type_error(folder: Path) -> None:
    with pytest.raises(TypeError, match=r"'shrink'; did you mean 'shrinkage'\?"):
        score_dataset(folder, shrink="auto", backbone=SMALL)  # type: ignore[call-arg]


def test_an_unknown_precision_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="'auto', 'fp32', 'bf16', 'fp16' or 'int8'"):
        score_dataset(folder, precision="fp8", backbone=SMALL)


def test_a_progress_bar_is_shown_on_request(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, where a notebook lacks its widgets
        score_dataset(folder, **(OPTIONS | {"progress": True}), backbone=SMALL)

    assert "24/24" in capsys.readouterr().err


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return backbone("builtin", device="cpu")


def test_an_encoder_gives_the_same_features_for_every_kind_of_image(
    encoder: Encoder, pixels: Pixels, folder: Path
) -> None:
    paths = [path for path, _ in of_paths(pixels, folder)]

    features = encoder.encode(pixels)

    assert features.shape == (NUM_IMAGES, encoder.feature_dim)
    assert features.dtype == np.float32
    for images in (
        paths,
        [str(path) for path in paths],
        [Image.fromarray(image) for image in pixels],
        torch.from_numpy(pixels).permute(0, 3, 1, 2),
    ):
        np.testing.assert_allclose(encoder.encode(images), features, atol=1e-5)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "YCbCr", "PA", "I;16", "F", "1"])
def test_images_of_every_mode_are_encoded(encoder: Encoder, mode: str) -> None:
    image = Image.new("L", (40, 30), 100)

    features = encoder.encode([image.convert(mode)])

    assert np.isfinite(features).all()


def test_no_images_have_no_features(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.feature_dim)


def test_an_image_that_cannot_be_encoded_is_named(encoder: Encoder) -> None:
    with pytest.raises(ImageError, match="image 1"):
        encoder.encode([Image.new("RGB", (32, 32)), b"no image"])
