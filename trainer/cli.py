"""The trainer's commands, which are imported when they are called."""

from cyclopts import App

from difficulty_service.cli.lazily import TRAIN, add_command

COMMANDS = ("train", "evaluate", "compare", "figures", "sweep", "uncertainty")
"""Functions that are commands, each in a module of the same name."""


def add_commands(app: App) -> None:
    """Adds the commands to the application."""
    for name in COMMANDS:
        add_command(app, f"trainer.commands.{name}:{name}", group=TRAIN)
