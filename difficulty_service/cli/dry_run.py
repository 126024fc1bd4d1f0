"""`difficulty score --dry-run`: how a dataset would be read."""

from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.cli.console import as_text, out, print_json, print_table, print_warnings
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.settings.options import OutputOptions
from difficulty_service.settings.run import Run

if TYPE_CHECKING:
    from difficulty_service.datasets.sample import DatasetOptions

CLASSES_SHOWN, EXAMPLES_SHOWN = 20, 3


def show_reading(run: Run, output: OutputOptions) -> None:
    """Prints what a run would read of its dataset; nothing is decoded."""
    from difficulty_service.base.errors import DatasetError
    from difficulty_service.base.wording import count_of, list_names
    from difficulty_service.datasets import open_dataset
    from difficulty_service.datasets.preview import preview
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.features.description import is_store

    source, options = run.source, DatasetOptions(**run.reading)
    try:
        require_samples(source, is_store(Path(source)))
        dataset = open_dataset(source, options)
    except DatasetError:
        # Only where it is none, because this takes seconds to load.
        from difficulty_service.features.array_files import is_array_file

        require_samples(source, is_array_file(Path(source)))
        raise
    found = preview(dataset, options.split)
    if output.json_:
        print_json(found)
        return
    split = f", split {found.split}" if found.split else ""
    out.print(f"{source}{split} would be read as {found.title} ({found.format})")
    if output.verbose:
        show_verdicts(source, options)
    number = count_of(found.num_samples, found.noun)
    if found.num_classes:
        out.print(f"{number} of {count_of(found.num_classes, 'class', 'classes')}:")
        shown = found.classes if output.verbose else found.classes[:CLASSES_SHOWN]
        print_table(("class", found.noun + "s"), [(each.name, each.num_samples) for each in shown])
        if len(shown) < found.num_classes:
            out.print(f"… and {found.num_classes - len(shown):,} more; --verbose shows all")
    else:
        out.print(f"{number} without labels")
    if found.left_out:
        out.print("\nleft out, with the reason:")
    for each in found.left_out:
        names = list_names([repr(as_text(name)) for name in each.examples], EXAMPLES_SHOWN)
        hidden = each.entries - len(each.examples)
        more = f" and {hidden:,} more" if hidden and len(each.examples) <= EXAMPLES_SHOWN else ""
        out.print(f"  {each.entries:,} {each.reason}: {names}{more}")
    print_warnings(found.notes)


def require_samples(source: str, has_features: bool) -> None:  # noqa: FBT001
    """Refuses features, which are not read as a dataset."""
    if has_features:
        raise WrongCall(
            f"{source} holds features already, but --dry-run shows how samples are read"
        )


def show_verdicts(source: str, options: "DatasetOptions") -> None:
    """Prints what each kind of dataset says of a location."""
    from difficulty_service.datasets.recognition import recognise

    for verdict in recognise(source, options).verdicts:
        answer = "yes" if verdict.is_it else "no"
        out.print(f"  {verdict.kind}: {answer}, {verdict.why}")
