// Gives an editor its name, for those who cannot see it, and the theme of the page, now and when that changes.
export async function prepare(id, label) {
  let made;
  // In a dialog, it is there only when that has opened.
  for (let tries = 0; tries < 200 && !(made = getElement(id))?.editorPromise; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  if (!made?.editorPromise) return;
  const view = await made.editorPromise;
  view.contentDOM.setAttribute("aria-label", label);
  // Whoever runs a statement is done with the suggestions for its last word.
  view.dom.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      if (!view.dom.querySelector(".cm-tooltip-autocomplete")) return;
      const escape = { key: "Escape", code: "Escape", keyCode: 27, bubbles: true, cancelable: true };
      view.contentDOM.dispatchEvent(new KeyboardEvent("keydown", escape));
    },
    true,
  );
  const dress = () => made.setTheme(document.documentElement.dataset.theme === "dark" ? "githubDark" : "vscodeLight");
  dress();
  new MutationObserver(dress).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
