"""The trainer's commands: `difficulty train`, `evaluate`, `compare`, `sweep` and `uncertainty`."""

import typer

from trainer.commands.compare import compare
from trainer.commands.evaluate import evaluate
from trainer.commands.sweep import sweep
from trainer.commands.train import train
from trainer.commands.uncertainty import uncertainty


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    for command in (train, evaluate, compare, sweep, uncertainty):
        app.command()(command)
