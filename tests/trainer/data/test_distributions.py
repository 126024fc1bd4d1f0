"""Distributions over the classes from a column of votes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.base.errors import DatasetError
from trainer.config import FeatureData, ImageData, TextData
from trainer.data import Splits, open_splits

CPU = torch.device("cpu")
VOTES = [[3, 1, 0], [0, 2, 2], [0, 0, 5], [8, 1, 1], [1, 2, 1], [0.0, 0.2, 0.6]]


def write_table(path: Path, **columns: Any) -> str:  # noqa: ANN401 - columns
    rows = range(len(VOTES))
    usual = {
        "text": [f"word {row}" for row in rows],
        "label": [row % 3 for row in rows],
        "key": [f"k{row}" for row in rows],
        "votes": VOTES,
    }
    pq.write_table(pa.table(usual | columns), path)
    return str(path)


def opened(location: str, **options: Any) -> Splits:  # noqa: ANN401 - options
    values = {"kind": "text", "id_column": "key", "distribution_column": "votes", "validation": 0.0}
    return open_splits(TextData(train=location, **values | options), 0, CPU)


def test_the_votes_on_a_training_sample_become_shares_of_the_classes(tmp_path: Path) -> None:
    train = opened(write_table(tmp_path / "a.parquet")).train

    assert train.distributions is not None
    assert train.distributions.dtype == torch.float32
    expected = [[vote / sum(votes) for vote in votes] for votes in VOTES]
    torch.testing.assert_close(train.distributions, torch.tensor(expected))


def test_votes_belong_to_their_sample_where_rows_are_left_out(tmp_path: Path) -> None:
    labels = [0, None, 2, 0, 1, 2]
    location = write_table(tmp_path / "a.parquet", label=labels, split=list("aabaaa"))

    train = opened(location, split="a", limit=3).train

    assert train.distributions is not None
    for sample_id, shares in zip(train.sample_ids, train.distributions, strict=True):
        votes = torch.tensor(VOTES[int(sample_id[1:])])
        torch.testing.assert_close(shares, votes / votes.sum())


def test_features_take_the_votes_of_the_dataset_that_they_are_of(
    features: str, locations: dict[str, str], tmp_path: Path
) -> None:
    table = pq.read_table(locations["LABELS"])
    votes = [[int(label == row) + 1 for row in range(3)] for label in table["label"].to_pylist()]
    path = tmp_path / "voted.parquet"
    pq.write_table(table.append_column("votes", pa.array(votes))[::-1], path)
    config = FeatureData(
        train=features,
        labels=str(path),
        id_column="id",
        image_column="image",
        distribution_column="votes",
    )

    train = open_splits(config, 0, CPU).train

    assert train.distributions is not None
    assert train.distributions.argmax(1).tolist() == train.labels.tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"votes": [[1, 2]] * 6}, r"no distribution over 3 classes for 6 of 6 .*'k0': \[1, 2\]"),
        ({"votes": [*VOTES[:5], [0, 0, 0]]}, r"for 1 of 6 samples, first 'k5': \[0.*not all of"),
        ({"votes": [*VOTES[:5], [-1, 0, 2]]}, "first 'k5'"),
        ({"votes": [*VOTES[:5], None]}, "first 'k5': None"),
        ({"votes": ["[1, 2, 3]"] * 6}, r"holds string.*give a list of numbers per sample"),
        ({"votes": [votes[::-1] for votes in VOTES]}, "for the label of only 17% of the samples"),
        ({"distribution": VOTES, "votes": [0] * 6}, "holds int64"),
    ],
)
def test_a_column_that_holds_no_distributions_is_an_error(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=message):
        opened(write_table(tmp_path / "a.parquet", **columns))


def test_a_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no column 'counts'"):
        opened(write_table(tmp_path / "a.parquet"), distribution_column="counts")


def test_a_dataset_without_columns_is_an_error(images: str) -> None:
    with pytest.raises(DatasetError, match=r"is a column of a table, and .*images' is none"):
        open_splits(ImageData(train=images, distribution_column="votes"), 0, CPU)
