"""Trees in arrays, and batches of them that a model takes level by level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.data.bracketed_tree import Tree
from trainer.data.vocabulary import PADDING, UNKNOWN, tokens_of

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
        right: The same of the right child.
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
    """The forest of some trees.

    Args:
        trees: Trees.
        vocabulary: Word of each token, in lower case.
    """
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
    """Samples that are nodes of trees: whole sentences, or all their phrases.

    Attributes:
        forest: The trees.
        nodes: Node that is each sample. Int64, shape (samples,).
        device: Device of the batches.
    """

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
            yield torch.from_numpy(batch).to(self.device)


def nodes_of_batch(forest: Forest, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes of every tree that has one of some samples, in ascending height.

    Args:
        forest: The trees.
        samples: Different nodes. Shape (samples,).

    Returns:
        As `TreeInputs.batches` yields. Shape (nodes, 5).
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
