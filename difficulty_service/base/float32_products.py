"""Products of float32 values that are rounded to float32, whatever else torch is allowed.

`torch.set_float32_matmul_precision` and the settings of `torch.backends` let products of float32
values be computed in TF32 or bfloat16. They are meant for the training that a process does beside
this, and would change features and scores of which is said that they are of float32.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

_backends: Any = torch.backends  # whose settings are made when torch is imported
_GROUPS = (_backends, _backends.mkldnn, _backends.cudnn)
"""Settings for what is left open below them, from the most general one down."""

_PRODUCTS = (
    *(_backends.mkldnn.matmul, _backends.mkldnn.conv, _backends.mkldnn.rnn),
    *(_backends.cuda.matmul, _backends.cudnn.conv, _backends.cudnn.rnn),
)
FULL, OPEN = "ieee", "none"

Change = tuple[Callable[[Any], None], object, object]
"""What changes a setting, its value before, and its value for full float32."""

_lock = threading.Lock()
_users = 0
_restore: list[Callable[[], None]] = []
"""What gives the process its settings back, in order; empty while nobody computes."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Computes products of float32 in float32; afterwards the settings are what they were.

    The settings are the whole process's, also those of other threads. So the first thread that
    enters changes them, and the last one that leaves restores them. Other precisions than float32
    are not affected.
    """
    global _users
    with _lock:
        if not _users:
            _restore[:] = _set_full()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for give_back in _restore:
                    give_back()
                _restore.clear()


def _set_full() -> list[Callable[[], None]]:
    """Changes all settings; returns what undoes that, in order."""
    changes = _older_settings()
    undo_groups: list[Callable[[], None]] = []
    for group in _GROUPS:  # each is read when those above it are open, else it would show theirs
        undo_groups.insert(0, partial(setattr, group, "fp32_precision", group.fp32_precision))
        group.fp32_precision = OPEN
    changes += [
        (partial(setattr, product, "fp32_precision"), product.fp32_precision, FULL)
        for product in _PRODUCTS
    ]
    for change, _, full in changes:
        change(full)
    return [*(partial(change, before) for change, before, _ in changes), *undo_groups]


def _older_settings() -> list[Change]:
    """How each older setting is changed, its value, and that of full float32.

    They say the same as the newer ones, and torch refuses to read them where the two differ: they
    change together, and are left alone where the process has already set the newer ones only.
    """
    settings: list[Change] = []
    with suppress(RuntimeError):
        value: object = torch.get_float32_matmul_precision()
        settings.append((torch.set_float32_matmul_precision, value, "highest"))
    with suppress(RuntimeError):
        value = _backends.cudnn.allow_tf32
        settings.append((partial(setattr, _backends.cudnn, "allow_tf32"), value, False))
    return settings
