"""Options of the network of a run, and of the machine or cluster it runs on."""

from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from difficulty_service.images.modes import Mode
from difficulty_service.settings.option_types import Actors, InPython, Options, panel


@panel("Backbone")
class NetworkOptions(Options):
    """The network that turns samples into features."""

    backbone: str | None = None
    """See `difficulty backbones`; default: by --gaussians, else clip-vit-b16, offline
    builtin-photos, small images builtin, texts builtin-text."""

    features: Literal["penultimate", "projected"] = "penultimate"
    """CLIP features before or after the projection."""

    image_size: Annotated[int, Field(ge=1)] | None = None
    """Side length of the square input in pixels, if the network accepts others; takes time
    quadratic in it."""

    preprocess: Mode = "fast"
    """exact: bit for bit like open_clip or timm, but slower; gpu: an NVIDIA GPU decodes JPEGs."""


@panel("Machine")
class DeviceOptions(Options):
    """What a run uses of its machine."""

    weights: Annotated[str | None, InPython(type="str | Path | None")] = None
    """Local weights file (safetensors or PyTorch) instead of a download."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps; all: every NVIDIA GPU, for features."""

    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16", "int8"],
        InPython(
            "auto: int8 for builtin-photos on CPUs; `score_dataset` takes fp16 or bf16 if faster "
            "with the same ranks; else fp32. Default: `auto`."
        ),
    ] = "auto"
    """auto: fp16 or bf16 if faster with the same ranks; int8 for builtin-photos on CPUs; else
    fp32."""

    batch_size: Annotated[int, Field(ge=1)] | None = None
    """Images per forward pass; default: 256 on a GPU, on a CPU 64 small or 8 large ones."""

    workers: Annotated[int, Field(ge=1)] | None = None
    """Threads, or with a GPU processes, that read and decode images; default: all cores, or one per
    actor of a cluster without GPUs."""


@panel("Machine")
class MachineOptions(DeviceOptions):
    """What a run uses of its machine, and whether it keeps what an earlier run made."""

    resume: Annotated[
        bool,
        Parameter(negative="--no-resume"),
        InPython(
            "Reuse features that an earlier call left beside `out`. The default is True for files "
            "and Hugging Face datasets, and False for other images in memory, where a change would "
            "go unnoticed."
        ),
    ] = True
    """Reuse the features that an earlier run extracted."""


@panel("Machine and cluster")
class RunOptions(MachineOptions):
    """What a run uses of its machine or of a Ray cluster."""

    max_pixels: Annotated[int, Field(ge=1)] = 50_000_000
    """Refuse images with more pixels than this."""

    max_download_bytes: Annotated[int | None, Field(ge=1)] = None
    """Largest weights file to download, in bytes; default: no limit."""

    engine: Literal["local", "ray"] = "local"
    """Where to run; ray: on a Ray cluster, with the same results."""

    ray_address: Annotated[str | None, Parameter(metavar="HOST:PORT")] = None
    """Address of a running Ray cluster, or auto; default: RAY_ADDRESS, else only this machine."""

    ray_actors: Annotated[Actors | None, Parameter(metavar="MIN:MAX")] = None
    """Start up to MAX actors and at least MIN; default: as many as fit."""
