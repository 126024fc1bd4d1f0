"""Tensors that say they are on a GPU, hold their values on the CPU, and behave as on a GPU.

Operations on tensors of two devices are refused as CUDA refuses them, and so are those that have
no kernel for CUDA. Everything that makes a program wait for a GPU is counted.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.pretend.ledger import BLOCKING, FREE, LEDGER, STAGED_BYTES, WAIT

CPU = torch.device("cpu")


class Current(threading.local):
    """The index of the current GPU of a thread, and the number of its current stream."""

    index = 0
    stream = 0


current = Current()


class Order:
    """Which stream made what when, and which stream has waited for which.

    Work of one stream is done in its order. Another one that does not wait for it may read what has
    not been written yet.
    """

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self._waited: dict[tuple[int, int], int] = {}

    def now(self) -> tuple[int, int]:
        """The current stream, and a moment after all that came before."""
        return current.stream, next(self._ticks)

    def wait(self, stream: int, other: int) -> None:
        """Lets a stream go on after all that another one has been given."""
        self._waited[stream, other] = next(self._ticks)

    def is_kept(self, made: tuple[int, int]) -> bool:
        """Whether the current stream comes after something that was made."""
        stream, moment = made
        return stream == current.stream or moment < self._waited.get((current.stream, stream), -1)


order = Order()

WAITS = frozenset(
    f"aten::{name}"
    for name in (
        # The size of the result, or the result itself, is read by the processor.
        *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "bincount"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive"),
        # Whether the factorisation succeeded is.
        *("_linalg_check_errors", "_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_lstsq"),
    )
)

KEYS_OF_KERNELS = (
    *("CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd"),
    "CompositeExplicitAutogradNonFunctional",
)

INDEXED = frozenset(
    {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
)

INTEGER_PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "dot")
)

SMOOTH_RESIZES = frozenset({"aten::_upsample_bicubic2d_aa", "aten::_upsample_bilinear2d_aa"})
"""Kernels for CUDA take numbers with a fraction alone."""

_pinned: dict[int, Tensor] = {}
"""Tensors in pinned memory by its address; kept, so that no other tensor gets that memory."""


def pin(tensor: Tensor) -> Tensor:
    """A tensor of the CPU in pinned memory, which is a copy if it was elsewhere."""
    if is_pinned(tensor):
        return tensor
    copy = tensor.clone(memory_format=torch.preserve_format)
    _pinned[copy.untyped_storage().data_ptr()] = copy
    return copy


def is_pinned(tensor: Tensor) -> bool:
    """Whether a tensor of the CPU, or what it is a view of, is in pinned memory."""
    return tensor.untyped_storage().data_ptr() in _pinned


class OnGpu(Tensor):
    """A tensor that says it is on a GPU.

    Attributes:
        held: Its values, on the CPU.
        made: What wrote them, as `Order.now`.
    """

    held: Tensor
    made: tuple[int, int]
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device) -> "OnGpu":  # noqa: ANN001 - the class
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=_numbered(device),
        )
        tensor.held = held
        tensor.made = order.now()
        return tensor

    @classmethod
    def __torch_dispatch__(
        cls,
        function: Any,
        _types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        return run(function, arguments, options or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_options: object) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy")

    def __array__(self, *_arguments: object) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __repr__(self, **_options: object) -> str:
        return f"{self.held!r} on {self.device}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy: Tensor = OnGpu(self.held.clone(), self.device)
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().cpu().__reduce_ex__(protocol)


class EveryOperation(TorchDispatchMode):
    """Sees the operations, too, that make tensors or copy them to a GPU."""

    def __torch_dispatch__(
        self,
        function: Any,
        _types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return run(function, args, kwargs or {})


def run(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Runs an operation of PyTorch where its tensors are, or refuses it."""
    name: str = function._schema.name
    target = None if options.get("device") is None else torch.device(options["device"])
    for each in tree_leaves((arguments, options)):
        if isinstance(each, OnGpu) and not order.is_kept(each.made):
            raise Refused(f"{name} reads what another stream makes, for which nothing waits")
    if name == "aten::_to_copy":
        return _copied(arguments[0], target, options)
    if name == "aten::copy_":
        return _copied_into(*arguments, **options)
    tensors = [each for each in tree_leaves((arguments, options)) if isinstance(each, Tensor)]
    on_gpu = [each for each in tensors if isinstance(each, OnGpu)]
    if not on_gpu and (target is None or target.type != "cuda"):
        return function(*arguments, **options)
    if torch.Tag.inplace_view in function.tags:
        function(*_held(arguments), **_held(options))
        with torch._C._DisableTorchDispatch():
            return function(*arguments, **options)
    _refuse(function, tensors, on_gpu, arguments, options)
    _note_waits(name, arguments, options)
    return _computed(function, arguments, options, on_gpu, target)


