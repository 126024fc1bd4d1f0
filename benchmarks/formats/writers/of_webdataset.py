"""webdataset: tars whose members with one name are a sample."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import webdataset as wds

from benchmarks.formats.case import CLASSES, Case, Reading
from benchmarks.formats.scenes import CATEGORIES, Scene, draw_all

WRITER = "webdataset"


def _sample(kind: str, scene: Scene, path: Path) -> dict[str, Any]:
    label = scene.things[0].label
    said = {"cls": CATEGORIES.index(label), "txt": label, "json": {"label": label}}
    return {"__key__": scene.name, path.suffix[1:]: path.read_bytes(), kind: said[kind]}


def _one(kind: str, folder: Path, scenes: Sequence[Scene]) -> None:
    paths = draw_all(folder.parent / "source", scenes)
    with wds.TarWriter(str(folder / "train.tar")) as sink:
        for scene, path in zip(scenes, paths, strict=True):
            sink.write(_sample(kind, scene, path))


def _shards(folder: Path, scenes: Sequence[Scene]) -> None:
    paths = draw_all(folder.parent / "source", scenes)
    with wds.ShardWriter(str(folder / "train-%06d.tar"), maxcount=2, verbose=0) as sink:
        for scene, path in zip(scenes, paths, strict=True):
            sink.write(_sample("json", scene, path))


def _read(kind: str, folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    rows: list[tuple[str, str, str, tuple[float, ...]]] = []
    tars = list(map(str, sorted(folder.glob("*.tar"))))
    for sample in wds.WebDataset(tars, shardshuffle=False, empty_check=False).decode():
        said = sample.get(kind)
        if said is None:
            continue
        label = {"cls": str(said), "txt": said, "json": said["label"] if kind == "json" else ""}
        rows.append(("train", sample["__key__"], label[kind], ()))
    return Reading(rows, sorted({row[2] for row in rows}), len(rows))


_NAMES = "names with blanks, dots and umlauts"


def _case(kind: str, situation: str) -> Case:
    write, read = partial(_one, kind), partial(_read, kind)
    return Case(
        WRITER, f"tar with .{kind}", situation, write, read, CLASSES, numbered=kind == "cls"
    )


CASES = (
    _case("cls", "plain"),
    _case("txt", "plain"),
    _case("json", "plain"),
    _case("json", _NAMES),
    _case("json", "sub-folders"),
    Case(WRITER, "shards", "plain", _shards, partial(_read, "json"), CLASSES),
)
