// The server's live figures and its facts.

import {add, find} from "./dom.js";
import {headers} from "./parameters.js";

const FIGURES = ["queue", "batch", "kv", "rate"];

let last = null;  // {time, tokens} of the last reading

function sum(text, name) {
  const lines = text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "gm"));
  return [...lines].reduce((total, line) => total + Number(line[1]), 0);
}

// Every token is either the first of its answer or comes after another.
const countTokens = (text) => sum(text, "penstock_time_to_first_token_seconds_count") + sum(text, "penstock_inter_token_latency_seconds_count");

async function readFigures() {
  if (document.hidden) return;
  const response = await fetch("metrics", {headers: headers()});
  if (!response.ok) throw new Error(response.status);
  const text = await response.text(), now = {time: performance.now(), tokens: countTokens(text)};
  const used = sum(text, 'penstock_kv_blocks\\{state="used"\\}'), free = sum(text, 'penstock_kv_blocks\\{state="free"\\}');
  show("queue", sum(text, "tgi_queue_size"));
  show("batch", sum(text, "tgi_batch_current_size"));
  show("kv", used + free ? `${used ? (100 * used / (used + free)).toFixed(1) : 0} %` : "–");
  if (last) show("rate", Math.round(1000 * (now.tokens - last.tokens) / (now.time - last.time)));
  last = now;
}

function show(name, value) {
  find(`[data-figure=${name}]`).textContent = value;
}

// Reads the figures each second.
export async function follow() {
  try {
    await readFigures();
  } catch {
    last = null;
    for (const name of FIGURES) show(name, "–");
  }
  setTimeout(follow, 1000);
}

export async function readInfo() {
  const model = find("#model");
  try {
    const info = await (await fetch("info", {headers: headers()})).json();
    model.textContent = info.model_id.split("/").filter(Boolean).pop();
    model.title = info.model_id;
    find("#info").replaceChildren();
    for (const [name, value] of Object.entries(info)) {
      if (value === null) continue;
      add(find("#info"), "dt", "", name.replaceAll("_", " "));
      add(find("#info"), "dd", "", typeof value === "object" ? JSON.stringify(value) : value);
    }
  } catch {
    model.textContent = "the server does not answer";
  }
}
