"""Records of a run for TensorBoard."""

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
    """Writes event files into the folder of a seed.

    Args:
        folder: Folder of the seed.
        epochs_done: Number of finished epochs of a resumed run; events of later ones are dropped.
        accelerator: Accelerator of this process; only the main process writes.

    Yields:
        A function that logs the record of one epoch.
    """
    if not accelerator.is_main_process:
        yield lambda _: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder / TENSORBOARD, purge_step=epochs_done + 1) as writer:

        def log(record: dict[str, Any]) -> None:
            for name, value in record.items():
                if name != "epoch" and value is not None:
                    writer.add_scalar(name.replace("_", "/", 1), value, record["epoch"])
            writer.flush()

        yield log
