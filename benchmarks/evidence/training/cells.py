"""Cells that train one network each, with one method, one set of labels and one seed."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.evidence.cells import Cell, Result, read_result
from benchmarks.evidence.data import Study
from benchmarks.evidence.training.data import read_splits
from benchmarks.evidence.training.methods import ALPHA, Method, Network, methods_for
from trainer.evaluation.prediction_file import read_predictions
from trainer.interface import train
from trainer.metrics.proper_scores import nll
from trainer.run_folder import VALIDATION

STAGES = ("raw", "temperature_nll")
MEASURES = ("accuracy", "adaptive_ece", "nll", "misclassification_auroc_msp", "aurc_msp")


def run_name(network: Network, kind: str, method: Method, alpha: float | None, seed: int) -> str:
    """Name of the cell of one run."""
    words = "".join(sign if sign.isalnum() else "-" for sign in method.name)
    constant = "" if alpha is None else f"-alpha-{alpha:g}"
    return f"training/{network.name}/{kind}/{words}{constant}/seed-{seed}"


def train_once(
    study: Study, network: Network, kind: str, method: Method, alpha: float | None, seed: int
) -> Result:
    """Trains a network and tests it on images with official labels.

    Args:
        study: The study, whose `prepare_splits` has run.
        network: Network to train.
        kind: Labels of the training and validation samples.
        method: Way to train.
        alpha: Strength of the entropy term; None without one.
        seed: Seed of the initial parameters, the order and augmentation.

    Returns:
        Metrics of the test samples by stage, and the NLL of the validation samples with their given
        labels.
    """
    splits = method.change(read_splits(study, kind))
    settings: dict[str, Any] = {**network.settings, **method.settings}
    if alpha is not None:
        settings[ALPHA] = alpha
    with tempfile.TemporaryDirectory() as folder:
        run = train(
            network.recipe,
            train=network.inputs(splits.train),
            validation=network.inputs(splits.validation),
            test=network.inputs(splits.test),
            scores=splits.scores if method.uses_scores else None,
            settings={"training.epochs": network.epochs, **settings},
            seed=seed,
            out=Path(folder),
            device="cpu",
            progress=False,
        )
        validation = read_predictions(run.folder / VALIDATION)
    return Result(
        {
            "samples": len(splits.train.labels),
            "parameters": sum(each.numel() for each in run.model.parameters()),
            "last_train_loss": run.history[-1]["train_loss"],
            "validation_nll": nll(validation.logits, validation.targets),
            "metrics": {
                stage: {name: run.metrics[stage][name] for name in MEASURES} for stage in STAGES
            },
            "temperature": run.metrics["temperature_nll"]["temperature"],
        }
    )


def chosen_alpha(folder: Path, network: Network, kind: str, method: Method) -> float | None:
    """The strength of the entropy term under which given labels held out are likeliest.

    Chosen with the first seed.

    Args:
        folder: Folder of the study.
        network: Network that is trained.
        kind: Labels of the training and validation samples.
        method: Way to train.

    Returns:
        None where a strength has not run, and for a method without the term.
    """
    if not method.has_entropy:
        return None
    losses = []
    for alpha in network.alphas:
        cell = read_result(folder, run_name(network, kind, method, alpha, seed=0))
        if cell is None:
            return None
        losses.append(cell["validation_nll"])
    return network.alphas[losses.index(min(losses))]


def search_cells(study: Study, network: Network, kind: str) -> list[Cell]:
    """Cells of the first seed, with every strength of the entropy term."""
    return [
        _cell(study, network, kind, method, alpha, 0)
        for method in methods_for(kind)
        for alpha in (network.alphas if method.has_entropy else (None,))
    ]


def seed_cells(study: Study, network: Network, kind: str) -> list[Cell]:
    """Cells of the other seeds, with the strengths that the first seed has chosen."""
    methods = {
        method: chosen_alpha(study.folder, network, kind, method) for method in methods_for(kind)
    }
    return [
        _cell(study, network, kind, method, alpha, seed)
        for seed in range(1, network.seeds)
        for method, alpha in methods.items()
        if alpha is not None or not method.has_entropy
    ]


def _cell(
    study: Study, network: Network, kind: str, method: Method, alpha: float | None, seed: int
) -> Cell:
    return Cell(
        run_name(network, kind, method, alpha, seed),
        partial(train_once, study, network, kind, method, alpha, seed),
    )
