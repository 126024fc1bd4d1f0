"""JSON Lines with images in their cells, and as Prodigy and SageMaker Ground Truth write them."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import embedded
from tests.dataset_files import contents_of, dataset_of
from tests.factories import png_of

IMAGES = [png_of((40 * number, 10, 200), (16, 12)) for number in range(4)]
TEXTS = [base64.b64encode(each).decode() for each in IMAGES]


def write(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


# type: ignore[arg-type]


@pytest.mark.parametrize("column", ["image", "image_path"])
@pytest.mark.parametrize("before", ["", "data:image/png;base64,", "data:;base64,"])
def test_images_as_base64_text_are_read(tmp_path: Path, before: str, column: str) -> None:
    rows: list[dict[str, object]] = [
        {column: before + text, "label": "ab"[number % 2]} for number, text in enumerate(TEXTS)
    ]

    dataset = dataset_of(write(tmp_path / "a.jsonl", rows))

    assert contents_of(dataset) == IMAGES
    assert dataset.sample_ids[0] == "a.jsonl#0"
    assert dataset.warnings == ()


@pytest.mark.parametrize(
    "path", ["a.png", "/9j/a.jpg", "UklGR", f"iVBORw0KGgo/{'a' * 80}.png", f"R0lGOD{'a' * 80}/b c"]
)
def test_paths_are_not_taken_for_base64_text(path: str) -> None:
    assert embedded(path) is None


def test_rows_that_were_rejected_in_prodigy_have_no_label(tmp_path: Path) -> None:
    answers = ["accept", "reject", "ignore", "accept"]
    rows: list[dict[str, object]] = [
        {"image": text, "label": "cat", "_input_hash": n, "_task_hash": n, "answer": answer}
        for n, (text, answer) in enumerate(zip(TEXTS, answers, strict=True))
    ]

    dataset = dataset_of(write(tmp_path / "a.jsonl", rows))

    assert dataset.sample_ids == ["a.jsonl#0", "a.jsonl#3"]
    assert [each for each, _ in dataset.skipped] == ["a.jsonl#1", "a.jsonl#2"]
    assert (
        "'a.jsonl' is of Prodigy, and 2 rows rejected or ignored have no label" in dataset.warnings
    )


def test_the_choice_in_prodigy_is_the_label(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"image": text, "accept": ["ab"[n % 2]], "_task_hash": n, "answer": "accept"}
        for n, text in enumerate(TEXTS)
    ]

    dataset = dataset_of(write(tmp_path / "a.jsonl", rows))

    assert [dataset.class_names[label] for label in dataset.labels] == ["a", "b", "a", "b"]


def test_an_answer_of_another_program_is_no_verdict(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"image": text, "label": "cat", "answer": "reject"} for text in TEXTS
    ]

    assert len(dataset_of(write(tmp_path / "a.jsonl", rows)).labels) == len(rows)


def manifest(attributes: Sequence[str]) -> list[dict[str, object]]:
    return [
        {"source-ref": f"{n}.png"}
        | {
            key: value
            for name in attributes
            for key, value in {
                name: n % 2,
                f"{name}-metadata": {
                    "class-name": ("ant", "bee")[n % 2],
                    "confidence": 0.9,
                    "creation-date": "2026-01-01T00:00:00.000",
                },
            }.items()
        }
        for n in range(4)
    ]


def test_a_manifest_has_the_names_of_classes_in_its_metadata(tmp_path: Path) -> None:
    for number, image in enumerate(IMAGES):
        (tmp_path / f"{number}.png").write_bytes(image)

    dataset = dataset_of(write(tmp_path / "output.manifest", manifest(["species"])))

    assert dataset.sample_ids == ["0.png", "1.png", "2.png", "3.png"]
    assert [dataset.class_names[label] for label in dataset.labels] == ["ant", "bee", "ant", "bee"]
    assert contents_of(dataset) == IMAGES
    assert "has the names of the classes of 'species' as labels" in dataset.warnings[0]


def test_one_of_several_attributes_of_a_manifest_is_chosen(tmp_path: Path) -> None:
    for number, image in enumerate(IMAGES):
        (tmp_path / f"{number}.png").write_bytes(image)
    path = write(tmp_path / "output.manifest", manifest(["species", "sex"]))

    with pytest.raises(DatasetError, match="'species_label', 'sex_label'"):
        dataset_of(path)
    assert dataset_of(path, label_column="sex_label").class_names == ("ant", "bee")


def write_cub(root: Path, folder: str) -> None:
    for number, image in enumerate(IMAGES):
        place = root / "images" / folder.format(number % 2 + 1)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(image)
    (root / "images.txt").write_text("".join(f"{n + 1} {n}.png\n" for n in range(4)))
    (root / "classes.txt").write_text("1 001.Bird\n2 002.Bird\n")
    (root / "image_class_labels.txt").write_text("1 1\n2 2\n3 1\n4 2\n")


def test_the_root_of_cub_is_read_by_its_class_folders(tmp_path: Path) -> None:
    write_cub(tmp_path, "00{}.Bird")

    dataset = dataset_of(tmp_path)

    assert dataset.format == "image-folder"
    assert dataset.class_names == ("001.Bird", "002.Bird")


def test_the_root_of_cub_is_not_taken_for_yolo_without_class_folders(tmp_path: Path) -> None:
    write_cub(tmp_path, ".")

    assert dataset_of(tmp_path).format == "image-folder"
