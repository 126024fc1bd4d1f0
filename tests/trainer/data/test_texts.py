"""Tables of texts: ids and labels of the service, columns, tokens and batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from trainer.config import TextData
from trainer.data.texts import TextInputs, open_text_samples, open_text_splits
from trainer.samples import InputSpec, Samples

DecodeTexts = Callable[[Samples, InputSpec], list[str]]

CPU = torch.device("cpu")
SPEC = InputSpec(shape=(1000,), vocabulary=("<padding>", "<unknown>", "hot", "cold", "wet"))


def _write(path: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def _config(train: str, **others: Any) -> TextData:  # noqa: ANN401
    return TextData(train=train, **others)


def test_ids_and_labels_are_the_same_as_in_scoring(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet"):
        columns = {"text": ["x y"] * 3, "image": [b"?"] * 3, "label": [f"{name}!", "p", "q"]}
        _write(tmp_path / name, columns)
    scored = open_dataset(str(tmp_path), DatasetOptions(image_column="image"))

    samples = open_text_samples(_config(str(tmp_path)), str(tmp_path), SPEC, CPU)

    assert list(samples.sample_ids) == list(scored.sample_ids)
    assert samples.sample_ids[0] == "a.parquet#0"
    assert samples.labels.tolist() == scored.labels.tolist()
    assert samples.class_names == scored.class_names


def test_texts_stay_with_their_labels_where_rows_have_none(
    tmp_path: Path, decode_texts: DecodeTexts
) -> None:
    path = _write(
        tmp_path / "t.parquet",
        {"text": ["hot", "cold", "wet", "cold wet"], "label": pa.array([None, 1, None, 0])},
    )

    samples = open_text_samples(_config(path), path, SPEC, CPU)

    assert samples.labels.tolist() == [1, 0]
    assert decode_texts(samples, SPEC) == ["cold", "cold wet"]
    assert [entry.sample_id for entry in samples.skipped] == ["t.parquet#0", "t.parquet#2"]
    assert "2 entries are skipped (the label is missing)" in samples.warnings[0]


def test_a_split_selects_its_rows_and_keeps_their_ids(
    tmp_path: Path, decode_texts: DecodeTexts
) -> None:
    split = ["train", "test", None, "test"]
    path = _write(
        tmp_path / "t.parquet",
        {"text": ["hot", "cold", "wet", "cold wet"], "label": [0, 1, 0, 0], "split": split},
    )

    samples = open_text_samples(_config(path), path, SPEC, CPU, split="test")

    assert samples.sample_ids == ["t.parquet#1", "t.parquet#3"]
    assert samples.labels.tolist() == [1, 0]
    assert decode_texts(samples, SPEC) == ["cold", "cold wet"]


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_other_tables_are_read_like_parquet(
    tmp_path: Path, extension: str, decode_texts: DecodeTexts
) -> None:
    path = tmp_path / f"t.{extension}"
    rows = {
        "csv": "content,label,split\n12,hot,a\nhot cold,cold,b\nwet,hot,b\n",
        "jsonl": '{"content":"12","label":"hot","split":"a"}\n'
        '{"content":"hot cold","label":"cold","split":"b"}\n'
        '{"content":"wet","label":"hot","split":"b"}\n',
    }
    path.write_text(rows[extension])

    samples = open_text_samples(_config(str(path)), str(path), SPEC, CPU, split="b")
    whole = open_text_samples(_config(str(path)), str(path), SPEC, CPU)

    assert samples.sample_ids == [f"t.{extension}#1", f"t.{extension}#2"]
    assert samples.class_names == ("cold", "hot")
    assert decode_texts(samples, SPEC) == ["hot cold", "wet"]
    assert decode_texts(whole, SPEC)[0] == "<unknown>"


def test_named_columns_take_precedence_over_default_ones(
    tmp_path: Path, decode_texts: DecodeTexts
) -> None:
    columns = {
        "text": ["wet", "wet"],
        "title": pa.array(["hot", "cold"]).dictionary_encode(),
        "label": [0, 0],
        "mood": [1, 0],
        "key": ["k1", "k2"],
    }
    path = _write(tmp_path / "t.parquet", columns)
    config = _config(path, text_column="title", id_column="key")

    samples = open_text_samples(config, path, SPEC, CPU, label_column="mood")

    assert samples.sample_ids == ["k1", "k2"]
    assert samples.labels.tolist() == [1, 0]
    assert decode_texts(samples, SPEC) == ["hot", "cold"]


def test_texts_are_cut_to_their_length_and_words_beyond_it_do_not_count(
    tmp_path: Path, decode_texts: DecodeTexts
) -> None:
    path = _write(tmp_path / "t.parquet", {"text": ["a b c d d d"] * 2, "label": [0, 1]})

    splits = open_text_splits(_config(path, validation=0.0, text_length=3), 0, CPU)

    assert splits.spec.shape == (3,)
    assert splits.spec.vocabulary == ("<padding>", "<unknown>", "a", "b", "c")
    assert decode_texts(splits.train, splits.spec) == ["a b c"] * 2


def test_the_vocabulary_keeps_its_size(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"text": ["b b a a a c c"], "label": [0]})

    splits = open_text_splits(_config(path, validation=0.0, vocabulary_size=2), 0, CPU)

    assert splits.spec.vocabulary == ("<padding>", "<unknown>", "a", "b")
    assert splits.spec.mean is None


def test_a_batch_follows_its_plan_and_is_as_wide_as_its_longest_text() -> None:
    tokens = torch.tensor([[2, 3, 4], [5, 0, 0], [6, 7, 0]], dtype=torch.int32)
    inputs = TextInputs(tokens, torch.tensor([3, 1, 2]))

    batches = list(inputs.batches([torch.tensor([2, 1]), torch.tensor([1, 0])], None))

    assert [batch.tolist() for batch in batches] == [[[6, 7], [5, 0]], [[5, 0, 0], [2, 3, 4]]]
    assert {batch.dtype for batch in batches} == {torch.int64}


def test_a_batch_without_a_word_is_one_padding_wide(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"text": ["", "?!"], "label": [0, 1]})
    samples = open_text_samples(_config(path), path, SPEC, CPU)

    (batch,) = samples.inputs.batches([torch.tensor([0, 1])], None)

    assert batch.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"body": ["x"], "label": [0]}, {}, r"called 'text' or .* in 't.parquet', which has \['bo"),
        ({"text": ["x"], "label": [0]}, {"text_column": "body"}, r"called 'body' .*text_column"),
        ({"text": [b"x"], "label": [0]}, {}, "no column of texts"),
        ({"text": ["x", None], "label": [0, 1]}, {}, r"null 1 times, first at sample 't.parquet#1"),
        ({"text": ["x"], "label": [0]}, {"split": "test"}, "no column 'split'"),
        ({"text": ["x"], "label": [0], "split": ["a"]}, {"split": "b"}, r"'b'; there are \['a'\]"),
        ({"text": ["x"], "opinion": [0]}, {}, "no label column"),
    ],
)
def test_a_missing_part_of_a_table_is_named(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    path = _write(tmp_path / "t.parquet", columns)

    with pytest.raises(DatasetError, match=message):
        open_text_splits(_config(path, validation=0.0, **options), 0, CPU)


def test_a_folder_without_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hot")

    with pytest.raises(DatasetError, match=r"holds no table; expected files ending in"):
        open_text_splits(_config(str(tmp_path)), 0, CPU)
