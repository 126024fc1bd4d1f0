"""A call in a process of its own, whose imports and memory end with it."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from difficulty_service.errors import DifficultyError

P = ParamSpec("P")
Result = TypeVar("Result")


def call_apart(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Calls a function in a new process; function, arguments, result and errors are pickled.

    Raises:
        DifficultyError: The process was ended.
        Exception: Whatever the function raises.
    """
    # Never forked: threads of this process may hold locks, which a fork would wait for.
    context = multiprocessing.get_context("spawn")
    # Ctrl-C goes to both processes; this one alone reports it.
    silently = (signal.SIGINT, signal.SIG_DFL)
    with ProcessPoolExecutor(1, context, signal.signal, silently) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise DifficultyError(
                f"the process for {function.__name__} was ended, perhaps for lack of memory"
            ) from error
