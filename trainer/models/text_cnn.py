"""The convolutional network for texts of the focal calibration papers."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.models.glove import read_word_vectors
from trainer.models.initialisation import initialise
from trainer.samples import InputSpec

PADDING, FIRST_WORD = 0, 2
"""Token 0 fills up texts that are shorter than others, 1 is a word not in the vocabulary."""

KERNEL = 5
CHANNELS = 128


class TextCNN(nn.Module):
    """Word vectors, convolutions along the text, pooling over all of it, two linear layers."""

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
        """Logits of texts; tokens of padding behind a text change nothing.

        Args:
            tokens: Int64 of shape (samples, length).

        Returns:
            Shape (samples, num_classes).
        """
        is_word = (tokens != PADDING).unsqueeze(1)
        # What a convolution sees beyond a text's end are zeros, padded or not.
        hidden = self.embedding(tokens).transpose(1, 2) * is_word
        for layer, convolution in enumerate(self.convolutions):
            if layer > 0:
                # Nothing is below zero here, so zeros beyond the end never are the maximum.
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

    Global pooling replaces large linear layers as in Lin et al. (arXiv:1312.4400); here it takes
    the maximum, as the network that the papers trained does. Unlike there, convolutions go past
    the ends of a text, so that the shortest texts have an answer too.

    Args:
        spec: Of texts.
        num_classes: Number of logits.
        embeddings: Text file of GloVe vectors; words it lacks, and all words without it, start
            at random.
        embedding_dim: Numbers per word.
        freeze_embeddings: Keep word vectors as they start.
        dropout: Share of the hidden layer's outputs zeroed in training.

    Returns:
        From tokens of shape (samples, length) to logits of shape (samples, num_classes).

    Raises:
        ConfigError: The file of vectors cannot be used.
    """
    embedding = nn.Embedding(len(spec.vocabulary), embedding_dim, padding_idx=PADDING)
    if embeddings is not None:
        _fill(embedding.weight, Path(embeddings), spec.vocabulary)
    embedding.weight.requires_grad_(not freeze_embeddings)
    return TextCNN(embedding, num_classes, dropout)


@torch.no_grad()
def _fill(weight: Tensor, path: Path, vocabulary: tuple[str, ...]) -> None:
    """Puts the vectors of known words in their rows and scales random rows to their size."""
    rows = {word: row for row, word in enumerate(vocabulary) if row >= FIRST_WORD}
    vectors = read_word_vectors(path, rows, weight.shape[1])
    known = torch.stack(list(vectors.values()))
    weight.mul_(known.square().mean().sqrt())
    weight[list(vectors)] = known
