"""The kind of a dataset is detected from its location."""

import gc
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import DATASETS, open_dataset
from difficulty_service.datasets.class_folders import open_image_folder
from difficulty_service.datasets.objects import OBJECT_FORMATS
from difficulty_service.datasets.recognition import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions


@pytest.mark.parametrize(
    ("files", "location", "kind"),
    [
        (["a.parquet"], "a.parquet", "table"),
        (["a.CSV"], "a.CSV", "table"),
        (["a.parquet", "b.parquet"], "*.parquet", "table"),
        (["a-0", "a-1.jsonl"], "a-1*", "table"),
        (["a.parquet", "b.parquet", "README.md"], "", "table"),
        (["a.tar", "b.tar"], "", "webdataset"),
        (["a.tar.gz"], "a.tar.gz", "webdataset"),
        (["a.tgz", "b.tar"], "*", "webdataset"),
        (["a.ZIP"], "a.ZIP", "archive"),
        (["cat/a.png", "labels.csv"], "", "image-folder"),
        (["dataset_info.json", "state.json", "data-00000.arrow"], "", "hugging-face"),
        (["dataset_dict.json", "train/state.json"], "", "hugging-face"),
    ],
)
def test_the_kind_is_detected_from_the_files(
    tmp_path: Path, files: list[str], location: str, kind: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    assert detect_kind(str(tmp_path / location)) == kind
    assert kind in DATASETS


def test_the_prefix_of_the_hub_takes_precedence_over_files() -> None:
    assert detect_kind("hf:owner/name@config") == "hugging-face"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("nothing", "nothing' does not exist"),
        ("nothing.parquet", "does not exist"),
        ("*.tar", "no file matches"),
        ("photos.xyz", "is not a dataset that can be read"),
        ("photos.zip", "damaged, truncated or not an archive"),
        ("mixed/*", r"tables \('a.csv'\) and tars \('b.tar'\)"),
        ("empty", "no class folders"),
    ],
)
def test_a_location_that_cannot_be_opened_is_named(
    tmp_path: Path, location: str, message: str
) -> None:
    (tmp_path / "photos.xyz").write_bytes(b"")
    (tmp_path / "photos.zip").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_bytes(b"")
    (tmp_path / "mixed" / "b.tar").write_bytes(b"")

    with pytest.raises(DatasetError, match=message):
        open_dataset(str(tmp_path / location), DatasetOptions())


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label\n")

    with pytest.raises(DatasetError, match="has no rows"):
        open_dataset(str(tmp_path / "t.csv"), DatasetOptions())


def test_a_limited_dataset_reads_the_chosen_samples_in_any_shard_size(
    class_folders: Path,
) -> None:
    whole = open_dataset(str(class_folders), DatasetOptions())

    limited = open_dataset(str(class_folders), DatasetOptions(limit=2, shard_size=1))

    samples = [
        sample for shard in range(limited.num_shards) for sample in limited.read_shard(shard)
    ]
    assert [sample.sample_id for sample in samples] == ["cat/2.png", "dog/a.JPG"]
    for sample in samples:
        with sample.open() as file:
            assert file.read() == (class_folders / sample.sample_id).read_bytes()
    assert limited.fingerprint != whole.fingerprint


@pytest.mark.parametrize("kind", sorted(OBJECT_FORMATS))
def test_a_format_of_boxes_that_is_not_there_is_an_error(tmp_path: Path, kind: str) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"")

    with pytest.raises(DatasetError, match=r"is not of the format .* it lacks") as caught:
        open_dataset(str(tmp_path), DatasetOptions(format=kind))

    assert caught.value.parameter == "format"


def test_tables_beside_tars_are_chosen_by_a_glob_that_matches_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,label\n1.png,cat\n")
    (tmp_path / "b.tar").write_bytes(b"")

    with pytest.raises(DatasetError, match=r"by a glob such as '\*\.csv'"):
        open_dataset(str(tmp_path), DatasetOptions())

    assert open_dataset(str(tmp_path / "*.csv"), DatasetOptions()).class_names == ("cat",)


def test_no_garbage_is_looked_for_while_samples_are_listed(
    class_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = []

    def open_and_look(location: str, options: DatasetOptions) -> Dataset:
        enabled.append(gc.isenabled())
        return open_image_folder(location, options)

    monkeypatch.setitem(DATASETS, "image-folder", open_and_look)

    open_dataset(str(class_folders), DatasetOptions())

    assert enabled == [False]
    assert gc.isenabled()
