"""A cache of the values that were used last, shared by threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the values used last; each is loaded by one thread while others that want it wait.

    Values of different keys are loaded at the same time, so that one that takes long keeps nobody
    from another.

    Args:
        capacity: Maximum number of values, those that are being loaded included.
        on_evict: Called with each value that leaves the cache.
    """

    def __init__(self, capacity: int, on_evict: Callable[[V], None] = lambda _: None) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._values: OrderedDict[K, Future[V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, load: Callable[[], V]) -> V:
        """The value of a key, loaded if it is not in the cache.

        The value used longest ago leaves before another is loaded: there may be no room for both.

        Raises:
            Exception: What `load` raised, in all threads that waited for it; the next call loads
                again.
        """
        with self._lock:
            value = self._values.get(key)
            if mine := value is None:
                self._evict_down_to(self._capacity - 1)
                value = self._values[key] = Future()
            self._values.move_to_end(key)
        if mine:
            self._load(key, value, load)
        return value.result()

    def known(self, key: K) -> V | None:
        """The value of a key if it can be had without waiting."""
        with self._lock:
            value = self._values.get(key)
            if value is None or not value.done() or value.exception() is not None:
                return None
            self._values.move_to_end(key)
            return value.result()

    def clear(self) -> None:
        """Evicts all values."""
        with self._lock:
            self._evict_down_to(0)

    def _load(self, key: K, value: Future[V], load: Callable[[], V]) -> None:
        try:
            loaded = load()
        except BaseException as error:
            with self._lock:
                # It may have been evicted meanwhile, and another load begun.
                if self._values.get(key) is value:
                    del self._values[key]
            value.set_exception(error)
            raise
        value.set_result(loaded)

    def _evict_down_to(self, number: int) -> None:
        while len(self._values) > number:
            _, value = self._values.popitem(last=False)
            value.add_done_callback(self._evicted)

    def _evicted(self, value: Future[V]) -> None:
        if value.exception() is None:
            self._on_evict(value.result())
