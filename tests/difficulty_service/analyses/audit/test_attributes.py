"""The phrases, and the similarity of images to them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from difficulty_service.analyses.audit.explained_scores import measure_similarities, read_attributes
from difficulty_service.base.errors import AuditError
from tests.factories import store_of


def test_the_shipped_phrases_are_short_and_different() -> None:
    phrases = read_attributes()

    assert 200 <= len(phrases) <= 400
    assert len({phrase.lower() for phrase in phrases}) == len(phrases)
    assert all(re.fullmatch(r"[A-Za-z][\w ,'-]{2,59}", phrase) for phrase in phrases)


def test_empty_lines_and_headings_are_no_phrases(tmp_path: Path) -> None:
    path = tmp_path / "attributes.txt"
    path.write_text("# Light\n\n a dark photo \na bright photo\n")

    assert read_attributes(path) == ["a dark photo", "a bright photo"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one phrase\n", "1 attributes, but images are compared by at least 2"),
        ("a dark photo\na bright photo\na dark photo\n", "'a dark photo' more than once"),
        (None, "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "attributes.txt"
    if text is not None:
        path.write_text(text)

    with pytest.raises(AuditError, match=message):
        read_attributes(path)


def test_a_similarity_is_a_cosine_less_the_mean_over_the_phrases(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    features = 3 * torch.randn(5, 4, generator=generator)
    phrases = F.normalize(torch.randn(3, 4, generator=generator), dim=1)
    store = store_of(tmp_path, features, torch.zeros(5, dtype=torch.int64), shard_size=3)

    sample_ids, similarities = measure_similarities(store, phrases)

    cosines = torch.cosine_similarity(features[:, None], phrases[None], dim=2).numpy()
    expected = cosines - cosines.mean(axis=1, keepdims=True)
    assert sample_ids == [f"s{row}" for row in range(5)]
    np.testing.assert_allclose(similarities, expected, atol=1e-6)