def _computed(
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    on_gpu: list[OnGpu],
    target: torch.device | None,
) -> Any:
    held = _held(options)
    if "device" in held:
        held["device"] = CPU
    result = function(*_held(arguments), **held)
    device = target or on_gpu[0].device
    if device.type == "cpu":
        return result
    known = {id(each.held): each for each in on_gpu}  # of operations in place

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in known:
            return OnGpu(value, device)
        known[id(value)].made = order.now()
        return known[id(value)]

    return tree_map(placed, result)


def _held(values: Any) -> Any:
    return tree_map(lambda each: each.held if isinstance(each, OnGpu) else each, values)


def _numbered(device: torch.device) -> torch.device:
    return torch.device("cuda", current.index) if device.index is None else device


def _copied(source: Tensor, target: torch.device | None, options: Mapping[str, Any]) -> Tensor:
    """A copy of another dtype, layout or device."""
    others = {key: value for key, value in options.items() if key not in {"device", "non_blocking"}}
    goes = target or source.device
    asynchronous = bool(options.get("non_blocking"))
    held = source.held if isinstance(source, OnGpu) else source
    copy = torch.ops.aten._to_copy.default(held, **others)
    if isinstance(source, OnGpu) and goes.type == "cpu":
        # PyTorch takes pinned memory for copies that do not wait.
        result = pin(copy) if asynchronous else copy
        _note_to_cpu(result, copy, asynchronous=asynchronous)
        return result
    if goes.type != "cuda":
        return copy if goes.type == "cpu" else source.to(goes)
    if not isinstance(source, OnGpu):
        _note_to_gpu(source, copy, asynchronous=asynchronous)
    return OnGpu(copy, goes)


def _copied_into(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - as PyTorch has it
    if isinstance(target, OnGpu):
        if not isinstance(source, OnGpu):
            _note_to_gpu(source, source, asynchronous=non_blocking)
        target.held.copy_(source.held if isinstance(source, OnGpu) else source)
    elif isinstance(source, OnGpu):
        asynchronous = non_blocking and is_pinned(target)
        _note_to_cpu(target, source.held.to(target.dtype), asynchronous=asynchronous)
        if not asynchronous:
            target.copy_(source.held)
    else:
        target.copy_(source)
    return target


def _note_to_cpu(target: Tensor, content: Tensor, *, asynchronous: bool) -> None:
    LEDGER.note(FREE if asynchronous else BLOCKING, "copy to the CPU")
    if asynchronous:
        LEDGER.begin_copy(target, content)


def _note_to_gpu(source: Tensor, copy: Tensor, *, asynchronous: bool) -> None:
    small = copy.numel() * copy.element_size() <= STAGED_BYTES
    free = asynchronous and (small or is_pinned(source))
    LEDGER.note(FREE if free else BLOCKING, "copy to the GPU")


class Refused(RuntimeError):
    """CUDA would refuse the operation."""


def _refuse(
    function: Any,
    tensors: list[Tensor],
    on_gpu: list[OnGpu],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> None:
    """Raises Refused where CUDA would refuse an operation."""
    name: str = function._schema.name
    if not _has_kernel(function.name()):
        raise Refused(f"could not run {name} with arguments from the 'CUDA' backend")
    generator = options.get("generator")
    if generator is not None and generator.device.type != "cuda":
        raise Refused(f"{name} expected a 'cuda' device type for generator but found 'cpu'")
    if name in INTEGER_PRODUCTS | SMOOTH_RESIZES and not on_gpu[0].is_floating_point():
        raise Refused(f'"{name}_cuda" not implemented for {on_gpu[0].dtype}')
    devices = {each.device for each in tensors if not _may_be_anywhere(function, each, arguments)}
    if len(devices) > 1:
        raise Refused(
            f"{name} expected all tensors to be on the same device, but found at least two "
            f"devices, {' and '.join(sorted(map(str, devices)))}"
        )


def _may_be_anywhere(function: Any, tensor: Tensor, arguments: Sequence[Any]) -> bool:
    """Whether CUDA takes an operand of an operation from the CPU: single numbers, and indices."""
    name: str = function._schema.name
    if isinstance(tensor, OnGpu):
        return False
    if name in INDEXED and any(tensor is index for index in arguments[1]):
        return isinstance(arguments[0], OnGpu)
    takes_numbers = torch.Tag.pointwise in function.tags or name.startswith(
        ("aten::_foreach", "aten::_fused", "aten::where", "aten::fill", "aten::masked_fill")
    )
    return tensor.ndim == 0 and takes_numbers


@cache
def _has_kernel(name: str) -> bool:
    has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(name, key) for key in KEYS_OF_KERNELS)


def _note_waits(name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Counts what the program waits for in an operation on a GPU."""
    if name in INDEXED:
        for index in arguments[1]:
            if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
                LEDGER.note(WAIT, f"{name} by a mask")
            elif isinstance(index, Tensor) and not isinstance(index, OnGpu):
                LEDGER.note(BLOCKING, f"{name} by an index of the CPU")
    elif name in WAITS or (name == "aten::repeat_interleave" and not options.get("output_size")):
        LEDGER.note(WAIT, name)
