// How an answer is shown: as Markdown, by its tokens' probabilities, or as it is.

import {add} from "./dom.js";
import * as markdown from "./markdown.js";
import {isColoured} from "./parameters.js";
import {addToken, isScored} from "./tokens.js";

export class View {
  constructor(place, prompt = "") {
    this.place = place;
    this.prompt = prompt;  // of a completion, whose text goes on with it and is no Markdown
    this.text = "";
    this.tokens = [];
    this.shownAs = "nothing";
  }

  take(token) {
    if (!token.text) return;
    this.text += token.text;
    this.tokens.push(token);
  }

  draw() {
    const form = this.#form();
    if (form !== this.shownAs) this.#begin(form);
    if (form === "markdown") return this.#drawMarkdown();
    for (const token of this.tokens.slice(this.numShown)) {
      if (form === "tokens") addToken(this.place, token);
      else this.place.append(token.text);
    }
    this.numShown = this.tokens.length;
  }

  #form() {
    if (isColoured() && this.tokens.some(isScored)) return "tokens";
    return this.prompt || this.isTooDeep || !markdown.isLoaded() ? "plain" : "markdown";
  }

  #begin(form) {
    this.place.replaceChildren();
    this.place.classList.toggle("markdown", form === "markdown");
    if (this.prompt) add(this.place, "span", "prompt", this.prompt);
    this.shownAs = form;
    this.numShown = 0;
    this.blocks = [];
  }

  #drawMarkdown() {
    try {
      this.blocks = markdown.draw(this.place, this.text, this.blocks);
    } catch {  // a thousand quotations in one another are more than the parser's stack takes
      this.isTooDeep = true;
      this.draw();
    }
  }
}
