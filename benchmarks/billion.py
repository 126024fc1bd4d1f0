"""What scoring very many images on a Ray cluster takes, from measured rates and assumed prices.

    python -m benchmarks.billion [--images 1000000000] [--gpus 32] [--gpu-price 4.0] [...]

Nothing runs: bytes are those of the file formats, rates those of docs/benchmarks.md, and prices
and the size of an image are assumptions, to be replaced by your own. `python docs/billion.py`
writes the tables of docs/scaling.md.
"""

import argparse
from dataclasses import dataclass, fields

HOUR, MILLION = 3600, 1_000_000


@dataclass(frozen=True)
class Encoder:
    """A backbone with its rates on one H200 beside 16 cores.

    Attributes:
        name: Its name.
        dim: Numbers of a feature vector.
        forward: Images a second of the network alone.
        extraction: Images a second from JPEG files, decoded by the 16 cores.
    """

    name: str
    dim: int
    forward: float
    extraction: float

    @property
    def cores_to_keep_up(self) -> float:
        """Cores beside a GPU that decode as many images as it encodes."""
        return CORES * self.forward / self.extraction


CORES = 16
"""Cores beside the GPU by which the rates were measured."""

ENCODERS = (
    Encoder("CLIP ViT-B/16", 768, 9183, 2929),
    Encoder("CLIP ViT-L/14", 1024, 2410, 1682),
    Encoder("DINOv2 ViT-B/14", 768, 7311, 2881),
)

SCORED_ROWS, SCORED_DIM, SCORED_CLASSES, SCORED_SECONDS, SCORED_CORES = (
    10_000_000,
    512,
    1000,
    105,
    2,
)
"""The largest measured run of fit and score: rows, numbers in a row, classes, seconds and cores."""


@dataclass(frozen=True)
class Cluster:
    """What is assumed; prices are in dollars.

    Attributes:
        images: Number of images.
        classes: Number of classes.
        gpus: Number of GPUs, each with 16 cores.
        image_bytes: Mean size of an encoded image.
        row_bytes: Bytes of an image in a feature store beside its features: id, label, digest.
        score_bytes: Bytes of an image in a score file.
        driver_bytes: Memory of the driver for an image of the dataset that it works on.
        command_images: Images of one command, as a dataset of its own.
        gpu_price: Price of an hour of a GPU with its cores and memory.
        core_price: Price of an hour of a core of a machine without a GPU.
        storage_price: Price of a GB in object storage for a month.
    """

    images: int = 1_000_000_000
    classes: int = 1000
    gpus: int = 32
    image_bytes: int = 100_000
    row_bytes: int = 100
    score_bytes: int = 100
    driver_bytes: int = 100
    command_images: int = 100_000_000
    gpu_price: float = 4.0
    core_price: float = 0.05
    storage_price: float = 0.023


@dataclass(frozen=True)
class Plan:
    """What an encoder takes on a cluster; hours are those of the clock unless they say otherwise.

    Attributes:
        gpu_hours: Hours of GPUs, all together.
        hours: Hours of extraction.
        cents: Price of a million images' extraction, in cents.
        forward_cents: The same if decoding kept up with the network.
        image_terabytes: Read from object storage once.
        feature_terabytes: Written once by extraction, read twice: by fit and by score.
        score_gigabytes: Size of the score files.
        gigabits: Images that reach each machine with a GPU, in Gbit/s.
        driver_gigabits: Features that reach the driver, in Gbit/s.
        driver_gigabytes: Memory of the driver for ids and labels.
        score_core_hours: Hours of cores that fit and score.
        score_cents: Price of a million images' fit and scores, in cents.
        storage_dollars: Price of the features in object storage for a month.
    """

    gpu_hours: float
    hours: float
    cents: float
    forward_cents: float
    image_terabytes: float
    feature_terabytes: float
    score_gigabytes: float
    gigabits: float
    driver_gigabits: float
    driver_gigabytes: float
    score_core_hours: float
    score_cents: float
    storage_dollars: float


