"""Loads what commands load as they go, so that a forked process need not.

Not the library of the hub: it reads the environment, which a forked process may have changed.
"""

import pkgutil
from importlib import import_module

import httpx2
from PIL import Image

import difficulty_service.cli
import trainer.commands
from api.pages.rendering import compile_templates
from tests import small_network

NAMES = (
    # What a server and its worker load as they start.
    *("anyio._backends._asyncio", "api.worker.worker", "psycopg", "sqlite3", "stringprep"),
    *("uvicorn.lifespan.on", "uvicorn.loops.uvloop"),
    *("api.cli", "api.commands", "difficulty_service.cleaning.class_folders"),
    *("anyio.streams.tls", "cyclopts.help", "cyclopts.validators", "filelock", "httpcore2"),
    *("onnxruntime", "pyarrow.acero", "rich.progress", "torchvision.transforms.v2", "truststore"),
)

for package in (difficulty_service.cli, trainer.commands):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
for name in NAMES:
    import_module(name)
Image.init()
small_network.make_known()
difficulty_service.cli.create_app()  # reads the entry points and descriptions of commands
httpx2.Client().close()  # the first one reads the certificates of the system
compile_templates()
