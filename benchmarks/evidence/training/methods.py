"""What is trained: networks, and ways to train them on labels that may be wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.evidence.label_sets import OFFICIAL
from benchmarks.evidence.training.data import Split, Splits

ALPHA = "regulariser.alpha"
BY_SCORES = {"regulariser.weights": "scores"}
BY_PROBABILITY = {"loss.weights": "label_probability"}
BY_POSTERIOR = {"loss.targets": "posterior"}


def _as_given(splits: Splits) -> Splits:
    return splits


@dataclass(frozen=True, eq=False)
class Method:
    """One way to train.

    Attributes:
        name: Name in the tables.
        settings: Changes of the recipe.
        has_entropy: Whether there is an entropy term, whose strength is chosen.
        change: Changes the training samples beforehand.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_entropy: bool = False
    change: Callable[[Splits], Splits] = _as_given

    @property
    def uses_scores(self) -> bool:
        """Whether the recipe needs a score file."""
        return not {"scores", "label_probability", "posterior"}.isdisjoint(self.settings.values())


PLAIN = Method("cross-entropy")
CONSTANT = Method("constant entropy", has_entropy=True)
DIFFICULTY = Method("difficulty-weighted entropy", BY_SCORES, has_entropy=True)
ANY_LABELS = (PLAIN, CONSTANT, DIFFICULTY, Method("AdaFocal", {"loss.name": "adafocal"}))
WRONG_LABELS = (
    Method("weighted by the label's probability", BY_PROBABILITY),
    Method(
        "weighted by the label's probability with difficulty-weighted entropy",
        BY_PROBABILITY | BY_SCORES,
        has_entropy=True,
    ),
    Method("soft targets", BY_POSTERIOR),
    Method("suspects dropped", change=Splits.without_suspects),
    Method("suspects relabelled", change=Splits.relabelled),
)


def methods_for(kind: str) -> tuple[Method, ...]:
    """Methods for a set of labels: those against wrong labels are for sets that have some."""
    return ANY_LABELS if kind == OFFICIAL else ANY_LABELS + WRONG_LABELS


def inputs_of_images(split: Split) -> tuple[Any, ...]:
    """Images with their labels, as `trainer.train` takes them."""
    return split.images, split.labels


def inputs_of_features(split: Split) -> tuple[Any, ...]:
    """Features with their labels, as `trainer.train` takes them."""
    return split.features, split.labels


@dataclass(frozen=True, eq=False)
class Network:
    """A network and how long it is trained.

    Attributes:
        name: Name of a folder of its results.
        recipe: Recipe that ships with the trainer.
        settings: Changes of the recipe for every method.
        epochs: Number of epochs.
        seeds: Number of seeds.
        alphas: Strengths of the entropy term to choose from, ascending.
        inputs: The samples of a split as the network takes them.
    """

    name: str
    recipe: str
    settings: Mapping[str, Any]
    epochs: int
    seeds: int
    alphas: tuple[float, ...]
    inputs: Callable[[Split], tuple[Any, ...]]


SCRATCH = Network(
    "scratch",
    "cifar10_small_resnet",
    {
        "model.widths": [16, 32, 96],
        "model.blocks": [1, 1, 1],
        "training.batch_size": 64,
        "data.augmentation": "flip",
    },
    epochs=10,
    seeds=3,
    alphas=(0.03, 0.3),
    inputs=inputs_of_images,
)
PROBE = Network(
    "probe",
    "probe_quick",
    {"optimiser.learning_rate": 2e-3},
    epochs=12,
    seeds=5,
    alphas=(0.03, 0.1, 0.3, 1.0),
    inputs=inputs_of_features,
)
NETWORKS = (PROBE, SCRATCH)
"""The cheaper one first."""
