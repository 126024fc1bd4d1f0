"""Vocabulary of the training texts, and texts as tokens.

A word is a run of letters and digits in lower case, with apostrophes inside: "Don't" is one word,
"e-mail" two; everything else separates words. Tokens count from 0, padding, over 1, any word that
is not in the vocabulary, to the words in order of descending frequency.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

PADDING, UNKNOWN = 0, 1

MIN_COUNT = 2
"""Smallest number of occurrences in the training texts of a word with its own token."""

_SPECIAL = ("<padding>", "<unknown>")  # neither matches the expression below
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def build_vocabulary(words: Iterable[str], size: int) -> tuple[str, ...]:
    """The word of each token: the most frequent words, alphabetically where equally frequent.

    Args:
        words: All words of the training texts.
        size: Maximum number of words, besides padding and unknown words.
    """
    counts = Counter(words)
    frequent = [word for word, count in counts.items() if count >= MIN_COUNT]
    frequent.sort(key=lambda word: (-counts[word], word))
    return (*_SPECIAL, *frequent[:size])


def tokens_of(vocabulary: tuple[str, ...]) -> dict[str, int]:
    """The token of each word."""
    return {word: token for token, word in enumerate(vocabulary)}


def encode_texts(
    texts: Iterable[str], vocabulary: tuple[str, ...], length: int
) -> tuple[Tensor, Tensor]:
    """Encodes the first words of each text as tokens.

    Args:
        texts: Texts to encode.
        vocabulary: Word of each token.
        length: Maximum number of words of a text; the rest is cut off.

    Returns:
        Tokens, int32, padded to the longest text, of shape (samples, longest), and the number of
        words of each text, int64, of shape (samples,).
    """
    token_of = tokens_of(vocabulary)
    return pad(
        [[token_of.get(word, UNKNOWN) for word in split_words(text, length)] for text in texts],
        PADDING,
    )


def pad(texts: Iterable[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Tokens of texts as one tensor.

    Args:
        texts: Tokens of each text.
        padding: Token after the end of a text.

    Returns:
        Tokens, int32, of shape (samples, longest), and the number of tokens of each text, int64, of
        shape (samples,).
    """
    rows = [np.array(tokens, np.int32) for tokens in texts]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    tokens = np.full((len(rows), max([1, *lengths.tolist()])), padding, dtype=np.int32)
    for row, values in zip(tokens, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(tokens), lengths


def split_words(text: str, length: int) -> Iterator[str]:
    """The first words of a text."""
    return (match.group() for match in islice(_WORD.finditer(text.lower()), length))
