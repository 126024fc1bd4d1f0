"""Labelled sentences with their parse trees, as the Stanford Sentiment Treebank has them.

The label of a sentence is that of a column of the table, so that a sentence without one, such as a
neutral one where only two classes count, is left out and listed. The labels of its phrases are
those of the tree: as they are, or negative and positive where the column has two classes.

Sentiment trees in the notation of the Stanford Sentiment Treebank.

`(3 (2 It) (4 (2 's) (4 good)))`: every pair of brackets is a node, which begins with its label;
a leaf goes on with its word, any other node with its two children.

Trees in arrays, and batches of them that a model takes level by level.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.labels import numbers_of_classes
from trainer.config import TreeData
from trainer.data.texts import PADDING, UNKNOWN, Encoding, TextTable, build_vocabulary, tokens_of
from trainer.samples import InputSpec, Samples

_PIECE = re.compile(r"[()]|[^\s()]+")
CHILDREN = 2


@dataclass(frozen=True)
class Tree:
    """A binary tree; children come before their parent, and the root is the last node."""

    labels: Sequence[int]
    words: Sequence[str | None]
    children: Sequence[tuple[int, int] | None]
    heights: Sequence[int]


@dataclass
class _Open:
    """A node whose closing bracket is still to come."""

    pieces: list[str] = field(default_factory=list)
    children: list[int] = field(default_factory=list)


def parse_tree(text: str) -> Tree:
    """Reads a tree, whose leaves may have several words, which are one with spaces.

    Raises:
        ValueError: Brackets do not match, a label is no number, or a node has neither one word nor
            two children.
    """
    open_nodes: list[_Open] = []
    labels: list[int] = []
    words: list[str | None] = []
    children: list[tuple[int, int] | None] = []
    heights: list[int] = []
    roots = 0
    for piece in _PIECE.findall(text):
        if piece == "(":
            open_nodes.append(_Open())
            continue
        if not open_nodes:
            raise ValueError(f"{piece!r} stands outside of a tree")
        if piece != ")":
            open_nodes[-1].pieces.append(piece)
            continue
        node = open_nodes.pop()
        label, word, pair = _close(node)
        labels.append(label)
        words.append(word)
        children.append(pair)
        heights.append(0 if pair is None else 1 + max(heights[child] for child in pair))
        if open_nodes:
            open_nodes[-1].children.append(len(labels) - 1)
        else:
            roots += 1
    if open_nodes or roots != 1:
        raise ValueError(
            f"{len(open_nodes)} brackets are not closed"
            if open_nodes
            else f"there are {roots} trees in place of one"
        )
    return Tree(labels, words, children, heights)


def _close(node: _Open) -> tuple[int, str | None, tuple[int, int] | None]:
    """Label, word and children of a node."""
    label, *words = node.pieces or [""]
    if not re.fullmatch(r"\d{1,4}", label):
        raise ValueError(f"the label {label[:20]!r} of a node is no number")
    if words and not node.children:
        return int(label), " ".join(words), None
    if words or len(node.children) != CHILDREN:
        raise ValueError(
            f"a node has {len(words)} words and {len(node.children)} children in place of a word "
            "or two children"
        )
    left, right = node.children
    return int(label), None, (left, right)


TOKEN, LEFT, RIGHT, HEIGHT, SAMPLE = range(5)
"""Columns of a batch of nodes."""

NONE = -1
"""Child of a leaf, and sample of a node that is none."""


@dataclass(frozen=True)
class Forest:
    """The nodes of all trees, one tree after the other; children come before their parents.

    Attributes:
        tokens: Token of the word of each leaf; PADDING for other nodes. Int32, shape (nodes,).
        left: Node that is the left child of each node; NONE for leaves. Int64, shape (nodes,).
        heights: Longest way down to a leaf; 0 for leaves. Int64, shape (nodes,).
        starts: First node of each tree, and the number of all nodes. Int64, shape (trees + 1,).
    """

    tokens: NDArray[np.int32]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    heights: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def roots(self) -> NDArray[np.int64]:
        """The root of each tree. Shape (trees,)."""
        return self.starts[1:] - 1


def plant(trees: Sequence[Tree], vocabulary: tuple[str, ...]) -> Forest:
    """The forest of some trees."""
    token_of = tokens_of(vocabulary)
    starts = np.cumsum([0, *(len(tree.labels) for tree in trees)], dtype=np.int64)
    tokens = [
        PADDING if word is None else token_of.get(word.lower(), UNKNOWN)
        for tree in trees
        for word in tree.words
    ]
    pairs = [
        (NONE, NONE) if pair is None else (start + pair[0], start + pair[1])
        for tree, start in zip(trees, starts.tolist(), strict=False)
        for pair in tree.children
    ]
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    heights = np.array([height for tree in trees for height in tree.heights], dtype=np.int64)
    return Forest(np.array(tokens, dtype=np.int32), left, right, heights, starts)


@dataclass(frozen=True)
class TreeInputs:
    """Samples that are nodes of trees, int64: whole sentences, or all their phrases."""

    forest: Forest
    nodes: NDArray[np.int64]
    device: torch.device

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:  # noqa: ARG002
        """Yields the trees of the samples; see `trainer.samples.Inputs`.

        Yields:
            Nodes in ascending height, with the columns TOKEN, LEFT, RIGHT (rows of the children),
            HEIGHT, and SAMPLE (position in the batch, or NONE). Int64, shape (nodes, 5).
        """
        for positions in plan:
            batch = nodes_of_batch(self.forest, self.nodes[positions.numpy()])
            yield send(torch.from_numpy(batch), self.device)


def nodes_of_batch(forest: Forest, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes of every tree that has one of some samples, in ascending height.

    The samples are different nodes; the result is as `TreeInputs.batches` yields it.
    """
    trees = np.unique(np.searchsorted(forest.starts, samples, side="right") - 1)
    first, after = forest.starts[trees], forest.starts[trees + 1]
    sizes = after - first
    before = np.cumsum(sizes) - sizes
    nodes = np.arange(sizes.sum()) + np.repeat(first - before, sizes)
    order = np.argsort(forest.heights[nodes], kind="stable")
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))

    def rows(of: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(of == NONE, NONE, row_of[np.searchsorted(nodes, of)])

    batch = np.full((len(nodes), 5), NONE, dtype=np.int64)
    sorted_nodes = nodes[order]
    batch[:, TOKEN] = forest.tokens[sorted_nodes]
    batch[:, LEFT] = rows(forest.left[sorted_nodes])
    batch[:, RIGHT] = rows(forest.right[sorted_nodes])
    batch[:, HEIGHT] = forest.heights[sorted_nodes]
    batch[rows(samples), SAMPLE] = np.arange(len(samples))
    return batch


TREE_NAMES = ("tree",)
"""Names of the column of trees."""

NEUTRAL = 2
"""Middle of the labels of the treebank, from very negative, 0, to very positive, 4."""

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
    labels = _phrase_labels(trees, table.samples.class_names)
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


def _phrase_labels(trees: Sequence[Tree], class_names: Sequence[str]) -> NDArray[np.int64]:
    """Class of every node, by its number or else its place; NO_LABEL for none of the classes."""
    labels = np.array([label for tree in trees for label in tree.labels], dtype=np.int64)
    numbers = np.array(numbers_of_classes(class_names), np.int64)
    if numbers.tolist() == [*range(BINARY_CLASSES)] and labels.max(initial=0) > 1:
        return np.select([labels < NEUTRAL, labels > NEUTRAL], [0, 1], NO_LABEL)
    order = np.argsort(numbers)
    places = np.searchsorted(numbers, labels, sorter=order).clip(max=len(numbers) - 1)
    found = order[places]
    return np.where(numbers[found] == labels, found, NO_LABEL)


TREES = Encoding[TreeData](TREE_NAMES, _encode, _encode_training)

open_tree_splits = TREES.open_splits
open_tree_samples = TREES.open_samples
open_unlabelled_trees = TREES.open_unlabelled
