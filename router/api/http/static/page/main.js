// The page's beginning: what the user does, and which module does it.

import {copy} from "./clipboard.js";
import {find, say} from "./dom.js";
import {curl, python} from "./export.js";
import {follow, readInfo} from "./figures.js";
import * as parameters from "./parameters.js";
import {tell, walk} from "./tokens.js";
import * as turns from "./turns.js";

const log = find("#log"), prompt = find("#prompt"), exported = find("#exported");
const isChat = () => parameters.mode() === "chat";

function send() {
  if (prompt.value.trim() && turns.send(prompt.value, isChat())) prompt.value = "";
}

function isToSend(event) {
  return event.key === "Enter" && !event.isComposing && !event.shiftKey && (event.ctrlKey || event.metaKey || isChat());
}

function changeMode() {
  for (const element of document.querySelectorAll("[data-only=chat]")) element.hidden = !isChat();
  find("#prompt-label").textContent = isChat() ? "Message" : "Text to go on with";
  prompt.placeholder = find("#prompt-label").textContent;
  turns.guide();
}

function changeColours() {
  find("#legend").hidden = !parameters.isColoured();
  turns.redraw();
}

// Shows the request that the page would make now, or else has made last.
function showExported() {
  const write = exported.querySelector("[name=language]:checked").value === "curl" ? curl : python;
  try {
    exported.querySelector("pre").textContent = write(isChat(), turns.nextBody(prompt.value, isChat()));
  } catch (error) {
    return say(`The schema is no JSON: ${error.message}`);
  }
  if (!exported.open) exported.showModal();
}

find("#prompt-form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
prompt.addEventListener("keydown", (event) => { if (isToSend(event)) { event.preventDefault(); send(); } });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") turns.stop(); });
find("#stop").addEventListener("click", () => { turns.stop(); prompt.focus(); });
find("#clear").addEventListener("click", () => { turns.clear(); prompt.focus(); });
find("#export").addEventListener("click", showExported);
exported.addEventListener("change", showExported);
find("#copy-export").addEventListener("click", (event) => copy(exported.querySelector("pre").textContent, event.target));
log.addEventListener("click", (event) => tell(event.target.closest(".t")));
log.addEventListener("keydown", walk);
for (const radio of parameters.form.elements.mode) radio.addEventListener("change", changeMode);
parameters.form.elements.coloured.addEventListener("change", changeColours);
parameters.form.elements.key.addEventListener("change", readInfo);

const wide = matchMedia("(min-width: 56.01rem)"), settings = find("#settings");
const unfold = () => { settings.open = wide.matches; };
wide.addEventListener("change", unfold);
unfold();
parameters.watch();
changeMode();
turns.clear();
changeColours();
readInfo();
follow();
