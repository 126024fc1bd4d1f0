"""The form for a new job lets a person look for a dataset, and says how long it may take."""

import io
import tarfile

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page
from tests.browser.reports import axe_findings

PATH = "Folder or file below it"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def form(page: Page) -> Page:
    page.goto("/")
    page.locator("html.scripts-run").wait_for()
    return page


def test_a_folder_is_found_and_chosen_by_the_keyboard_alone(form: Page) -> None:
    form.get_by_label(PATH).focus()
    form.keyboard.press("Tab")
    assert form.evaluate("document.activeElement.id") == "browse"
    form.keyboard.press("Enter")
    dialog = form.get_by_role("dialog", name="Look for a dataset")
    dialog.get_by_text("This folder:").wait_for()
    form.wait_for_function("document.activeElement.dataset.open === ''")  # the root

    form.keyboard.press("Tab")
    form.wait_for_function("'open' in document.activeElement.dataset")
    while form.evaluate("document.activeElement.dataset.open") != "train":
        form.keyboard.press("Tab")
    form.keyboard.press("Enter")
    dialog.get_by_role("button", name="Choose train").wait_for()
    form.wait_for_function("document.activeElement.dataset.open === 'train'")  # its crumb
    assert dialog.get_by_role("list", name="In this folder").get_by_role("listitem").count() == 3
    while form.evaluate("document.activeElement.dataset.choose") != "train":
        form.keyboard.press("Tab")
    form.keyboard.press("Enter")

    assert not dialog.is_visible()
    assert form.get_by_label(PATH).input_value() == "train"
    assert form.evaluate("document.activeElement.id") == "browse"


def test_escape_closes_the_dialog_and_changes_nothing(form: Page) -> None:
    form.get_by_label(PATH).fill("train")
    form.get_by_role("button", name="Browse…").click()
    form.get_by_role("button", name="Choose train").wait_for()  # where the entry says

    form.keyboard.press("Escape")

    assert not form.get_by_role("dialog").is_visible()
    assert form.get_by_label(PATH).input_value() == "train"


def test_crumbs_lead_back_and_hostile_names_are_text(form: Page, explorer: Explorer) -> None:
    (explorer.folder / "odd" / HOSTILE.replace("/", "")).mkdir(parents=True, exist_ok=True)
    form.get_by_role("button", name="Browse…").click()
    dialog = form.get_by_role("dialog")

    dialog.get_by_role("button", name="odd/").click()
    dialog.get_by_role("button", name=f"{HOSTILE}/").click()
    dialog.get_by_text("This folder: empty").wait_for()
    dialog.get_by_role("navigation").get_by_role("button", name="photos").click()
    dialog.get_by_role("button", name="Choose the whole root").click()

    assert form.get_by_label(PATH).input_value() == ""


def test_more_entries_than_a_page_has_are_counted_and_a_button_away(
    form: Page, explorer: Explorer
) -> None:
    for number in range(130):
        (explorer.folder / "wide" / f"{number:03}").mkdir(parents=True, exist_ok=True)
    form.get_by_role("button", name="Browse…").click()
    dialog = form.get_by_role("dialog")
    dialog.get_by_role("button", name="wide/").click()

    dialog.get_by_role("button", name="30 more").click()

    dialog.get_by_role("button", name="129/").wait_for()
    assert dialog.get_by_role("button", name="000/").count() == 0


def test_an_entry_that_leads_nowhere_opens_the_root(form: Page, problems: list[str]) -> None:
    form.get_by_label(PATH).fill("nowhere/at all")

    form.get_by_role("button", name="Browse…").click()

    form.get_by_role("button", name="Choose the whole root").wait_for()
    assert [problem for problem in problems if "422" not in problem] == []
    problems.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_dialog(form: Page, scheme: str) -> None:
    form.emulate_media(color_scheme=scheme)
    form.get_by_role("button", name="Browse…").click()
    form.get_by_role("dialog").get_by_role("button", name="train/").click()
    form.get_by_role("button", name="Choose train").wait_for()

    assert axe_findings(form) == []


