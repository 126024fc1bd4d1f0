"""Output of a run: a progress bar on a terminal, and one line per epoch everywhere."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markdown import Markdown
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from difficulty_service.cli.console import RateColumn, err, out, print_warnings
from trainer.config import Recipe
from trainer.own_code import describe_own
from trainer.run_folder import FINAL, METRICS, read_json, seed_folder
from trainer.runs.train import RunCallbacks, RunRequest, run_seed, stop_on_signals
from trainer.training.state import TrainingProgress
from trainer.weights.formula import WeightsDistribution


def print_markdown(text: str) -> None:
    """Prints tables to be read: laid out on a terminal, and as they are for a file or a pipe."""
    out.print(Markdown(text) if out.is_terminal else text)


def train_seed(
    recipe: Recipe, seed: int, folder: Path, device: str, *, resume: bool, label: str = ""
) -> bool:
    """Trains one seed and shows its progress; False when a signal stopped it.

    A label, where several seeds are trained at once, stands before each line in place of a bar.
    """
    is_main = os.environ.get("RANK", "0") == "0"
    was_finished = resume and (seed_folder(folder, seed) / METRICS).exists()
    if is_main:
        first = f"{recipe.name}, seed {seed}, in {seed_folder(folder, seed)}"
        out.print(_after(label, first))
        print_warnings(describe_own(recipe.model.name, recipe.loss.name))
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    with watch_run(recipe.training.epochs, num_processes, label, is_main=is_main) as callbacks:
        finished = run_seed(RunRequest(recipe, seed, folder, device, resume), callbacks)
    if is_main and was_finished:
        already = f"it has finished its {recipe.training.epochs} epochs already"
        out.print(_after(label, already))
    if is_main and finished and recipe.training.final == "best":
        final = read_json(seed_folder(folder, seed) / FINAL)
        best = f"epoch {final['epoch']} of {final['epochs']} is final"
        out.print(_after(label, f"{best}, the best by validation {final['best_by']}"))
    if is_main and not finished:
        stopped = "stopped and saved; resume with the same command and --resume"
        err.print(_after(label, stopped))
    return finished


def _after(label: str, line: str) -> str:
    return f"{label}: {line}" if label else line


@contextmanager
def watch_run(
    epochs: int, num_processes: int, label: str = "", *, is_main: bool
) -> Iterator[RunCallbacks]:
    """Shows the progress of a run, and lets a signal stop it."""
    bar = Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TaskProgressColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=label != "" or not (err.is_terminal and is_main),
    )

    def show(line: str) -> None:
        out.print(_after(label, line))

    with stop_on_signals() as received_signal, bar:
        task = bar.add_task("training", total=None, epoch=f"1/{epochs}")

        def start(
            samples: int, progress: TrainingProgress, distribution: WeightsDistribution | None
        ) -> None:
            if not is_main:
                return
            processes = f", {num_processes} processes" if num_processes > 1 else ""
            show(f"{samples:,} training samples, {epochs} epochs{processes}")
            if distribution is not None:
                show(distribution.summary())
            if progress.epoch or progress.step:
                position = f"epoch {progress.epoch}, step {progress.step}"
                show(f"resuming after {position}")
            bar.update(
                task,
                total=samples * epochs,
                completed=samples * progress.epoch,
                epoch=f"{progress.epoch + 1}/{epochs}",
            )

        def end_epoch(record: dict[str, Any]) -> None:
            if is_main:
                show(describe_epoch(record, epochs))
                bar.update(task, epoch=f"{min(record['epoch'] + 1, epochs)}/{epochs}")

        yield RunCallbacks(
            on_start=start,
            on_step=lambda samples: bar.advance(task, samples),
            on_epoch=end_epoch,
            should_stop=lambda: received_signal() != 0,
            on_warnings=lambda sentences: print_warnings(sentences if is_main else ()),
            on_head_epoch=lambda record: show(describe_head_epoch(record)),
        )


@contextmanager
def watch_passes(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar over passes through a dataset; hidden where there are none."""
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
    """The record of an epoch in one line."""
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


def describe_head_epoch(record: dict[str, Any]) -> str:
    """The record of an epoch of the uncertainty head in one line."""
    parts = [f"uncertainty head, epoch {record['epoch']}: loss {record['train_loss']:.4f}"]
    if record.get("validation_auroc_correct") is not None:
        parts.append(
            f"AUROC of right predictions {record['validation_auroc_correct']:.1%} on validation"
        )
    parts.append(f"{record['seconds']:.1f} s")
    return ", ".join(parts)
