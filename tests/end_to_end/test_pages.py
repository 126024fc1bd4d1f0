"""Every command on the pages that show how to do something runs, in the order of its page."""

import ast
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.cli import create_app
from difficulty_service.scores.file import read_scores
from tests.boxed_images import Scene, many_scenes, write_coco, write_image, write_yolo
from tests.end_to_end.conftest import CLASSES, make_photos
from tests.factories import write_tagged_images
from tests.small_network import SMALL
from tests.tiff_files import tiff
from tests.warm_command import Call, run_script, warm_command

ForkCommand = Callable[..., ForkServerProcess]

DOCS = Path(__file__).resolve().parents[2] / "docs"
KINDS = ("Start", "How-to")
NAVIGATION = next(
    ast.literal_eval(statement.value)
    for statement in ast.parse((DOCS / "conf.py").read_text()).body
    if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "NAVIGATION"
)
"""Read, because only those who build the site have what its settings import."""

NAMES = [name.replace("self", "index") for kind in KINDS for name in NAVIGATION[kind]]
NAMES.remove("imagenet")  # test_imagenet_page.py runs it
PAGES = {"README.md": DOCS.parent / "README.md"} | {
    f"{name}.md": DOCS / f"{name}.md" for name in NAMES
}

SMALLER = (
    ("copies: 0", "copies: 100%", "pictures of the same ten shapes are copies"),
    ("--backbone clip-vit-b16", f"--backbone {SMALL}", "its weights would be downloaded"),
    ("--backbone builtin", f"--backbone {SMALL}", "its features are many"),
    ("--corruptions", "--corruptions --corruption-kinds fog,jpeg_compression", "19 take long"),
    ("difficulty evaluate", "difficulty evaluate --resamples 20", "a thousand take seconds"),
    ("difficulty compare runs", "difficulty compare --resamples 20 runs", "here, too"),
    ("difficulty sweep", "difficulty sweep --resamples 20", "and here"),
    ("--only clip-vit-b16 --only timm:resnet18", "--only builtin", "they take a minute"),
    ("--benchmark --images", "--benchmark --only builtin --images", "all of them take minutes"),
    ("--device all", "--device cpu", "there is no GPU"),
    ("srun --ntasks 8", "env SLURM_PROCID=0 SLURM_NTASKS=8", "there is no Slurm"),
    ("accelerate launch", "launch", "the other machine is missing"),
    ("torchrun", "rm -r runs/weighted; launch", "that run is there from the line before"),
    ("/shared/runs", "runs", "there is no such disk"),
    ("/data/photos", "'$PWD/split'", "there is no such disk"),
    ("localhost:8000", "$(cat service)", "the port may be taken"),
    ("OTHER-RUN", "runs/other", "stands for a run of the reader"),
    ("RUN", "runs/mine", "stands for a run of the reader"),
    *(
        (
            f"{verb} ID",
            f'{verb} "$(difficulty keys list | grep -Eo "^[0-9a-z]{{26}}" | head -1)"',
            "new",
        )
        for verb in ("revoke", "rotate")
    ),
)
"""What is changed in a command, from longer to shorter: text, its replacement and why."""

IMAGES = "photos|fruit|market|boxes|cells|xrays|tiles|competition|labelme"
LONG = {"images.md", "scaling.md", "training.md"}
"""Pages whose commands take ten seconds or more."""

ENCODES = re.compile(
    rf"(difficulty (?:score|extract) (?:{IMAGES})(?!\S*features)\S*)(?!.*--(?:backbone|gaussians))"
)
"""The start of a command that encodes images by the default network, whose features are many."""

NOT_HERE = (
    ("pip install", "installs"),
    ("python -m benchmarks.", "is no command of the package"),
    (" --push ", "needs an account at the hub; test_hub.py uploads to a server of its own"),
    ("difficulty demo", "takes seconds; test_cli.py runs it"),
    ("label-studio start", "starts another program"),
    ("s3://", "needs a bucket and a Ray cluster"),
    ("difficulty explain", "needs a CLIP; test_explain_command.py runs it with a small one"),
    ("difficulty score NAME:REFERENCE", "is a pattern"),
)
"""What marks a line of a page that is not run, and why."""

