"""The trainer's commands: `difficulty train`, `evaluate`, `compare` and `sweep`."""

import typer

from trainer.commands.compare import compare
from trainer.commands.evaluate import evaluate
from trainer.commands.sweep import sweep
from trainer.commands.train import train


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    for command in (train, evaluate, compare, sweep):
        app.command()(command)
