"""Integer labels get the names that a person gives them, by every front end."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import difficulty_service as ds
from difficulty_service.base.errors import DatasetError
from difficulty_service.bodies.jobs import JobCreate
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.settings.options import ReadingOptions
from tests.dataset_files import dataset_of


@pytest.fixture
def table(tmp_path: Path) -> Path:
    encoded = io.BytesIO()
    Image.new("RGB", (8, 8)).save(encoded, "PNG")
    columns = {"image": [encoded.getvalue()] * 4, "label": [2, 0, 2, 3], "name": list("abcd")}
    pq.write_table(pa.table(columns), tmp_path / "images.parquet")
    return tmp_path / "images.parquet"


def test_a_label_gets_the_name_of_its_number_and_samples_stay_in_their_classes(table: Path) -> None:
    plain = dataset_of(table)

    named = dataset_of(table, class_names=("cat", "dog", "bird", "fish"))

    assert plain.class_names == ("0", "2", "3")
    assert named.class_names == ("cat", "bird", "fish")
    np.testing.assert_array_equal(named.labels, plain.labels)
    assert named.fingerprint != plain.fingerprint


def test_a_number_without_a_name_is_named_itself(table: Path) -> None:
    with pytest.raises(DatasetError, match="the label 3 has no name: 3 class names are"):
        dataset_of(table, class_names=("cat", "dog", "bird"))


def test_labels_that_are_names_already_get_no_others(table: Path) -> None:
    options = DatasetOptions(class_names=("cat", "dog"), label_column="name")

    with pytest.raises(DatasetError, match="has classes such as 'a'"):
        open_dataset(str(table), options)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat, dog,bird", ("cat", "dog", "bird")),
        ("tench, Tinca tinca\ngoldfish\n", ("tench, Tinca tinca", "goldfish")),
        (None, ()),
    ],
)
def test_names_have_commas_between_or_a_line_each(text: str | None, names: tuple[str, ...]) -> None:
    assert ReadingOptions(class_names=text).names_in_order == names


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names 'cat' twice"):
        ReadingOptions(class_names="cat,dog,cat")


def test_python_and_json_take_the_same_names(table: Path) -> None:
    names = ["cat", "dog", "bird, any", "fish"]

    preview = ds.preview(str(table), class_names=names)
    body = JobCreate(dataset={"root": "photos"}, class_names="\n".join(names))

    assert [each.name for each in preview.classes] == ["cat", "bird, any", "fish"]
    assert body.run.reading["class_names"] == tuple(names)


def test_images_of_a_program_get_names_too() -> None:
    images = [(np.full((16, 16, 3), value, np.uint8), value % 2) for value in range(4)]

    preview = ds.preview(images, class_names="cat,dog")

    assert [each.name for each in preview.classes] == ["cat", "dog"]
