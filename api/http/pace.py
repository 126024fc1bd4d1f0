"""Whether a client keeps up a minimum rate, however long the whole takes."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Measures the rate of one direction of a connection in windows of time.

    Attributes:
        window: Seconds over which the rate is averaged.
        rate: Minimum number of bytes per second.
        began: Start of the present window, in seconds.
        count: Number of bytes transferred before it.
    """

    window: float
    rate: float
    began: float = 0.0
    count: int = 0

    def restart(self, now: float, count: int) -> None:
        """Begins a window, as after a pause that is not the client's."""
        self.began = now
        self.count = count

    def is_too_slow(self, now: float, count: int) -> bool:
        """Whether a window ended with fewer bytes than the rate asks for.

        Args:
            now: Present time in seconds.
            count: Number of bytes transferred so far; may begin anywhere, also below zero.
        """
        if now - self.began < self.window:
            return False
        is_slow = count - self.count < self.rate * (now - self.began)
        self.restart(now, count)
        return is_slow
