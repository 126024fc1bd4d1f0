"""Tree-LSTMs of Tai et al. (arXiv:1503.00075) on binary parse trees, batched by height.

All nodes of a height, of all trees of a batch, are computed at once: their children are lower. A
sentence of 40 words takes some ten steps instead of 79.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.models.glove import word_embedding
from trainer.samples import InputSpec

State = tuple[Tensor, Tensor]
"""Output h and memory c of some nodes. Shapes (nodes, hidden)."""


class BinaryCell(nn.Module):
    """A node with two ordered children, each with weights of its own: equations 9 to 14 for N = 2.

    Words are at the leaves alone, so that a leaf has no gates but its output's, as in the authors'
    code.
    """

    def __init__(self, word_dim: int, hidden: int) -> None:
        super().__init__()
        self.word = nn.Linear(word_dim, 2 * hidden)
        self.children_gates = nn.Linear(2 * hidden, 5 * hidden)

    def leaf(self, words: Tensor) -> State:
        """State of leaves from their word vectors, of shape (nodes, word_dim)."""
        memory, output = self.word(words).chunk(2, dim=1)
        return output.sigmoid() * memory.tanh(), memory

    def inner(self, left: State, right: State) -> State:
        """State of nodes from those of their children."""
        gates = self.children_gates(torch.cat([left[0], right[0]], dim=1)).chunk(5, dim=1)
        write, keep_left, keep_right, output = (gate.sigmoid() for gate in gates[:4])
        memory = write * gates[4].tanh() + keep_left * left[1] + keep_right * right[1]
        return output * memory.tanh(), memory


class ChildSumCell(nn.Module):
    """A node that adds up the outputs of its children, in any order: equations 2 to 8.

    A leaf has a word and no children; any other node has children and no word.
    """

    def __init__(self, word_dim: int, hidden: int) -> None:
        super().__init__()
        self.word = nn.Linear(word_dim, 3 * hidden, bias=False)
        self.children_sum = nn.Linear(hidden, 3 * hidden)
        self.child = nn.Linear(hidden, hidden)

    def leaf(self, words: Tensor) -> State:
        """State of leaves from their word vectors, of shape (nodes, word_dim)."""
        return self._state(self.word(words) + self.children_sum.bias, 0)

    def inner(self, left: State, right: State) -> State:
        """State of nodes from those of their children."""
        kept = self.child(left[0]).sigmoid() * left[1] + self.child(right[0]).sigmoid() * right[1]
        return self._state(self.children_sum(left[0] + right[0]), kept)

    def _state(self, gates: Tensor, kept: Tensor | int) -> State:
        write, output, update = gates.chunk(3, dim=1)
        memory = write.sigmoid() * update.tanh() + kept
        return output.sigmoid() * memory.tanh(), memory


CELLS: dict[str, Callable[[int, int], BinaryCell | ChildSumCell]] = {
    "binary": BinaryCell,
    "child_sum": ChildSumCell,
}


class TreeLSTM(nn.Module):
    """Word vectors, a cell at every node from the leaves up, and a linear layer on its output."""

    def __init__(
        self,
        embedding: nn.Embedding,
        cell: BinaryCell | ChildSumCell,
        hidden: int,
        num_classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.cell = cell
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, num_classes)

    def forward(self, nodes: Tensor) -> Tensor:
        """The logits of those nodes that are samples, in their order. Shape (samples, num_classes).

        The nodes are those of `trainer.data.trees.TreeInputs`. Int64, shape (nodes, 5).
        """
        tokens, left, right, heights, samples = nodes.unbind(dim=1)
        leaves, *levels = heights.bincount().tolist()
        output, memory = self.cell.leaf(self.embedding(tokens[:leaves]))
        begin = leaves
        for count in levels:
            of_left, of_right = left[begin : begin + count], right[begin : begin + count]
            state = self.cell.inner(
                (output[of_left], memory[of_left]), (output[of_right], memory[of_right])
            )
            output, memory = torch.cat([output, state[0]]), torch.cat([memory, state[1]])
            begin += count
        (rows,) = (samples >= 0).nonzero(as_tuple=True)
        in_order = rows[samples[rows].argsort()]
        return self.classifier(self.dropout(output[in_order]))


def tree_lstm(  # noqa: PLR0913 - each is an option of a recipe
    spec: InputSpec,
    num_classes: int,
    *,
    cell: str = "binary",
    hidden: int = 150,
    embeddings: str | None = None,
    embedding_dim: int = 300,
    freeze_embeddings: bool = False,
    dropout: float = 0.5,
) -> nn.Module:
    """The network for the Stanford Sentiment Treebank.

    Args:
        spec: Specification of trees.
        num_classes: Number of logits.
        cell: "binary" has weights for the left and for the right child, "child_sum" adds them up.
        hidden: Dimension of the outputs of nodes.
        embeddings: Text file of GloVe vectors; other words, or all words without a file, have
            random initial vectors.
        embedding_dim: Dimension of the word vectors.
        freeze_embeddings: Whether word vectors stay constant, which needs a file of them.
        dropout: Fraction of a node's output set to zero in training before it is classified.

    Returns:
        A network from the nodes of trees, int64 of shape (nodes, 5), to logits of shape
        (samples, num_classes).
    """
    if cell not in CELLS:
        raise ConfigError(f"no cell {cell!r}", f"set model.cell to {' or '.join(CELLS)}")
    embedding = word_embedding(spec.vocabulary, embedding_dim, embeddings, frozen=freeze_embeddings)
    return TreeLSTM(embedding, CELLS[cell](embedding_dim, hidden), hidden, num_classes, dropout)