def plan(encoder: Encoder, cluster: Cluster) -> Plan:
    """What an encoder takes on a cluster."""
    gpu_seconds = cluster.images / encoder.extraction
    feature_bytes = cluster.images * (4 * encoder.dim + cluster.row_bytes)
    core_hours = score_core_seconds(cluster.images, encoder.dim, cluster.classes) / HOUR
    return Plan(
        gpu_hours=gpu_seconds / HOUR,
        hours=gpu_seconds / HOUR / cluster.gpus,
        cents=cents_per_million(cluster.gpu_price, encoder.extraction),
        forward_cents=cents_per_million(cluster.gpu_price, encoder.forward),
        image_terabytes=cluster.images * cluster.image_bytes / 1e12,
        feature_terabytes=feature_bytes / 1e12,
        score_gigabytes=cluster.images * cluster.score_bytes / 1e9,
        gigabits=encoder.extraction * cluster.image_bytes * 8 / 1e9,
        driver_gigabits=cluster.gpus * encoder.extraction * 4 * encoder.dim * 8 / 1e9,
        driver_gigabytes=min(cluster.images, cluster.command_images) * cluster.driver_bytes / 1e9,
        score_core_hours=core_hours,
        score_cents=100 * cluster.core_price * core_hours / cluster.images * MILLION,
        storage_dollars=feature_bytes / 1e9 * cluster.storage_price,
    )


def cents_per_million(price: float, rate: float) -> float:
    """Price in cents of a million images, by the price of an hour and the images of a second."""
    return 100 * price / HOUR * MILLION / rate


def score_core_seconds(rows: int, dim: int, classes: int) -> float:
    """Seconds of a core that fit and score take, in proportion to their arithmetic.

    Args:
        rows: Number of images.
        dim: Numbers of a feature vector.
        classes: Number of classes.
    """
    measured = SCORED_SECONDS * SCORED_CORES / SCORED_ROWS
    return rows * measured * flops(dim, classes) / flops(SCORED_DIM, SCORED_CLASSES)


def flops(dim: int, classes: int) -> float:
    """Operations for an image that no fit and score can do without; see `streamed.py`."""
    rank = min(dim, classes - 1)
    return 2 * dim**2 + 2 * dim * rank - rank**2 + 2 * classes * rank


def tables(cluster: Cluster) -> str:
    """The tables of the page, in Markdown."""
    plans = [(encoder, plan(encoder, cluster)) for encoder in ENCODERS]
    rows = {
        "hours of GPUs": [f"{each.gpu_hours:.0f}" for _, each in plans],
        f"hours on {cluster.gpus} GPUs": [f"{each.hours:.1f}" for _, each in plans],
        "cents for a million images": [f"{each.cents:.0f}" for _, each in plans],
        "the same if decoding kept up": [f"{each.forward_cents:.0f}" for _, each in plans],
        "cores beside a GPU for that": [f"{each.cores_to_keep_up:.0f}" for each, _ in plans],
        "images read by each GPU's machine": [f"{each.gigabits:.1f} Gbit/s" for _, each in plans],
        "features that reach the driver": [
            f"{each.driver_gigabits:.1f} Gbit/s" for _, each in plans
        ],
        "features": [f"{each.feature_terabytes:.2f} TB" for _, each in plans],
        "a month of them in object storage": [f"${each.storage_dollars:.0f}" for _, each in plans],
        "core hours of fit and score": [f"{each.score_core_hours:.0f}" for _, each in plans],
        "cents for a million rows": [f"{each.score_cents:.2f}" for _, each in plans],
    }
    lines = [("", *(each.name for each, _ in plans)), ("---",) * (1 + len(plans))]
    lines += [(name, *values) for name, values in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Prints the tables for the assumptions of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for each in fields(Cluster):
        option = f"--{each.name.replace('_', '-')}"
        parser.add_argument(option, type=type(each.default), default=each.default)
    print(tables(Cluster(**vars(parser.parse_args()))), end="")


if __name__ == "__main__":
    main()
