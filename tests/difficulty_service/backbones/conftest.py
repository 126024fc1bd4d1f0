"""What is true of all backbones here: none has a value that only the memory held before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from torch import nan

from difficulty_service.backbones.initialisation import RANDOM, WithoutRandomValues


@pytest.fixture(autouse=True)
def what_is_left_unfilled_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what is not filled with random values make features that no test takes for right."""

    def fill(
        mode: WithoutRandomValues,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of any function
        result = leave(mode, function, types, args, kwargs)
        return result.data.fill_(nan) if function in RANDOM else result

    leave = WithoutRandomValues.__torch_function__
    monkeypatch.setattr(WithoutRandomValues, "__torch_function__", fill)
