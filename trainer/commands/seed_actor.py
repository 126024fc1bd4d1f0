"""The actor that holds the cores or the GPU of a node for a seed, which a process beside it trains.

Nothing here loads torch: the process does, and an actor that did so too would take as long to start
and as much memory for nothing.
"""

import os
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from difficulty_service.base import apart
from difficulty_service.base.errors import EngineError, Setting
from trainer.commands.places import SeedToTrain, train_one

POLL_SECONDS = 0.5
"""Time for which an actor waits for the end of its process before it answers."""


@dataclass(frozen=True)
class Surroundings:
    """What every node must see as this machine does.

    Attributes:
        directory: Where relative paths of a recipe begin.
        token: A file in the folder of the runs.
    """

    directory: Path
    token: Path


@dataclass(frozen=True)
class Answer:
    """What a process wrote since the last answer, and its exit code once it has ended."""

    output: str
    errors: str
    code: int | None


class SeedActor:
    """Trains one seed in a process beside it, on some node."""

    def start(self, seed: SeedToTrain, device: str, surroundings: Surroundings) -> Answer:
        """Starts the process.

        Raises:
            EngineError: This node does not see the folder of the runs.
        """
        if not surroundings.token.exists() or not surroundings.directory.is_dir():
            folders = {surroundings.token.parent, surroundings.directory}
            raise EngineError(
                f"node {socket.gethostname()} does not share {' and '.join(map(str, folders))} "
                "with this machine",
                "run the command in a folder that all nodes have, and name such a folder by ",
                Setting("out"),
                parameter="out",
            )
        self._files = [Path(tempfile.mkstemp(prefix="seed-")[1]) for _ in range(2)]
        self._read = [0, 0]
        with apart.without_main():
            self._process = apart.start_process(
                _train_in, surroundings.directory, *self._files, seed, device
            )
        return Answer(f"{seed.label}: on {socket.gethostname()}\n", "", None)

    def poll(self) -> Answer:
        """Waits a moment for the end of the process."""
        self._process.join(POLL_SECONDS)
        code = self._process.exitcode
        output, errors = (self._new(number, is_last=code is not None) for number in range(2))
        return Answer(output, errors, code)

    def stop(self) -> None:
        """Has the process save and end."""
        if self._process.exitcode is None:
            os.kill(self._process.pid or 0, signal.SIGTERM)

    def _new(self, number: int, *, is_last: bool) -> str:
        """The whole lines that a file of output has got."""
        with self._files[number].open("rb") as file:
            file.seek(self._read[number])
            new = file.read()
        if is_last:
            self._files[number].unlink()
        else:
            new = new[: new.rfind(b"\n") + 1]
        self._read[number] += len(new)
        return new.decode(errors="replace")


def _train_in(directory: Path, output: Path, errors: Path, seed: SeedToTrain, device: str) -> None:
    # Another node may go on with the seed once the actor is gone, so this process must not.
    apart.signal_after_parent(signal.SIGKILL)
    os.chdir(directory)
    for stream, path in ((sys.stdout, output), (sys.stderr, errors)):
        stream.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream.fileno())
    train_one(seed, device)
