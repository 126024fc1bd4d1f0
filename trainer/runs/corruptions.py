"""Evaluates a finished run on corrupted images: of its own test images, or published ones."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import ConfigError, DatasetError, Setting
from difficulty_service.base.threads import num_workers, one_ahead
from difficulty_service.base.wording import did_you_mean
from difficulty_service.datasets.published.cifar_c import LABELS_FILE
from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from trainer.data import open_test_images
from trainer.evaluation.record import evaluate_predictions
from trainer.runs.evaluate import (
    DatasetChoice,
    Record,
    TrainedModel,
    open_chosen,
    validation_predictions,
)
from trainer.samples import Inputs, Samples

FEW_IMAGES = 2000
"""Images below which starting processes takes longer than corrupting them in this one."""


@dataclass(frozen=True)
class CorruptionChoice:
    """The corruptions to evaluate on.

    Attributes:
        kinds: Names of the kinds; None is all there are.
        folder: Published images, as CIFAR-10-C and ImageNet-C have them: `KIND.npy` beside
            `labels.npy`, or `KIND/SEVERITY/CLASS`, also below groups of kinds. None corrupts the
            test images of the recipe.
    """

    kinds: tuple[str, ...] | None = None
    folder: Path | None = None

    def places(self) -> dict[str, DatasetChoice | None]:
        """The images of each kind, without their severity; None are to be corrupted.

        Raises:
            ConfigError: There is no such kind.
            DatasetError: The folder holds no published corruptions.
        """
        found: dict[str, DatasetChoice | None] = dict.fromkeys(CORRUPTIONS)
        if self.folder is not None:
            found = dict(_published(self.folder))
        kinds = list(found) if self.kinds is None else self.kinds
        if unknown := next((kind for kind in kinds if kind not in found), None):
            where = f" in {self.folder}" if self.folder else ""
            raise ConfigError(
                f"no corruption {unknown!r}{where}",
                f"{did_you_mean(unknown, found)}choose from {', '.join(found)}",
                parameter="corruption_kinds",
            )
        return {kind: found[kind] for kind in kinds}


def _published(folder: Path) -> dict[str, DatasetChoice]:
    """The kinds of corruption in a folder, in alphabetical order."""
    if (folder / LABELS_FILE).is_file():
        files = sorted(folder.glob("*.npy"))
        names = [each.stem for each in files if each.name != LABELS_FILE]
        return {name: DatasetChoice(str(folder), name) for name in names}
    levels = {str(severity) for severity in SEVERITIES}
    kinds = sorted(
        (each for pattern in ("*", "*/*") for each in folder.glob(pattern) if each.is_dir()),
        key=lambda each: each.name,
    )
    found = {
        each.name: DatasetChoice(str(each))
        for each in kinds
        if levels <= {below.name for below in each.iterdir()}
    }
    if not found:
        raise DatasetError(
            f"{folder} holds no corrupted images",
            f"name the folder with {LABELS_FILE} of CIFAR-10-C or CIFAR-100-C, or that of "
            "ImageNet-C, which has a folder for each corruption and in it 1 to 5",
            parameter="corruption_data",
        )
    return found


def _at_severity(place: DatasetChoice, severity: int) -> DatasetChoice:
    if place.split is None:
        return replace(place, location=f"{place.location}/{severity}")
    return replace(place, split=f"{place.split}/{severity}")


@dataclass(frozen=True)
class CorruptedInputs:
    """Images of a split, all with the same corruption.

    With an executor, the images of a batch are shared out among its processes while the network
    looks at those of the batch before.
    """

    inputs: Inputs
    name: str
    severity: int
    seed: int
    executor: Executor | None = None

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Yields the images of the plan, corrupted; see `Inputs.batches`."""
        whole = self.inputs.batches(plan, draws)
        if self.executor is None:
            for images in whole:
                yield corrupt(images, self.name, self.severity, self.seed)
            return
        submitted = ((self._submit(self.executor, images), images.device) for images in whole)
        for parts, device in one_ahead(submitted):
            corrupted = np.concatenate([part.result() for part in parts])
            yield torch.from_numpy(corrupted).to(device)

    def _submit(self, executor: Executor, images: Tensor) -> Sequence["Future[NDArray[np.uint8]]"]:
        parts = np.array_split(images.cpu().numpy(), num_workers())
        return [
            executor.submit(_corrupt, part, self.name, self.severity, self.seed) for part in parts
        ]


def _corrupt(images: NDArray[np.uint8], name: str, severity: int, seed: int) -> NDArray[np.uint8]:
    corrupted: NDArray[np.uint8] = corrupt(torch.from_numpy(images), name, severity, seed).numpy()
    return corrupted


def evaluate_corruptions(
    trained: TrainedModel,
    advance: Callable[[], None],
    choice: CorruptionChoice = CorruptionChoice(),
) -> dict[str, dict[str, Record]]:
    """Computes every metric on test images with every chosen corruption at every severity."""
    places = choice.places()
    own = _test_images(trained) if choice.folder is None else None
    validation = validation_predictions(trained.folder)
    records: dict[str, dict[str, Record]] = {}
    with ExitStack() as stack:
        executor = None
        if own is not None and len(own) >= FEW_IMAGES and num_workers() > 1:
            context = multiprocessing.get_context("forkserver")
            executor = stack.enter_context(ProcessPoolExecutor(num_workers(), context))
        for name, place in places.items():
            for severity in SEVERITIES:
                if place is not None:
                    samples = open_chosen(trained, _at_severity(place, severity))
                elif own is not None:
                    inputs = CorruptedInputs(own.inputs, name, severity, trained.seed, executor)
                    samples = replace(own, inputs=inputs)
                logits = trained.predict(samples)
                record = evaluate_predictions(logits, samples.labels, validation)
                records.setdefault(name, {})[str(severity)] = record
                advance()
    return records


def _test_images(trained: TrainedModel) -> Samples:
    data = trained.recipe.data
    samples = (
        open_test_images(data, trained.spec, trained.accelerator.device, trained.class_names)
        if data.kind == "images"
        else None
    )
    if samples is None:
        raise ConfigError(
            "corruptions need a recipe of images with data.test, and this one has kind "
            f"{data.kind!r} and test {data.test!r}",
            "leave out ",
            Setting("corruptions", value=True),
            parameter="corruptions",
        )
    trained.on_open(samples)
    return samples
