"""Finding images of an earlier run by content and by stamp."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from difficulty_service.features.known_images import (
    ImageList,
    KnownImages,
    index_images,
    join_images,
)


def digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def image_list(
    contents: Sequence[bytes], stamps: Sequence[int], ids: Sequence[str] | None = None
) -> ImageList:
    matrix = np.frombuffer(b"".join(contents), dtype=np.uint8).reshape(-1, 32)
    return ImageList(matrix, np.array(stamps, dtype=np.uint64), ids)


def make_index(images: int, ids: Sequence[str] | None = None) -> KnownImages:
    contents = [digest(number) for number in range(images)]
    return index_images(image_list(contents, [2**64 - 1 - n for n in range(images)], ids), [])


def test_images_are_found_by_content_and_by_stamp() -> None:
    known = make_index(1000)

    assert [known.find_content(digest(number), "any") for number in (0, 7, 999)] == [0, 7, 999]
    assert [known.find_stamp(2**64 - 1 - number, "any") for number in (0, 7, 999)] == [0, 7, 999]
    assert known.content(7) == digest(7)


def test_new_images_are_not_found() -> None:
    known = make_index(1000)

    assert known.find_content(digest(1000), "any") is None
    assert known.find_stamp(17, "any") is None
    assert known.find_stamp(None, "any") is None


def test_nothing_is_found_where_nothing_is_known() -> None:
    known = make_index(0)

    assert known.find_content(digest(0), "any") is None
    assert known.find_stamp(1, "any") is None


def test_a_digest_that_shares_its_first_64_bits_only_is_another_image() -> None:
    known = make_index(3)

    planted = digest(1)[:8] + digest(2)[8:]

    assert known.find_content(planted, "any") is None


def test_images_that_are_not_files_are_never_found_by_a_stamp() -> None:
    known = index_images(image_list([digest(0), digest(1)], [0, 5]), [])

    assert known.find_stamp(0, "any") is None
    assert known.find_stamp(5, "any") == 1


def test_where_ids_matter_the_same_content_with_another_id_is_new() -> None:
    known = make_index(3, ["a", "b", "c"])

    assert known.find_content(digest(1), "b") == 1
    assert known.find_content(digest(1), "a") is None
    assert known.find_stamp(2**64 - 2, "b") == 1
    assert known.find_stamp(2**64 - 2, "a") is None


def test_bad_images_have_a_reason() -> None:
    known = index_images(image_list([digest(0), digest(1)], [0, 0]), ["truncated"])

    assert known.reason(0) is None
    assert known.reason(1) == "truncated"


@pytest.mark.parametrize("ids", [(None, None), (["a"], ["b"])])
def test_lists_are_joined_in_order(ids: tuple[Sequence[str] | None, Sequence[str] | None]) -> None:
    lists = [image_list([digest(number)], [number], each) for number, each in enumerate(ids)]

    joined = join_images(lists)

    assert joined.contents.tobytes() == digest(0) + digest(1)
    assert joined.stamps.tolist() == [0, 1]
    assert joined.sample_ids == (None if ids[0] is None else ["a", "b"])
