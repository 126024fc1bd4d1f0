"""Texts as people hold them in Python."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import difficulty_service as ds
from difficulty_service.base.errors import BackboneError, ConfigError, DatasetError

PAIRS = [
    (f"{word} number {row} of the {word}s", word) for row in range(20) for word in ("cat", "rocket")
]


@pytest.mark.slow
def test_pairs_tables_and_hugging_face_datasets_have_the_same_scores(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    texts, labels = map(list, zip(*PAIRS, strict=True))
    table = pa.table({"text": texts, "label": labels})
    pq.write_table(table, tmp_path / "texts.parquet")
    rows = datasets.Dataset.from_dict({"text": texts, "label": labels})

    scored = [
        ds.score_dataset(each, modality="text", progress=False).table["rmd"].to_pylist()
        for each in (PAIRS, tmp_path / "texts.parquet", rows)
    ]

    assert None not in scored[0]
    assert scored[1] == scored[0]
    assert scored[2] == scored[0]


@pytest.mark.slow
def test_a_text_that_is_none_is_listed() -> None:
    with pytest.warns(UserWarning, match="1 of 41 texts could not be read"):
        scores = ds.score_dataset([*PAIRS, (None, "cat")], modality="text", progress=False)

    assert scores.bad_images.to_pylist() == [
        {"sample_id": "40", "reason": "no text: the cell is empty"}
    ]


@pytest.mark.slow
def test_a_text_that_utf_8_cannot_write_is_listed() -> None:
    with pytest.warns(UserWarning, match="1 of 41 texts could not be read"):
        scores = ds.score_dataset([*PAIRS, ("\ud800 cat", "cat")], modality="text", progress=False)

    assert "UTF-8" in scores.bad_images["reason"][0].as_py()


def test_what_does_not_fit_texts_is_an_error() -> None:
    with pytest.raises(BackboneError, match="builtin encodes images"):
        ds.score_dataset(PAIRS, modality="text", backbone="builtin", progress=False)
    with pytest.raises(ConfigError, match="augment_runs would change nothing"):
        ds.score_dataset(PAIRS, modality="text", augment_runs=2, progress=False)
    with pytest.raises(DatasetError, match="text_column does not apply to pairs"):
        ds.score_dataset(PAIRS, text_column="body", progress=False)
