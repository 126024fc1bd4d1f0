"""Copies of samples of a training set in test sets, beside the pairs of a naive search."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from difficulty_service.analyses.leaks import leaks
from difficulty_service.analyses.leaks.leaks import LeakReport, SetLeaks, find_leaks
from difficulty_service.base.errors import FeatureStoreError, ScoreFileError, StatisticsError
from difficulty_service.datasets.sample import UNLABELLED
from difficulty_service.marks.files import marks_of_table
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring import exact_copies, splits
from difficulty_service.scoring.splits import Split, open_split
from tests.factories import score_table, store_of

DIM, TRAIN, TEST = 8, 90, 40
COSINE = 0.9

Pairs = set[tuple[str, str, str, bool]]


def random_features(samples: int, seed: int, runs: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, runs, DIM, generator=generator)


def planted(runs: int = 1) -> tuple[Tensor, Tensor]:
    """Features of both sets: ten of the test set are those of the training set, ten are noisy."""
    train, test = random_features(TRAIN, 0, runs), random_features(TEST, 1, runs)
    train[40] = train[5]
    test[:10] = train[5:15]
    test[10:20] = 2 * train[20:30] + 0.2 * test[10:20]
    return train, test


def labels_of(samples: int, seed: int = 2) -> Tensor:
    return torch.randint(3, (samples,), generator=torch.Generator().manual_seed(seed))


ONE, OTHER = ("cat", "dog", "owl"), ("owl", "cat", "dog")
"""Names of the classes in both sets."""


def split_of(
    folder: Path,
    features: Tensor,
    labels: Tensor,
    letter: str = "s",
    **options: Any,  # noqa: ANN401 - as for `store_of`
) -> Split:
    """A set on disk in several parts, whose ids begin with a letter."""
    ids = [f"{letter}{row}" for row in range(len(features))]
    usual = {"class_names": ONE, "fingerprint": folder.name, "backbone": "builtin"}
    store = store_of(folder, features, labels, ids, 16, **usual | options)
    return open_split(store.folder)


def sets_of(folder: Path, runs: int = 1) -> tuple[Split, Split]:
    train, test = planted(runs)
    return (
        split_of(folder / "train", train, labels_of(TRAIN)),
        split_of(folder / "test", test, labels_of(TEST), "t", class_names=OTHER),
    )


def naive(runs: int = 1) -> Pairs:
    """All pairs, each by its ids, its kind and whether the names of the labels differ."""
    train, test = planted(runs)
    one = [ONE[label] for label in labels_of(TRAIN).tolist()]
    other = [OTHER[label] for label in labels_of(TEST).tolist()]
    found = set()
    for row, query in enumerate(test.double().mean(dim=1)):
        for column, reference in enumerate(train.double().mean(dim=1)):
            cosine = query @ reference / (query.norm() * reference.norm())
            exact = torch.equal(test[row], train[column])
            if exact or cosine >= COSINE:
                kind = "exact" if exact else "near"
                found.add((f"t{row}", f"s{column}", kind, other[row] != one[column]))
    return found


def pairs_of(found: LeakReport | SetLeaks) -> Pairs:
    rows = [
        (row["test_id"], row["train_id"], row["kind"], row["conflict"])
        for row in found.pairs.to_pylist()
    ]
    assert len(set(rows)) == len(rows)
    return set(rows)


@pytest.mark.slow
@pytest.mark.parametrize("held", [1, 1 << 30])
@pytest.mark.parametrize("rows_at_once", [7, 2048])
@pytest.mark.parametrize("runs", [1, 3])
def test_the_pairs_are_those_of_a_naive_search_whatever_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int, rows_at_once: int, held: int
) -> None:
    for module in (splits, exact_copies):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(exact_copies, "HELD_BYTES", held)
    train, test = sets_of(tmp_path, runs)

    report = find_leaks(train, [test], COSINE)

    expected = naive(runs)
    assert pairs_of(report) == expected
    assert {kind for _, _, kind, _ in expected} == {"exact", "near"}
    assert {conflict for _, _, _, conflict in expected} == {False, True}


def test_the_counts_are_of_samples_and_not_of_pairs(tmp_path: Path) -> None:
    train, test = sets_of(tmp_path)

    report = find_leaks(train, [test], COSINE)

    expected, (found,) = naive(), report.tests
    assert found.num_pairs == len(expected) > found.copies
    assert found.copies == len({pair[0] for pair in expected})
    assert found.exact == len({pair[0] for pair in expected if pair[2] == "exact"}) == 10
    assert found.conflicting == len({pair[0] for pair in expected if pair[3]})
    assert found.train_copies == len({pair[1] for pair in expected})
    assert (report.num_train, found.num_samples) == (TRAIN, TEST)
    assert found.share == found.copies / TEST


@pytest.mark.parametrize("cosine", [COSINE, None])
def test_every_pair_of_samples_is_compared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cosine: float | None
) -> None:
    monkeypatch.setattr(splits, "ROWS_AT_ONCE", 8)
    train, test = sets_of(tmp_path)
    compared: list[int] = []

    find_leaks(train, [test, test], cosine, compared.append)

    assert len(compared) > 10
    assert sum(compared) == 2 * TRAIN * TEST


def test_conflicts_come_first_and_then_the_most_similar(tmp_path: Path) -> None:
    train, test = sets_of(tmp_path)

    rows = find_leaks(train, [test], COSINE).pairs.to_pylist()

    order = [(not row["conflict"], -row["similarity"]) for row in rows]
    assert order == sorted(order)
    assert max(row["similarity"] for row in rows) <= 1


def test_without_a_cosine_only_exact_copies_are_found(tmp_path: Path) -> None:
    train, test = sets_of(tmp_path)

    report = find_leaks(train, [test], None)

    assert pairs_of(report) == {pair for pair in naive() if pair[2] == "exact"}
    assert all(row["similarity"] == pytest.approx(1) for row in report.pairs.to_pylist())


def test_the_same_bytes_are_exact_copies_whatever_their_features(tmp_path: Path) -> None:
    contents = [b"%d" % row for row in range(8)]
    train = split_of(tmp_path / "a", random_features(8, 0), labels_of(8), contents=contents)
    test = split_of(
        tmp_path / "b", random_features(8, 1), labels_of(8), "t", contents=[b"other"] * 7 + [b"3"]
    )

    (row,) = find_leaks(train, [test], None).pairs.to_pylist()

    assert (row["test_id"], row["train_id"], row["kind"]) == ("t7", "s3", "exact")
    one, other = random_features(8, 1)[7, 0], random_features(8, 0)[3, 0]
    assert row["similarity"] == pytest.approx(float(torch.cosine_similarity(one, other, dim=0)))


def test_features_of_zeros_are_copies_of_nothing(tmp_path: Path) -> None:
    zeros = torch.zeros(3, 1, DIM)
    train = split_of(tmp_path / "a", zeros, labels_of(3))
    test = split_of(tmp_path / "b", zeros, labels_of(3), "t")

    assert find_leaks(train, [test], COSINE).pairs.num_rows == 0


def test_pairs_beyond_the_limit_are_counted_but_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks, "MOST_PAIRS", 5)
    monkeypatch.setattr(splits, "ROWS_AT_ONCE", 4)
    train, test = sets_of(tmp_path)

    report = find_leaks(train, [test], COSINE)

    expected, (found,) = naive(), report.tests
    assert found.num_pairs == len(expected)
    assert len(found.pairs) == 5
    assert all(conflict for _, _, _, conflict in pairs_of(found))
    assert {*found.marks["sample_id"].to_pylist()} == {pair[0] for pair in expected}
    assert {*report.train_marks["sample_id"].to_pylist()} == {pair[1] for pair in expected}
    assert any("the first 5 are listed" in warning for warning in report.warnings)


@pytest.mark.parametrize(("wrong", "sentences"), [(1, 0), (2, 1)])
def test_many_near_copies_with_another_label_are_a_warning(
    tmp_path: Path, wrong: int, sentences: int
) -> None:
    features, labels = random_features(25, 0), torch.zeros(25).long()
    labels[:wrong] = 1
    train = split_of(tmp_path / "a", features, torch.zeros(25).long())
    test = split_of(tmp_path / "b", 2 * features, labels, "t")

    report = find_leaks(train, [test], 0.999)

    assert report.tests[0].conflicting == wrong
    warned = [warning for warning in report.warnings if "look alike" in warning]
    assert len(warned) == sentences
    assert all(warning.startswith("8% of the 25 images of") for warning in warned)


def test_marks_drop_what_is_copied_from_either_set(tmp_path: Path) -> None:
    train, test = sets_of(tmp_path)

    report = find_leaks(train, [test], COSINE)

    of_train, of_test = marks_of_table(report.train_marks), marks_of_table(report.tests[0].marks)
    assert {each.mark for each in of_train.samples.values()} == {Mark.DROP}
    assert of_test.samples.keys() == {pair[0] for pair in naive()}
    assert of_train.samples["s5"].given_label == ONE[int(labels_of(TRAIN)[5])]


def test_several_test_sets_are_kept_apart_and_their_copies_dropped_together(
    tmp_path: Path,
) -> None:
    train, first = sets_of(tmp_path)
    second = split_of(tmp_path / "third", planted()[0][[60, 61]], labels_of(2), "u")

    report = find_leaks(train, [first, second], COSINE)

    one, other = report.tests
    assert {("u0", "s60"), ("u1", "s61")} <= {pair[:2] for pair in pairs_of(other)}
    assert set(report.pairs["test"].to_pylist()) == {first.name, second.name}
    assert len(report.pairs) == len(one.pairs) + len(other.pairs)
    assert {"s5", "s60"} <= {*report.train_marks["sample_id"].to_pylist()}


@pytest.mark.parametrize(
    ("key", "value"),
    [("backbone", "clip-vit-b16"), ("flip", True), ("preprocessing", {"size": 64})],
)
def test_features_of_another_kind_are_refused(tmp_path: Path, key: str, value: object) -> None:
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4))
    test = split_of(tmp_path / "b", random_features(4, 0), labels_of(4), "t", **{key: value})

    with pytest.raises(FeatureStoreError, match=f"{key}.* in .*a, .* in .*b"):
        find_leaks(train, [test], COSINE)


def test_features_of_other_lengths_are_refused(tmp_path: Path) -> None:
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4))
    test = split_of(tmp_path / "b", random_features(4, 0)[..., :5], labels_of(4), "t")

    with pytest.raises(FeatureStoreError, match=r"8 numbers in .*a, 5 in .*b"):
        find_leaks(train, [test], None)


def test_features_that_are_not_finite_are_named(tmp_path: Path) -> None:
    features = random_features(40, 0)
    features[37, 0, 2] = torch.nan
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4))
    test = split_of(tmp_path / "b", features, labels_of(40), "t")

    with pytest.raises(StatisticsError, match=r"features of t37 in .*b hold NaN"):
        find_leaks(train, [test], COSINE)


def test_images_that_were_read_differently_are_a_warning(tmp_path: Path) -> None:
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4), decoder="pillow 1")
    test = split_of(tmp_path / "b", random_features(4, 0), labels_of(4), "t", decoder="pillow 2")

    report = find_leaks(train, [test], COSINE)

    assert any("decoder" in warning for warning in report.warnings)
    assert len(report.pairs) >= 4


def test_classes_of_other_names_conflict_with_a_warning(tmp_path: Path) -> None:
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4))
    test = split_of(
        tmp_path / "b", random_features(4, 0), labels_of(4), "t", class_names=("0", "1", "2")
    )

    report = find_leaks(train, [test], None)

    assert report.tests[0].conflicting == 4
    assert any("share no class name" in warning for warning in report.warnings)


def test_samples_without_labels_conflict_with_nothing(tmp_path: Path) -> None:
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4))
    test = split_of(
        tmp_path / "b", random_features(4, 0), torch.zeros(4).long(), "t", class_names=(UNLABELLED,)
    )

    report = find_leaks(train, [test], None)

    assert report.tests[0].conflicting == 0
    assert report.pairs["test_label"].null_count == 4
    assert report.warnings == ()


def with_scores(
    folder: Path, letter: str, labels: list[int], first: int = 0, **provenance: object
) -> Split:
    """Four samples with features, of which the scored ones, from `first` on, have other labels."""
    features, labels_of_store = random_features(4, 0), torch.zeros(4).long()
    split_of(folder / "scores.features", features, labels_of_store, letter, fingerprint=letter)
    ids = [f"{letter}{first + row}" for row in range(len(labels))]
    table = score_table(labels, ONE, ids, rmd=[0.0] * len(labels))
    write_scores(folder / "scores.parquet", table, Provenance.of(provenance))
    return open_split(folder / "scores.parquet")


def test_samples_and_labels_of_a_score_file_count(tmp_path: Path) -> None:
    train = with_scores(tmp_path / "a", "s", [2, 1, 0])
    test = with_scores(tmp_path / "b", "t", [2, 2, 0, 0])

    report = find_leaks(train, [test], None)

    assert pairs_of(report) == {
        ("t0", "s0", "exact", False),
        ("t1", "s1", "exact", True),
        ("t2", "s2", "exact", False),
    }
    assert (report.num_train, report.tests[0].num_samples) == (3, 4)
    assert any("1 image of" in w and "no scores" in w for w in report.warnings)


def test_samples_after_some_that_are_left_out_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "ROWS_AT_ONCE", 1)
    train = with_scores(tmp_path / "a", "s", [1, 1], first=2)
    test = with_scores(tmp_path / "b", "t", [1, 0, 1], first=1)

    report = find_leaks(train, [test], COSINE)

    assert {("t2", "s2", "exact", True), ("t3", "s3", "exact", False)} <= pairs_of(report)


def test_samples_with_scores_but_no_features_are_a_warning(tmp_path: Path) -> None:
    train = with_scores(tmp_path / "a", "s", [2, 1, 0, 0, 1, 1])
    test = with_scores(tmp_path / "b", "t", [2, 2, 0, 0])

    report = find_leaks(train, [test], None)

    assert report.warnings == (
        f"2 images of {train.name} are left out, which have scores but no features",
    )


def test_rows_of_a_file_that_are_left_out_are_a_warning(tmp_path: Path) -> None:
    features = random_features(4, 0)[:, 0].numpy()
    np.savez(tmp_path / "train.npz", features=features, labels=np.array(["cat", "", "dog", "cat"]))
    features[3, 0] = np.nan
    np.savez(tmp_path / "test.npz", features=features, labels=np.array(["cat", "dog"] * 2))

    report = find_leaks(
        open_split(tmp_path / "train.npz"), [open_split(tmp_path / "test.npz")], None
    )

    assert report.warnings == (
        f"{tmp_path / 'train.npz'}: rows left out because they have no label: 1 of 4",
        f"{tmp_path / 'test.npz'}: rows left out because their features hold NaN or infinity: 1 of "
        "4",
    )


def test_clusters_are_no_labels_to_compare(tmp_path: Path) -> None:
    train = with_scores(tmp_path / "a", "s", [2, 1, 0], made_labels={"clusters": 3})
    test = with_scores(tmp_path / "b", "t", [0, 2, 1])

    report = find_leaks(train, [test], None)

    assert report.tests[0].conflicting == 0
    assert any("are clusters" in warning for warning in report.warnings)


@pytest.mark.parametrize("name", ["photos", "gone"])
def test_what_holds_no_features_is_named_with_a_remedy(tmp_path: Path, name: str) -> None:
    (tmp_path / "photos").mkdir()

    with pytest.raises(FeatureStoreError, match=f"{name} holds no features.*difficulty extract"):
        open_split(tmp_path / name)


def test_the_remedy_names_the_folder_and_the_backbone_of_the_other_set(tmp_path: Path) -> None:
    train = split_of(tmp_path / "a", random_features(4, 0), labels_of(4))
    photos = tmp_path / "photos"
    photos.mkdir()

    with pytest.raises(FeatureStoreError) as raised:
        open_split(photos, train)

    command = f"`difficulty extract {photos} --backbone builtin --out {photos}.features`"
    assert command in str(raised.value)


def test_a_table_of_images_is_named_with_a_remedy(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [b"1"], "label": ["cat"]}), tmp_path / "photos.parquet")

    with pytest.raises(FeatureStoreError, match=r"not a score file.*difficulty extract"):
        open_split(tmp_path / "photos.parquet")


def test_a_damaged_score_file_keeps_its_own_remedy(tmp_path: Path) -> None:
    (tmp_path / "scores.parquet").write_bytes(b"PAR1 damaged PAR1")

    with pytest.raises(ScoreFileError, match="score again"):
        open_split(tmp_path / "scores.parquet")


def test_a_score_file_without_features_is_named_with_a_remedy(tmp_path: Path) -> None:
    write_scores(tmp_path / "a.parquet", score_table([0], rmd=[1.0]), Provenance())

    with pytest.raises(FeatureStoreError, match=r"no features beside it, in .*a.features"):
        open_split(tmp_path / "a.parquet")


def test_the_pairs_are_written_by_the_ending_of_the_name(tmp_path: Path) -> None:
    train, test = sets_of(tmp_path)
    report = find_leaks(train, [test], COSINE)

    for ending in ("parquet", "csv", "jsonl"):
        report.save(tmp_path / f"pairs.{ending}")
        assert (tmp_path / f"pairs.{ending}").stat().st_size > 0
