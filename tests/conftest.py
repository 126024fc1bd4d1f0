"""Fixtures that every test may use."""

import gc
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import difficulty_service  # noqa: F401 - configures the threads of what is loaded next

# isort: split
import pytest
import torch
from torch.nn import functional as F

from difficulty_service.backbones import backbone
from difficulty_service.base import apart
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import create_store
from tests.fork_server import ForkedContext, LightContext, preload
from tests.warm_command import Call, warm_command

ROOT = Path(__file__).resolve().parent.parent

WITHOUT = frozenset(os.environ.get("DIFFICULTY_WITHOUT_ANALYSES", "").split())
"""Analyses that were taken out of the package, whose tests are left out."""

ForkCommand = Callable[..., ForkServerProcess]

PRELOADED = [
    *("api.online.scorer", "api.server", "api.worker.job_child", "difficulty_service.cli"),
    "trainer.runs.train",
    "tests.preloaded",
    # What the first image, run, picture or download of a process loads.
    *("pandas", "pillow_heif", "pyarrow.dataset", "torchcodec.decoders"),
    *("torch.utils.tensorboard", "matplotlib.figure", "matplotlib.backends.backend_agg", "httpx2"),
    "torch._dynamo",  # by the first optimiser
]

PRELOADED_WITH_LIMITS = [
    *("api.jobs.estimate", "api.results.table_joining", "api.results.thumbnails"),
    *("PIL.JpegImagePlugin", "PIL.PngImagePlugin", "PIL.WebPImagePlugin"),
    *("pandas", "tests.fork_server"),
]

BERT_WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "sat", "dog", "##s", "ran"),
)
"""Vocabulary of `small_bert`."""

FORKED_COMMAND = """
import os, signal, sys

# As at a terminal, also where the tests run in the background and their shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
for number, path in ((1, output), (2, errors)):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
sys.argv[:] = ["difficulty", *arguments]

import torch
from difficulty_service.base import apart
from difficulty_service.cli import main

if not forks:
    apart.context_of_children = apart.context_of_limited = apart.NEW_INTERPRETER
if "OMP_NUM_THREADS" in environment:
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
sys.exit(main())
"""


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected, which are kept
    if hasattr(config, "workerinput"):  # one of several processes of pytest-xdist, with a core each
        # For the processes that tests start, too.
        torch.set_num_threads(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts files with slow tests first: a process that began one last would keep the others.

    Single tests about analyses that were taken out are left out.
    """
    items[:] = [
        item
        for item in items
        if not any(WITHOUT & set(mark.args) for mark in item.iter_markers("analysis"))
    ]
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)


def pytest_collection_finish() -> None:
    """Spares every later full collection what was loaded, which stays for as long as the tests."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device answers")


@pytest.fixture(scope="session", autouse=True)
def same_precision_on_every_machine() -> Iterator[None]:
    """Has no processor compute in bfloat16 unasked, which only some can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backbone, "computes_in_bfloat16", lambda: False)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and weights that are never part of the project."""
    folder = Path(os.environ.get("DIFFICULTY_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; name their folder in DIFFICULTY_SHARED")
    return folder


@pytest.fixture(scope="session", autouse=True)
def forkserver() -> Iterator[ForkServerContext]:
    """Starts processes by forking one that has loaded torch and this project, which is slow."""
    context = ForkedContext()
    preload(PRELOADED, PRELOADED_WITH_LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart, "context_of_children", context)
        patch.setattr(apart, "context_of_limited", LightContext())
        yield context


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has children start with nothing, and be children in every sense, as for users."""
    for name in ("context_of_children", "context_of_limited"):
        monkeypatch.setattr(apart, name, apart.NEW_INTERPRETER)


@pytest.fixture(scope="session")
def fork_command(forkserver: ForkServerContext) -> Iterator[ForkCommand]:
    """Starts the command `difficulty` in a process of its own that need not load torch.

    Nor need those that it starts itself, unless it is told not to fork them.
    """
    started: list[ForkServerProcess] = []

    def start(
        *arguments: object,
        environment: Mapping[str, str] = os.environ,
        folder: Path | str = ".",
        output: Path | str = os.devnull,
        errors: Path | str = os.devnull,
        forks: bool = True,
    ) -> ForkServerProcess:
        values = {
            "forks": forks,
            "arguments": [str(argument) for argument in arguments],
            "environment": dict(environment),
            "folder": os.path.abspath(folder),  # noqa: PTH100 - of this process, not of the child
            "output": str(output),
            "errors": str(errors),
        }
        process = forkserver.Process(target=exec, args=(FORKED_COMMAND, values))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.fixture(scope="session")
def commands(fork_command: ForkCommand) -> Iterator[Path]:
    """Folder for the front of PATH with a `difficulty` that need not load torch."""

    def run(call: Call) -> int | None:
        process = fork_command(
            *call.words,
            environment=call.environment,
            folder=call.folder,
            output=call.output,
            errors=call.errors,
        )
        process.join()
        return process.exitcode

    with warm_command(run) as folder:
        yield folder


@pytest.fixture(scope="session")
def write_features() -> Callable[..., str]:
    """Writes a folder of features of three overlapping classes; gives its path."""

    def write(folder: Path, num_samples: int = 90, seed: int = 0) -> str:
        labels = torch.arange(num_samples) % 3
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(num_samples, 6, generator=generator) + F.one_hot(labels, 6)
        ids = [f"{folder.name}/{number:03d}.png" for number in range(num_samples)]
        names = ("bird", "cat", "dog")
        store = create_store(
            folder,
            FeatureDescription.of({"class_names": names, "num_shards": 1, "augment_runs": 0}),
        )
        store.write_shard(0, ShardTable(ids, labels, torch.zeros(num_samples), features), [])
        return str(folder)

    return write


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What a machine without a network is asked to find the address of, as of now."""
    made: list[object] = []

    def no_network(*arguments: object, **_: object) -> None:
        made.append(arguments)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    return made


@pytest.fixture(scope="session")
def small_networks() -> None:
    """Has this process know the networks of `tests.small_network`, as those that it forks do."""
    from tests import small_network

    small_network.make_known()


@pytest.fixture(scope="session")
def small_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random BERT of two layers for texts of at most ten words, with its tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    tokens = {word: number for number, word in enumerate(BERT_WORDS)}
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(vocab=tokens).save_pretrained(folder)
    return folder


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the files about analyses that were taken out: they would import them.

    So do benchmarks, which measure several of them, and the pages, which describe them all.
    """
    if not WITHOUT or collection_path.suffix != ".py":
        return None
    folder = collection_path.parent
    tests = ROOT / "tests"
    if collection_path.is_relative_to(tests / "benchmarks"):
        return True
    if collection_path == tests / "test_documentation.py":
        return True
    if folder.parent.name == "analyses" and folder.name in WITHOUT:
        return True
    marks = re.findall(
        r"^pytestmark = .*?analysis\((.*?)\)", collection_path.read_text(), re.MULTILINE
    )
    named = {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}
    return True if named & WITHOUT else None
