"""Settings that a library error suggests, as options of the command line."""

import pytest

from difficulty_service.commands.options import as_option
from difficulty_service.errors import Setting


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        (Setting("shrinkage", "auto"), "--shrinkage auto"),
        (Setting("batch_size", 16), "--batch-size 16"),
        (Setting("split"), "--split"),
        (Setting("resume", value=True), "--resume"),
        (Setting("resume", value=False), "--no-resume"),
        (Setting("max_actors", 3), "--ray-actors 3"),
    ],
)
def test_a_setting_is_written_as_the_option_that_sets_it(setting: Setting, option: str) -> None:
    assert as_option(setting) == option
