"""Copies among the samples of a store: found whatever their labels, never invented."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.duplicates import Copy, Duplicates, find_duplicates, hash_rows
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_store
from tests.factories import store_of

SAMPLES = 60
CLASS_NAMES = ("cat", "dog")


def make_store(
    folder: Path, dim: int = 4, copies: Sequence[tuple[int, int]] = (), runs: int = 1
) -> tuple[FeatureStore, Tensor]:
    """A store of two parts, in which each pair (copy, first) has the same features."""
    features = torch.randn(SAMPLES, runs, dim, generator=torch.Generator().manual_seed(0))
    for copy, first in copies:
        features[copy] = features[first]
    labels = torch.arange(SAMPLES) % 2
    store = store_of(folder, features, labels, shard_size=40, class_names=CLASS_NAMES)
    return store, features[:, 0]


def column(duplicates: Duplicates) -> dict[int, str]:
    """The id of the first sample of each copy, by the copy's position."""
    ids = duplicates.column(0, SAMPLES).to_pylist()
    return {row: first for row, first in enumerate(ids) if first is not None}


@pytest.mark.parametrize("dim", [3, 4])
def test_copies_point_to_the_first_sample_with_their_features(tmp_path: Path, dim: int) -> None:
    store, features = make_store(tmp_path, dim, copies=[(7, 2), (50, 2), (59, 58)])

    duplicates = find_duplicates(store, hash_rows(features).numpy())

    assert column(duplicates) == {7: "s2", 50: "s2", 59: "s58"}
    assert duplicates.column(50, 5).to_pylist() == ["s2", None, None, None, None]


def test_copies_with_different_labels_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    store, features = make_store(tmp_path, copies=[(4, 2), (50, 2), (51, 2), (59, 58), (20, 10)])

    duplicates = find_duplicates(store, hash_rows(features).numpy())

    assert duplicates.num_conflicting == 4 + 2
    assert duplicates.conflict == (Copy("s2", 0), Copy("s51", 1))


def test_rows_that_only_share_a_hash_are_no_copies(tmp_path: Path) -> None:
    store, _ = make_store(tmp_path, copies=[(7, 2)])

    duplicates = find_duplicates(store, np.zeros(SAMPLES, np.int64))

    assert column(duplicates) == {7: "s2"}


def test_a_row_that_differs_from_another_in_one_bit_has_another_hash() -> None:
    row = torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    bits = row.view(torch.int32)
    changed = [
        bits.clone().index_put((torch.tensor([0]), torch.tensor([column])), bits[0, column] ^ bit)
        for column in range(6)
        for bit in (1 << power for power in range(31))
    ]

    hashes = hash_rows(torch.cat([bits, *changed]).view(torch.float32))

    assert len(hashes) == 1 + 6 * 31
    assert (hashes[1:] != hashes[0]).all()


def test_the_score_file_names_the_copies_and_warns_of_their_labels(tmp_path: Path) -> None:
    store, _ = make_store(tmp_path / "store", copies=[(7, 2), (50, 2)])
    scores = tmp_path / "scores.parquet"

    summary = score_store(store, fit_store(store, FitOptions()), scores)

    table = read_scores(scores, ["sample_id", "duplicate_of"]).table.to_pydict()
    copies = dict(zip(table["sample_id"], table["duplicate_of"], strict=True))
    assert {key: first for key, first in copies.items() if first} == {"s7": "s2", "s50": "s2"}
    assert summary.num_duplicates == 2
    assert summary.warnings[-1] == (
        "3 images have an exact copy with another label, the first are s2 (cat) and s7 (dog)"
    )
    assert read_scores(scores).provenance.num_duplicates == 2


def test_augmented_samples_are_not_compared(tmp_path: Path) -> None:
    store, _ = make_store(tmp_path / "store", copies=[(7, 2)], runs=3)
    scores = tmp_path / "scores.parquet"

    summary = score_store(store, fit_store(store, FitOptions()), scores)

    assert summary.num_duplicates == 0
    assert "duplicate_of" not in read_scores(scores).table.column_names
