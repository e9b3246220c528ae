// The log: the conversation's turns and completions of texts, and what a user does with each.

import {copy} from "./clipboard.js";
import {add, addButton, find, say} from "./dom.js";
import * as markdown from "./markdown.js";
import * as parameters from "./parameters.js";
import {streamChat, streamCompletion} from "./stream.js";
import {View} from "./view.js";
import {addWhy} from "./why.js";

const GUIDE = {
  chat: "Ask something. The model sees the whole conversation.",
  completion: "Begin a text, and the model goes on with it.",
};
const REST = 16;  // milliseconds of an answer after which the page is drawn and hears what the user does
const SHARE = 4;  // a long answer is drawn so seldom that drawing takes no more than one part of so many

const log = find("#log");
let turns = [];  // of the chat: {role, content}
let views = [];  // of the answers in the log
let last = "Hello";  // text that was sent
let running = null;  // AbortController of the answer that is being written

export const stop = () => running?.abort();

export function guide() {
  if (find("#empty")) find("#empty").textContent = GUIDE[parameters.mode()];
}

export function clear() {
  stop();
  turns = [];
  views = [];
  log.replaceChildren(Object.assign(document.createElement("li"), {id: "empty"}));
  guide();
  say("");
}

export function redraw() {
  log.classList.toggle("coloured", parameters.isColoured());
  for (const view of views) view.draw();
}

// The body of the request that `send` would make of the text; without one, of the request that was made last.
export function nextBody(text, isChat) {
  if (!isChat) return parameters.completion(text.trim() ? text : last);
  if (text.trim() || !turns.length) return parameters.chat([...turns, {role: "user", content: text.trim() ? text : last}]);
  return parameters.chat(turns.slice(0, turns.findLastIndex((turn) => turn.role === "user") + 1));
}

// Asks for an answer to the text, or for what follows on it. Returns whether it could be asked, without awaiting it.
export const send = (text, isChat) => isChat ? ask(turns, text) : begin({isChat, text});

// Asks a question of the chat behind the turns `before`; `prepare` makes room for it in the log.
function ask(before, text, prepare) {
  const question = {role: "user", content: text};
  return begin({isChat: true, turns: [...before, question]}, () => {
    prepare?.();
    showQuestion(question, before);
  });
}

function bodyOf(asked) {
  try {
    return asked.isChat ? parameters.chat(asked.turns)
      : parameters.completion(asked.text);
  } catch (error) {
    parameters.showWrongSchema();
    say(`The schema is no JSON: ${error.message}`);
    return null;
  }
}

function begin(asked, prepare) {
  const body = !running && parameters.form.reportValidity() && bodyOf(asked);
  if (!body) return false;
  last = asked.text ?? asked.turns.at(-1).content;
  prepare?.();
  answer(asked, body);
  return true;
}

function removeFrom(item) {
  while (item.nextSibling) item.nextSibling.remove();
  item.remove();
  views = views.filter((view) => view.place.isConnected);
}

function addItem(className, who) {
  find("#empty")?.remove();
  const item = add(log, "li", className);
  add(item, "h2", "", who);
  return item;
}

function showQuestion({content}, before) {
  const item = addItem("user", "You"), text = add(item, "div", "text", content);
  const acts = add(item, "div", "acts");
  addButton(acts, "Copy", (button) => copy(content, button));
  addButton(acts, "Edit", () => edit(item, text, acts, (edited) => ask(before, edited, () => removeFrom(item))));
}

// Puts a field in the place of a question's text. What follows on the question is asked anew and so goes.
function edit(item, text, acts, askEdited) {
  const form = document.createElement("form"), field = add(form, "textarea", "edited"), row = add(form, "div", "row");
  field.value = text.textContent;
  field.rows = Math.min(10, field.value.split("\n").length + 1);
  field.setAttribute("aria-label", "Message");
  const leave = () => { form.replaceWith(text); acts.hidden = false; find("#prompt").focus(); };
  const submit = () => { if (field.value.trim() && askEdited(field.value)) find("#prompt").focus(); };
  addButton(row, "Cancel", leave);
  addButton(row, "Send", submit, "small main");
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    if (event.key === "Enter" && !event.isComposing && !event.shiftKey) event.preventDefault(), submit();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  acts.hidden = true;
  text.replaceWith(form);
  field.focus();
}

async function answer(asked, body) {
  const item = addItem("answer", asked.isChat ? "Model" : "Completion");
  const view = new View(add(item, "div", "text"), asked.text), acts = add(item, "div", "acts");
  const talk = turns = asked.isChat ? [...asked.turns] : turns, libraries = asked.isChat && markdown.load();
  views.push(view);
  view.draw();
  const request = await write(item, view, add(acts, "p", "note"), asked.isChat ? streamChat : streamCompletion, body);
  if (asked.isChat) {
    if (view.text) talk.push({role: "assistant", content: view.text});
    else talk.pop();  // the server has answered nothing, so nothing was said
  } else if (item.classList.contains("failed")) find("#prompt").value ||= asked.text;
  addButton(acts, "Copy", (button) => copy(view.text, button));
  addButton(acts, "Regenerate", () => begin(asked, () => removeFrom(item)), "small again");
  if (request) addWhy(item, request);
  await libraries;
  view.draw();
}

async function write(item, view, note, stream, body) {
  const mine = running = new AbortController(), told = {};
  let count = 0, start = 0, reason = "the connection's end", isAtEnd = true, rested = performance.now(), rest = REST;
  setRunning(true);
  try {
    for await (const token of stream(body, mine.signal, told)) {
      mine.signal.throwIfAborted();  // what came before the user stopped it, but was not drawn yet, is left out
      if (count++ === 0) start = performance.now();
      view.take(token);
      reason = token.reason || reason;
      if (document.hidden || performance.now() - rested < rest) continue;  // hidden pages are given a second's rest
      const began = performance.now();
      view.draw();
      if (isAtEnd) log.scrollTop = log.scrollHeight;
      rest = Math.max(REST, SHARE * (performance.now() - began));
      await new Promise((resolve) => setTimeout(resolve));  // else nobody could stop an answer that comes fast
      isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
      rested = performance.now();
    }
  } catch (error) {
    reason = error.name === "AbortError" ? "you" : error.message;
    if (error.name !== "AbortError") item.classList.add("failed"), note.classList.add("failed");
  }
  const seconds = (performance.now() - start) / 1000, rate = count > 1 ? `, ${((count - 1) / seconds).toFixed(1)} a second` : "";
  note.textContent = item.classList.contains("failed") ? reason : `${count} tokens${rate}, ended by ${reason}`;
  view.draw();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  if (running === mine) {
    running = null;
    setRunning(false);
    say(note.textContent);
  }
  return told.request;
}

function setRunning(isRunning) {
  log.setAttribute("aria-busy", isRunning);  // so that an answer is read out when it is whole
  find("#stop").disabled = !isRunning;
  find("#send").disabled = isRunning;
  if (isRunning) say("The model writes. Escape stops it.");
}
