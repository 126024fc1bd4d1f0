"""Small pictures come from processes that are replaced when an image ends or hangs them."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from multiprocessing import active_children
from multiprocessing.process import BaseProcess

import pytest
from PIL import Image

from api.results.thumbnails import PictureProcesses
from difficulty_service.base.apart import Apart, Limits
from difficulty_service.base.errors import ImageError
from difficulty_service.images.crops import Crop, picture_maker
from difficulty_service.images.header import small_picture

MAX_PIXELS = 1_000_000


def image(width: int, height: int, form: str = "PNG") -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(target, form)
    return target.getvalue()


@pytest.fixture
def pictures() -> Iterator[PictureProcesses]:
    with closing(PictureProcesses(1, MAX_PIXELS)) as pictures:
        yield pictures


def started(before: set[BaseProcess]) -> BaseProcess:
    """The one process that was started since."""
    (process,) = set(active_children()) - before
    return process


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_a_picture_is_a_jpeg_of_the_size_asked(pictures: PictureProcesses, form: str) -> None:
    small = Image.open(io.BytesIO(pictures.shrink(image(600, 300, form), 60)))

    assert (small.format, small.size) == ("JPEG", (60, 30))


def test_an_unreadable_image_has_its_reason_and_the_process_continues(
    pictures: PictureProcesses,
) -> None:
    before = set(active_children())
    pictures.shrink(image(20, 20), 16)
    process = started(before)

    with pytest.raises(ImageError, match="not an image of a known format"):
        pictures.shrink(b"no image", 16)
    with pytest.raises(ImageError, match="more than the 1000000 allowed"):
        pictures.shrink(image(1001, 1000), 16)

    assert pictures.shrink(image(20, 20), 16)
    assert started(before) is process


def test_a_process_that_was_killed_is_replaced_for_the_same_picture(
    pictures: PictureProcesses,
) -> None:
    before = set(active_children())
    pictures.shrink(image(20, 20), 16)
    killed = started(before)
    killed.kill()
    killed.join()

    assert pictures.shrink(image(20, 20), 16)
    assert started(before) is not killed


def test_a_process_that_hangs_is_killed_and_the_next_picture_has_a_new_one() -> None:
    before = set(active_children())
    with closing(PictureProcesses(1, MAX_PIXELS, longest=30.0)) as pictures:
        pictures.shrink(image(20, 20), 16)
        hanging = started(before)
        assert hanging.pid is not None
        pictures._longest = 0.5
        os.kill(hanging.pid, signal.SIGSTOP)

        with pytest.raises(ImageError, match=r"takes more than 0\.5 s to decode"):
            pictures.shrink(image(20, 20), 16)
        pictures._longest = 30.0

        assert pictures.shrink(image(20, 20), 16)
        assert not hanging.is_alive()


def test_nothing_runs_before_the_first_picture_or_after_the_end() -> None:
    before = set(active_children())
    pictures = PictureProcesses(2, MAX_PIXELS)
    assert set(active_children()) == before
    pictures.shrink(image(20, 20), 16)
    process = started(before)

    pictures.close()

    assert not process.is_alive()


def test_a_picture_of_a_box_is_cut_from_the_image_in_the_process(
    pictures: PictureProcesses,
) -> None:
    small = Image.open(io.BytesIO(pictures.shrink(image(600, 300), 64, Crop((0, 0, 50, 50)))))
    assert small.size == (60, 60)

    with pytest.raises(ImageError, match="is outside of the image"):
        pictures.shrink(image(600, 300), 64, Crop((700, 0, 750, 50)))
    with pytest.raises(ImageError, match="not an image of a known format"):
        pictures.shrink(b"no image", 64, Crop((0, 0, 50, 50)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")
def test_an_image_that_needs_too_much_memory_is_refused_and_the_process_continues() -> None:
    before = set(active_children())
    make = partial(picture_maker, 10**9)

    with closing(Apart(make, limits=Limits(memory=250 << 20))) as pictures:
        with pytest.raises(ImageError, match="takes more memory to decode than a thumbnail may"):
            pictures.call(image(9000, 9000), 64, None)
        process = started(before)

        assert pictures.call(image(20, 20), 64, None)
        assert started(before) is process


def test_an_extremely_long_image_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ImageError, match="1 x 65501 pixels: a side is longer than the 65500"):
        small_picture(image(1, 65_501), 64, MAX_PIXELS)


def test_the_process_imports_no_torch() -> None:
    code = "import sys, difficulty_service.images.crops; sys.exit('torch' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code
