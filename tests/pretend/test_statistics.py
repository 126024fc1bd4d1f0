"""Statistics on a GPU give what they give on the CPU, and keep to their budget of waits."""

from typing import Any

import pytest

from tests.pretend.budget import BUDGET, require_within
from tests.pretend.conftest import Call

PATHS = "tests.pretend.statistics_paths"

FITS: dict[str, tuple[int, dict[str, Any]]] = {
    "few samples": (40, {}),
    "many samples": (4000, {}),
    "float64": (4000, {"matmul_dtype": "float64"}),
    "ledoit-wolf": (4000, {"shrinkage": "ledoit-wolf"}),
}


def test_every_path_of_statistics_has_a_budget() -> None:
    assert set(BUDGET["score"]) == set(FITS)
    assert set(BUDGET["fit"]) == {*FITS, "a batch more"}


@pytest.mark.slow
@pytest.mark.parametrize("path", FITS)
def test_a_fit_and_its_scores_keep_to_their_budgets_and_are_those_of_the_cpu(
    path: str, on_gpus: Call
) -> None:
    counted = on_gpus(f"{PATHS}:fit_and_score", *FITS[path])

    assert counted["apart"] < 1e-5
    require_within("fit", path, counted["fit"])
    require_within("score", path, counted["score"])


def test_a_fit_waits_once_for_each_further_batch(on_gpus: Call) -> None:
    one, three = (on_gpus(f"{PATHS}:fit_and_score", 4096 * batches, {}) for batches in (1, 3))

    a_batch = {
        kind: (three["fit"][kind] - one["fit"][kind]) / 2 for kind in ("wait", "blocking copy")
    }
    require_within("fit", "a batch more", {**a_batch, "lines": three["fit"]["lines"]})


SCORED: dict[str, tuple[Any, ...]] = {
    "a ridge": (40, {}),
    "landmarks": (9000, {"scorers": ["suspicion", "agree"]}),
    "bfloat16": (30_000, {}),
    "a covariance of some samples": (30_000, {}, (4, 4)),
    "near copies": (5000, {"scorers": ["rmd"], "near_duplicates": 0.99}),
    "marks": (5000, {"marks": {"sample_id": ["3", "12"], "mark": ["drop", "keep"]}}),
}
"""Samples, options of `score`, and unusual limits of samples for each dimension of a covariance."""


@pytest.mark.long
@pytest.mark.parametrize("path", SCORED)
def test_scores_of_tensors_on_a_gpu_are_those_of_the_cpu(path: str, on_gpus: Call) -> None:
    apart = on_gpus(f"{PATHS}:score_tensors", *SCORED[path])["apart"]

    inexact = {"bfloat16": 2e-3, "a covariance of some samples": 2e-3}
    assert {"rmd", "duplicate_of"} < apart.keys()
    assert max(apart.values()) < inexact.get(path, 5e-4), apart


def test_a_gpu_without_memory_leaves_the_scores_to_the_cpu(on_gpus: Call) -> None:
    found = on_gpus(f"{PATHS}:score_without_room")

    assert found["same"]
    assert "too little memory left" in found["told"][0]


@pytest.mark.long
@pytest.mark.parametrize("scorer", ["rmd", "suspicion"])
def test_scores_of_tensors_keep_to_their_budget_of_waits_for_more_rows(
    scorer: str, on_gpus: Call
) -> None:
    few, many = (
        on_gpus(f"{PATHS}:score_tensors", 4096 * parts, {"scorers": [scorer]}) for parts in (2, 4)
    )

    more = {kind: (many[kind] - few[kind]) / 2 for kind in ("wait", "blocking copy")}
    require_within("score, from Python", scorer, {**more, "lines": many["lines"]})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [6, 7])
def test_a_gpu_hashes_rows_as_the_cpu_does(dim: int, dtype: str, on_gpus: Call) -> None:
    there, here = on_gpus(f"{PATHS}:hash_there", dim, dtype)

    assert len(set(here)) == 5
    assert there == here


@pytest.mark.slow
def test_a_search_for_near_copies_keeps_to_its_budget_and_finds_what_the_cpu_finds(
    on_gpus: Call,
) -> None:
    few, many = (on_gpus(f"{PATHS}:search_near_copies", tiles) for tiles in (2, 5))

    assert many["same"]
    assert many["pairs"] > few["pairs"]
    a_tile = {kind: (many[kind] - few[kind]) / 3 for kind in ("wait", "blocking copy")}
    require_within("near copies", "a tile", {**a_tile, "lines": many["lines"]})
