"""The option `near_duplicates` of features and of images."""

import numpy as np
import pytest
from PIL import Image

from difficulty_service.base.errors import ConfigError
from difficulty_service.interface.score import score, score_dataset


def test_near_duplicates_among_features_are_named_where_they_are_asked_for() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 600)
    features = generator.standard_normal((600, 8)) + 9 * np.eye(3, 8)[labels]
    features[500], labels[500] = 2 * features[3], labels[3]

    plain = score(features, labels)
    near = score(features, labels, near_duplicates=1)

    expected = ["3" if row == 500 else None for row in range(600)]
    assert near["near_duplicate_of"].to_pylist() == expected
    assert near.provenance.near_duplicates == 1
    assert "near_duplicate_of" not in plain.to_arrow().column_names


@pytest.mark.slow
def test_near_duplicates_among_images_are_named() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 4, 4, 3), dtype=np.uint8)
    pixels[1::2] //= 4  # cats are darker
    images = [Image.fromarray(image).resize((64, 64)) for image in pixels]
    images[8] = images[4].resize((96, 96))
    pairs = [(image, "cat" if row % 2 else "dog") for row, image in enumerate(images)]

    scores = score_dataset(
        pairs,
        near_duplicates=0.99,
        shrinkage="leave-one-out",
        device="cpu",
        progress=False,
        backbone="builtin",
    )

    names = scores["near_duplicate_of"].to_pylist()
    assert names[8] == scores["sample_id"][4].as_py()
    assert names[4] is None


@pytest.mark.parametrize("cosine", [0, 1.5, float("nan")])
def test_a_number_that_is_no_cosine_above_zero_is_an_error(cosine: float) -> None:
    with pytest.raises(
        ConfigError,
        match=r"near_duplicates=.* should be (greater|less) than|should be a finite number",
    ):
        score(np.eye(4), [0, 0, 1, 1], near_duplicates=cosine)
    with pytest.raises(
        ConfigError,
        match=r"near_duplicates=.* should be (greater|less) than|should be a finite number",
    ):
        score_dataset(
            [(Image.new("RGB", (8, 8)), "cat")] * 4, near_duplicates=cosine, backbone="builtin"
        )
