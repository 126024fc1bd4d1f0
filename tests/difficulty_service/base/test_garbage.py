"""Pausing the collection of circles of objects."""

import gc
import subprocess
import sys

import pytest

from difficulty_service.base.garbage import collection_paused


def test_collection_is_paused_and_goes_on_afterwards() -> None:
    with collection_paused():
        enabled = gc.isenabled()

    assert not enabled
    assert gc.isenabled()


def test_collection_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="stop"), collection_paused():
        raise ValueError("stop")

    assert gc.isenabled()


def test_collection_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        enabled = gc.isenabled()
    finally:
        gc.enable()

    assert not enabled


@pytest.mark.slow
def test_importing_the_package_leaves_the_collection_of_others_as_it_is() -> None:
    code = (
        "import gc; before = gc.get_threshold(); import difficulty_service.datasets; "
        "print(gc.isenabled(), gc.get_threshold() == before, gc.get_freeze_count())"
    )

    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.split() == ["True", "True", "0"]
