"""A cache of the values that were used last, shared by threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the values used last; each is loaded by one thread while the others wait.

    Args:
        capacity: Maximum number of values.
        on_evict: Called with each value that leaves the cache.
    """

    def __init__(self, capacity: int, on_evict: Callable[[V], None] = lambda _: None) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, load: Callable[[], V]) -> V:
        """The value of a key, loaded if it is not in the cache.

        The value used longest ago leaves before another is loaded: there may be no room for both.
        """
        with self._lock:
            if key not in self._values:
                self._evict_down_to(self._capacity - 1)
                self._values[key] = load()
            self._values.move_to_end(key)
            return self._values[key]

    def clear(self) -> None:
        """Evicts all values."""
        with self._lock:
            self._evict_down_to(0)

    def _evict_down_to(self, number: int) -> None:
        while len(self._values) > number:
            self._on_evict(self._values.popitem(last=False)[1])
