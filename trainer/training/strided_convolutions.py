"""Right gradients of 1x1 convolutions with a stride, which oneDNN computes wrongly on CPUs.

The training step runs the forward pass of every network within `RightGradients`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SUBSAMPLING: dict[Callable[..., Any], Callable[..., Tensor]] = {
    torch.conv1d: F.avg_pool1d,
    torch.conv2d: F.avg_pool2d,
    torch.conv3d: F.avg_pool3d,
}


class RightGradients(TorchFunctionMode):
    """Within it, 1x1 convolutions with a stride take their pixels first, on CPUs.

    oneDNN 3.13, which PyTorch 2.15 uses, writes past the end of its workspace where it computes the
    gradient of the weights of such a convolution with the channels last and fewer input channels
    than a vector of the processor has numbers (2 to 7 with AVX2; uxlfoundation/oneDNN#6035).
    Gradients are then wrong and differ from run to run, and the process may hang or be aborted. A
    1x1 convolution with a stride reads every second, third, ... pixel: to take those first and
    convolve them with stride 1 gives the same result, is as fast, and never comes to that code.
    This reaches the convolutions of every network, those of other packages among them.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Calls a function of torch, with other arguments where it is such a convolution."""
        given = kwargs or {}
        if func in _SUBSAMPLING:
            return _convolve(func, *args, **given)
        return func(*args, **given)


def _convolve(  # noqa: PLR0913, PLR0917 - the parameters of torch.conv2d
    function: Callable[..., Tensor],
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    has_stride = stride != 1 if isinstance(stride, int) else set(stride) != {1}
    is_affected = has_stride and set(weight.shape[2:]) == {1} and input.device.type == "cpu"
    if not is_affected or padding == "same":  # which torch refuses
        return function(input, weight, bias, stride, padding, dilation, groups)
    pixels = _SUBSAMPLING[function](_padded(input, padding, weight.ndim - 2), 1, stride)
    return function(pixels, weight, bias, 1, 0, 1, groups)


def _padded(images: Tensor, padding: int | str | Sequence[int], dimensions: int) -> Tensor:
    """Images with zeros around them, as many as a convolution would add."""
    if isinstance(padding, str):  # "valid"
        return images
    margins = [padding] if isinstance(padding, int) else list(padding)
    if len(margins) == 1:
        margins *= dimensions
    # From the last dimension to the first, at both of its ends.
    return F.pad(images, [margin for margin in reversed(margins) for _ in range(2)])
