"""Every metric of eight published CNNs on the CIFAR-10 test set, from their logits.

    python -m benchmarks.eight_networks

Reads `data/cifar10_test_model_outputs.parquet` and `data/cifar10_test.parquet` in the folder that
DIFFICULTY_SHARED names (`../shared` if it names none). No validation logits were published, so
the temperatures are cross-fitted: the test set is halved at random, class by class, and each half
is scaled by the temperature fitted on the other half.
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from benchmarks.real_data import shared_folder, skipped
from trainer.evaluation.record import MetricValues, compute_metrics
from trainer.evaluation.temperature_scaling import fit_temperature_by_ece, fit_temperature_by_nll
from trainer.reports.columns import COLUMNS, TEMPERATURE, TableColumn

SEED = 0
NAMES = {
    "vgg_15_BN_64": "VGG-15",
    "resnet_basic_110": "ResNet-110",
    "resnet_preact_bottleneck_164": "PreAct ResNet-164",
    "densenet_BC_100_12": "DenseNet-BC-100",
    "wrn_28_10": "WRN-28-10",
    "resnext_29_8x64d": "ResNeXt-29",
    "pyramidnet_basic_110_270": "PyramidNet-110",
    "shake_shake_26_2x64d_SSI_cutout16": "Shake-Shake-26, Cutout",
}


def read_outputs(folder: Path) -> tuple[dict[str, Tensor], Tensor]:
    """Logits of every network by its column, and the targets, checked against the images' own."""
    table = pq.read_table(folder / "cifar10_test_model_outputs.parquet")
    images = pq.read_table(folder / "cifar10_test.parquet", columns=["index", "label"])
    if table.select(["index", "label"]).to_pydict() != images.to_pydict():
        raise SystemExit("the labels beside the logits are not those of the images, in their order")
    logits = {}
    for name in NAMES:
        column = table[f"logits_{name}"].combine_chunks()
        logits[name] = torch.from_numpy(column.flatten().to_numpy().reshape(len(column), -1).copy())
    return logits, torch.from_numpy(table["label"].to_numpy().astype(np.int64))


def halves(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of two halves with as many samples of each class, drawn with a fixed seed."""
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(SEED))
    by_class = order[targets[order].argsort(stable=True)]
    return by_class[::2], by_class[1::2]


def evaluate_cross_fitted(logits: Tensor, targets: Tensor) -> list[MetricValues]:
    """Metrics before scaling, with temperatures by NLL, and with those by ECE."""
    stages = [compute_metrics(logits, targets)]
    one, other = halves(targets)
    for by_ece in (False, True):
        scaled, temperatures = logits.double(), []
        for fitted_on, applied_to in ((one, other), (other, one)):
            held_out = logits[fitted_on], targets[fitted_on]
            temperature = (
                fit_temperature_by_ece(*held_out)
                if by_ece
                else fit_temperature_by_nll(*held_out).temperature
            )
            scaled[applied_to] /= temperature
            temperatures.append(temperature)
        mean: MetricValues = {"temperature": sum(temperatures) / len(temperatures)}
        stages.append(mean | compute_metrics(scaled, targets))
    return stages


def cell(column: TableColumn, stages: list[MetricValues]) -> str:
    """One number where scaling changes nothing that the decimals show, three otherwise."""
    shown = [column.shown(stage.get(column.metric)) for stage in stages]
    return shown[0] if len(set(shown)) == 1 else " / ".join(shown)


def main() -> None:
    """Prints one Markdown table: a row per metric, a column per network."""
    folder = shared_folder() / "data"
    if not (folder / "cifar10_test_model_outputs.parquet").is_file():
        print(skipped("cifar10_test_model_outputs.parquet"))
        return
    torch.set_num_threads(1)
    logits, targets = read_outputs(folder)
    networks = [evaluate_cross_fitted(logits[name], targets) for name in NAMES]
    print(f"| metric | {' | '.join(NAMES.values())} |")
    print("| --- " * (1 + len(NAMES)) + "|")
    for column in (TEMPERATURE, *COLUMNS.values()):
        cells = [cell(column, stages) for stages in networks]
        print(f"| {column.header} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
