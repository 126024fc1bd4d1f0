"""The pretended GPUs refuse and count what real ones would."""

import re

import pytest

from tests.pretend.conftest import Call

FREE = {"wait": 0, "blocking copy": 0}
WAIT, COPY = {"wait": 1, "blocking copy": 0}, {"wait": 0, "blocking copy": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("sum of two devices", "same device, .*cpu and cuda:0"),
        ("sum of two GPUs", "same device, .*cuda:0 and cuda:1"),
        ("sum with a number", "not at all"),
        ("weights on the CPU", "same device"),
        ("index on a GPU", "same device"),
        ("index on the CPU", "not at all"),
        ("product of integers", "not implemented"),
        ("array", "can't convert cuda:0"),
        ("generator of the CPU", "expected a 'cuda' device type for generator"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(operation: str, reason: str, on_gpus: Call) -> None:
    assert re.search(reason, on_gpus("tests.pretend.device_paths:refused", operation))


def test_waits_and_blocking_copies_are_counted(on_gpus: Call) -> None:
    counted = on_gpus("tests.pretend.device_paths:copies")

    assert {
        name: {kind: number for kind, number in counts.items() if kind != "lines"}
        for name, counts in counted.items()
    } == {
        "number": WAIT,
        "to the CPU": COPY,
        "to the CPU later": FREE,
        "to the GPU": COPY,
        "to the GPU from pageable memory": COPY,
        "to the GPU from pinned memory": FREE,
        "few numbers to the GPU": FREE,
        "constant": COPY,
        "mask": WAIT,
        "index of the CPU": COPY,
        "factorisation": WAIT,
        "product": FREE,
    }


def test_a_copy_that_nobody_waited_for_is_not_there_yet(on_gpus: Call) -> None:
    held = on_gpus("tests.pretend.device_paths:read_before_the_copy_is_there")

    assert held == [[0, 0], [1, 1], [0, 0], [3, 3]]


@pytest.mark.long
def test_the_gpu_of_a_run_is_current_while_it_runs_and_not_afterwards(on_gpus: Call) -> None:
    current = on_gpus("tests.pretend.device_paths:where_work_is_done")

    places = ("extraction", "training", "the server", "evaluation")
    assert current == {**dict.fromkeys(places, 1), "afterwards": 0}
