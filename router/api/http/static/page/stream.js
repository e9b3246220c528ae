// An answer's tokens, {text, logprob, others: [[text, logprob]], reason}, to its end: when the server dies, the answer
// goes on behind the last event that came. The id of the last request for it is put into `told`.

import {say} from "./dom.js";
import {Gone, Overloaded, broken, failure, refusal} from "./failures.js";
import {headers, isColoured} from "./parameters.js";

const PATIENCE = 120000;  // milliseconds for which a server that is gone is tried again

function readChat(event) {
  const choice = event.choices[0];
  if (!choice) return {text: ""};
  const scored = choice.logprobs?.content ?? [], one = scored.length === 1 ? scored[0] : null;
  return {
    text: choice.delta.content ?? "", logprob: one?.logprob, reason: choice.finish_reason,
    others: one?.top_logprobs?.map((other) => [other.token, other.logprob])};
}

function readCompletion(event) {
  return {
    text: event.token.special ? "" : event.token.text, logprob: event.token.logprob,
    reason: event.details?.finish_reason,
    others: event.top_tokens?.map((other) => [other.text, other.logprob])};
}

export const streamChat = (body, signal, told) => stream("v1/chat/completions", readChat, {
  ...body, stream: true, ...(isColoured() && {logprobs: true, top_logprobs: 3})}, signal, told);

export const streamCompletion = (body, signal, told) => stream("generate_stream", readCompletion, {
  ...body, parameters: {...body.parameters, details: true, ...(isColoured() && {top_n_tokens: 3})}}, signal, told);

async function* stream(path, read, body, signal, told) {
  const state = {id: null, hasBegun: false, isWhole: false, told};
  for (let since = null, tries = 0; ;) {
    try {
      for await (const event of attempt(path, body, signal, state)) {
        since = null, tries = 0, state.hasBegun = true;
        yield read(event);
      }
      return;
    } catch (error) {
      if (state.isWhole) return;
      since ??= Date.now();
      const isGone = error instanceof Gone || (error instanceof Overloaded && state.hasBegun);
      if (!isGone || Date.now() - since > PATIENCE) throw error;
      state.hasBegun ||= state.id !== null;
      say("The server is gone. The answer goes on when it is back.");
      await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(2000, 50 * 2 ** tries++)));
      signal.throwIfAborted();
    }
  }
}

async function* attempt(path, body, signal, state) {
  const ids = {accept: "text/event-stream", ...(state.id && {"last-event-id": state.id})};
  const response = await fetch(
    path, {method: "POST", headers: {...headers(), ...ids}, body: JSON.stringify(body), signal}).catch(broken);
  state.told.request = response.headers.get("x-request-id");
  if (!response.ok) throw await refusal(response);
  state.id ??= response.headers.get("penstock-answer");
  for await (const {data, id} of events(response)) {
    if (data === "[DONE]") return void (state.isWhole = true);
    const event = JSON.parse(data), error = failure(event);
    if (error) throw error;
    state.id = id ?? state.id;
    state.isWhole ||= typeof event.generated_text === "string";
    yield event;
  }
  if (!state.isWhole) throw new Gone("The connection ended before the answer");
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read().catch(broken);
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const fields = {};
      for (const line of frame.split("\n")) {
        const colon = line.indexOf(":");
        if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trim();
      }
      if (fields.data) yield fields;
    }
  }
}