SERVING = ("serve", "explore", "worker")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+[^\s\"]*")
BLOCK_OR_CODE = re.compile(
    r"^```(?P<language>[^\n]*)\n(?P<block>.*?)^```\n|`(?P<code>difficulty [a-z-]+ [^`-][^`]*)`",
    re.MULTILINE | re.DOTALL,
)
CALL = re.compile(r"(?:^|[\s'])difficulty(?:_service)? [a-z]")

RECIPE = """
[data]
train = "{train}"
image_size = 16
validation = 0.2

[model]
name = "small_resnet"
widths = [4, 8]
blocks = [1, 1]

[regulariser]
alpha = 0.3
weights = "scores"

[training]
epochs = 1
batch_size = 16
precision = "fp32"
"""

FUNCTIONS = """
set -e
launch() { while [ "$1" != difficulty_service ]; do shift; done; shift; difficulty "$@"; }
curl() { command curl --silent --show-error --fail-with-body "$@"; }
"""


def lines_of(page: Path) -> list[str]:
    """The command lines of a page: those of its blocks that call `difficulty`, and of sentences."""
    found = BLOCK_OR_CODE.finditer(page.read_text())
    texts = [
        each["block"] or " ".join(each["code"].split()) for each in found if not each["language"]
    ]
    calls = [re.sub(r"\\\n *", "", text) for text in texts if CALL.search(text)]
    return [line for text in calls for line in text.splitlines()]


def is_run(line: str) -> bool:
    """Whether the test can run a line."""
    return not any(mark in line for mark, _ in NOT_HERE)


def made_smaller(line: str) -> str:
    line = ENCODES.sub(rf"\1 --backbone {SMALL}", line)
    for old, new, _ in SMALLER:
        line = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _, new=new: new, line)
    return line


@dataclass
class Relay:
    """Runs what scripts call as `difficulty`, in processes that need not load torch.

    Attributes:
        folder: Place of what servers print.
        calls: Words of all calls.
        servers: Those that still answer.
    """

    fork_command: ForkCommand
    folder: Path
    calls: list[list[str]] = field(default_factory=list)
    servers: list[tuple[ForkServerProcess, Path]] = field(default_factory=list)

    def run(self, call: Call) -> int:
        """Exit code of a command; a server answers until the next one is called."""
        self.interrupt()
        self.calls.append(call.words)
        if call.words[0] in SERVING:
            return self._serve(call)
        process = self._fork(call, call.output, call.errors)
        process.join(300)
        return -1 if process.exitcode is None else process.exitcode

    def _fork(self, call: Call, output: Path | str, errors: Path | str) -> ForkServerProcess:
        return self.fork_command(
            *call.words,
            environment=call.environment,
            folder=call.folder,
            output=output,
            errors=errors,
        )

    def _serve(self, call: Call) -> int:
        """Starts a server, asks it once, and copies what it has printed by then."""
        printed = self.folder / f"{len(self.calls)}.txt"
        printed.touch()
        process = self._fork(call, printed, printed)
        failed = not self._answers(process, printed, Path(call.folder))
        with Path(call.output).open("a") as output:
            output.write(printed.read_text())
        return int(failed)

    def _answers(self, process: ForkServerProcess, printed: Path, folder: Path) -> bool:
        while not (found := ADDRESS.search(printed.read_text())):
            process.join(0.05)
            if not process.is_alive():
                return False
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=50), timeout=60) as client:
            answer = client.get(found[0], follow_redirects=True)
        (folder / "service").write_text(found[0].removeprefix("http://"))
        self.servers.append((process, printed))
        return not answer.is_error

    def interrupt(self) -> None:
        """Ends the servers as Ctrl-C does, which is no error."""
        for process, printed in self.servers:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGINT)
            process.join(60)
            assert process.exitcode == 0, printed.read_text()
        self.servers.clear()


