// The review in a notebook: a page in a frame that reaches nothing outside, and its marks in a model.

function render({ model, el }) {
  const frame = document.createElement("iframe");
  // Without an origin of its own, the page can read nothing of the notebook.
  frame.sandbox = "allow-scripts allow-modals allow-downloads";
  frame.title = "Labels to check";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 0;`;
  frame.srcdoc = model.get("page");
  let latest = null;

  const show = () => {
    const value = model.get("stored");
    // What came from this frame would take back the marks that it has got meanwhile.
    if (value !== latest) frame.contentWindow?.postMessage({ difficulty: "marks", value }, "*");
  };
  const listen = ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    if (data?.difficulty === "ready") show();
    if (data?.difficulty !== "marks") return;
    latest = data.value;
    model.set("stored", latest);
    model.save_changes();
  };
  window.addEventListener("message", listen);
  model.on("change:stored", show);
  el.append(frame);
  return () => {
    window.removeEventListener("message", listen);
    model.off("change:stored", show);
  };
}

export default { render };
