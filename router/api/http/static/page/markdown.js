// Markdown as elements. A model's text is nobody's: HTML in it is shown as text, pictures are not loaded, links lead only
// to the web and to mail, and DOMPurify lets no element pass that is not named here. The page's policy forbids scripts
// and elements from text that went another way. Without the two libraries texts stay as they are.

import {copy} from "./clipboard.js";
import {add, addButton} from "./dom.js";

const PURE = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_ARIA_ATTR: false, ALLOW_DATA_ATTR: false, RETURN_DOM_FRAGMENT: true,
};
const ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};

let marked = null, purify = null, loading = null;

const escaped = (text) => text.replace(/[&<>"]/g, (character) => ENTITIES[character]);

const renderer = {
  html: ({raw}) => escaped(raw),
  image: ({raw}) => escaped(raw),
  checkbox: ({checked}) => checked ? "☑ " : "☐ ",
};

// Brings the libraries, the first time that it is called.
export function load() {
  return loading ??= Promise.all([import("./marked.js"), import("./purify.js")]).then(([parser, purifier]) => {
    marked = parser.marked.use({renderer});
    purify = purifier.default;
  }, () => {});
}

export const isLoaded = () => marked !== null;

function elements(block) {
  const fragment = purify.sanitize(marked.parser([block]), PURE);
  for (const link of fragment.querySelectorAll("a")) link.target = "_blank", link.rel = "noopener noreferrer";
  for (const pre of fragment.querySelectorAll("pre")) frame(pre);
  return fragment;
}

// Puts a bar with the language and a button over a block of code.
function frame(pre) {
  const box = document.createElement("div"), code = pre.firstElementChild;
  box.className = "code";
  pre.replaceWith(box);
  const bar = add(box, "div", "bar");
  add(bar, "span", "", code?.className.replace("language-", "") ?? "");
  addButton(bar, "Copy", (button) => copy(pre.textContent.replace(/\n$/, ""), button));
  pre.tabIndex = 0;  // so that a keyboard scrolls it
  box.append(pre);
}

// Shows the text in `place`, whose children show the blocks `before`. Only those that have changed are drawn, so that a
// long answer is not drawn anew with each token. Returns the blocks that are shown.
export function draw(place, text, before) {
  const blocks = marked.lexer(text).filter((block) => block.type !== "space");
  let same = 0;
  while (same < blocks.length && blocks[same].raw === before[same]) same++;
  while (place.children.length > same) place.lastElementChild.remove();
  for (const block of blocks.slice(same)) add(place, "div", "block").append(elements(block));
  return blocks.map((block) => block.raw);
}