@pytest.fixture(scope="session")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    small_bert: Path,
    small_networks: None,  # noqa: ARG001 - it is known
) -> Path:
    """A folder with what the pages name, made by the commands that they say make it."""
    folder = tmp_path_factory.mktemp("world")
    with chdir(folder):
        make_images()
        make_tables()
        shutil.copytree(small_bert, "models/bert")
        make_scores()
        make_runs()
    return folder


def difficulty(*words: str) -> None:
    create_app()([word for each in words for word in each.split()])


def make_images() -> None:
    make_photos(Path("photos"), CLASSES, 20)
    make_photos(Path("split/test"), CLASSES, 8)
    for image in Path("split/test").rglob("*.png"):
        image.rename(image.with_stem(f"test-{image.stem}"))
    shutil.copytree("photos", "split/train")
    make_photos(Path("more-photos"), CLASSES, 4)
    make_photos(Path("other-photos"), ("boat", "car"), 4)
    for part in ("train", "test"):
        make_photos(Path("svhn") / part, ("0", "1"), 4)
    write_yolo(Path("fruit"), many_scenes(10), ("train", "val"))
    write_coco(Path("market"), many_scenes(10), "train2017")
    make_fields(many_scenes(10))


def make_fields(scenes: list[Scene]) -> None:
    """Images of microscopes, radiographs and satellites, of competitions and other tools."""
    generator = np.random.default_rng(0)
    rows, ids = [",".join(("filename", "class", "xmin", "ymin", "xmax", "ymax"))], ["id_code,label"]
    for number in range(24):
        values = generator.integers(100, 1000, (32, 32, 4)).astype(np.uint16) + 300 * (number % 2)
        for folder, ending in (("cells", "tif"), ("xrays", "png"), ("tiles", "tif")):
            path = Path(folder) / f"class {number % 2}" / f"{number}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if ending == "png":
                Image.fromarray(values[:, :, 0]).save(path)
            else:
                planes = [values[:, :, [each]] for each in range(3)]
                path.write_bytes(tiff([values] if folder == "tiles" else planes))
        image = Path("competition/train_images") / f"{number:04}ab.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((values[:, :, :3] // 6).astype(np.uint8)).save(image)
        ids.append(f"{image.stem},{number % 2}")
    Path("competition/train.csv").write_text("\n".join(ids))
    for scene in scenes:
        write_image(Path("boxes/images") / f"{scene.name}.png", scene)
        write_image(Path("labelme") / f"{scene.name}.png", scene)
        shapes = []
        for category, left, top, width, height in scene.boxes:
            right, bottom = left + width, top + height
            rows.append(f"{scene.name}.png,{category},{left},{top},{right},{bottom}")
            points = [[left, top], [right, bottom]]
            shapes.append({"label": category, "points": points, "shape_type": "rectangle"})
        content = {"version": "5.5.0", "shapes": shapes, "imagePath": f"{scene.name}.png"}
        Path("labelme", f"{scene.name}.json").write_text(json.dumps(content))
    Path("boxes/train.csv").write_text("\n".join(rows))


