"""The work folder of a job belongs to one attempt at a time."""

from pathlib import Path

from api.jobs.files import delete_work, work_folder


def test_an_attempt_resumes_from_the_files_of_the_previous_one(tmp_path: Path) -> None:
    with work_folder(tmp_path, "job", 1) as folder:
        (folder / "part").write_text("done")

    with work_folder(tmp_path, "job", 2) as folder:
        assert (folder / "part").read_text() == "done"


def test_an_attempt_leaves_alone_what_another_still_writes(tmp_path: Path) -> None:
    with work_folder(tmp_path, "job", 1) as given_up, work_folder(tmp_path, "job", 2) as folder:
        (given_up / "part").write_text("half")

        assert list(folder.iterdir()) == []


def test_jobs_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with work_folder(tmp_path, "one", 1) as one, work_folder(tmp_path, "two", 1) as two:
        assert (one, two) == (tmp_path / "one", tmp_path / "two")


def test_deleting_takes_all_attempts_and_no_other_job(tmp_path: Path) -> None:
    with work_folder(tmp_path, "one", 1), work_folder(tmp_path, "one", 2):
        pass
    with work_folder(tmp_path, "two", 1):
        pass

    delete_work(tmp_path, "one")
    delete_work(tmp_path, "never-there")

    assert [path.name for path in tmp_path.iterdir()] == ["two"]
