"""Word vectors from a text file in the format of GloVe: a word and its numbers on each line."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from difficulty_service.errors import ConfigError


def read_word_vectors(path: Path, words: Mapping[str, int], dim: int) -> dict[int, Tensor]:
    """Reads the vectors of the given words that are in the file.

    Args:
        path: UTF-8 text; each line is a word and `dim` numbers between single spaces.
        words: Row of each word.
        dim: Number of numbers per word.

    Returns:
        Vectors by row, float32 of shape (dim,).

    Raises:
        ConfigError: The file is missing, a line is malformed, or it has none of the words.
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
