"""Two processes that find each other as those that `torchrun` starts do."""

from multiprocessing.context import ForkServerContext
from typing import Any

from torch.distributed import TCPStore

ONE_OF_TWO = """
import os

os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}  # it listens: else one of the two would
os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
"""


def run_in_two(forkserver: ForkServerContext, program: str, **values: object) -> None:
    """Runs a program in two processes, which read the values and their `rank`.

    Raises:
        AssertionError: One of them fails.
    """
    with_others = f"{ONE_OF_TWO}\n{program}"
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[Any] = [
        forkserver.Process(
            target=exec, args=(with_others, values | {"rank": rank, "port": store.port})
        )
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        process.kill()
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
