"""Parameters, gradients and optimiser states of which every process keeps a part.

Zhao et al. (2023) call it fully sharded data parallelism; PyTorch's `fully_shard` does the work. A
process has whole parameters of one block at a time, while that block computes. What leaves a run,
its checkpoints, its best epoch and its final model, is whole: it does not depend on the number of
processes, nor on whether they shared their parameters.

What spreads them takes a second to load, so nothing here loads it but `shard`; as long as it is not
loaded, nothing is spread.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from accelerate import Accelerator
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def shard(model: nn.Module, accelerator: Accelerator) -> nn.Module:
    """Spreads the parameters of a model over all processes, in place; on the process's device.

    Every process must give the same parameters. An optimiser has to be made afterwards.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = model.to(accelerator.device)
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for block in _blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The members of the outermost sequences of a model: its residual or transformer blocks."""
    for child in module.children():
        if isinstance(module, nn.Sequential | nn.ModuleList):
            if any(True for _ in child.parameters()):
                yield child
        else:
            yield from _blocks(child)


def exchange_gradients(model: nn.Module, *, exchange: bool) -> None:
    """Decides whether the next backward pass adds the gradients of all processes up."""
    if _is_sharded(model):
        model.set_requires_gradient_sync(exchange)


def _is_sharded(model: nn.Module) -> "TypeGuard[FSDPModule]":
    loaded = sys.modules.get("torch.distributed.fsdp")
    return loaded is not None and isinstance(model, loaded.FSDPModule)


def _is_spread(value: object) -> "TypeGuard[DTensor]":
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(value, loaded.DTensor)


def whole(values: Any) -> Any:  # noqa: ANN401 - of the same kind
    """State dictionaries with whole tensors in place of those that are spread over the processes.

    All processes must call this together where parameters are spread.
    """
    if isinstance(values, Mapping):
        return {key: whole(value) for key, value in values.items()}
    return values.full_tensor() if _is_spread(values) else values


def spread_like(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor, spread as a parameter is; as it is where the parameter is not spread."""
    if not _is_spread(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    value = value.to(parameter.device)
    # Every process has read the whole tensor, so that none has to send it.
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def load_model(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Loads a whole state dictionary into a model that may be spread over the processes."""
    own = model.state_dict()
    model.load_state_dict(
        {name: spread_like(value, own.get(name, value)) for name, value in values.items()}
    )


def load_optimiser(optimiser: torch.optim.Optimizer, values: Mapping[str, Any]) -> None:
    """Loads a whole state dictionary into an optimiser of parameters that may be spread."""
    parameters = [each for group in optimiser.param_groups for each in group["params"]]
    states = {
        position: {
            key: spread_like(value, parameters[position]) if isinstance(value, Tensor) else value
            for key, value in state.items()
        }
        for position, state in values["state"].items()
    }
    optimiser.load_state_dict({**values, "state": states})
