"""When keys were last used: noted in memory, written now and then, so that no request writes."""

from threading import Lock

from sqlalchemy import Engine

from api.storage.keys import record_uses


class KeyUses:
    """The keys that were used since it was last recorded."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._used: set[str] = set()

    def add(self, key_id: str) -> None:
        """Notes that a key is used."""
        with self._lock:
            self._used.add(key_id)

    def record(self, engine: Engine) -> None:
        """Writes what was noted, in one transaction; what cannot be written is kept."""
        with self._lock:
            used, self._used = self._used, set()
        if not used:
            return
        try:
            record_uses(engine, used)
        except BaseException:
            with self._lock:
                self._used |= used
            raise
