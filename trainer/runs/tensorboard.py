"""A run's records for TensorBoard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from trainer.run_folder import TENSORBOARD


@contextmanager
def log_to_tensorboard(
    folder: Path, epochs_done: int, accelerator: Accelerator
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Writes event files beside the run's other files.

    Args:
        folder: Of the run and seed.
        epochs_done: Of a resumed run; what was written of later ones is dropped from the plots.
        accelerator: Only its main process writes.

    Yields:
        Takes the record of one epoch.
    """
    if not accelerator.is_main_process:
        yield lambda _: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder / TENSORBOARD, purge_step=epochs_done + 1) as writer:

        def log(record: dict[str, Any]) -> None:
            for name, value in record.items():
                if name != "epoch":
                    writer.add_scalar(name.replace("_", "/", 1), value, record["epoch"])
            writer.flush()

        yield log
