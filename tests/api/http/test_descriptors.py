"""The number of connections follows from the number of file descriptors."""

import resource
import subprocess
import sys

from api.http.descriptors import FEWEST, connections_within


def test_few_descriptors_allow_fewer_connections_than_many() -> None:
    assert FEWEST == connections_within(100, 16) < connections_within(1024, 16) < 512
    assert connections_within(4096, 16) > 512


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(300, {hard})))\n"
        "from api.http.descriptors import raise_descriptor_limit\n"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    shown = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", lowered], capture_output=True, text=True, check=True
    )

    assert shown.stdout.split() == ["300", "300", "300"]
