"""What this package adds to the backbones of the service: `--backbone run:FOLDER`.

Listing the backbones loads this module, and therefore neither torch nor the rest of the package.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.runs.backbone import RunNetwork


def load_run(folder: str) -> "RunNetwork":
    """A network that `difficulty train` trained on images, at its own size."""
    from trainer.runs.backbone import read_network

    return read_network(Path(folder))
