"""Whether a client keeps up a minimum rate, however long the whole takes."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Measures the rate of one direction of a connection in windows of time."""

    window: float  # seconds over which the rate is averaged
    rate: float  # minimum number of bytes per second
    began: float = 0.0  # start of the present window, in seconds
    count: int = 0  # bytes transferred before it

    def restart(self, now: float, count: int) -> None:
        """Begins a window, as after a pause that is not the client's."""
        self.began = now
        self.count = count

    def is_too_slow(self, now: float, count: int) -> bool:
        """Whether a window ended with fewer bytes than the rate asks for.

        The count may begin anywhere, also below zero.
        """
        if now - self.began < self.window:
            return False
        is_slow = count - self.count < self.rate * (now - self.began)
        self.restart(now, count)
        return is_slow
