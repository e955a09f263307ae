// Sets the accessible name of an editor, and keeps its theme equal to that of the page.
export async function prepare(id, label) {
  let editor;
  // The editor of a dialog exists only once the dialog is open.
  for (let attempts = 0; attempts < 200 && !(editor = getElement(id))?.editorPromise; attempts++) {
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  if (!editor?.editorPromise) return;
  const view = await editor.editorPromise;
  view.contentDOM.setAttribute("aria-label", label);
  // Ctrl+Enter closes the suggestions, which would otherwise stay open over the result.
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
  const applyTheme = () => editor.setTheme(document.documentElement.dataset.theme === "dark" ? "githubDark" : "vscodeLight");
  applyTheme();
  new MutationObserver(applyTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
