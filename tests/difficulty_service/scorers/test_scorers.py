"""The scorers that can be asked for are those there are."""

from difficulty_service.commands import score
from difficulty_service.scorers import SCORERS


def test_every_scorer_can_be_asked_for_on_the_command_line() -> None:
    assert set(score.SCORERS) == set(SCORERS)
