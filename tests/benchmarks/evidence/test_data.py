"""Features of the study lie in a folder for each way in which they are made."""

from pathlib import Path

from benchmarks.evidence.data import BACKBONES, LARGE_MOBILENET, Study


def test_features_that_are_made_in_other_ways_have_other_folders() -> None:
    study = Study(Path("study"), Path("shared"))
    backbones = (*BACKBONES, LARGE_MOBILENET)

    folders = {
        study.store(source, backbone, runs, flip=flip)
        for source in ("cifar10-test", "cifar10-train")
        for backbone in backbones
        for runs in (0, 3)
        for flip in (False, True)
    }

    assert len(folders) == 2 * len(backbones) * 2 * 2
    assert study.store("cifar10-test", "builtin").name == "cifar10-test-builtin"
