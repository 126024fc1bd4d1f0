"""Networks on word vectors: a convolutional one for texts, and tree-LSTMs for parse trees.

Word vectors are read from a text file in the format of GloVe: a word and its numbers on each line.
The convolutional network is that of the focal calibration papers. The tree-LSTMs are those of Tai
et al. (arXiv:1503.00075) on binary parse trees, batched by height: all nodes of a height, of all
trees of a batch, are computed at once, as their children are lower. A sentence of 40 words takes
some ten steps instead of 79.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.models.layers import initialise
from trainer.samples import InputSpec

PADDING, FIRST_WORD = 0, 2
"""Token 0 is no word, and token 1 stands for words outside the vocabulary."""


def word_embedding(
    vocabulary: tuple[str, ...], dim: int, embeddings: str | None, *, frozen: bool
) -> nn.Embedding:
    """The vectors of the words of a vocabulary."""
    if frozen and embeddings is None:
        raise ConfigError(
            "model option freeze_embeddings would keep random word vectors",
            "name a file of GloVe vectors in model.embeddings, or make it false",
        )
    embedding = nn.Embedding(len(vocabulary), dim, padding_idx=PADDING)
    if embeddings is not None:
        _fill(embedding.weight, Path(embeddings), vocabulary)
    embedding.weight.requires_grad_(not frozen)
    return embedding


@torch.no_grad()
def _fill(weight: Tensor, path: Path, vocabulary: tuple[str, ...]) -> None:
    """Copies the vectors of known words into their rows; scales random rows to their norm."""
    rows = {word: row for row, word in enumerate(vocabulary) if row >= FIRST_WORD}
    vectors = read_word_vectors(path, rows, weight.shape[1])
    known = torch.stack(list(vectors.values()))
    weight.mul_(known.square().mean().sqrt())
    weight[list(vectors)] = known


def read_word_vectors(path: Path, words: Mapping[str, int], dim: int) -> dict[int, Tensor]:
    """Reads the vectors, float32, of the given words that are in the file, by the rows of these.

    Each line of the UTF-8 text is a word and `dim` numbers between single spaces.
    """
    vectors: dict[int, Tensor] = {}
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                word, *_ = line.split(" ", 1)
                # Some published files have words with spaces; no token has spaces.
                if _numbers_on(line, f"{path}, line {number}", dim, first=number == 1) == dim:
                    row = words.get(word)
                    if row is not None:
                        vectors[row] = _vector(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"model option embeddings: {path} cannot be read ({error})",
            "give a text file of GloVe word vectors",
        ) from error
    if not vectors:
        raise ConfigError(
            f"model option embeddings: {path} has none of the {len(words)} words of the training "
            "texts",
            "give vectors for their language and case",
        )
    return vectors


def _numbers_on(line: str, where: str, dim: int, *, first: bool) -> int:
    """Number of fields after the word; more than `dim` mean a word with spaces, except at first."""
    count = line.rstrip().count(" ")
    if count < dim or (first and count != dim):
        raise ConfigError(
            f"model option embeddings: {where} has {count} numbers after its word and "
            f"embedding_dim is {dim}",
            "give a file of GloVe vectors, and their length in embedding_dim",
        )
    return count


def _vector(line: str, where: str) -> Tensor:
    try:
        vector = torch.tensor([float(number) for number in line.split()[1:]])
    except ValueError as error:
        raise ConfigError(
            f"model option embeddings: {where}: {error}", "each word must be followed by numbers"
        ) from error
    if not vector.isfinite().all():
        raise ConfigError(
            f"model option embeddings: {where} has a number that is not finite",
            "give a file of GloVe vectors",
        )
    return vector


KERNEL = 5
CHANNELS = 128


class TextCNN(nn.Module):
    """Word vectors, convolutions along the text, global max pooling, and two linear layers."""

    def __init__(self, embedding: nn.Embedding, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.convolutions = nn.ModuleList(
            nn.Conv1d(channels, CHANNELS, KERNEL, padding="same")
            for channels in (embedding.embedding_dim, CHANNELS, CHANNELS)
        )
        self.hidden = nn.Linear(CHANNELS, CHANNELS)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(CHANNELS, num_classes)
        initialise(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """Int64 tokens (samples, length) to logits (samples, num_classes), whatever the padding."""
        is_word = (tokens != PADDING).unsqueeze(1)
        # Beyond the end of a text a convolution sees zeros, with or without padding.
        hidden = self.embedding(tokens).transpose(1, 2) * is_word
        for layer, convolution in enumerate(self.convolutions):
            if layer > 0:
                # After the ReLU no value is below zero, so zeros beyond the end do not matter.
                hidden = F.max_pool1d(hidden, KERNEL, stride=1, padding=KERNEL // 2) * is_word
            hidden = F.relu(convolution(hidden)) * is_word
        pooled = hidden.amax(dim=2)
        return self.classifier(self.dropout(F.relu(self.hidden(pooled))))


def text_cnn(
    spec: InputSpec,
    num_classes: int,
    *,
    embeddings: str | None = None,
    embedding_dim: int = 100,
    freeze_embeddings: bool = False,
    dropout: float = 0.0,
) -> nn.Module:
    """The global-pooling network for 20 Newsgroups: three convolutions over five words each.

    Global pooling replaces large linear layers, as in Lin et al. (arXiv:1312.4400); here it takes
    the maximum, as in the network that the papers trained. Unlike there, convolutions are padded at
    the ends of a text, so that very short texts have logits too. Words that the file of GloVe
    vectors lacks have random initial vectors, and dropout is of the hidden layer.
    """
    embedding = word_embedding(spec.vocabulary, embedding_dim, embeddings, frozen=freeze_embeddings)
    return TextCNN(embedding, num_classes, dropout)


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

    A "binary" cell has weights for the left and for the right child, a "child_sum" adds them up.
    Words that the file of GloVe vectors lacks have random initial vectors, and dropout is of a
    node's output before it is classified.
    """
    if cell not in CELLS:
        raise ConfigError(f"no cell {cell!r}", f"set model.cell to {' or '.join(CELLS)}")
    embedding = word_embedding(spec.vocabulary, embedding_dim, embeddings, frozen=freeze_embeddings)
    return TreeLSTM(embedding, CELLS[cell](embedding_dim, hidden), hidden, num_classes, dropout)
