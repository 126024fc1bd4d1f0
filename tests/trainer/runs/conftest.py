"""A finished run of a probe, and a function that makes such runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.small_runs import finish
from trainer.config import Recipe


@pytest.fixture(scope="module")
def probe(
    probe_recipe: Callable[..., Recipe],
    test_features: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a seed of a probe with thirty-one test samples."""
    return finish(probe_recipe(data={"test": test_features}), tmp_path_factory.mktemp("probe"))
