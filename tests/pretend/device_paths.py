"""What a pretended GPU itself does."""

from collections.abc import Callable

import torch

from tests.pretend.counting import counted
from tests.pretend.ledger import LEDGER
from tests.pretend.tensors import Refused


def copies() -> dict[str, dict[str, object]]:
    """What each way to copy waits for."""
    there, here, small = torch.ones(1 << 15, device="cuda"), torch.ones(1 << 15), torch.ones(4)
    mask, places = there > 0, torch.arange(4)
    ways = {
        "number": lambda: there.sum().item(),
        "to the CPU": lambda: there.cpu(),
        "to the CPU later": lambda: there.to("cpu", non_blocking=True),
        "to the GPU": lambda: here.to("cuda"),
        "to the GPU from pageable memory": lambda: here.to("cuda", non_blocking=True),
        "to the GPU from pinned memory": lambda: here.pin_memory().to("cuda", non_blocking=True),
        "few numbers to the GPU": lambda: small.to("cuda", non_blocking=True),
        "constant": lambda: torch.tensor([1.0, 2.0], device="cuda"),
        "mask": lambda: there[mask],
        "index of the CPU": lambda: there[places],
        "factorisation": lambda: torch.linalg.cholesky(torch.eye(2, device="cuda")),
        "product": lambda: there * 2 + there,
    }
    return {name: counted(way) for name, way in ways.items()}


def read_before_the_copy_is_there() -> list[list[float]]:
    """What a copy that nobody waited for holds, and what it holds after its event."""
    copy = torch.ones(2, device="cuda").to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    later = torch.full((2,), 3.0, device="cuda").to("cpu", non_blocking=True)
    held = [copy.nan_to_num(0).tolist()]
    event.synchronize()
    held += [copy.tolist(), later.nan_to_num(0).tolist()]
    LEDGER.deliver(LEDGER.queued)
    return [*held, later.tolist()]


def refused(name: str) -> str:
    """How one of `OPERATIONS` is refused."""
    try:
        OPERATIONS[name]()
    except (Refused, TypeError) as error:
        return str(error)
    return "not at all"


OPERATIONS: dict[str, Callable[[], object]] = {
    "sum of two devices": lambda: torch.ones(2, device="cuda") + torch.ones(2),
    "sum of two GPUs": lambda: torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1"),
    "sum with a number": lambda: torch.ones(2, device="cuda") + torch.tensor(1.0),
    "weights on the CPU": lambda: torch.nn.Linear(2, 2)(torch.ones(1, 2, device="cuda")),
    "index on a GPU": lambda: torch.ones(2)[torch.tensor([0], device="cuda")],
    "index on the CPU": lambda: torch.ones(2, device="cuda")[torch.tensor([0])],
    "product of integers": lambda: torch.eye(2, device="cuda").long() @ torch.eye(2).long().cuda(),
    "array": lambda: torch.ones(2, device="cuda").numpy(),
    "generator of the CPU": lambda: torch.rand(2, device="cuda", generator=torch.Generator()),
}


def where_work_is_done() -> dict[str, int]:
    """The GPU that is current while each part of the project works on "cuda:1", by its name."""
    from api.online import encoder
    from difficulty_service.extraction.engines.local import LocalEngine
    from tests.pretend import extraction_paths, training_paths
    from trainer.reports import evaluation
    from trainer.runs import train as runs

    seen: dict[str, int] = {}

    def noting(name: str, owner: object, attribute: str) -> None:
        original = getattr(owner, attribute)

        def noted(*arguments: object, **options: object) -> object:
            seen.setdefault(name, torch.cuda.current_device())
            return original(*arguments, **options)

        setattr(owner, attribute, noted)

    noting("extraction", LocalEngine, "run_shards")
    noting("training", runs, "open_splits")
    noting("the server", encoder, "send")
    noting("evaluation", evaluation, "evaluate_on_dataset")
    extraction_paths.score("cuda:1")
    training_paths.run("features", {}, "cuda:1")
    extraction_paths.encode_by_server("cuda:1")
    training_paths.evaluate("cuda:1")
    return seen | {"afterwards": torch.cuda.current_device()}
