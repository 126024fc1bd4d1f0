// The dialog that looks for a dataset in a root, one folder at a time; the form gets its path.

export function startFolders() {
  const [dialog, list, browse, root, path] = ["folders", "folder", "browse", "root", "path"]
    .map((id) => document.getElementById(id));
  if (!browse) return;
  browse.hidden = false;
  let latest = 0;

  const open = async (folder, start = 0) => {
    latest += 1;
    const turn = latest;
    const address = `/folders?${new URLSearchParams({ root: root.value, path: folder, start })}`;
    const answer = await fetch(address, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (turn !== latest) return false;
    if (answer?.status === 401) window.location.assign("/sign-in");
    if (answer === null) list.textContent = "The service does not answer.";
    else list.innerHTML = await answer.text(); // of a template, which escapes every name
    if (dialog.open) (list.querySelector(".crumbs [aria-current]") ?? dialog).focus();
    return answer?.ok;
  };

  browse.addEventListener("click", async () => {
    dialog.showModal();
    const entered = path.value.trim().replace(/^\/+|\/+$/g, "");
    if (!(await open(entered)) && entered) await open("");
  });
  list.addEventListener("click", (event) => {
    const { open: folder, start, choose } = event.target.closest("button")?.dataset ?? {};
    if (folder !== undefined) open(folder, start);
    if (choose === undefined) return;
    path.value = choose;
    path.dispatchEvent(new Event("change", { bubbles: true }));
    dialog.close(); // which gives the focus back to the button
  });
}
