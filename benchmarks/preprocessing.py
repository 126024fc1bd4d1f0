"""Images per core-second from encoded bytes to the square a backbone takes, one thread.

Run: python -m benchmarks.preprocessing

Both modes beside open_clip's own transform, which its users run in a DataLoader, in turns.
"""

import io
import time
from collections.abc import Callable

import numpy as np
import torch
from open_clip import image_transform
from PIL import Image

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.images.preparation import prepare

CASES = {"500x400 JPEG": ((500, 400), "JPEG"), "32x32 PNG": ((32, 32), "PNG")}
SIZE, COUNT, ROUNDS = 224, 100, 3
PREPROCESSING = Preprocessing(SIZE, SIZE, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def make_images(size: tuple[int, int], kind: str) -> list[bytes]:
    """Smooth noise, which compresses about as photographs do."""
    rng = np.random.default_rng(0)
    images = []
    for _ in range(COUNT):
        coarse = rng.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
        fine = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC), int)
        grain = np.clip(fine + rng.integers(-12, 13, fine.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(grain).save(file, kind)
        images.append(file.getvalue())
    return images


def main() -> None:
    """Prints the best of a few rounds: other work on the machine can only slow one down."""
    torch.set_num_threads(1)
    transform = image_transform(SIZE, is_train=False)
    methods: dict[str, Callable[[bytes], torch.Tensor]] = {
        "fast": lambda data: prepare(lambda: io.BytesIO(data), PREPROCESSING, "fast"),
        "exact": lambda data: prepare(lambda: io.BytesIO(data), PREPROCESSING, "exact"),
        "open_clip": lambda data: transform(Image.open(io.BytesIO(data))),
    }
    for name, (size, kind) in CASES.items():
        images = make_images(size, kind)
        rates = dict.fromkeys(methods, 0.0)
        for _ in range(ROUNDS):
            for method, work in methods.items():
                start = time.process_time()
                for image in images:
                    work(image)
                rates[method] = max(rates[method], COUNT / (time.process_time() - start))
        shown = ", ".join(f"{method} {rate:,.0f}/s" for method, rate in rates.items())
        print(f"{name}: {shown}")


if __name__ == "__main__":
    main()
