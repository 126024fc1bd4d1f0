"""What differs between two versions: samples by id and content, labels, and how classes lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from difficulty_service.analyses.versions.changes import (
    ChangeReport,
    compare_moments,
    find_changes,
)
from difficulty_service.analyses.versions.shift import RIDGE
from difficulty_service.analyses.versions.version_matches import match_versions
from difficulty_service.base.errors import DatasetError, FeatureStoreError
from difficulty_service.datasets.sample import UNLABELLED
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.gaussian import fit_gaussians
from difficulty_service.gaussians.moments import compute_moments, pilot_of
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.splits import Split, open_split
from tests.factories import store_of

DIM, SAMPLES = 4, 60

NAMES = ("cat", "dog", "owl")


def features_of(samples: int, seed: int = 0) -> Tensor:
    return torch.randn(samples, DIM, generator=torch.Generator().manual_seed(seed))


def version(
    folder: Path,
    features: Tensor,
    labels: Tensor,
    ids: list[str],
    contents: list[bytes] | None = None,
    **options: Any,  # noqa: ANN401 - as for `store_of`
) -> Split:
    usual = {"fingerprint": folder.name, "backbone": "builtin"}
    store = store_of(folder, features, labels, ids, 16, contents, **usual | options)
    return open_split(store.folder)


def versions(
    folder: Path,
    *,
    by_content: bool = True,
    shift: float = 0.0,
) -> tuple[Split, Split]:
    """Sixty samples, and a version with twenty more of the first class.

    It lacks s0 and s1; s2 is moved, s3 changed, s4 relabelled, and s5 moved and relabelled.
    """
    features, labels = features_of(SAMPLES), torch.arange(SAMPLES) % 3
    ids = [f"s{row}" for row in range(SAMPLES)]
    contents = [f"bytes {row}".encode() for row in range(SAMPLES)]
    old = version(folder / "old", features, labels, ids, contents if by_content else None)
    added = features_of(20, seed=1) + shift
    kept = features[2:].clone()
    kept[1] = features_of(1, seed=2)
    later = labels[2:].clone()
    later[[2, 3]] = (later[[2, 3]] + 1) % 3
    new_ids = ["moved/s2", "s3", "s4", "moved/s5", *ids[6:], *(f"t{row}" for row in range(20))]
    new_contents = [
        *contents[2:3],
        b"other",
        *contents[4:],
        *(b"new %d" % row for row in range(20)),
    ]
    new = version(
        folder / "new",
        torch.cat([kept, added]),
        torch.cat([later, torch.zeros(20).long()]),
        new_ids,
        new_contents if by_content else None,
    )
    return old, new


@pytest.mark.parametrize("by_content", [True, False])
def test_samples_are_told_apart_by_what_happened_to_them(
    tmp_path: Path,
    by_content: bool,  # noqa: FBT001 - a case
) -> None:
    old, new = versions(tmp_path, by_content=by_content)

    report = find_changes(old, new, permutations=0)

    assert report.counts == {"kept": 55, "moved": 2, "changed": 1, "added": 20, "removed": 2}
    assert report.relabelled == 2
    rows = {
        (row["kind"], row["relabelled"], row["old_id"], row["new_id"])
        for row in report.table.to_pylist()
    }
    assert {row for row in rows if row[0] != "added"} == {
        ("kept", True, "s4", "s4"),
        ("moved", True, "s5", "moved/s5"),
        ("moved", False, "s2", "moved/s2"),
        ("changed", False, "s3", "s3"),
        ("removed", False, "s0", None),
        ("removed", False, "s1", None),
    }
    assert sum(row[0] == "added" for row in rows) == 20
    assert report.table["relabelled"].to_pylist()[:2] == [True, True]
    labels = {
        row["new_id"]: (row["old_label"], row["new_label"]) for row in report.table.to_pylist()
    }
    assert labels["s4"] == ("dog", "owl")
    told = any("matched by identical features" in text for text in report.warnings)
    assert told is not by_content


def test_the_same_version_has_no_changes_and_no_shift(tmp_path: Path) -> None:
    old, _ = versions(tmp_path)

    report = find_changes(old, old, permutations=20)

    assert len(report.table) == 0
    assert report.counts["kept"] == SAMPLES
    for row in report.classes.to_pylist():
        assert row["frechet"] == pytest.approx(0, abs=1e-6)
        assert row["kl"] == pytest.approx(0, abs=1e-6)
        assert row["p_value"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_matches_are_those_of_a_naive_search(seed: int) -> None:
    generator = np.random.default_rng(seed)
    old_ids, new_ids = ([f"s{row}" for row in generator.permutation(14)[:10]] for _ in range(2))
    one, other = (
        [bytes([value]) if value else None for value in generator.integers(0, 8, 10).tolist()]
        for _ in range(2)
    )

    matches = match_versions(old_ids, new_ids, one, other)

    free, expected = list(range(10)), {}
    for row in range(10):
        for place in list(free):
            if old_ids[place] == new_ids[row] and one[place] == other[row]:
                expected[row] = (place, "kept")
                free.remove(place)
    for kind in ("moved", "changed"):
        for row in range(10):
            for place in list(free):
                same = one[place] is not None and one[place] == other[row]
                if kind == "changed":
                    same = old_ids[place] == new_ids[row]
                if row not in expected and same:
                    expected[row] = (place, kind)
                    free.remove(place)
    found = zip(matches.new.tolist(), matches.old.tolist(), matches.kinds, strict=True)
    assert {row: (place, kind) for row, place, kind in found} == expected


def naive_row(old: Split, new: Split, name: str) -> tuple[float, float]:
    """Fréchet distance and divergence of a class, with the covariance that all classes share."""
    means, covariances = [], []
    for each in (old, new):
        rows, labels = each.vectors(unit=False).double(), torch.from_numpy(each.labels)
        centred = rows.clone()
        for label in labels.unique():
            centred[labels == label] -= rows[labels == label].mean(dim=0)
        covariances.append((centred.T @ centred / len(rows)).numpy())
        means.append(rows[labels == each.names.index(name)].mean(dim=0).numpy())
    difference = means[1] - means[0]
    roots = np.sqrt(np.linalg.eigvals(covariances[0] @ covariances[1]).real)
    frechet = difference @ difference + np.trace(covariances[0] + covariances[1]) - 2 * roots.sum()
    ridge = RIDGE * np.trace(covariances[0]) / DIM * np.eye(DIM)
    one, other = (torch.from_numpy(each + ridge) for each in covariances)
    normal = torch.distributions.MultivariateNormal
    divergence = torch.distributions.kl_divergence(
        normal(torch.from_numpy(difference), other), normal(torch.zeros(DIM).double(), one)
    )
    return float(frechet), float(divergence)


def test_the_shift_of_a_class_is_that_of_the_formulas(tmp_path: Path) -> None:
    old, new = versions(tmp_path, shift=1.0)

    report = find_changes(old, new, permutations=0)

    for row in report.classes.to_pylist()[:3]:
        expected = naive_row(old, new, row["class"])
        assert (row["frechet"], row["kl"]) == pytest.approx(expected, rel=1e-4)
        assert row["p_value"] is None


def test_a_class_with_other_samples_moved_more_than_chance_and_others_did_not(
    tmp_path: Path,
) -> None:
    old, new = versions(tmp_path, shift=2.0)

    report = find_changes(old, new, permutations=99, seed=1)

    cat, dog, owl, everyone = report.classes.to_pylist()
    assert (cat["class"], cat["old"], cat["new"]) == ("cat", 20, 40)
    assert cat["p_value"] == everyone["p_value"] == 0.01
    assert cat["frechet"] > cat["frechet_by_chance_high"]
    assert cat["kl"] > cat["kl_by_chance_high"]
    for row in (dog, owl):
        assert row["p_value"] > 0.01
        assert row["kl_by_chance_low"] <= row["kl_by_chance_high"]
    assert everyone["class"] == ""


def test_added_samples_that_are_told_from_the_old_ones_come_first(tmp_path: Path) -> None:
    old, new = versions(tmp_path, shift=3.0)
    alike = find_changes(*versions(tmp_path / "alike"), permutations=0)

    report: ChangeReport = find_changes(old, new, permutations=0)

    assert report.separability > 0.95
    assert 0.2 < alike.separability < 0.8
    added = [row for row in report.table.to_pylist() if row["kind"] == "added"]
    novelty = [row["novelty"] for row in added]
    assert novelty == sorted(novelty, reverse=True)
    assert novelty[0] > 0


def test_few_added_samples_are_not_told_apart(tmp_path: Path) -> None:
    features, labels = features_of(20), torch.zeros(20).long()
    ids = [f"s{row}" for row in range(20)]
    old = version(tmp_path / "old", features[:15], labels[:15], ids[:15])
    new = version(tmp_path / "new", features, labels, ids)

    report = find_changes(old, new, permutations=0)

    assert report.separability is None
    assert report.table["novelty"].null_count == 5


def test_scores_of_the_new_version_stand_beside_its_samples(tmp_path: Path) -> None:
    old, new = versions(tmp_path)
    scores = pa.table({"sample_id": ["t3", "s4"], "score": [2.5, -1.0]})

    report = find_changes(old, new, permutations=0, scores=scores)

    known = {row["new_id"]: row["score"] for row in report.table.to_pylist()}
    assert (known["t3"], known["s4"], known["t4"]) == (2.5, -1.0, None)


def test_versions_without_labels_are_compared_as_a_whole(tmp_path: Path) -> None:
    features, labels = features_of(30), torch.zeros(30).long()
    ids = [f"s{row}" for row in range(30)]
    old, new = (
        version(
            tmp_path / name, rows, labels[: len(rows)], ids[: len(rows)], class_names=(UNLABELLED,)
        )
        for name, rows in (("old", features[:20]), ("new", features))
    )

    report = find_changes(old, new, permutations=9)

    (row,) = report.classes.to_pylist()
    assert (row["class"], row["old"], row["new"]) == ("", 20, 30)
    assert report.relabelled == 0


def test_a_class_of_one_version_only_has_no_shift_and_is_named(tmp_path: Path) -> None:
    old, _ = versions(tmp_path)
    new = version(
        tmp_path / "other",
        features_of(SAMPLES),
        torch.arange(SAMPLES) % 3,
        [f"s{row}" for row in range(SAMPLES)],
        class_names=("cat", "dog", "fox"),
    )

    report = find_changes(old, new, permutations=0)

    rows = {row["class"]: row for row in report.classes.to_pylist()}
    assert (rows["owl"]["old"], rows["owl"]["new"], rows["owl"]["kl"]) == (20, 0, None)
    assert (rows["fox"]["old"], rows["fox"]["new"]) == (0, 20)
    assert f"classes of {old.name} only: owl" in report.warnings
    assert report.relabelled == 20


def fitted(split: Split) -> FittedGaussians:
    rows = split.vectors(unit=False)
    labels = torch.from_numpy(split.labels)
    moments = compute_moments(rows, labels, pilot_of(rows), len(split.names))
    return FittedGaussians(
        fit_gaussians(moments, FitOptions(0.1, "float32")), split.source.description
    )


def test_moments_alone_give_the_same_shift_without_chance(tmp_path: Path) -> None:
    old, new = versions(tmp_path, shift=1.0)

    report = compare_moments(fitted(old), fitted(new), [Path("old"), Path("new")])
    expected = find_changes(old, new, permutations=0)

    for row, other in zip(report.classes.to_pylist(), expected.classes.to_pylist(), strict=True):
        assert row["class"] == other["class"]
        assert (row["frechet"], row["kl"]) == pytest.approx(
            (other["frechet"], other["kl"]), rel=1e-3
        )
        assert row["p_value"] is None
    assert report.counts is None
    assert len(report.warnings) == 1
    assert "name features for that" in report.warnings[0]


def test_features_of_different_backbones_are_not_compared(tmp_path: Path) -> None:
    old, _ = versions(tmp_path)
    new = version(
        tmp_path / "other",
        features_of(3),
        torch.zeros(3).long(),
        ["a", "b", "c"],
        backbone="resnet",
    )

    with pytest.raises(FeatureStoreError, match="different features"):
        find_changes(old, new)
    with pytest.raises(FeatureStoreError, match="fitted to other features"):
        compare_moments(fitted(old), fitted(new), [Path("old"), Path("new")])


def test_a_version_without_samples_is_an_error(tmp_path: Path) -> None:
    old, _ = versions(tmp_path)
    new = version(tmp_path / "empty", features_of(0), torch.zeros(0).long(), [])

    with pytest.raises(DatasetError, match="has no samples to compare"):
        find_changes(old, new)


def test_a_version_of_few_samples_is_named_for_its_noisy_distances(tmp_path: Path) -> None:
    ids = [f"s{row}" for row in range(SAMPLES)]
    old = version(tmp_path / "old", features_of(SAMPLES), torch.arange(SAMPLES) % 3, ids)
    new = version(tmp_path / "new", features_of(39), torch.arange(39) % 3, ids[:39])

    report = find_changes(old, new, permutations=0)

    (text,) = (text for text in report.warnings if "mostly noise" in text)
    assert text.startswith(f"{new.name} has only 9.8 samples for each of the 4 numbers")
