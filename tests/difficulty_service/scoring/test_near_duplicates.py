"""Near duplicates among the samples of a store: the earliest one of each sample, and labels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.duplicates import Copy, find_near_duplicates
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_store
from difficulty_service.settings.options import ScorerOptions
from tests.factories import store_of

SAMPLES, PART_SAMPLES, DIM = 90, 50, 6
THRESHOLD = 0.9


def make_store(folder: Path, features: Tensor, labels: Tensor) -> FeatureStore:
    """A store of two parts. Shape of the features (samples, runs, dim)."""
    names = ("cat", "dog")
    return store_of(folder, features, labels, shard_size=PART_SAMPLES, class_names=names)


def random_features(runs: int = 1) -> Tensor:
    """Features of any length; those of some samples point in almost the same direction."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(SAMPLES, runs, DIM, generator=generator)
    features[60:80] = 3 * features[:20] + 0.5 * torch.randn(20, runs, DIM, generator=generator)
    return features


def two_labels() -> Tensor:
    return torch.randint(2, (SAMPLES,), generator=torch.Generator().manual_seed(1))


def naive(features: Tensor, labels: Tensor) -> tuple[list[str | None], int, tuple[int, int]]:
    """The column, the number of conflicting samples, and the first two of them."""
    rows = features.double().mean(dim=1).numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    near = rows @ rows.T >= THRESHOLD
    column: list[str | None] = []
    conflicts = []
    for later in range(SAMPLES):
        copies = [earlier for earlier in range(later) if near[later, earlier]]
        column.append(f"s{copies[0]}" if copies else None)
        conflicts += [(earlier, later) for earlier in copies if labels[earlier] != labels[later]]
    return column, len({sample for pair in conflicts for sample in pair}), min(conflicts)


@pytest.mark.parametrize("runs", [1, 3])
def test_each_sample_names_its_earliest_near_duplicate(tmp_path: Path, runs: int) -> None:
    features, labels = random_features(runs), two_labels()
    store = make_store(tmp_path, features, labels)

    found = find_near_duplicates(store, SAMPLES, THRESHOLD)

    column, num_conflicting, (first, second) = naive(features, labels)
    assert sum(name is not None for name in column) > 20
    assert found.column(0, SAMPLES).to_pylist() == column
    assert found.column(55, 20).to_pylist() == column[55:75]
    assert found.num_conflicting == num_conflicting > 2
    assert found.conflict == (
        Copy(f"s{first}", int(labels[first])),
        Copy(f"s{second}", int(labels[second])),
    )


def test_copies_that_differ_only_in_length_are_found_and_zeros_are_not(tmp_path: Path) -> None:
    features = torch.randn(SAMPLES, 1, DIM, generator=torch.Generator().manual_seed(0))
    features[80], features[81] = 1e-3 * features[2], features[3]
    features[[4, 5]] = 0

    found = find_near_duplicates(make_store(tmp_path, features, two_labels()), SAMPLES, 1.0)

    assert list(found.positions) == [80, 81]
    assert found.column(80, 2).to_pylist() == ["s2", "s3"]


def test_without_conflicting_labels_there_is_no_warning(tmp_path: Path) -> None:
    labels = (torch.arange(SAMPLES) >= SAMPLES - 2).long()
    features = torch.randn(SAMPLES, 1, DIM, generator=torch.Generator().manual_seed(0))
    features[7] = features[2]

    found = find_near_duplicates(make_store(tmp_path, features, labels), SAMPLES, 1.0)

    assert list(found.positions) == [7]
    assert (found.num_conflicting, found.conflict) == (0, None)


def test_the_score_file_has_the_column_the_counts_and_a_warning(tmp_path: Path) -> None:
    features, labels = random_features(), two_labels()
    store = make_store(tmp_path / "store", features, labels)
    scores = tmp_path / "scores.parquet"

    summary = score_store(
        store, fit_store(store, FitOptions()), scores, ScorerOptions(near_duplicates=THRESHOLD)
    )

    column, num_conflicting, (first, second) = naive(features, labels)
    read = read_scores(scores)
    copies = sum(name is not None for name in column)
    assert read.table["near_duplicate_of"].to_pylist() == column
    assert read.table["duplicate_of"].null_count == SAMPLES
    assert summary.num_near_duplicates == read.provenance.num_near_duplicates == copies
    assert read.provenance.near_duplicates == THRESHOLD
    names = ("cat", "dog")
    assert summary.warnings[-1] == (
        f"{num_conflicting} images have a near copy with another label, the first are s{first} "
        f"({names[labels[first]]}) and s{second} ({names[labels[second]]})"
    )


def test_without_a_threshold_the_column_is_absent(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", random_features(), two_labels())
    scores = tmp_path / "scores.parquet"

    summary = score_store(store, fit_store(store, FitOptions()), scores)

    read = read_scores(scores)
    assert "near_duplicate_of" not in read.table.column_names
    assert summary.num_near_duplicates is None
    assert read.provenance.near_duplicates is None
