"""Near copies of a test set by inverted lists: what is found, and what is said to be missed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from difficulty_service.analyses.leaks import near_search
from difficulty_service.analyses.leaks.leaks import LeakReport, find_leaks
from difficulty_service.analyses.leaks.near_lists import NearLists
from difficulty_service.analyses.leaks.near_search import Search
from difficulty_service.base.errors import BackboneError, ConfigError
from difficulty_service.scoring import exact_copies, splits
from difficulty_service.scoring.splits import Split, open_split
from tests.factories import store_of

DIM, TRAIN, TEST, COSINE = 24, 900, 400, 0.9
EXACT, NEAR = 40, 120
"""Samples of the test set that are copies of the training set's first ones."""


def features() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    train, test = (torch.randn(rows, DIM, generator=generator) for rows in (TRAIN, TEST))
    test[:EXACT] = train[:EXACT]
    test[EXACT : EXACT + NEAR] = train[EXACT : EXACT + NEAR] + 0.3 * test[EXACT : EXACT + NEAR]
    return train, test


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Split, Split]:
    """Both sets in parts, of which some rows are read, and fewer than all are held."""
    monkeypatch.setattr(splits, "ROWS_AT_ONCE", 64)
    monkeypatch.setattr(exact_copies, "ROWS_AT_ONCE", 64)
    monkeypatch.setattr(exact_copies, "HELD_BYTES", 3 * 64 * DIM * 4)
    opened = []
    for name, rows in zip(("train", "test"), features(), strict=True):
        labels = torch.arange(len(rows)) % 3
        ids = [f"{name[1]}{row}" for row in range(len(rows))]
        usual = {"class_names": ("a", "b", "c"), "fingerprint": name, "backbone": "builtin"}
        folder = tmp_path / name
        store_of(folder, rows, labels, ids, 150, **usual)
        opened.append(open_split(folder))
    return opened[0], opened[1]


def naive() -> set[tuple[str, str]]:
    train, test = (normalize(rows.double()) for rows in features())
    return {
        (f"e{row}", f"r{column}") for row, column in (test @ train.T >= COSINE).nonzero().tolist()
    }


def pairs_of(report: LeakReport) -> set[tuple[str, str]]:
    rows = report.pairs.select(["test_id", "train_id"]).to_pylist()
    pairs = {(row["test_id"], row["train_id"]) for row in rows}
    assert len(pairs) == len(rows)
    return pairs


@pytest.mark.gpu
def test_a_gpu_finds_the_same_copies(sets: tuple[Split, Split]) -> None:
    report = find_leaks(sets[0], [sets[1]], COSINE, device=torch.device("cuda"))

    assert pairs_of(report) == naive()
    assert report.tests[0].exact == EXACT


def test_lists_find_nearly_all_copies_and_say_what_share(sets: tuple[Split, Split]) -> None:
    report = find_leaks(sets[0], [sets[1]], COSINE, search="lists")

    expected, found = naive(), pairs_of(report)
    assert found <= expected
    assert len(found) >= 0.97 * len(expected) > NEAR
    (test,) = report.tests
    assert test.exact == EXACT
    assert test.lists is not None
    assert test.lists.samples == pytest.approx(near_search.CHECKED_SHARE * TEST, abs=3)
    assert 0 < test.lists.found <= test.lists.pairs
    assert f"{test.lists.share:.1%} of {test.lists.pairs} pairs" in report.warnings[0]


def only_some(
    self: NearLists, others: Tensor, pairs: object = NearLists.pairs
) -> Sequence[NDArray[np.generic]]:
    """What lists find that miss each pair whose sample of the training set has an odd row."""
    assert callable(pairs)
    rows, columns, cosines = pairs(self, others)
    kept = columns % 2 == 0
    return rows[kept], columns[kept], cosines[kept]


