"""Samples that are chosen of a pool: by strategies, of all classes alike, beside labelled ones."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from difficulty_service.analyses.selection.selection import (
    Known,
    Selection,
    chosen_scores,
    fair_counts,
    read_ids,
    select_samples,
    turns_of,
)
from difficulty_service.base.errors import DatasetError, FeatureStoreError, ScoreFileError
from difficulty_service.datasets.sample import UNLABELLED
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.scorers.strategies import STRATEGIES
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.measures import read_measure
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring import splits
from difficulty_service.scoring.splits import Split, open_split
from difficulty_service.settings.options import SelectOptions
from tests.factories import score_table, store_of

SIZES = (30, 10, 5)
"""Samples of each class of the pool, in this order."""

SAMPLES = sum(SIZES)


def features_of(samples: int, seed: int = 0) -> Tensor:
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed))


def pool_of(folder: Path, **options: Any) -> Split:  # noqa: ANN401 - as for `store_of`
    labels = torch.arange(3).repeat_interleave(torch.tensor(SIZES))
    usual = {"fingerprint": folder.name, "backbone": "builtin"}
    store = store_of(folder, features_of(SAMPLES), labels, None, 16, **usual | options)
    return open_split(store.folder)


def request(count: int, strategy: str = "random", **options: Any) -> SelectOptions:  # noqa: ANN401
    given = {"count": count, "strategy": strategy, **options}
    return SelectOptions.model_validate(given)


def measure_of(values: list[float | None]) -> pa.Table:
    ids = [f"s{row}" for row in range(len(values))]
    return pa.table({"sample_id": ids, "score": pa.array(values, pa.float64())})


def scores_of_pool() -> list[float | None]:
    return [float((7 * row) % SAMPLES) for row in range(SAMPLES)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("balanced", [False, True])
def test_the_same_seed_chooses_the_same_samples_each_once(
    tmp_path: Path,
    strategy: str,
    balanced: bool,  # noqa: FBT001 - a case
) -> None:
    pool, known = pool_of(tmp_path / "pool"), Known(measure_of(scores_of_pool()))

    one, other = (
        select_samples(pool, request(20, strategy, balanced=balanced, seed=3), known)
        for _ in range(2)
    )

    assert one.table == other.table
    assert len(set(one.sample_ids)) == 20
    assert one.table["rank"].to_pylist() == list(range(1, 21))
    assert dict(one.strategies) == {strategy: 20}


@pytest.mark.parametrize(("strategy", "sign"), [("hard", -1), ("easy", 1)])
def test_hard_and_easy_samples_are_those_of_the_extreme_scores_in_their_order(
    tmp_path: Path, strategy: str, sign: int
) -> None:
    values = scores_of_pool()
    values[4] = None

    chosen = select_samples(
        pool_of(tmp_path / "pool"), request(10, strategy), Known(measure_of(values))
    )

    known = [row for row in range(SAMPLES) if values[row] is not None]
    expected = sorted(known, key=lambda row: sign * values[row])[:10]
    assert chosen.sample_ids == [f"s{row}" for row in expected]
    assert chosen.table["score"].to_pylist() == [values[row] for row in expected]
    assert chosen.warnings == (f"1 image of {chosen.name} has no score",)


def test_more_hard_samples_than_have_scores_are_an_error(tmp_path: Path) -> None:
    values = [None] * (SAMPLES - 3) + [1.0, 2.0, 3.0]

    with pytest.raises(ScoreFileError, match="only 3 of the others have a score"):
        select_samples(pool_of(tmp_path / "pool"), request(4, "hard"), Known(measure_of(values)))


def test_a_balanced_choice_takes_as_many_of_each_class_as_there_are(tmp_path: Path) -> None:
    chosen = select_samples(pool_of(tmp_path / "pool"), request(21, balanced=True))

    assert chosen.classes == {"cat": 8, "dog": 8, "owl": 5}
    assert chosen.warnings == ("too few to balance, so all were chosen: owl",)


def test_what_is_chosen_and_labelled_already_counts_for_the_balance(tmp_path: Path) -> None:
    labelled = store_of(
        tmp_path / "labelled",
        features_of(6, seed=1),
        torch.zeros(6).long(),
        class_names=("dog", "horse"),
        backbone="builtin",
        fingerprint="labelled",
    )
    known = Known(labelled=open_split(labelled.folder), chosen=["s0", "s1", "s40"])

    chosen = select_samples(pool_of(tmp_path / "pool"), request(9, balanced=True), known)

    # Six dogs, two cats and an owl were there; there are four owls more.
    assert chosen.classes == {"cat": 5, "dog": 0, "owl": 4}
    assert not {"s0", "s1", "s40"} & set(chosen.sample_ids)
    assert chosen.num_excluded == 3


@pytest.mark.parametrize("seed", range(5))
def test_fair_counts_are_those_of_one_choice_after_the_other(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes, before = generator.integers(0, 9, 6), generator.integers(0, 5, 6)
    count = int(generator.integers(0, sizes.sum() + 1))

    counts = fair_counts(sizes, before, count)

    expected = [0] * 6
    for _ in range(count):
        free = [label for label in range(6) if expected[label] < sizes[label]]
        expected[min(free, key=lambda label: (expected[label] + before[label], label))] += 1
    assert counts == expected


def test_strategies_take_turns_by_their_shares() -> None:
    one, other = STRATEGIES["random"], STRATEGIES["hard"]

    turns = turns_of({one: 3, other: 1}, 8)

    assert [each.name for each in turns].count("hard") == 2
    assert {each.name for each in turns[:4]} == {each.name for each in turns[4:]}
    assert turns[0] is one
    for number in range(1, 9):
        assert abs(turns[:number].count(one) - 0.75 * number) < 1


def test_a_mixture_chooses_nothing_twice_and_spreads_its_strategies(tmp_path: Path) -> None:
    known = Known(measure_of(scores_of_pool()))

    chosen = select_samples(pool_of(tmp_path / "pool"), request(24, "random:2,hard,diverse"), known)

    assert dict(chosen.strategies) == {"random": 12, "hard": 6, "diverse": 6}
    assert len(set(chosen.sample_ids)) == 24
    names = chosen.table["strategy"].to_pylist()
    assert Counter(names[:12]) == {"random": 6, "hard": 3, "diverse": 3}


def test_a_balanced_mixture_keeps_its_shares_over_many_small_classes(tmp_path: Path) -> None:
    labels = torch.arange(40) // 2
    names = tuple(f"class {number:02}" for number in range(20))
    store = store_of(tmp_path / "pool", features_of(40), labels, class_names=names)

    chosen = select_samples(
        open_split(store.folder),
        request(20, "random,hard", balanced=True),
        Known(measure_of([float(row) for row in range(40)])),
    )

    assert set(chosen.classes.values()) == {1}
    assert dict(chosen.strategies) == {"random": 10, "hard": 10}


def test_copies_of_labelled_samples_are_not_chosen_and_marks_drop_them(tmp_path: Path) -> None:
    features = features_of(SAMPLES)
    labelled = store_of(
        tmp_path / "labelled",
        torch.cat([features[2:4], features_of(1, seed=1)]),
        torch.zeros(3).long(),
        backbone="builtin",
        fingerprint="labelled",
    )
    pool = pool_of(tmp_path / "pool")
    known = Known(labelled=open_split(labelled.folder), chosen=["s7"])

    chosen = select_samples(pool, request(SAMPLES - 4), known)

    everyone = {f"s{row}" for row in range(SAMPLES)}
    assert len(chosen.table) == SAMPLES - 4
    assert set(chosen.sample_ids) < everyone - {"s2", "s3", "s7"}
    (left,) = everyone - {"s2", "s3", "s7"} - set(chosen.sample_ids)
    assert {*chosen.other_marks["sample_id"].to_pylist()} == {"s2", "s3", left}
    assert {*chosen.other_marks["mark"].to_pylist()} == {Mark.DROP}
    assert any(
        "2 images" in text and "exact copies of labelled ones" in text for text in chosen.warnings
    )
    with pytest.raises(DatasetError, match=r"43 images cannot be chosen of 42 .* without 3"):
        select_samples(pool, request(SAMPLES - 2), known)


def test_diverse_samples_are_far_from_labelled_ones(tmp_path: Path) -> None:
    pool = pool_of(tmp_path / "pool")
    vectors = pool.vectors(unit=True)
    labelled = store_of(
        tmp_path / "labelled",
        features_of(5, seed=1),
        torch.zeros(5).long(),
        backbone="builtin",
        fingerprint="labelled",
    )
    known = Known(labelled=open_split(labelled.folder))

    chosen = select_samples(pool, request(1, "diverse"), known)

    cosines = vectors @ torch.nn.functional.normalize(features_of(5, seed=1)).T
    assert chosen.sample_ids == [f"s{int(cosines.amax(dim=1).argmin())}"]


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_vectors_are_of_unit_length_in_memory_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(splits, "HELD_BYTES", held)
    monkeypatch.setattr(splits, "ROWS_AT_ONCE", 7)

    pool = pool_of(tmp_path / "pool")

    vectors, plain = pool.vectors(unit=True), pool.vectors(unit=False)

    torch.testing.assert_close(plain, features_of(SAMPLES))
    torch.testing.assert_close(vectors, torch.nn.functional.normalize(plain))


def test_batches_are_numbered_in_the_order_of_choice(tmp_path: Path) -> None:
    chosen = select_samples(pool_of(tmp_path / "pool"), request(5, batch_size=2))

    assert chosen.table["batch"].to_pylist() == [1, 1, 2, 2, 3]


def test_a_pool_without_labels_can_be_chosen_from_but_not_balanced(tmp_path: Path) -> None:
    labels = torch.zeros(8).long()
    store = store_of(tmp_path / "pool", features_of(8), labels, class_names=(UNLABELLED,))
    pool = open_split(store.folder)

    chosen = select_samples(pool, request(3, "diverse"))

    assert chosen.classes == {}
    assert chosen.table["label"].null_count == 3
    with pytest.raises(DatasetError, match="has no labels to balance"):
        select_samples(pool, request(3, balanced=True))


def test_labelled_samples_of_another_backbone_are_an_error(tmp_path: Path) -> None:
    other = store_of(tmp_path / "other", features_of(3), torch.zeros(3).long(), backbone="resnet")

    with pytest.raises(FeatureStoreError, match="different features"):
        select_samples(
            pool_of(tmp_path / "pool"), request(3), Known(labelled=open_split(other.folder))
        )


def test_an_id_that_was_chosen_of_another_pool_is_an_error(tmp_path: Path) -> None:
    known = Known(chosen=["s1", "x9"])

    with pytest.raises(DatasetError, match=r"1 of 2 ids is of no image of .*, such as 'x9'"):
        select_samples(pool_of(tmp_path / "pool"), request(3), known)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_saved_choice_gives_its_ids_again(tmp_path: Path, ending: str) -> None:
    chosen = select_samples(pool_of(tmp_path / "pool"), request(6))
    path = tmp_path / f"chosen.{ending}"

    chosen.save(path)

    assert read_ids(path) == chosen.sample_ids


@pytest.mark.parametrize("name", ["missing.csv", "other.csv", "other.parquet"])
def test_a_table_without_ids_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "other.csv").write_text("name\na\n")
    (tmp_path / "other.parquet").write_text("name\na\n")

    with pytest.raises(DatasetError, match="no table with a column sample_id"):
        read_ids(tmp_path / name)


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """A score file with its features beside it, of which three samples have no score."""
    pool_of(tmp_path / "scores.features")
    labels = [0] * SIZES[0] + [1] * SIZES[1] + [2] * SIZES[2]
    table = score_table(labels, rmd=scores_of_pool(), label_margin=[-1.0] * SAMPLES)
    write_scores(tmp_path / "scores.parquet", table[3:], Provenance.of({}))
    return tmp_path / "scores.parquet"


def test_the_samples_of_a_score_file_count(scored: Path) -> None:
    chosen: Selection = select_samples(
        open_split(scored), request(SAMPLES - 3, "hard"), Known(read_measure(scored, None))
    )

    assert not {"s0", "s1", "s2"} & set(chosen.sample_ids)
    values = scores_of_pool()
    expected = sorted(range(3, SAMPLES), key=lambda row: -values[row])
    assert chosen.sample_ids == [f"s{row}" for row in expected]
    assert chosen_scores(chosen, scored).table["sample_id"].to_pylist() == chosen.sample_ids


def test_scores_are_read_of_the_column_that_is_named(scored: Path) -> None:
    assert set(read_measure(scored, "label_margin")["score"].to_pylist()) == {-1.0}
    with pytest.raises(ScoreFileError, match="label_name has no numbers"):
        read_measure(scored, "label_name")
    with pytest.raises(ScoreFileError, match="suspicion"):
        read_measure(scored, "suspicion")
    with pytest.raises(ScoreFileError, match="features and no scores"):
        read_measure(scored.with_suffix(".features"), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hardest", "is no strategy; did you mean 'hard'"),
        ("", "one strategy or more"),
        ("hard,hard", "each at most once"),
        ("hard:0", "whole number from 1 to 1000"),
        ("hard:", "whole number from 1 to 1000"),
    ],
)
def test_a_strategy_that_is_none_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        request(1, text)
