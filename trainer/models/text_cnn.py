"""The convolutional network for texts of the focal calibration papers."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.models.glove import PADDING, word_embedding
from trainer.models.layers import initialise
from trainer.samples import InputSpec

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
    the ends of a text, so that very short texts have logits too.

    Args:
        spec: Specification of texts.
        num_classes: Number of logits.
        embeddings: Text file of GloVe vectors; other words, or all words without a file, have
            random initial vectors.
        embedding_dim: Dimension of the word vectors.
        freeze_embeddings: Whether word vectors stay constant, which needs a file of them.
        dropout: Fraction of the hidden layer's outputs set to zero in training.

    Returns:
        A network from tokens of shape (samples, length) to logits of shape (samples, num_classes).
    """
    embedding = word_embedding(spec.vocabulary, embedding_dim, embeddings, frozen=freeze_embeddings)
    return TextCNN(embedding, num_classes, dropout)
