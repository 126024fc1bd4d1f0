"""Words of texts, the order of the vocabulary, and tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.texts import build_vocabulary, encode_texts, split_words

VOCABULARY = ("<padding>", "<unknown>", "one", "two")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't PANIC!", ["don't", "panic"]),
        ("e-mail: a_b@c.org", ["e", "mail", "a", "b", "c", "org"]),
        ("'quoted' rock'n'roll dogs'", ["quoted", "rock'n'roll", "dogs"]),
        ("in 1993, naïve Ünïcode", ["in", "1993", "naïve", "ünïcode"]),
        ("<padding> ...", ["padding"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_in_lower_case(text: str, words: list[str]) -> None:
    assert list(split_words(text, 1000)) == words


def test_frequent_words_come_first_and_ties_are_alphabetical() -> None:
    texts = ["b a c c", "d b a", "c once"]

    vocabulary = build_vocabulary(" ".join(texts).split(), size=10)

    assert vocabulary == ("<padding>", "<unknown>", "c", "a", "b")


@given(st.permutations(["b a c c", "d b a", "c once", "d e e"]))
def test_the_vocabulary_does_not_depend_on_the_order_of_texts(texts: list[str]) -> None:
    vocabulary = build_vocabulary(" ".join(texts).split(), size=3)

    assert vocabulary == ("<padding>", "<unknown>", "c", "a", "b")


def test_texts_are_padded_at_the_end_and_unknown_words_share_a_token() -> None:
    tokens, lengths = encode_texts(["two ONE other", "two", ""], VOCABULARY, length=10)

    assert tokens.tolist() == [[3, 2, 1], [3, 0, 0], [0, 0, 0]]
    assert lengths.tolist() == [3, 1, 0]


def test_a_text_is_cut_to_its_length() -> None:
    tokens, lengths = encode_texts(["one two one two"], VOCABULARY, length=3)

    assert tokens.tolist() == [[2, 3, 2]]
    assert lengths.tolist() == [3]


def test_an_empty_list_of_texts_is_valid() -> None:
    tokens, lengths = encode_texts([], VOCABULARY, length=3)

    assert tokens.shape == (0, 1)
    assert lengths.shape == (0,)
