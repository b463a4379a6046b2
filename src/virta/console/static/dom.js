// Making elements: text only ever goes in as text.

/**
 * @param {string} tag
 * @param {Record<string, any>|null} [given] attributes; on… listeners; `text`, `value`, `class`, `data`
 * @param {...any} children elements, texts, or lists of them
 * @returns {HTMLElement}
 */
export function h(tag, given, ...children) {
  const made = document.createElement(tag);
  fill(made, given);
  put(made, children);
  return made;
}

/** As `h`, for SVG. */
export function s(tag, given, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(made, given);
  put(made, children);
  return made;
}

function fill(made, given) {
  for (const [name, value] of Object.entries(given || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "text") made.textContent = value;
    else if (name === "value" || name === "checked" || name === "selected") made[name] = value;
    else if (name === "style") for (const [key, said] of Object.entries(value)) made.style.setProperty(key, said);
    else made.setAttribute(name, value === true ? "" : value);
  }
}

function put(made, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : String(child));
  }
}

/** Replace what is in an element. */
export function show(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Call it once things are quiet. */
export function later(milliseconds, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}

/** A labelled field. */
export function field(label, control, hint) {
  const id = control.id || (control.id = `f${++count}`);
  const lines = [h("label", { for: id, text: label }), control];
  if (hint) {
    control.setAttribute("aria-describedby", `${id}-hint`);
    lines.push(h("p", { class: "hint", id: `${id}-hint`, text: hint }));
  }
  return h("div", { class: "field" }, lines);
}
let count = 0;
