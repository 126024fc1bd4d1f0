"""Tables of texts: ids and labels of the service, splits, tokens and batches."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.errors import DatasetError
from trainer.config import DataConfig
from trainer.data.splits import Splits
from trainer.data.texts import TextInputs, open_text_samples, open_text_splits
from trainer.samples import InputSpec, Samples

CPU = torch.device("cpu")
SPEC = InputSpec(shape=(1000,), vocabulary=("<padding>", "<unknown>", "hot", "cold", "wet"))


def _write(path: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def _weather(path: Path, num_samples: int = 20) -> str:
    """Texts of two classes, each with its number as a word of its own."""
    labels = ["cold", "hot"] * (num_samples // 2)
    texts = [f"{label} day number {n}" for n, label in enumerate(labels)]
    return _write(path, {"text": texts, "label": labels})


def _config(train: str, **others: Any) -> DataConfig:  # noqa: ANN401
    return DataConfig(train=train, kind="text", **others)


def _words(samples: Samples, spec: InputSpec) -> list[str]:
    """The texts as the model sees them."""
    (batch,) = samples.inputs.batches([torch.arange(len(samples))], None)
    return [" ".join(spec.vocabulary[token] for token in row if token) for row in batch.tolist()]


def test_ids_and_labels_are_those_that_scoring_gives_the_same_rows(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet"):
        columns = {"text": ["x y"] * 3, "image": [b"?"] * 3, "label": [f"{name}!", "p", "q"]}
        _write(tmp_path / name, columns)
    scored = open_dataset(str(tmp_path), DatasetOptions(image_column="image"))

    samples = open_text_samples(_config(str(tmp_path)), str(tmp_path), SPEC, CPU)

    assert list(samples.sample_ids) == list(scored.sample_ids)
    assert samples.sample_ids[0] == "a.parquet#0"
    assert samples.labels.tolist() == scored.labels.tolist()
    assert samples.class_names == scored.class_names


def test_a_split_takes_its_rows_and_keeps_their_ids(tmp_path: Path) -> None:
    split = ["train", "test", None, "test"]
    path = _write(
        tmp_path / "t.parquet",
        {"text": ["hot", "cold", "wet", "cold wet"], "label": [0, 1, 0, 0], "split": split},
    )

    samples = open_text_samples(_config(path), path, SPEC, CPU, split="test")

    assert samples.sample_ids == ["t.parquet#1", "t.parquet#3"]
    assert samples.labels.tolist() == [1, 0]
    assert _words(samples, SPEC) == ["cold", "cold wet"]


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_other_tables_give_what_parquet_does(tmp_path: Path, extension: str) -> None:
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
    assert _words(samples, SPEC) == ["hot cold", "wet"]
    assert _words(whole, SPEC)[0] == "<unknown>"


def test_named_columns_go_before_the_usual_ones(tmp_path: Path) -> None:
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
    assert _words(samples, SPEC) == ["hot", "cold"]


def test_validation_is_held_out_of_every_class_and_nothing_is_lost(tmp_path: Path) -> None:
    config = _config(_weather(tmp_path / "t.parquet"), validation=0.2)

    splits = open_text_splits(config, 0, CPU)

    assert splits.validation is not None
    assert splits.validation.labels.bincount().tolist() == [2, 2]
    both = [*splits.train.sample_ids, *splits.validation.sample_ids]
    assert sorted(both) == sorted(splits.all_ids)
    assert len(splits.all_ids) == 20
    assert splits.test is None


def test_every_text_stays_with_its_id_and_label(tmp_path: Path) -> None:
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
    assert [_words(again, splits.spec)[n] for n in numbers] == [f"n{n} n{n}" for n in numbers]


def test_the_vocabulary_knows_no_word_of_validation_and_test_texts(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "t.parquet",
        {"text": [f"day w{n} w{n}" for n in range(20)], "label": [0, 1] * 10},
    )
    test = _write(tmp_path / "test.parquet", {"text": ["night night day"], "label": [0]})

    splits = open_text_splits(_config(path, validation=0.3, test=test), 0, CPU)

    learned = {f"w{sample_id.split('#')[1]}" for sample_id in splits.train.sample_ids}
    assert set(splits.spec.vocabulary) == {"<padding>", "<unknown>", "day"} | learned
    assert splits.test is not None
    assert _words(splits.test, splits.spec) == ["<unknown> <unknown> day"]
    assert splits.validation is not None
    assert set(_words(splits.validation, splits.spec)) == {"day <unknown> <unknown>"}


def test_the_same_seed_gives_the_same_splits_and_vocabulary(tmp_path: Path) -> None:
    config = _config(_weather(tmp_path / "t.parquet"), validation=0.2, label_noise=0.3)

    def summary(splits: Splits) -> tuple[object, ...]:
        ids = list(splits.train.sample_ids)
        return splits.spec, ids, splits.train.labels.tolist(), _words(splits.train, splits.spec)

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


def test_a_limit_keeps_fewer_samples_to_learn_from_but_all_ids(tmp_path: Path) -> None:
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


def test_a_validation_split_that_training_has_too_is_refused(tmp_path: Path) -> None:
    path = _weather(tmp_path / "t.parquet")

    with pytest.raises(DatasetError, match=r"20 samples of .* are in both the training and the"):
        open_text_splits(_config(path, validation=path), 0, CPU)


def test_texts_are_cut_to_their_length_and_words_beyond_it_do_not_count(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"text": ["a b c d d d"] * 2, "label": [0, 1]})

    splits = open_text_splits(_config(path, validation=0.0, text_length=3), 0, CPU)

    assert splits.spec.shape == (3,)
    assert splits.spec.vocabulary == ("<padding>", "<unknown>", "a", "b", "c")
    assert _words(splits.train, splits.spec) == ["a b c"] * 2


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
def test_a_table_that_lacks_something_says_what(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    path = _write(tmp_path / "t.parquet", columns)

    with pytest.raises(DatasetError, match=message):
        open_text_splits(_config(path, validation=0.0, **options), 0, CPU)


def test_a_folder_without_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hot")

    with pytest.raises(DatasetError, match=r"holds no table; name files ending in"):
        open_text_splits(_config(str(tmp_path)), 0, CPU)


@pytest.mark.slow
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
