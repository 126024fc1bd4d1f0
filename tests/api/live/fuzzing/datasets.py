"""Files of datasets, changed, that are uploaded or found in a root, and jobs on them."""

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from mutations import changed_bytes
from targets import PICTURE_KINDS, picture

CLASSES = ("cat", "dog")
EACH = 4
EACH_OF_JOB = 20
"""Images of a class where a job reads them, for which a few more cost little."""


def images(random: Random, each: int, changed: float) -> dict[str, bytes]:
    """Images of every format by their names, this part of which are changed."""
    found = {}
    for label, name in enumerate(CLASSES):
        for number in range(each):
            kind = PICTURE_KINDS[(label + 2 * number) % len(PICTURE_KINDS)]
            content = picture(kind, 40 * label + number)
            is_changed = random.random() < changed
            found[f"{name}/{number}.{kind.lower()}"] = (
                changed_bytes(random, content) if is_changed else content
            )
    return found


def tar_of(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def shards_of(files: dict[str, bytes]) -> bytes:
    """A tar of samples with their labels beside them."""
    return tar_of(
        {
            name: content
            for number, (path, image) in enumerate(files.items())
            for name, content in (
                (f"{number}.{path.rpartition('.')[2]}", image),
                (f"{number}.cls", str(number % 2).encode()),
            )
        }
    )


def zip_of(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def parquet_of(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    labels = [name.partition("/")[0] for name in files]
    pq.write_table(pa.table({"image": list(files.values()), "label": labels}), target)
    return target.getvalue()


UPLOADS: dict[str, tuple[Callable[[dict[str, bytes]], bytes], ...]] = {
    "zip": (zip_of,),
    "tar": (tar_of, shards_of),
    "parquet": (parquet_of,),
}


def changed_upload(random: Random) -> tuple[str, bytes]:
    """Format and bytes of a small dataset, of which the images, the file or both are changed."""
    return _changed_file(random, images(random, EACH, 0.3), 0.75)


def changed_dataset(random: Random) -> tuple[str, bytes]:
    """Format and bytes of a dataset that most often can be listed, and holds changed images."""
    return _changed_file(random, images(random, EACH_OF_JOB, 0.7), 0.25)


def _changed_file(random: Random, files: dict[str, bytes], changed: float) -> tuple[str, bytes]:
    """Format and bytes of a dataset, changed with this probability."""
    kind = random.choice(list(UPLOADS))
    content = random.choice(UPLOADS[kind])(files)
    return kind, changed_bytes(random, content) if random.random() < changed else content


def changed_table(random: Random) -> tuple[str, bytes]:
    """Name and bytes of a list of images, which is changed."""
    rows = [(f"train/{name}/{number}.png", name) for name in CLASSES for number in range(EACH)]
    if random.random() < 0.5:
        lines = [json.dumps({"image": path, "label": label}) for path, label in rows]
        return "list.jsonl", changed_bytes(random, "\n".join(lines).encode())
    target = io.StringIO()
    csv.writer(target).writerows([("image", "label"), *rows])
    return "list.csv", changed_bytes(random, target.getvalue().encode())
