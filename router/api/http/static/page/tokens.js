// Tokens with their probabilities: by colour, by underline, and in figures for the one that is pointed at.

import {add, find, say} from "./dom.js";

const LEAST = [0.9, 0.6, 0.3, 0.1];  // probabilities at which the classes p0 to p3 begin

const percent = (probability) => (100 * probability).toFixed(probability < 0.1 ? 2 : 1) + " %";

export const isScored = (token) => token.logprob !== undefined && token.logprob !== null;

export function addToken(place, token) {
  if (!isScored(token)) return place.append(token.text);
  const probability = Math.exp(token.logprob), bin = LEAST.findIndex((least) => probability >= least);
  const element = add(place, "span", `t p${bin < 0 ? LEAST.length : bin}`, token.text);
  element.title = percent(probability);
  element.likely = (token.others ?? []).map(([text, value]) => `${JSON.stringify(text)} ${percent(Math.exp(value))}`);
}

export function tell(element) {
  if (!element) return;
  find(".current")?.classList.remove("current");
  element.classList.add("current");
  element.scrollIntoView({block: "nearest"});
  const others = element.likely.length ? `; likeliest: ${element.likely.join(", ")}` : "";
  say(`${JSON.stringify(element.textContent)} ${element.title}${others}`);
}

// With the keys ← and →, from token to token of the log.
export function walk(event) {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], elements = [...event.currentTarget.querySelectorAll(".t")];
  if (!step || !elements.length || event.target !== event.currentTarget) return;
  event.preventDefault();
  const index = elements.indexOf(find(".current"));
  tell(elements[index < 0 ? 0 : Math.min(Math.max(index + step, 0), elements.length - 1)]);
}
