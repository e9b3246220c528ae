// Why an answer took as long as it did: the server is asked once a reader wants to know.

import {add} from "./dom.js";
import {refusal} from "./failures.js";
import {headers} from "./parameters.js";

export function addWhy(item, id) {
  const details = add(item, "details", "why");
  add(details, "summary", "", "Why so long?");
  const told = add(details, "div", "");
  details.addEventListener("toggle", async () => {
    if (details.open && !told.querySelector("ol")) await tell(told, id).catch((error) => { told.textContent = error.message; });
  });
}

async function tell(place, id) {
  const response = await fetch(`explain/${encodeURIComponent(id)}`, {headers: headers()});
  if (!response.ok) throw await refusal(response);
  const {explanation, timeline} = await response.json();
  place.replaceChildren();
  add(place, "p", "", explanation);
  const phases = add(place, "ol", "");
  for (const {phase, at, seconds} of timeline) add(phases, "li", "", `${phase}: ${seconds.toFixed(3)} s from ${at.toFixed(3)} s on`);
}