def test_the_time_follows_the_entries_and_what_is_unknown_is_said(form: Page) -> None:
    estimate = form.locator("#estimate")
    assert estimate.inner_text() == (
        "Choose a dataset to see how it would be read, and how long it may take."
    )

    form.get_by_label(PATH).fill("train")
    form.get_by_label(PATH).press("Tab")
    estimate.get_by_text("About").wait_for()
    assert "for 121 samples (" in estimate.inner_text()
    assert "with this network ran at" in estimate.inner_text()

    form.get_by_text("Advanced", exact=True).click()
    form.get_by_text("How samples are encoded").click()
    form.locator('[name="flip"]').check()
    estimate.get_by_text("2 passes over each").wait_for()

    form.get_by_label(PATH).fill("none")
    form.get_by_label(PATH).press("Tab")
    estimate.get_by_text("there is no 'none' in the root").wait_for()

    form.get_by_label("Upload a file").check()
    estimate.get_by_text("Choose a file to see").wait_for()


def test_a_job_is_named_and_finds_near_copies_by_what_the_form_shows_first(
    form: Page, explorer: Explorer
) -> None:
    form.get_by_label(PATH).fill("train")
    form.get_by_label("Name", exact=True).fill("My <b>birds</b>")
    form.get_by_label("Find near copies").check()
    form.get_by_role("button", name="Score", exact=True).click()

    form.get_by_role("heading", name="Where the scores come from").wait_for()
    assert form.get_by_role("link", name="My <b>birds</b>").is_visible()
    form.goto("/")
    assert form.get_by_role("heading", name="My <b>birds</b>").first.is_visible()
    with explorer.client() as client:
        job = client.get("/v1/jobs").json()["jobs"][0]
        client.delete(job["links"]["self"])
    assert job["request"]["near_duplicates"] == 0.97


def test_a_file_that_is_no_archive_is_refused_before_it_is_sent(form: Page) -> None:
    form.get_by_label("Upload a file").check()
    picture = {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8\xff"}
    form.get_by_label("A zip or tar").set_input_files(picture)
    form.get_by_text("photo.jpg is neither a zip, a tar nor a Parquet file.").wait_for()

    form.get_by_label("A zip or tar").set_input_files(picture | {"name": "photos.zip"})
    form.get_by_text("photos.zip is named .zip, but it is no zip file.").wait_for()
    form.get_by_role("button", name="Score", exact=True).click()

    assert form.get_by_text("it is no zip file").is_visible()
    assert form.get_by_label("A zip or tar").get_attribute("aria-invalid") == "true"


def test_an_upload_gives_its_name_to_the_job(form: Page, explorer: Explorer) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(explorer.folder / "train", "train")
    form.get_by_label("Upload a file").check()
    file = {"name": "my birds.tar", "mimeType": "", "buffer": packed.getvalue()}
    form.get_by_label("A zip or tar").set_input_files(file)
    form.get_by_text("my birds.tar has arrived.").wait_for()
    form.locator("#estimate").get_by_text("Read as").wait_for()

    form.get_by_role("button", name="Score", exact=True).click()

    form.get_by_role("heading", name="Where the scores come from").wait_for()
    assert form.get_by_role("link", name="my birds.tar").is_visible()
    with explorer.client() as client:
        client.delete(client.get("/v1/jobs").json()["jobs"][0]["links"]["self"])


def test_networks_that_are_here_come_first_and_placeholders_are_defaults(form: Page) -> None:
    form.get_by_text("Advanced", exact=True).click()
    form.get_by_text("Network", exact=True).first.click()
    groups = form.locator("#backbone optgroup")
    assert groups.first.get_attribute("label") == "On this machine"
    assert "builtin-photos" in groups.first.inner_text()
    assert "dinov2-vit-b14" in groups.last.inner_text()

    placeholders = form.locator("#new-job [placeholder]").evaluate_all(
        "fields => fields.map(field => [field.name, field.placeholder])"
    )

    assert dict(placeholders)["tag_separator"] == "|"
    assert [name for name, text in placeholders if text == "none"] == []
