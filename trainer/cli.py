"""The trainer's commands: `train`, `evaluate`, `compare`, `figures`, `sweep`, `uncertainty`."""

import typer

from trainer.commands.compare import compare
from trainer.commands.evaluate import evaluate
from trainer.commands.figures import figures
from trainer.commands.sweep import sweep
from trainer.commands.train import train
from trainer.commands.uncertainty import uncertainty


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    for command in (train, evaluate, compare, figures, sweep, uncertainty):
        app.command()(command)
