"""Has PyTorch believe in GPUs: what it asks CUDA, and how programs wait for it."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.pretend import tensors
from tests.pretend.ledger import LEDGER, WAIT

CAPABILITY = (9, 0)
MEMORY = 16 << 30
PROPERTIES = SimpleNamespace(
    major=9, minor=0, total_memory=MEMORY, name="Pretended", multi_processor_count=132
)


class Event:
    """As torch.cuda.Event: is done when everything that was queued before it is."""

    def __init__(self, **_options: object) -> None:
        self._queued = 0

    def record(self, _stream: object = None) -> None:
        self._queued = LEDGER.queued

    def query(self) -> bool:
        return False

    def wait(self, _stream: object = None) -> None:
        pass

    def synchronize(self) -> None:
        """Waits for what was queued before it and for nothing after it."""
        LEDGER.note_event(self._queued)


_numbers = count(1)


@dataclass(frozen=True)
class Stream:
    """As torch.cuda.Stream; a new one, or that of the number."""

    device: torch.device
    number: int = field(default_factory=lambda: next(_numbers))

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def wait_event(self, _event: Event) -> None:
        pass

    def wait_stream(self, stream: "Stream") -> None:
        tensors.order.wait(self.number, stream.number)

    def synchronize(self) -> None:
        LEDGER.note(WAIT, "synchronize")


def _index(device: Any = None) -> int:
    if device is None or isinstance(device, int):
        return tensors.current.index if device is None else device
    index = torch.device(device).index
    return tensors.current.index if index is None else index


def set_device(device: Any) -> None:
    """Makes a GPU current; -1 is none, as PyTorch has it."""
    if (index := _index(device)) >= 0:
        tensors.current.index = index


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Makes a GPU current within the context."""
    before = tensors.current.index
    set_device(device)
    try:
        yield
    finally:
        tensors.current.index = before


@contextmanager
def stream(stream: Stream) -> Iterator[None]:
    """Makes a stream current within the context."""
    before = tensors.current.stream
    tensors.current.stream = stream.number
    try:
        yield
    finally:
        tensors.current.stream = before


def _current_stream(device: Any = None) -> Stream:
    return Stream(torch.device("cuda", _index(device)), tensors.current.stream)


def install(driver: str, number: int = 2) -> None:
    """Has this process pretend that there are GPUs, in all threads that start from now on.

    Args:
        driver: Path of the library made of driver.c, which the process was started with.
        number: Number of GPUs.
    """
    torch._C._ensureCUDADeviceGuardSet()  # one that does nothing, as long as there are no GPUs
    ctypes.CDLL(driver).switch_on()
    torch._C._set_only_lift_cpu_tensors(True)  # noqa: FBT003 - as PyTorch has it
    torch.__future__.set_swap_module_params_on_conversion(True)
    # Their kernels are chosen by asking the GPU; the plain ones are not.
    torch.backends.cudnn.enabled = False
    nn.functional.scaled_dot_product_attention = _plain_attention
    # Its tensors refuse what wrapped ones need.
    torch.inference_mode = _no_gradients  # type: ignore[misc]
    answers: dict[str, Any] = {
        "Event": Event,
        "Stream": Stream,
        "_lazy_init": lambda: None,
        "current_device": lambda: tensors.current.index,
        "current_stream": _current_stream,
        "default_stream": lambda device=None: Stream(torch.device("cuda", _index(device)), 0),
        "device": device,
        "device_count": lambda: number,
        "empty_cache": lambda: None,
        "get_device_capability": lambda _device=None: CAPABILITY,
        "get_device_name": lambda _device=None: PROPERTIES.name,
        "get_device_properties": lambda _device=None: PROPERTIES,
        "is_available": lambda: True,
        "is_bf16_supported": lambda **_options: True,
        "is_current_stream_capturing": lambda: False,
        "is_initialized": lambda: True,
        "manual_seed": lambda _seed: None,
        "manual_seed_all": lambda _seed: None,
        "max_memory_allocated": lambda _device=None: 0,
        "mem_get_info": lambda _device=None: (MEMORY, MEMORY),
        "memory_allocated": lambda _device=None: 0,
        "reset_peak_memory_stats": lambda _device=None: None,
        "set_device": set_device,
        "stream": stream,
        "synchronize": lambda _device=None: LEDGER.note(WAIT, "synchronize"),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")  # noqa: ARG005
    accelerator.device_count = lambda: number
    accelerator.current_device_index = lambda: tensors.current.index
    accelerator.set_device_index = set_device
    Tensor.pin_memory = lambda self, device=None: tensors.pin(self)  # type: ignore[method-assign] # noqa: ARG005
    Tensor.is_pinned = lambda self, device=None: tensors.is_pinned(self)  # type: ignore[method-assign] # noqa: ARG005
    Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign] # noqa: ARG005
    _watch_threads()


def _no_gradients(mode: bool = True) -> AbstractContextManager[None]:  # noqa: FBT001, FBT002 - as PyTorch has it
    return torch.set_grad_enabled(False) if mode else nullcontext()


def _plain_attention(*arguments: Any, **options: Any) -> Tensor:
    return torch.ops.aten._scaled_dot_product_attention_math(*arguments, **options)[0]


def _watch_threads() -> None:
    """Sees the operations of this thread, and of those that it starts."""
    run = threading.Thread.run

    def watched(thread: threading.Thread) -> None:
        torch._C._set_only_lift_cpu_tensors(True)  # noqa: FBT003 - as PyTorch has it
        with tensors.EveryOperation():
            run(thread)

    threading.Thread.run = watched  # type: ignore[method-assign]
    tensors.EveryOperation().__enter__()
