"""Processes that run a command, forked where what most commands need is loaded."""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from typing import TextIO

LOADED = ("difficulty_service.cli", "trainer.commands", "accelerate", "timm", "torchvision")
"""Modules that most commands need."""


def call(module: str, words: Sequence[str], log: TextIO) -> int | None:
    """Runs a module with some words in a process of its own; its exit code."""
    process = _context().Process(target=_run_module, args=(module, list(words), log.name))
    process.start()
    process.join()
    return process.exitcode


def _run_module(module: str, words: list[str], log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LOADED))
    return context
