// The form of settings: what it says, and the bodies of requests that follow from it.

import {find} from "./dom.js";

export const form = find("#parameters");

const SYSTEM = "penstock.system";  // the system message's name in the browser's storage
const SCHEMA = {type: "object", properties: {name: {type: "string"}, age: {type: "integer"}}, required: ["name", "age"]};
const OUTSET = {json: JSON.stringify(SCHEMA, null, 2), regex: "[A-Z][a-z]+"};

export const mode = () => form.elements.mode.value;
export const isColoured = () => form.elements.coloured.checked;
const field = (name) => form.elements[name].value;
const number = (name) => field(name) === "" ? undefined : Number(field(name));
export const key = () => field("key");

export const headers = () => ({"content-type": "application/json", ...(key() && {authorization: `Bearer ${key()}`})});

function grammar() {
  const kind = field("grammar");
  if (!kind) return undefined;
  return {type: kind, value: kind === "json" ? JSON.parse(field("grammar_value")) : field("grammar_value")};
}

function shared() {
  const stop = field("stop").split("\n").filter(Boolean);
  return {top_p: number("top_p"), top_k: number("top_k"), seed: number("seed"), stop: stop.length ? stop : undefined};
}

const defined = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

// The body for /v1/chat/completions. Throws SyntaxError where the schema is no JSON, as `completion` does.
export function chat(messages) {
  const system = field("system") ? [{role: "system", content: field("system")}] : [];
  return defined({
    model: "tgi", messages: [...system, ...messages], max_tokens: number("max_tokens"),
    temperature: number("temperature"), response_format: grammar(), ...shared()});
}

// The body for /generate.
export function completion(text) {
  const temperature = number("temperature");
  return {inputs: text, parameters: defined({
    max_new_tokens: number("max_tokens"), do_sample: temperature !== 0, temperature: temperature || undefined,
    grammar: grammar(), ...shared()})};
}

export function showWrongSchema() {
  find("#settings").open = true;
  form.elements.grammar_value.focus();
}

function changeGrammar() {
  const kind = field("grammar");
  find("#grammar-field").hidden = !kind;
  find("#grammar-label").textContent = kind === "json" ? "JSON schema" : "Regular expression";
  if (kind) form.elements.grammar_value.value = OUTSET[kind];
}

// Browsers may keep a page from storing anything: then the system message lasts as long as the page.
function rememberSystem() {
  try {
    if (field("system")) localStorage.setItem(SYSTEM, field("system"));
    else localStorage.removeItem(SYSTEM);
  } catch { /* it is not remembered */ }
}

function recallSystem() {
  try {
    form.elements.system.value = localStorage.getItem(SYSTEM) ?? "";
  } catch { /* nothing was remembered */ }
}

export function watch() {
  recallSystem();
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.grammar.addEventListener("change", changeGrammar);
  form.elements.system.addEventListener("input", rememberSystem);
}
