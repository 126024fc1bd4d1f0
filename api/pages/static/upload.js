// Sends a dataset in parts, which goes on where it stopped after a lost connection.

import { byId } from "./report/page.js";

const PART = 8 << 20;
const RETRIES = 5;
const FORMATS = ["zip", "tar", "parquet"];
const MARKS = { zip: [[0, "PK"]], parquet: [[0, "PAR1"]], tar: [[257, "ustar"]] };
const HEAD = 512; // bytes that tell what a file is

class Unreachable extends Error {}

const pause = (seconds) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });
const printable = (name) => name.replace(/[\u0000-\u001f\u007f]/g, "").slice(-200);
const megabytes = (bytes) => (bytes / 1e6).toLocaleString("en", { maximumFractionDigits: 1 });

// What is wrong with a file as an archive or table; empty where nothing is.
async function whyRefused(file, most) {
  const format = FORMATS.find((each) => file.name.toLowerCase().endsWith(`.${each}`));
  if (!format) return `${file.name} is neither a zip, a tar nor a Parquet file. Pack the folder as a zip, then choose that.`;
  if (file.size > most) return `${file.name} has ${megabytes(file.size)} MB, and the service takes ${megabytes(most)} MB at most.`;
  const head = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  const text = String.fromCharCode(...head);
  const isOne = MARKS[format].every(([start, mark]) => text.startsWith(mark, start))
    || (format === "tar" && file.size >= HEAD && head[0] !== 0 && isTarHeader(head));
  return isOne ? "" : `${file.name} is named .${format}, but it is no ${format} file. Pack the folder again, then choose that.`;
}

// Whether the numbers of a header add up to the sum in it, as in tars from before "ustar".
function isTarHeader(head) {
  const sum = head.reduce((total, byte, place) => total + (place >= 148 && place < 156 ? 32 : byte), 0);
  return sum === Number.parseInt(String.fromCharCode(...head.slice(148, 156)), 8);
}

async function problemOf(answer) {
  const problem = await answer.json().catch(() => null);
  return problem ? `${problem.detail}. ${problem.remedy}.` : `The service answers ${answer.status}.`;
}

// The address of an upload of the same file that was begun before, or of a new one.
async function announce(file, format) {
  const key = `difficulty-upload:${file.name}:${file.size}:${file.lastModified}`;
  const known = window.sessionStorage.getItem(key);
  if (known) {
    const answer = await fetch(known);
    if (answer.ok) return answer.json();
  }
  const answer = await fetch("/v1/uploads", {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ format, size: file.size, name: printable(file.name) || null }),
  });
  if (!answer.ok) throw new Error(await problemOf(answer));
  const upload = await answer.json();
  window.sessionStorage.setItem(key, upload.links.self);
  return upload;
}

// An answer that says where to go on, or that another try may succeed.
async function sendPart(address, start, part) {
  const answer = await fetch(`${address}?offset=${start}`, { method: "PUT", body: part }).catch(() => {
    throw new Unreachable("The service does not answer.");
  });
  if (answer.ok) return answer.json();
  const mayPass = answer.status === 409 || answer.status >= 500 || answer.status === 429;
  throw new (mayPass ? Unreachable : Error)(await problemOf(answer));
}

async function send(file, upload, onProgress, onTrouble) {
  let current = upload;
  let failures = 0;
  while (current.state !== "complete") {
    const start = current.received;
    try {
      current = await sendPart(current.links.self, start, file.slice(start, start + PART));
      failures = 0;
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      if (failures >= RETRIES) throw new Error(`${error.message} Choose the file again to go on where it stopped.`);
      failures += 1;
      onTrouble(error.message);
      await pause(2 ** failures / 2);
      const answer = await fetch(current.links.self).catch(() => null);
      if (answer?.ok) current = await answer.json();
    }
    if (failures === 0) onProgress(current.received);
  }
  return current;
}

export function startUpload() {
  const form = byId("new-job");
  if (!form) return;
  const [drop, input, progress, text, id, submit] = ["drop", "file", "upload-progress", "upload-text", "upload", "submit-job"]
    .map(byId);

  let refused = "";
  const refuse = (why) => {
    refused = why;
    text.textContent = why;
    text.classList.toggle("problem", why !== "");
    if (why) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };

  const take = async (file) => {
    const format = FORMATS.find((each) => file.name.toLowerCase().endsWith(`.${each}`));
    id.value = "";
    refuse(await whyRefused(file, Number(form.dataset.mostBytes)));
    if (refused) return;
    submit.disabled = true;
    progress.hidden = false;
    try {
      const show = (received) => {
        progress.value = received / Math.max(file.size, 1);
        text.textContent = `${file.name}: ${megabytes(received)} of ${megabytes(file.size)} MB`;
      };
      const wait = (reason) => { text.textContent = `${file.name}: ${reason} Trying again.`; };
      const upload = await announce(file, format);
      show(upload.received);
      id.value = (await send(file, upload, show, wait)).id;
      text.textContent = `${file.name} has arrived.`;
      id.dispatchEvent(new Event("change", { bubbles: true })); // for the estimate
    } catch (error) {
      refuse(error.message);
    } finally {
      submit.disabled = false;
    }
  };

  input.addEventListener("change", () => { if (input.files[0]) take(input.files[0]); });
  for (const name of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
    });
  }
  form.addEventListener("drop", (event) => {
    const file = event.dataTransfer.files[0];
    if (!file) return;
    form.querySelector('[name="source"][value="upload"]').checked = true;
    take(file);
  });
  form.addEventListener("submit", (event) => {
    const isUpload = form.querySelector('[name="source"]:checked')?.value === "upload";
    if (!isUpload || id.value) return;
    event.preventDefault();
    refuse(refused || "Choose a file first.");
    input.focus();
  });
}
