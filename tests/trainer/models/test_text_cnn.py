"""The network for texts, and word vectors read from a file."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.base.errors import ConfigError
from trainer.models.word_networks import text_cnn
from trainer.samples import InputSpec

VOCABULARY = ("", "?", "cat", "dog", "sat")
SPEC = InputSpec((12,), vocabulary=VOCABULARY)
GLOVE = "the 9 9 9\ndog 0.5 -1 2\nnew york 1 2 3\ncat 1e-1 0 -3\n"


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    path = tmp_path / "glove.3d.txt"
    path.write_text(GLOVE)
    return path


def word_vectors(model: nn.Module) -> Tensor:
    return model.get_parameter("embedding.weight")


@pytest.mark.parametrize("length", [1, 4, 30])
def test_padding_changes_no_logits(length: int) -> None:
    model = text_cnn(SPEC, 3)
    tokens = torch.randint(1, 5, (2, length), generator=torch.Generator().manual_seed(0))

    logits = model(F.pad(tokens, (0, 25)))

    torch.testing.assert_close(logits, model(tokens))


def test_a_text_without_words_has_finite_logits() -> None:
    model = text_cnn(SPEC, 3)

    assert model(torch.zeros(1, 12, dtype=torch.int64)).isfinite().all()


def test_the_order_of_words_changes_logits() -> None:
    model = text_cnn(SPEC, 3)

    logits = model(torch.tensor([[2, 3, 4, 1], [4, 2, 3, 1]]))

    assert not torch.allclose(logits[0], logits[1])


def test_pooling_detects_a_phrase_at_any_position() -> None:
    model = text_cnn(SPEC, 3)
    far = [1] * 30

    logits = model(torch.tensor([[*far, 2, 3, *far, 1, 1], [*far, 1, 2, 3, *far, 1]]))

    torch.testing.assert_close(logits[0], logits[1])


def test_words_of_the_file_get_their_vectors_and_padding_stays_zero(glove: Path) -> None:
    model = text_cnn(SPEC, 3, embeddings=str(glove), embedding_dim=3)

    vectors = word_vectors(model)

    torch.testing.assert_close(vectors[2], torch.tensor([0.1, 0.0, -3.0]))
    torch.testing.assert_close(vectors[3], torch.tensor([0.5, -1.0, 2.0]))
    assert vectors[0].count_nonzero() == 0
    assert vectors[4].count_nonzero() == 3
    assert vectors.requires_grad


def test_frozen_word_vectors_take_no_gradient(glove: Path) -> None:
    model = text_cnn(SPEC, 3, embeddings=str(glove), embedding_dim=3, freeze_embeddings=True)

    assert not word_vectors(model).requires_grad


def test_random_word_vectors_cannot_be_frozen() -> None:
    with pytest.raises(ConfigError, match=r"random word vectors; name a file .* model\.embeddings"):
        text_cnn(SPEC, 3, freeze_embeddings=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat 1 2\n", r"line 1 has 2 numbers .* embedding_dim is 3"),
        ("cat 1 2 3 4\n", r"line 1 has 4 numbers .* embedding_dim is 3"),
        ("the 1 2 3\ncat 1\n", r"line 2 has 1 numbers"),
        ("cat 1 two 3\n", r"line 1: could not convert string to float: 'two'"),
        ("cat 1 nan 3\n", r"line 1 has a number that is not finite"),
        ("the 1 2 3\n", r"none of the 3 words"),
        ("", r"none of the 3 words"),
    ],
)
def test_a_malformed_file_of_vectors_is_refused_with_the_line(
    glove: Path, text: str, message: str
) -> None:
    glove.write_text(text)

    with pytest.raises(ConfigError, match=rf"glove\.3d\.txt.*{message}"):
        text_cnn(SPEC, 3, embeddings=str(glove), embedding_dim=3)


def test_a_binary_file_of_vectors_is_refused(glove: Path) -> None:
    glove.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"cannot be read .*; give a text file of GloVe"):
        text_cnn(SPEC, 3, embeddings=str(glove), embedding_dim=3)


def test_a_missing_file_of_vectors_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.txt cannot be read"):
        text_cnn(SPEC, 3, embeddings=str(tmp_path / "none.txt"))