def make_tables() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(30) % 3
    np.savez("features.npz", features=generator.normal(size=(30, 4)), labels=labels)

    pixels = generator.integers(0, 256, (50, 32, 32, 3)).astype(np.uint8)
    Path("CIFAR-10-C").mkdir()
    for kind in ("fog", "gaussian_noise"):
        np.save(f"CIFAR-10-C/{kind}.npy", np.concatenate([pixels[:30]] * 5))
    np.save("CIFAR-10-C/labels.npy", np.concatenate([labels] * 5))
    for part, name in enumerate(("cifar10_train_0", "cifar10_train_1", "cifar10_test")):
        images = [path.read_bytes() for path in sorted(Path("split/test").rglob("*.png"))]
        index = range(24 * part, 24 * part + 24)
        table = {"image": images, "label": np.arange(24) // 8, "index": index}
        pq.write_table(pa.table(table), f"{name}.parquet")

    photos = sorted(Path("photos").rglob("*.png"))
    tags = [f"{path.parent.name}|{'even' if row % 2 else 'odd'}" for row, path in enumerate(photos)]
    rows = [f"{path.relative_to('photos')},{tag}" for path, tag in zip(photos, tags, strict=True)]
    Path("tags.csv").write_text("\n".join(["path,tags", *rows]))
    write_tagged_images(Path("photos.parquet"))

    texts = [f"the {word} sat {row}" for row in range(20) for word in ("cat", "dog")]
    table = {"text": texts, "label": ["cat", "dog"] * 20}
    pq.write_table(pa.table(table), "reviews.parquet")
    notes = [f"{row},{text},{text.split()[1]}" for row, text in enumerate(texts)]
    Path("notes.csv").write_text("\n".join(["key,body,label", *notes]))


def make_scores() -> None:
    score = f"score photos/ --backbone {SMALL} --device cpu"
    difficulty(score, "--out scores.parquet")
    difficulty("score scores.features --out clip.parquet")
    difficulty("score scores.features --shrinkage 0.5 --out dinov2.parquet")
    for name in ("clean", "year-1", "year-2"):
        difficulty(f"fit scores.features --out {name}.safetensors")
    table = read_scores(Path("scores.parquet")).table
    ids = table["sample_id"].cast(pa.string())
    days = pa.array(range(len(ids)), pa.date32())
    metadata = pa.table({"sample_id": ids, "camera": ["A"] * len(ids), "date": days})
    pq.write_table(metadata, "predictions.parquet")
    pa_csv.write_csv(metadata, "metadata.csv")
    given = table["label_name"].cast(pa.string())
    labels = pa.table({"sample_id": ids, "ann": given, "bob": given[::-1]})
    pa_csv.write_csv(labels, "labels.csv")
    doubtful = table.filter(pc.greater(table["label_margin"], 0))["sample_id"].to_pylist()
    marks = [f"{name},{('drop', 'keep')[row % 2]}" for row, name in enumerate(doubtful)]
    for name in ("marks.csv", "reviewed.csv"):
        Path(name).write_text("\n".join(["sample_id,mark", *marks]))
    tasks = [{"sample_id": name, "given_label": "bird", "label": "bird"} for name in doubtful]
    Path("project-1.json").write_text(json.dumps(tasks))  # as Label Studio exports them


def make_runs() -> None:
    Path("my.toml").write_text(RECIPE.format(train="photos/train"))
    Path("imagenet.toml").write_text(RECIPE.format(train="photos"))
    train = "train imagenet.toml --out runs/mine --set regulariser.weights=constant"
    # A page changes what is in photos, where the distances of features still need it.
    difficulty(train, "--set data.train=split/train --set data.test=split/test --device cpu")
    difficulty("evaluate runs/mine --data more-photos/ --device cpu --resamples 20")
    shutil.copytree("runs/mine", "runs/other")


@pytest.fixture
def relay(fork_command: ForkCommand, tmp_path: Path) -> Relay:
    """What takes the calls of the commands of a page."""
    return Relay(fork_command, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=pytest.mark.long) if name in LONG else name
        for name, page in PAGES.items()
        if any(map(is_run, lines_of(page)))
    ],
)
def test_every_command_on_a_page_runs(page: str, relay: Relay, world: Path, tmp_path: Path) -> None:
    lines = [line for line in lines_of(PAGES[page]) if is_run(line)]
    here = shutil.copytree(world, tmp_path / "here")
    if any("photos/train" in line for line in lines):
        shutil.rmtree(here / "photos")
        shutil.copytree(here / "split", here / "photos")
    if "--out scores." in next((line for line in lines if "scores." in line), ""):
        (here / "scores.parquet").unlink()
        shutil.rmtree(here / "scores.features")
    script = FUNCTIONS + "\n".join(map(made_smaller, lines))

    with warm_command(relay.run) as commands:
        done = run_script(script, commands, here, DIFFICULTY_PORT="0")

    assert done.returncode == 0, done.stdout + done.stderr
    relay.interrupt()
    assert len(relay.calls) >= sum(bool(CALL.search(line)) for line in lines)


@pytest.mark.parametrize("text", [text for text, *_ in (*SMALLER, *NOT_HERE)])
def test_every_exception_is_on_a_page(text: str) -> None:
    assert any(text in line for page in PAGES.values() for line in lines_of(page))
