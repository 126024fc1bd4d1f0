"""`difficulty backbones`: what turns samples into features, how fast, and what suits a dataset."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from difficulty_service.cli.wrong_call import WrongCall, options
from difficulty_service.settings.command_options import TrialOptions
from difficulty_service.settings.options import JsonOption
from difficulty_service.settings.run import Run

if TYPE_CHECKING:
    from difficulty_service.backbones import BackboneListing
    from difficulty_service.backbones.backbone import BackboneOptions

NUM_IMAGES = 1_000_000


def backbones(
    dataset: str | None = None,
    /,
    *,
    benchmark: bool = False,
    only: Annotated[list[str] | None, Parameter(metavar="NAME")] = None,
    images: PositiveInt | None = None,
    trial: TrialOptions = TrialOptions(),
    output: JsonOption = JsonOption(),
    run: Run = Run(),
) -> None:
    """Lists the backbones, with size, licence and whether their weights are here.

    Parameters are in millions, and GMACs are billions of multiply-adds for one image.

    --benchmark runs each for some seconds on JPEG photographs of 500 x 400 pixels, decoding
    included; random weights replace absent ones, which changes no speed.

    With DATASET, --try compares some on its samples: how probable the labels are by the features of
    each, and how long each takes. It recommends one.

    Args:
        dataset: With --try: folder, table, tar shards, hf:NAME, or a glob.
        benchmark: Measure the speed of each on this machine; of the options below only --device and
            --precision apply.
        only: With --benchmark: measure only this backbone, also of a library or a run; repeatable.
        images: With --benchmark: say how long this many images take; default: 1,000,000.
    """
    given = {name for name, value in (("only", only), ("images", images)) if value is not None}
    machine, others = {"device", "precision"}, trial.model_fields_set | output.model_fields_set
    if trial.try_ or dataset is not None:
        if dataset is None or not trial.try_:
            raise WrongCall("a trial needs a DATASET and the names of backbones after --try")
        given |= {"benchmark"} if benchmark else set()
        from difficulty_service.base.analyses import ability

        ability("backbones", "try")(
            replace(run, source=dataset), trial, given, as_json=output.json_
        )
        return
    others |= run.given
    if not benchmark and (useless := given | others):
        needed = "--try" if useless.isdisjoint(given | machine) else "--benchmark"
        raise WrongCall(f"{spell(useless)} would change nothing without {needed}")
    if benchmark and (useless := others - machine):
        raise WrongCall(f"{spell(useless)} would change nothing with --benchmark")
    if benchmark:
        chosen = run.machine
        run_benchmark(only, images or NUM_IMAGES, chosen.device, chosen.precision)
        return
    print_backbones()


def spell(fields: set[str]) -> str:
    """Fields of models as options: Python takes some of their names for itself."""
    return options(name.rstrip("_") for name in fields)


def print_backbones() -> None:
    """Prints the backbones, two lines each: what it is, and its facts."""
    from difficulty_service.backbones import DEFAULT_BACKBONE, list_backbones
    from difficulty_service.backbones.plugged import list_plugins
    from difficulty_service.cli.console import print_table

    rows = []
    for listing in list_backbones():
        default = " (default)" if listing.name == DEFAULT_BACKBONE else ""
        rows.append((listing.name + default, listing.description))
        if facts := describe_facts(listing):
            rows.append(("", facts))
    print_table(("name", "what it is"), rows + list_plugins())


def describe_facts(listing: "BackboneListing") -> str:
    """What is known of a backbone beside its description, in one line; empty for a library."""
    from difficulty_service.backbones.licences import describe_licence

    facts = []
    if listing.feature_dim is not None:
        of_texts = " of texts" if listing.modality == "text" else ""
        facts.append(f"{listing.feature_dim} features{of_texts}")
    if listing.size is not None:
        facts.append(f"{listing.size} px")
    if listing.parameters is not None:
        facts.append(f"{listing.parameters:g} M params")
    if listing.gmacs is not None:
        facts.append(f"{listing.gmacs:g} GMACs")
    if listing.licence is not None:
        facts.append(describe_licence(listing.licence))
    return ", ".join([*facts, listing.weights]) if facts else ""


def run_benchmark(
    only: list[str] | None, num_images: int, device_name: str, precision: str
) -> None:
    """Prints a table of the speed of some backbones, or of all that have a short name."""
    from difficulty_service.backbones import BACKBONES, usual_precision
    from difficulty_service.backbones.backbone import choose_device, choose_precision
    from difficulty_service.base.threads import num_workers
    from difficulty_service.cli.console import err, out, print_table
    from difficulty_service.extraction.speed import HEIGHT, SECONDS, WIDTH, measure_speed

    device = choose_device(device_name)
    dtype = choose_precision(precision, device)
    names = list(dict.fromkeys(only or BACKBONES))
    networks = {name: network_to_measure(name) for name in names}
    rows, precisions = [], dict[str, None]()
    for number, (name, network) in enumerate(networks.items(), start=1):
        weights = "random" if network.random else "pretrained"
        err.print(f"measuring {name} ({number} of {len(names)})")
        used = usual_precision(name, dtype, device) if precision == "auto" else dtype
        precisions.setdefault(str(used).removeprefix("torch."))
        options = replace(network, device=device, precision=used)
        speed = measure_speed(name, options, SECONDS)
        rows.append((name, speed.images_per_second, speed.hours(num_images), weights))
    print_table(("name", "images/s", f"hours for {num_images:,}", "weights"), rows)
    machine = f"{device}, {' and '.join(precisions)}, {num_workers()} cores"
    out.print(f"{machine}; JPEG of {WIDTH} x {HEIGHT} pixels, decoding included")


def network_to_measure(name: str) -> "BackboneOptions":
    """The weights with which a backbone is measured: its own where they are here."""
    from difficulty_service.backbones import BACKBONES, find_loader, weights_state
    from difficulty_service.backbones.backbone import BackboneOptions
    from difficulty_service.backbones.plugged import find_plugin
    from difficulty_service.backbones.text_encoders import modality_of
    from difficulty_service.base.errors import BackboneError

    if find_plugin(name) is not None:
        return BackboneOptions()
    find_loader(name)
    if modality_of(name) == "text":
        raise BackboneError(f"{name} encodes texts, but --benchmark measures images")
    here = name in BACKBONES and weights_state(name, BACKBONES[name]) in {
        "in the package",
        "cached",
    }
    return BackboneOptions(random=not here)
