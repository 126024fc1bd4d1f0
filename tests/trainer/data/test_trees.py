"""Tables of trees: sentences, their phrases, and batches of nodes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.base.errors import DatasetError
from trainer.config import TreeData
from trainer.data.splits import Splits
from trainer.data.trees import (
    HEIGHT,
    LEFT,
    NONE,
    RIGHT,
    SAMPLE,
    TOKEN,
    TreeInputs,
    open_tree_samples,
    open_tree_splits,
)

CPU = torch.device("cpu")

TREES = [
    "(3 (2 It) (4 (2 's) (4 good)))",
    "(1 (2 Not) (4 good))",
    "(2 (2 It) (2 is))",
    "(0 (2 it) (1 (2 's) (0 BAD)))",
    "(4 good)",
]
FINE = [3, 1, 2, 0, 4]
BINARY = [1, 0, None, 0, 1]
WORDS = {"<padding>", "<unknown>", "it", "'s", "good"}


def write(folder: Path, trees: list[str] = TREES, name: str = "trees", **columns: Any) -> str:  # noqa: ANN401
    path = folder / f"{name}.parquet"
    columns = columns or {"fine": FINE, "binary": BINARY}
    pq.write_table(pa.table({"tree": trees, "id": list("abcde")[: len(trees)], **columns}), path)
    return str(path)


def split(location: str, **others: Any) -> Splits:  # noqa: ANN401
    values = {"label_column": "fine", "id_column": "id", "validation": 0.0} | others
    return open_tree_splits(TreeData(train=location, **values), 0, CPU)


def test_every_phrase_is_a_training_sample_with_the_label_of_the_tree(tmp_path: Path) -> None:
    train = split(write(tmp_path)).train

    labels = dict(zip(train.sample_ids, train.labels.tolist(), strict=True))
    assert labels["a"] == 3
    assert [labels[f"a:{node}"] for node in range(4)] == [2, 2, 4, 4]
    assert len(labels) == 5 + 3 + 3 + 5 + 1
    assert train.groups is not None
    assert train.groups.bincount().tolist() == [5, 3, 3, 5, 1]


def test_without_phrases_sentences_are_the_training_samples(tmp_path: Path) -> None:
    train = split(write(tmp_path), phrases=False).train

    assert list(train.sample_ids) == list("abcde")
    assert train.labels.tolist() == FINE
    assert train.groups is None


def test_of_two_classes_neutral_phrases_are_no_samples_and_neutral_sentences_are_listed(
    tmp_path: Path,
) -> None:
    train = split(write(tmp_path), label_column="binary").train

    labels = dict(zip(train.sample_ids, train.labels.tolist(), strict=True))
    assert labels == {
        **dict.fromkeys(["a", "a:2", "a:3"], 1),
        **dict.fromkeys(["d", "d:2", "d:3"], 0),
        "b": 0,
        "b:1": 1,
        "e": 1,
    }
    assert [entry.sample_id for entry in train.skipped] == ["c"]
    assert train.class_names == ("0", "1")


def test_validation_and_test_samples_are_whole_sentences(tmp_path: Path) -> None:
    location = write(tmp_path)

    splits = split(
        write(tmp_path, TREES[:2], "train", fine=[3, 1]),
        validation=write(tmp_path, [TREES[1]], "validation", fine=[1]),
        test=write(tmp_path, [TREES[0], TREES[1]], "test", fine=[3, 1]),
    )

    assert splits.validation is not None
    assert splits.test is not None
    assert (len(splits.validation), len(splits.test)) == (1, 2)
    config = TreeData(train=location, id_column="id")
    opened = open_tree_samples(config, location, splits.spec, CPU, None, "fine")
    assert opened.labels.tolist() == FINE


def test_the_vocabulary_has_the_words_of_training_sentences_in_lower_case(tmp_path: Path) -> None:
    assert set(split(write(tmp_path)).spec.vocabulary) == WORDS, "others occur once"


def test_a_batch_has_all_nodes_of_the_trees_of_its_samples_by_height(tmp_path: Path) -> None:
    splits = split(write(tmp_path))
    ids = list(splits.train.sample_ids)
    chosen = torch.tensor([ids.index("d"), ids.index("a:3"), ids.index("d:1")])

    (batch,) = splits.train.inputs.batches([chosen], None)

    token_of = {word: token for token, word in enumerate(splits.spec.vocabulary)}
    assert len(batch) == 5 + 5, "those of two sentences"
    assert batch[:, HEIGHT].tolist() == [0] * 6 + [1] * 2 + [2] * 2
    leaves = [token_of.get(word, 1) for word in ("it", "'s", "good", "it", "'s", "bad")]
    assert batch[:, TOKEN].tolist() == [*leaves, 0, 0, 0, 0]
    assert batch[6:, LEFT].tolist() == [1, 4, 0, 3]
    assert batch[6:, RIGHT].tolist() == [2, 5, 6, 7]
    assert (batch[:6, [LEFT, RIGHT]] == NONE).all()
    rows = {int(sample): row for row, sample in enumerate(batch[:, SAMPLE]) if sample != NONE}
    assert rows == {0: 9, 1: 6, 2: 4}


def test_a_tree_that_cannot_be_read_is_named_with_its_sample(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"tree of sample 'b' .*1 words and 1 children"):
        split(write(tmp_path, ["(1 a)", "(1 a (2 b))"], fine=[1, 0]))


def test_labels_of_a_column_that_are_not_those_of_the_trees_are_refused(tmp_path: Path) -> None:
    turned = write(tmp_path, fine=[4 - label for label in FINE])
    topics = write(tmp_path, name="topics", fine=[0, 2, 0, 1, 1])

    with pytest.raises(DatasetError, match="4 of 5 sentences have another label"):
        split(turned)
    with pytest.raises(DatasetError, match="5 of 5 sentences have another label"):
        split(topics)
    assert len(split(topics, phrases=False).train) == 5


def test_a_label_that_was_corrected_in_the_column_counts(tmp_path: Path) -> None:
    train = split(write(tmp_path, fine=[4, *FINE[1:]])).train

    labels = dict(zip(train.sample_ids, train.labels.tolist(), strict=True))
    assert train.class_names == ("0", "1", "2", "4")
    assert train.class_names[labels["a"]] == train.class_names[labels["a:3"]] == "4"
    assert train.class_names[labels["a:0"]] == "2"


def test_inputs_of_phrases_and_of_sentences_share_their_form(tmp_path: Path) -> None:
    splits = split(write(tmp_path), label_column="binary", validation=0.5)

    assert splits.validation is not None
    assert isinstance(splits.train.inputs, TreeInputs)
    assert isinstance(splits.validation.inputs, TreeInputs)
    assert splits.spec.shape == ()
