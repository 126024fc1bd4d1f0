"""The watch knows the images under way, and since when."""

import pickle
import threading
from contextlib import suppress

from difficulty_service.extraction.image_watch import ImageWatch


def test_images_are_under_way_within_their_context_the_first_in_front() -> None:
    watch = ImageWatch()
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with watch.working_on("b.png"):
            inside.set()
            leave.wait(60)

    with watch.working_on("a.png"):
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(60)
        both = watch.under_way()
    remaining = watch.under_way()
    leave.set()
    thread.join()

    assert [image.sample_id for image in both] == ["a.png", "b.png"]
    assert both[0].seconds >= both[1].seconds >= 0
    assert [image.sample_id for image in remaining] == ["b.png"]
    assert watch.under_way() == []


def test_an_image_that_fails_is_under_way_no_more() -> None:
    watch = ImageWatch()
    before = watch.last_step

    with suppress(ValueError), watch.working_on("a.png"):
        raise ValueError

    assert watch.under_way() == []
    assert watch.last_step > before


def test_a_watch_in_another_process_begins_without_images() -> None:
    watch = ImageWatch()

    with watch.working_on("a.png"):
        elsewhere = pickle.loads(pickle.dumps(watch))  # noqa: S301 - our own

    assert elsewhere.under_way() == []
