"""`difficulty train` without a run: the list of recipes."""

import re
import subprocess
from collections.abc import Callable

import pytest

from trainer.recipes.file import read_recipe, shipped_recipes

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_every_recipe_that_ships_with_the_package_is_listed_with_what_it_trains(
    difficulty: Command,
) -> None:
    done = difficulty("train", "--list")

    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^(\w+) +(\S.*(?:\n +\S.*)*)", table, re.MULTILINE)
    listed = {name: " ".join(title.split()) for name, title in rows}
    assert list(listed) == list(shipped_recipes())
    assert all(read_recipe(name).name == name for name in listed)
    assert listed["mmce_cifar10"].startswith("MMCE on CIFAR-10, a baseline of Mukhoti")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "difficulty train needs RECIPE; --list shows"),
        (("probe_quick", "--list"), "--list trains nothing"),
        (("--list", "--seed", "1"), "--list trains nothing"),
        (("--list", "--resume"), "--list trains nothing"),
        (("--list", "--device", "cpu"), "--list trains nothing"),
    ],
)
def test_a_call_that_trains_nothing_it_was_asked_to_is_wrong(
    difficulty: Command, words: tuple[str, ...], message: str
) -> None:
    done = difficulty("train", *words)

    assert done.returncode == 2
    assert message in done.stderr
