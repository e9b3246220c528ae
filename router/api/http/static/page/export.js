// A request as a command of curl and as a program in Python, which ask the server what the page asks it. The API key is
// not written into them: they take it from the environment.

import {key} from "./parameters.js";

const address = (path) => new URL(path, document.baseURI).href;
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// JSON is Python but for three words.
function literal(value, indent) {
  if (value === null || typeof value === "boolean") return {null: "None", true: "True", false: "False"}[value];
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `, isList = Array.isArray(value);
  const parts = Object.entries(value).map(
    ([name, part]) => `${inner}${isList ? "" : `${JSON.stringify(name)}: `}${literal(part, inner)},\n`);
  const [opening, closing] = isList ? "[]" : "{}";
  return parts.length ? `${opening}\n${parts.join("")}${indent}${closing}` : opening + closing;
}

const named = (fields) => Object.entries(fields).map(([name, value]) => `    ${name}=${literal(value, "    ")},\n`).join("");

export function curl(isChat, body) {
  const authorization = key() ? ` \\\n  -H "Authorization: Bearer $API_KEY"` : "";
  return `curl ${quoted(address(isChat ? "v1/chat/completions" : "generate"))} \\\n  -H 'Content-Type: application/json'`
    + `${authorization} \\\n  -d ${quoted(JSON.stringify(body, null, 2))}\n`;
}

export function python(isChat, body) {
  const secret = 'os.environ["API_KEY"]', imports = key() ? "import os\n\n" : "";
  if (!isChat) {
    const token = key() ? `, token=${secret}` : "";
    return `${imports}from huggingface_hub import InferenceClient\n\n`
      + `client = InferenceClient(${literal(address("."))}${token})\nprint(client.text_generation(\n`
      + `    ${literal(body.inputs)},\n${named({...body.parameters, return_full_text: false})}))\n`;
  }
  const {top_k, ...known} = body, more = top_k === undefined ? {} : {extra_body: {top_k}};
  return `${imports}from openai import OpenAI\n\n`
    + `client = OpenAI(base_url=${literal(address("v1"))}, api_key=${key() ? secret : '"none"'})\n`
    + `answer = client.chat.completions.create(\n${named({...known, ...more})})\n`
    + "print(answer.choices[0].message.content)\n";
}
