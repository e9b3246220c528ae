// Elements: finding them, making them, and telling the user something.

export const find = (selector) => document.querySelector(selector);

export const say = (text) => { find("#status").textContent = text; };

export function add(parent, name, className, text = "") {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return parent.appendChild(element);
}

export function addButton(parent, label, press, className = "small") {
  const button = add(parent, "button", className, label);
  button.type = "button";
  button.addEventListener("click", () => press(button));
  return button;
}
