"""An uncertainty head on disk: one safetensors file, with all that is needed to apply it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.errors import TrainingError
from difficulty_service.feature_description import FeatureKind
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_safetensors import UNREADABLE, read_tensors, write_tensors
from trainer.run_folder import HEAD, seed_folders
from trainer.uncertainty.head import UncertaintyHead

FORMAT_VERSION = 1
METADATA_KEY = "difficulty"
TRAIN_ONE = "train one with uncertainty.epochs above 0"


@dataclass(frozen=True)
class TrainedHead:
    """A head and where it comes from.

    Attributes:
        head: The head, on the CPU.
        description: JSON values: `features` with what made its features and, where there was one,
            the comparison by which their precision was chosen; `uncertainty` with its settings,
            `classifier`, `dataset`, `seed` and `package_version`.
    """

    head: UncertaintyHead
    description: Mapping[str, Any]

    @property
    def features(self) -> FeatureKind:
        """What made the features that it was trained on."""
        return FeatureKind.of(self.description["features"])

    def require_same_features(self, description: FeatureKind, location: str) -> None:
        """Refuses features that another backbone made, or the same one in another way.

        Args:
            description: Description of the features.
            location: Their location, for the message.

        Raises:
            TrainingError: They differ; the message names each difference.
        """
        names = ("for the head", f"in {location}")
        different = self.features.kind_differences(description, names)
        if different:
            raise TrainingError(
                f"the head was trained on other features than those in {location} "
                f"({'; '.join(different)})",
                "extract them as those of the head, or train a head on features of this kind",
            )


def write_head(path: Path, trained: TrainedHead) -> None:
    """Writes a head; the file appears whole or not at all."""
    described = {"format_version": FORMAT_VERSION, **trained.description}
    metadata = {METADATA_KEY: json.dumps(described, sort_keys=True, allow_nan=False)}
    with replacing(path) as temporary:
        write_tensors(temporary, trained.head.state_dict(), metadata)


def read_head(path: Path) -> TrainedHead:
    """Reads a head from its file, the folder of its seed, or that of a run with one seed.

    Raises:
        TrainingError: There is no head, or more than one, or its file is damaged.
    """
    file = _find(path)
    try:
        tensors, metadata = read_tensors(file)
        description = json.loads(metadata.get(METADATA_KEY, "{}"))
    except FileNotFoundError:
        raise TrainingError(f"there is no uncertainty head {file}", TRAIN_ONE) from None
    except UNREADABLE as error:
        raise TrainingError(f"{file} is damaged ({error})", "train again") from error
    version = description.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise TrainingError(
            f"{file} is not an uncertainty head of version {FORMAT_VERSION}: its version is "
            f"{version}",
            TRAIN_ONE,
        )
    try:
        hidden = description["uncertainty"]["hidden"]
        head = UncertaintyHead(tensors["mean"], tensors["std"], hidden)
        head.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise TrainingError(f"{file} is damaged ({error!r})", "train again") from error
    return TrainedHead(head.eval(), description)


def _find(path: Path) -> Path:
    if not path.is_dir() or (path / HEAD).exists():
        return path / HEAD if path.is_dir() else path
    heads = [folder / HEAD for folder in seed_folders(path) if (folder / HEAD).exists()]
    if len(heads) != 1:
        raise TrainingError(
            f"{path} holds {len(heads)} uncertainty heads",
            f"name one of {', '.join(map(str, heads))}" if heads else TRAIN_ONE,
        )
    return heads[0]
