"""Settings that a library error suggests, as options of the command line."""

import re
from pathlib import Path

import pytest

import difficulty_service
from difficulty_service.base.errors import Setting
from difficulty_service.cli.wrong_call import as_option
from tests.command_options import options_by_command


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        (Setting("shrinkage", "auto"), "--shrinkage auto"),
        (Setting("batch_size", 16), "--batch-size 16"),
        (Setting("separator", " "), "--separator ' '"),
        (Setting("split"), "--split"),
        (Setting("resume", value=True), "--resume"),
        (Setting("resume", value=False), "--no-resume"),
        (Setting("max_actors", 3), "--ray-actors 3"),
    ],
)
def test_a_setting_is_written_as_the_option_that_sets_it(setting: Setting, option: str) -> None:
    assert as_option(setting) == option


@pytest.mark.analysis("audit", "tags")
def test_every_setting_that_an_error_of_the_service_suggests_is_an_option() -> None:
    package = Path(difficulty_service.__file__).parent
    source = "".join(file.read_text() for file in sorted(package.rglob("*.py")))
    suggested = set(re.findall(r'Setting\(\s*"(\w+)"', source))

    options = set().union(*options_by_command().values())

    assert {"shrinkage", "min_actors"} <= suggested
    # Datasets have these limits in the REST service only, whose operator sets them.
    of_the_service = {"max_rows", "max_text_bytes"}
    of_python = {"on"}  # an argument of `Scores.join`
    others = suggested - of_the_service - of_python
    assert {as_option(Setting(name)) for name in others} <= options
