"""Features on disk are fitted and scored on the GPU of a run, where there are many."""

from typing import Any

import pytest

from tests.pretend.budget import require_within
from tests.pretend.conftest import Call

PATHS = "tests.pretend.scoring_paths"

SCORED: dict[str, tuple[Any, ...]] = {
    "a ridge": (40, {}),
    "landmarks": (9000, {"scorers": ["suspicion", "agree"]}),
    "near copies": (5000, {"scorers": ["rmd"], "near_duplicates": 0.99}),
    "marks": (5000, {}, "3,drop\n12,keep\n"),
}
"""Samples, options, and lines of marks."""


@pytest.mark.long
@pytest.mark.parametrize("path", SCORED)
def test_scores_of_stored_features_on_a_gpu_are_those_of_the_cpu(path: str, on_gpus: Call) -> None:
    found = on_gpus(f"{PATHS}:score_stored", *SCORED[path])

    assert {"rmd", "duplicate_of"} < found["apart"].keys()
    assert max(found["apart"].values()) < 5e-4, found["apart"]
    assert found["rows"] == SCORED[path][0] - ("drop" in str(SCORED[path]))


@pytest.mark.long
@pytest.mark.parametrize("scorer", ["rmd", "suspicion"])
def test_stored_features_keep_to_the_budget_of_waits_of_tensors(scorer: str, on_gpus: Call) -> None:
    few, many = (
        on_gpus(f"{PATHS}:score_stored", 4096 * parts, {"scorers": [scorer]}) for parts in (2, 4)
    )

    more = {kind: (many[kind] - few[kind]) / 2 for kind in ("wait", "blocking copy")}
    require_within("score, from disk", scorer, {**more, "lines": many["lines"]})


def test_few_features_stay_on_the_cpu(on_gpus: Call) -> None:
    counted = on_gpus(f"{PATHS}:score_few")

    assert counted["wait"] == counted["blocking copy"] == 0


def test_a_gpu_without_memory_leaves_stored_features_to_the_cpu(on_gpus: Call) -> None:
    found = on_gpus(f"{PATHS}:score_stored_without_room")

    assert found["same"]
    assert "too little memory left to fit and score" in found["told"][0]
