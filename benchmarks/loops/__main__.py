"""Our trainer and the five loops of docs/own-loop.md, on features of CIFAR-10.

    python -m benchmarks.loops [--train 2000] [--validation 1000] [--epochs 5]

All begin with the same parameters, draw the same batches and take the same steps. Prints, for each
loop and loss, the largest difference from our trainer at the end: of the objective of all training
samples at the same parameters, by what either loss remembers; of what it remembers; and of the
parameters. Then how many of the planned batches were drawn in their epoch and order. Needs the real
data in DIFFICULTY_SHARED.
"""

import argparse
import logging
import os
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

import difficulty_service as ds
import trainer
from benchmarks.loops.each_loop import (
    LOOPS,
    Data,
    Recording,
    Stop,
    in_our_trainer,
    network_of,
    planned,
)
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped

LOSSES = ("adafocal", "correctness_ranking")
FILE = "cifar10_train_1.parquet"


def cifar_features(train: int, validation: int, epochs: int) -> Data:
    """Features of the first images by the built-in encoder, and weights by their scores."""
    rows = pq.read_table(shared_folder() / "data" / FILE, columns=["image", "label"])
    rows = rows.slice(0, train + validation)
    features = ds.backbone("builtin").encode(rows["image"].to_pylist())
    labels = rows["label"].to_numpy().astype(np.int64)
    ids = [f"{row}.png" for row in range(train)]
    scores = ds.score(features[:train], labels[:train], ids=ids)
    mean, deviation = features[:train].mean(0), features[:train].std(0) + 1e-6
    return Data(
        torch.from_numpy((features - mean) / deviation).float(),
        torch.from_numpy(labels),
        trainer.read_weights(scores, ids),
        trainer.read_difficulty(scores, ids),
        batch_size=100,
        epochs=epochs,
        rate=0.1,
    )


def objective_of(data: Data, objective: Recording, parameters: Tensor) -> Tensor:
    """The objective of each training sample at some parameters. Shape (training samples,)."""
    network = network_of(data)
    torch.nn.utils.vector_to_parameters(parameters, network.parameters())
    inputs, labels = data.train.tensors
    with torch.no_grad():
        logits = network(inputs)
        return objective(logits, labels, torch.arange(len(labels)))


def largest(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference."""
    return float((one.double() - other.double()).abs().max())


def compare(data: Data, loss: str, folder: Path) -> None:
    """Prints a line for each loop."""
    ours = data.objective(loss)
    parameters = in_our_trainer(data, ours)
    memory = ours.memory
    ours.start_epoch(data.epochs - 1, data.epochs)  # our trainer says it to the loss alone
    objective = objective_of(data, ours, parameters)
    plan = list(planned(data))
    for name, loop in LOOPS.items():
        theirs = data.objective(loss)
        found = loop(data, theirs, Stop(folder / loss / name))
        remembered = {key: value for key, value in theirs.memory.items() if torch.is_tensor(value)}
        pairs = [zip(theirs.drawn[epoch], plan[epoch], strict=True) for epoch in range(data.epochs)]
        same = sum(drawn == batch for each in pairs for drawn, batch in each)
        of_memory = max(largest(value, memory[key]) for key, value in remembered.items())
        of_objective = largest(objective_of(data, theirs, parameters), objective)
        print(
            f"{loss:<20} {name:<13} {of_objective:9.1e} {of_memory:8.1e} "
            f"{largest(found, parameters):10.1e} {same:7} of {sum(map(len, plan))}"
        )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--validation", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    chosen = parser.parse_args()
    if not (shared_folder() / "data" / FILE).exists():
        print(skipped(FILE))
        return
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = cifar_features(chosen.train, chosen.validation, chosen.epochs)
    print(machine())
    print("largest difference   loop          objective   memory parameters  batches as planned")
    with TemporaryDirectory() as folder:
        os.environ["KERAS_HOME"] = folder
        for loss in LOSSES:
            for name in LOOPS:
                Path(folder, loss, name).mkdir(parents=True)
            compare(data, loss, Path(folder))


if __name__ == "__main__":
    main()