def test_what_lists_miss_is_measured(
    sets: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NearLists, "pairs", only_some)
    monkeypatch.setattr(near_search, "CHECKED_SHARE", 0.8)

    report = find_leaks(sets[0], [sets[1]], COSINE, search="lists")

    (test,) = report.tests
    assert test.lists is not None
    share = test.lists.share
    assert test.lists.pairs > 100
    assert share == pytest.approx(0.5, abs=0.12)
    assert len(pairs_of(report)) < len(naive())


def test_all_copies_of_samples_that_were_compared_with_all_are_found(
    sets: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NearLists, "pairs", only_some)
    monkeypatch.setattr(near_search, "CHECKED_SHARE", 1.0)

    report = find_leaks(sets[0], [sets[1]], COSINE, search="lists")

    assert pairs_of(report) == naive()
    (test,) = report.tests
    assert test.lists is not None
    assert (test.lists.samples, test.lists.pairs) == (TEST, len(naive()))


def test_exact_copies_are_found_whatever_the_lists_miss(
    sets: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NearLists, "pairs", only_some)
    monkeypatch.setattr(near_search, "CHECKED_SHARE", 0.01)

    (test,) = find_leaks(sets[0], [sets[1]], COSINE, search="lists").tests

    assert test.exact == EXACT
    assert {row["test_id"] for row in test.pairs.to_pylist() if row["kind"] == "exact"} == {
        f"e{row}" for row in range(EXACT)
    }


@pytest.mark.parametrize(
    ("search", "most", "uses_lists"),
    [("auto", TRAIN * TEST, False), ("auto", TRAIN * TEST - 1, True), ("exact", 1, False)],
)
def test_lists_are_used_beyond_a_number_of_pairs(
    sets: tuple[Split, Split],
    monkeypatch: pytest.MonkeyPatch,
    search: Search,
    most: int,
    *,
    uses_lists: bool,
) -> None:
    monkeypatch.setattr(near_search, "MOST_EXACT", most)
    monkeypatch.setattr(NearLists, "saves_time", property(lambda _lists: True))

    report = find_leaks(sets[0], [sets[1]], COSINE, search=search)

    (test,) = report.tests
    assert (test.lists is not None) == uses_lists
    assert any("inverted lists" in warning for warning in report.warnings) == uses_lists
    assert uses_lists or pairs_of(report) == naive()


def test_lists_that_save_no_time_are_not_used_unless_they_are_asked_for(
    sets: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_search, "MOST_EXACT", 1)
    monkeypatch.setattr(NearLists, "saves_time", property(lambda _lists: False))

    (auto,) = find_leaks(sets[0], [sets[1]], COSINE).tests
    (asked,) = find_leaks(sets[0], [sets[1]], COSINE, search="lists").tests

    assert auto.lists is None
    assert asked.lists is not None


def test_nothing_is_said_of_what_is_missed_without_any_copy(
    sets: tuple[Split, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_search, "CHECKED", 1)
    monkeypatch.setattr(exact_copies, "HELD_BYTES", 1 << 20)

    report = find_leaks(sets[1], [sets[0]], 1.0, search="lists")

    (test,) = report.tests
    assert test.lists is not None
    assert test.lists.share is None
    assert test.exact == EXACT
    assert "no near copy, which tells nothing of what is missed" in report.warnings[0]


def test_every_pair_is_counted_as_compared_by_lists_too(sets: tuple[Split, Split]) -> None:
    compared: list[int] = []

    find_leaks(sets[0], [sets[1]], COSINE, compared.append, "lists")

    assert sum(compared) == TRAIN * TEST


def test_a_search_without_near_copies_to_look_for_is_an_error(sets: tuple[Split, Split]) -> None:
    with pytest.raises(ConfigError, match="only exact ones are wanted"):
        find_leaks(sets[0], [sets[1]], None, search="lists")


def test_pairs_are_compared_on_the_device_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_search, "has_gpu", lambda: True)

    assert near_search.search_device("auto") == torch.device("cuda")
    assert near_search.search_device("cpu") == torch.device("cpu")
    with pytest.raises(BackboneError, match="device 'abacus' cannot be used here"):
        near_search.search_device("abacus")
