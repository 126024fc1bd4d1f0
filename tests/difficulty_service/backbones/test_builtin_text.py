"""The built-in encoder of texts: checked against n-grams counted one by one."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.builtin_text import DIM, encode_ngrams
from difficulty_service.base.errors import BackboneError

MASK = (1 << 64) - 1


def mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def hash_of(gram: str) -> int:
    value = ord(gram[0])
    for character in gram[1:]:
        value = (value * 0x100000001B3 + ord(character)) & MASK
    return mix(value + len(gram) & MASK)


def hash_of_word(word: str) -> int:
    codes = [ord(" "), *map(ord, word)]
    places = [mix(code * 0x100000001B3 + place & MASK) for place, code in enumerate(codes)]
    return mix(sum(places) & MASK)


def count_one_by_one(text: str) -> torch.Tensor:
    counts: Counter[int] = Counter()
    words = text.lower().split()
    padded = f" {' '.join(words)} "
    for length in range(2, 6):
        for start in range(len(padded) - length + 1):
            gram = padded[start : start + length]
            if " " not in gram[1:-1]:
                counts[hash_of(gram)] += 1
    counts.update(map(hash_of_word, words))
    vector = np.zeros(DIM)
    for gram, count in counts.items():
        for copy in range(4):
            mixed = mix((gram + 0x9E3779B97F4A7C15 * (copy + 1)) & MASK)
            sign = 1 if mixed >> 63 else -1
            vector[copy * DIM // 4 + mixed % (DIM // 4)] += sign * math.sqrt(count)
    return torch.from_numpy((vector / np.linalg.norm(vector)).astype(np.float32))


@pytest.mark.parametrize(
    "text", ["Tea for two, and two for tea", "a", "Grüße aus 東京 \N{SNOWMAN}", "x\n\n y\tz"]
)
def test_features_are_those_of_ngrams_counted_one_by_one(text: str) -> None:
    features = encode_ngrams(text)

    torch.testing.assert_close(features, count_one_by_one(text), rtol=0, atol=1e-6)


def test_features_have_length_one_and_never_change() -> None:
    features = encode_ngrams("The quick brown fox")

    assert features.dtype == torch.float32
    assert features.shape == (DIM,)
    assert float(features.norm()) == pytest.approx(1)
    assert torch.equal(features, encode_ngrams("the  QUICK brown\nfox"))
    assert features[:256].nonzero().squeeze(1)[:4].tolist() == [2, 7, 10, 17]


def test_texts_that_share_words_are_closer_than_others() -> None:
    cup = encode_ngrams("the hockey team won the cup")
    final = encode_ngrams("our hockey team lost the cup final")
    code = encode_ngrams("segmentation fault in malloc")

    assert float(cup @ final) > float(cup @ code) + 0.2


def test_the_projection_keeps_cosines() -> None:
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list("abcdefghij"), 7)) for _ in range(400)]
    texts = [" ".join(generator.choice(words, 200)) for _ in range(20)]
    shared = [" ".join([*texts[0].split()[:100], *text.split()[:100]]) for text in texts[1:]]

    cosines = [float(encode_ngrams(texts[0]) @ encode_ngrams(text)) for text in shared]

    assert min(cosines) > max(float(encode_ngrams(shared[0]) @ encode_ngrams("z q x")), 0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BackboneOptions(weights="file"), "has no weights file"),
        (BackboneOptions(features="projected"), "has no projection"),
        (BackboneOptions(precision=torch.bfloat16), "fp32 only"),
        (BackboneOptions(flip=True), "flip does not apply"),
    ],
)
def test_options_of_networks_are_refused(options: BackboneOptions, message: str) -> None:
    with pytest.raises(BackboneError, match=message):
        load_backbone("builtin-text", options)
