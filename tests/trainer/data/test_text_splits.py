"""Splits of tables of texts: validation, test, limits, label noise, the vocabulary of training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.base.errors import DatasetError
from trainer.config import TextData
from trainer.data.splits import Splits
from trainer.data.texts import TextInputs, open_text_samples, open_text_splits
from trainer.samples import InputSpec, Samples

DecodeTexts = Callable[[Samples, InputSpec], list[str]]

CPU = torch.device("cpu")


def _write(path: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def _weather(path: Path, num_samples: int = 20) -> str:
    """Texts of two classes, each with its number as a unique word."""
    labels = ["cold", "hot"] * (num_samples // 2)
    texts = [f"{label} day number {n}" for n, label in enumerate(labels)]
    return _write(path, {"text": texts, "label": labels})


def _config(train: str, **others: Any) -> TextData:  # noqa: ANN401
    return TextData(train=train, **others)


def test_validation_is_held_out_of_every_class_and_nothing_is_lost(tmp_path: Path) -> None:
    config = _config(_weather(tmp_path / "t.parquet"), validation=0.2)

    splits = open_text_splits(config, 0, CPU)

    assert splits.validation is not None
    assert splits.validation.labels.bincount().tolist() == [2, 2]
    both = [*splits.train.sample_ids, *splits.validation.sample_ids]
    assert sorted(both) == sorted(splits.all_ids)
    assert len(splits.all_ids) == 20
    assert splits.test is None


def test_every_text_stays_with_its_id_and_label(tmp_path: Path, decode_texts: DecodeTexts) -> None:
    path = _write(
        tmp_path / "t.parquet",
        {"text": [f"n{n} n{n}" for n in range(30)], "label": [n % 3 for n in range(30)]},
    )
    splits = open_text_splits(_config(path, validation=0.0), 0, CPU)
    config = _config(path, validation=0.3, limit=20)

    held_out = open_text_splits(config, 3, CPU).validation

    assert held_out is not None
    numbers = [int(sample_id.split("#")[1]) for sample_id in held_out.sample_ids]
    assert held_out.labels.tolist() == [n % 3 for n in numbers]
    again = open_text_samples(config, path, splits.spec, CPU)
    assert [decode_texts(again, splits.spec)[n] for n in numbers] == [f"n{n} n{n}" for n in numbers]


def test_the_vocabulary_has_no_words_of_validation_and_test_texts_only(
    tmp_path: Path, decode_texts: DecodeTexts
) -> None:
    path = _write(
        tmp_path / "t.parquet",
        {"text": [f"day w{n} w{n}" for n in range(20)], "label": [0, 1] * 10},
    )
    test = _write(tmp_path / "test.parquet", {"text": ["night night day"], "label": [0]})

    splits = open_text_splits(_config(path, validation=0.3, test=test), 0, CPU)

    training_words = {f"w{sample_id.split('#')[1]}" for sample_id in splits.train.sample_ids}
    assert set(splits.spec.vocabulary) == {"<padding>", "<unknown>", "day"} | training_words
    assert splits.test is not None
    assert decode_texts(splits.test, splits.spec) == ["<unknown> <unknown> day"]
    assert splits.validation is not None
    assert set(decode_texts(splits.validation, splits.spec)) == {"day <unknown> <unknown>"}


def test_the_same_seed_gives_the_same_splits_and_vocabulary(
    tmp_path: Path, decode_texts: DecodeTexts
) -> None:
    config = _config(_weather(tmp_path / "t.parquet"), validation=0.2, label_noise=0.3)

    def summary(splits: Splits) -> tuple[object, ...]:
        ids = list(splits.train.sample_ids)
        return (
            splits.spec,
            ids,
            splits.train.labels.tolist(),
            decode_texts(splits.train, splits.spec),
        )

    first, again = (summary(open_text_splits(config, 1, CPU)) for _ in range(2))
    other = summary(open_text_splits(config, 2, CPU))

    assert first == again
    assert first != other


def test_label_noise_changes_training_labels_only(tmp_path: Path) -> None:
    path = _weather(tmp_path / "t.parquet", 40)
    clean = open_text_splits(_config(path, validation=0.5, test=path), 0, CPU)

    noisy = open_text_splits(_config(path, validation=0.5, test=path, label_noise=0.5), 0, CPU)

    assert noisy.validation is not None
    assert clean.validation is not None
    assert noisy.test is not None
    assert int((noisy.train.labels != clean.train.labels).sum()) == 10
    assert torch.equal(noisy.validation.labels, clean.validation.labels)
    assert noisy.test.labels.tolist() == [0, 1] * 20


def test_a_limit_keeps_fewer_training_samples_but_all_ids(tmp_path: Path) -> None:
    config = _config(_weather(tmp_path / "t.parquet"), validation=0.0, limit=6)

    splits = open_text_splits(config, 0, CPU)

    assert splits.train.labels.bincount().tolist() == [3, 3]
    assert splits.validation is None
    assert len(splits.all_ids) == 20


def test_a_limit_is_shared_by_training_and_validation(tmp_path: Path) -> None:
    config = _config(_weather(tmp_path / "t.parquet"), validation=0.5, limit=8)

    splits = open_text_splits(config, 0, CPU)

    assert splits.validation is not None
    assert len(splits.train) == len(splits.validation) == 4
    limited = open_text_splits(_config(config.train, validation=0.0, limit=8), 0, CPU).train
    both = [*splits.train.sample_ids, *splits.validation.sample_ids]
    assert sorted(both) == sorted(limited.sample_ids)


def test_a_validation_split_and_a_test_table_with_other_columns_are_read(tmp_path: Path) -> None:
    train = _write(
        tmp_path / "t.parquet",
        {
            "text": ["hot", "cold", "wet", "cold"],
            "mood": ["good", "bad", "bad", "bad"],
            "split": ["train", "train", "train", "dev"],
        },
    )
    test = _write(tmp_path / "u.parquet", {"text": ["cold"], "opinion": ["bad"]})
    config = _config(
        train,
        split="train",
        label_column="mood",
        validation=train,
        validation_split="dev",
        test=test,
        test_label_column="opinion",
    )

    splits = open_text_splits(config, 0, CPU)

    assert splits.validation is not None
    assert splits.validation.sample_ids == ["t.parquet#3"]
    assert splits.test is not None
    assert splits.train.class_names == splits.validation.class_names == splits.test.class_names
    assert splits.validation.labels.tolist() == splits.test.labels.tolist() == [0]


def test_a_validation_split_that_overlaps_training_is_refused(tmp_path: Path) -> None:
    path = _weather(tmp_path / "t.parquet")

    with pytest.raises(DatasetError, match=r"20 samples of .* are in both the training and the"):
        open_text_splits(_config(path, validation=path), 0, CPU)


@pytest.mark.long
def test_twenty_newsgroups_gives_its_posts(shared: Path) -> None:
    path = shared / "data" / "newsgroups20_bydate.parquet"
    if not path.exists():
        pytest.skip(f"no 20 Newsgroups at {path}")
    config = _config(str(path), split="train", test=str(path), test_split="test", validation=0.05)

    splits = open_text_splits(config, 0, CPU)

    assert splits.validation is not None
    assert splits.test is not None
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (10748, 566, 7532)
    assert len(splits.train.class_names) == 20
    assert splits.train.class_names == splits.test.class_names
    assert splits.train.class_names[0] == "alt.atheism"
    assert len(splits.spec.vocabulary) == 30_002
    assert isinstance(splits.test.inputs, TextInputs)
    unknown = (splits.test.inputs.tokens == 1).sum() / splits.test.inputs.lengths.sum()
    assert float(unknown) < 0.07
