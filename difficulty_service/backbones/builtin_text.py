"""Texts as hashed n-grams of characters, projected at random: no weights, no vocabulary.

What it sees is spelling: texts are close where they share words, parts of words and names, and it
knows nothing of synonyms, order or meaning beyond five characters.
"""

import hashlib
import json
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone, BackboneOptions, TextPreprocessing
from difficulty_service.backbones.text_encoder import TextEncoder, refuse_image_options
from difficulty_service.backbones.text_encoders import BUILTIN_TEXT_DIM as DIM
from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import BackboneError, Setting

LENGTHS = (2, 5)
"""Shortest and longest n-gram, in characters; the space before and after a word counts as one."""

COPIES = 4
"""Number of entries of the vector that each n-gram adds to, one in each quarter of it."""

SEED = 0x9E3779B97F4A7C15
"""Seed of the projection, and step from the hash of one copy to that of the next."""

_BASE = np.uint64(0x100000001B3)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_SPACE = ord(" ")

SETTINGS = {
    "ngrams": list(LENGTHS),
    "words": True,
    "counts": "square root",
    "projection": f"{COPIES} signs",
    "seed": SEED,
    "version": 1,
}
"""All that the features depend on, in place of a weights file."""


def load_builtin_text(name: str, options: BackboneOptions) -> Backbone:
    """The built-in encoder of texts, which has nothing to choose but the device of its features."""
    refuse_image_options(name, options)
    if options.precision != torch.float32:
        raise BackboneError(
            f"{name} computes in fp32 only",
            "use ",
            Setting("precision", "fp32"),
            parameter="precision",
        )
    settings = json.dumps({**SETTINGS, "dim": DIM}, sort_keys=True)
    return TextEncoder(
        name=name,
        feature_dim=DIM,
        preprocessing=TextPreprocessing(1, encode_ngrams, SETTINGS),
        weights_sha256=hashlib.sha256(settings.encode()).hexdigest(),
        network=lambda vectors: send(vectors, options.device),
    )


def encode_ngrams(text: str) -> Tensor:
    """The features of one text, of length 1, the same on every machine. Shape (DIM,), float32.

    Each n-gram within a word, and each word, counts with the square root of its number; its hash
    chooses `COPIES` entries and signs, which is the sparse random projection of Kane and Nelson,
    "Sparser Johnson-Lindenstrauss transforms" (2014), section 3 (blocks). Upper and lower case are
    one, and so are all kinds of white space; a text without characters gives zeros.
    """
    hashes = [np.empty(0, np.uint64), *_hashes(text)]
    grams, counts = np.unique(np.concatenate(hashes), return_counts=True)
    # Square roots are rounded alike everywhere, which logarithms are not.
    weights = np.sqrt(counts)
    vector = np.zeros(DIM)
    block = DIM // COPIES
    for copy in range(COPIES):
        mixed = _mix(grams + np.uint64((SEED * (copy + 1)) % (1 << 64)))
        signs = np.where(mixed >> np.uint64(63), 1.0, -1.0)
        entries = (mixed % np.uint64(block)).astype(np.int64)
        sums = np.bincount(entries, weights * signs, minlength=block)
        vector[copy * block : (copy + 1) * block] = sums
    # The exact sum does not depend on the order in which a processor adds.
    norm = math.sqrt(math.fsum((vector * vector).tolist()))
    return torch.from_numpy((vector / (norm or 1.0)).astype(np.float32))


def _hashes(text: str) -> Iterator[NDArray[np.uint64]]:
    """Hashes of all n-grams that stay within a word and its two spaces, and of all words."""
    words = text.lower().split()
    if not words:
        return
    padded = f" {' '.join(words)} "
    codes = np.frombuffer(padded.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    is_space = codes == _SPACE
    spaces = np.concatenate([[0], np.cumsum(is_space)])
    rolling = codes
    for length in range(2, LENGTHS[1] + 1):
        count = len(codes) - length + 1
        if count < 1:
            break
        rolling = rolling[:count] * _BASE + codes[length - 1 :]
        inside = spaces[length - 1 : length - 1 + count] - spaces[1 : 1 + count]
        yield _mix(rolling[inside == 0] + np.uint64(length))
    yield _word_hashes(codes, is_space)


def _word_hashes(codes: NDArray[np.uint64], is_space: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Hashes of whole words: sums over their characters, each mixed with its place in the word."""
    starts = np.flatnonzero(is_space)[:-1]
    lengths = np.diff(np.flatnonzero(is_space))
    places = np.arange(len(codes) - 1) - starts.repeat(lengths)
    mixed = _mix(codes[:-1] * _BASE + places.astype(np.uint64))
    hashes: NDArray[np.uint64] = _mix(np.add.reduceat(mixed, starts))
    return hashes


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64, which makes every bit depend on all bits of the hash."""
    values = (values ^ (values >> _SHIFTS[0])) * _MIX[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MIX[1]
    return values ^ (values >> _SHIFTS[2])
