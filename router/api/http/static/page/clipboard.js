// Copying a text, also on pages that came over plain HTTP, which browsers keep from the clipboard's own interface.

import {say} from "./dom.js";

const SHOWN = 1500;  // milliseconds for which a button says that it has copied

function copyBySelection(text) {
  const area = document.createElement("textarea"), focused = document.activeElement;
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);  // a dialog keeps the focus inside
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return isCopied;
}

export async function copy(text, button) {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copyBySelection(text);
  const label = button.dataset.label ??= button.textContent;
  button.textContent = isCopied ? "Copied" : "Not copied";
  say(isCopied ? "The text is copied." : "The browser did not copy the text.");
  setTimeout(() => { button.textContent = label; }, SHOWN);
}
