"""Word vectors, from a text file in the format of GloVe: a word and its numbers on each line."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError

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
    """Reads the vectors of the given words that are in the file.

    Args:
        path: UTF-8 text; each line is a word and `dim` numbers between single spaces.
        words: Row of each word.
        dim: Number of numbers per word.

    Returns:
        Vectors by row, float32 of shape (dim,).
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
