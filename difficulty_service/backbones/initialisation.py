"""Networks whose parameters are about to be replaced, built without random ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

RANDOM: frozenset[Callable[..., Tensor]] = frozenset(
    (
        *(Tensor.uniform_, Tensor.normal_, Tensor.erfinv_),
        *(nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_, nn.init.orthogonal_),
        *(nn.init.kaiming_uniform_, nn.init.kaiming_normal_),
        *(nn.init.xavier_uniform_, nn.init.xavier_normal_),
    )
)
"""What fills a tensor with random values, or makes them of others."""


class WithoutRandomValues(TorchFunctionMode):
    """A context in which what would fill new parameters with random values leaves them as they are.

    Drawing them takes longer than to read the weights that replace them. Only for networks all of
    whose parameters are replaced: until then they have what the memory held before.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of any function
        """Calls a function, unless it is one that fills a tensor."""
        if function in RANDOM:
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))
