"""What a person sees of a run: a bar on a terminal, one line per epoch everywhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from difficulty_service.commands.console import RateColumn, err, out
from trainer.runs.signals import stop_on_signals
from trainer.runs.train import Observer
from trainer.training.checkpoint import Progress as Done
from trainer.weights.formula import WeightsDistribution


@contextmanager
def watch_run(epochs: int, num_processes: int, *, speaks: bool) -> Iterator[Observer]:
    """Shows how a run goes, and lets a signal stop it.

    Args:
        epochs: Of the run.
        num_processes: That share each batch.
        speaks: Whether this process is the one that shows anything.
    """
    bar = Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TaskProgressColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=not (err.is_terminal and speaks),
    )
    with stop_on_signals() as signal_that_came, bar:
        task = bar.add_task("training", total=None, epoch=f"1/{epochs}")

        def begin(samples: int, done: Done, distribution: WeightsDistribution | None) -> None:
            if not speaks:
                return
            shared = f", {num_processes} processes" if num_processes > 1 else ""
            out.print(f"{samples:,} training samples, {epochs} epochs{shared}", markup=False)
            if distribution is not None:
                out.print(distribution.summary(), markup=False)
            if done.epoch or done.step:
                out.print(f"going on after epoch {done.epoch}, step {done.step}", markup=False)
            bar.update(
                task,
                total=samples * epochs,
                completed=samples * done.epoch,
                epoch=f"{done.epoch + 1}/{epochs}",
            )

        def end_epoch(record: dict[str, Any]) -> None:
            if speaks:
                out.print(describe_epoch(record, epochs), markup=False)
                bar.update(task, epoch=f"{min(record['epoch'] + 1, epochs)}/{epochs}")

        yield Observer(
            begin=begin,
            step=lambda samples: bar.advance(task, samples),
            epoch=end_epoch,
            stop=lambda: signal_that_came() != 0,
        )


@contextmanager
def watch_passes(total: int) -> Iterator[Callable[[], None]]:
    """A bar over passes through a dataset, with the time left; nothing where there are none."""
    bar = Progress(
        TextColumn("passes"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=not (err.is_terminal and total),
    )
    with bar:
        task = bar.add_task("passes", total=total)
        yield lambda: bar.advance(task)


def describe_epoch(record: dict[str, Any], epochs: int) -> str:
    """One line about an epoch."""
    parts = [
        f"epoch {record['epoch']}/{epochs}: loss {record['train_loss']:.4f}",
        f"training accuracy {record['train_accuracy']:.1%}",
    ]
    if "validation_accuracy" in record:
        parts += [
            f"validation accuracy {record['validation_accuracy']:.1%}",
            f"NLL {record['validation_nll']:.4f}",
            f"adaptive ECE {record['validation_adaptive_ece']:.2%}",
        ]
    parts.append(f"{record['seconds']:.1f} s ({record['samples_per_second']:,.0f}/s)")
    return ", ".join(parts)
