"""Calls in a process of their own."""

import os
import signal

import pytest

from difficulty_service.errors import ConfigError, DifficultyError
from difficulty_service.runtime.apart import call_apart


def refuse(value: str) -> None:
    raise ConfigError(f"{value!r} is wrong", "use another", parameter="value")


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_call_runs_in_another_process_and_gives_its_result() -> None:
    assert call_apart(os.getpid) != os.getpid()
    assert call_apart(divmod, 7, 2) == (3, 1)


def test_an_error_arrives_whole() -> None:
    with pytest.raises(ConfigError, match="'a' is wrong; use another") as caught:
        call_apart(refuse, "a")

    assert caught.value.parameter == "value"


def test_a_process_that_is_ended_is_an_error() -> None:
    with pytest.raises(DifficultyError, match="the process for end was ended"):
        call_apart(end)
