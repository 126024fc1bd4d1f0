"""Labelled sentences with their parse trees, as the Stanford Sentiment Treebank has them.

The label of a sentence is that of a column of the table, so that a sentence without one, such as a
neutral one where only two classes count, is left out and listed. The labels of its phrases are
those of the tree: as they are, or negative and positive where the column has two classes.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import DatasetError
from trainer.config import TreeData
from trainer.data.bracketed_tree import Tree, parse_tree
from trainer.data.forest import Forest, TreeInputs, plant
from trainer.data.text_tables import Encoding, TextTable
from trainer.data.vocabulary import build_vocabulary
from trainer.samples import InputSpec, Samples

TREE_NAMES = ("tree",)
"""Names of the column of trees."""

FINE_LABELS, NEUTRAL = 5, 2
"""Labels of the treebank, from very negative, 0, to very positive, 4."""

BINARY_CLASSES = 2
NO_LABEL = -1


def _encode(table: TextTable, positions: Tensor, spec: InputSpec, device: torch.device) -> Samples:
    """Sentences of a table at some positions."""
    return _sentences(table, positions, plant(_parse(table, positions), spec.vocabulary), device)


def _encode_training(
    config: TreeData, table: TextTable, positions: Tensor, device: torch.device
) -> tuple[Samples, InputSpec]:
    """Training sentences, or all their labelled phrases; their words are the vocabulary."""
    trees = _parse(table, positions)
    words = (word.lower() for tree in trees for word in tree.words if word is not None)
    spec = InputSpec(shape=(), vocabulary=build_vocabulary(words, config.vocabulary_size))
    forest = plant(trees, spec.vocabulary)
    if not config.phrases:
        return _sentences(table, positions, forest, device), spec
    return _phrases(table, positions, trees, forest, device), spec


def _sentences(
    table: TextTable, positions: Tensor, forest: Forest, device: torch.device
) -> Samples:
    return Samples(
        sample_ids=table.ids_at(positions),
        labels=table.labels_at(positions),
        class_names=table.samples.class_names,
        inputs=TreeInputs(forest, forest.roots, device),
    )


def _phrases(
    table: TextTable,
    positions: Tensor,
    trees: Sequence[Tree],
    forest: Forest,
    device: torch.device,
) -> Samples:
    labels = _phrase_labels(trees, len(table.samples.class_names))
    of_rows = table.labels_at(positions).numpy()
    different = int((labels[forest.roots] != of_rows).sum())
    if different > len(of_rows) / 2:
        raise DatasetError(
            f"{different} of {len(of_rows)} sentences have another label in {table.location!r} "
            "than in their tree",
            "name the column with the labels of the trees in data.label_column, or set "
            "data.phrases = false",
        )
    # The label of a row counts: people may have corrected it.
    labels[forest.roots] = of_rows
    (nodes,) = np.nonzero(labels != NO_LABEL)
    sentences = np.searchsorted(forest.starts, nodes, side="right") - 1
    ids = table.ids_at(positions)
    return Samples(
        sample_ids=[
            ids[sentence] if node == forest.roots[sentence] else f"{ids[sentence]}:{node - start}"
            for node, sentence, start in zip(
                nodes.tolist(), sentences.tolist(), forest.starts[sentences].tolist(), strict=True
            )
        ],
        labels=torch.from_numpy(labels[nodes]),
        class_names=table.samples.class_names,
        inputs=TreeInputs(forest, nodes, device),
        groups=torch.from_numpy(sentences),
    )


def _parse(table: TextTable, positions: Tensor) -> list[Tree]:
    trees = []
    for sample_id, text in zip(table.ids_at(positions), table.texts_at(positions), strict=True):
        try:
            trees.append(parse_tree(text))
        except ValueError as error:
            raise DatasetError(
                f"the tree of sample {sample_id!r} of {table.location!r} cannot be read: {error}",
                "write trees like (3 (2 It) (4 (2 's) (4 good))), with two children to a node",
            ) from error
    return trees


def _phrase_labels(trees: Sequence[Tree], num_classes: int) -> NDArray[np.int64]:
    """Class of every node; NO_LABEL where it has none of the classes."""
    labels = np.array([label for tree in trees for label in tree.labels], dtype=np.int64)
    if num_classes == BINARY_CLASSES and labels.max(initial=0) > 1:
        return np.select([labels < NEUTRAL, labels > NEUTRAL], [0, 1], NO_LABEL)
    return np.where(labels < num_classes, labels, NO_LABEL)


TREES = Encoding[TreeData](TREE_NAMES, _encode, _encode_training)

open_tree_splits = TREES.open_splits
open_tree_samples = TREES.open_samples
