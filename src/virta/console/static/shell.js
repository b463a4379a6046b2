// What every page has: navigation, theme, connection state, messages, the palette.
import { h, show, byId, field } from "./dom.js";
import { onState, get, post } from "./live.js";

export const facts = JSON.parse(document.querySelector('meta[name="facts"]').content);
export const page = byId("page");
const heading = document.querySelector("h1");

/** State in the address: what is null goes away. */
export function setAddress(changes, push = false) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === false) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const address = location.pathname + (text ? `?${text}` : "");
  if (address === location.pathname + location.search) return;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

export const parameter = (name, otherwise = null) => new URLSearchParams(location.search).get(name) ?? otherwise;

export function link(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters || {})) if (value !== null && value !== undefined && value !== "") query.set(name, value);
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

export function setTitle(text, ...crumbs) {
  document.title = `${text} · Virta`;
  show(heading, crumbs, text);
}

/** The tabs of a topic's pages. */
export function topicTabs(topic, here) {
  const tabs = TOPIC_PAGES.filter((each) => !each.when || each.when(topic));
  const row = h(
    "nav",
    { class: "tabs", "aria-label": "This topic" },
    tabs.map((each) =>
      h("a", { href: link(each.path, { topic: topic.name }), "aria-current": each.path === here ? "page" : null, text: each.name }),
    ),
  );
  // where there is no room for all, the one that is open is in sight
  requestAnimationFrame(() => {
    const open = row.querySelector("[aria-current]");
    if (open) row.scrollLeft = open.offsetLeft - row.offsetLeft - (row.clientWidth - open.offsetWidth) / 2;
  });
  return row;
}
const TOPIC_PAGES = [
  { path: "rows", name: "Rows" },
  { path: "life", name: "Cells", when: (topic) => topic.cells },
  { path: "latest", name: "Latest", when: (topic) => topic.keys.length },
  { path: "produce", name: "Produce", when: (topic) => topic.may.write && !topic.config.locked },
  { path: "replay", name: "Replay", when: () => facts.write },
  { path: "time", name: "Time" },
  { path: "diff", name: "Diff", when: (topic) => topic.keys.length },
  { path: "verify", name: "Verify" },
  { path: "storage", name: "Storage" },
  { path: "capsule", name: "Capsule" },
  { path: "settings", name: "Settings" },
];

/** The crumbs of a page below a topic. */
export const crumbs = (name) => [h("a", { class: "crumb", href: "./", text: "Topics" }), h("a", { class: "crumb", href: link("rows", { topic: name }), text: name })];

/** Say something for a moment. */
export function say(text, kind = "note") {
  const line = h("p", { class: `message ${kind}`, text });
  byId("messages").append(line);
  setTimeout(() => line.remove(), kind === "bad" ? 9000 : 4000);
}

/** An error, with what to do about it. */
export function trouble(error) {
  return h("div", { class: "trouble", role: "alert" }, h("p", { text: error.message }), error.hint ? h("p", { class: "hint", text: error.hint }) : null);
}

/** Do it, and show what went wrong if it does. */
export async function attempt(call) {
  try {
    return await call();
  } catch (error) {
    say(error.hint ? `${error.message}: ${error.hint}` : error.message, "bad");
    return undefined;
  }
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("This browser does not let the page copy", "bad");
  }
}

// -- dialogs --------------------------------------------------------------------------------

/** A dialog with a title; gives the element, already open. */
export function dialog(title, ...content) {
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close", text: "×", onclick: () => box.close() });
  const id = `d${Date.now()}`;
  const box = h("dialog", { "aria-labelledby": id }, h("header", null, h("h2", { id, text: title }), close), content);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** A button for what cannot be undone: it wants `name` typed, then calls. */
export function forGood(words, explanation, name, call) {
  const open = () => {
    const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const button = h("button", { type: "submit", class: "danger", text: words, disabled: true });
    typed.addEventListener("input", () => (button.disabled = typed.value !== name));
    const box = dialog(
      words,
      h(
        "form",
        {
          class: "form",
          onsubmit: async (event) => {
            event.preventDefault();
            await attempt(async () => {
              await call(typed.value);
              box.close();
            });
          },
        },
        h("p", { class: "all", text: explanation }),
        h("div", { class: "all" }, field(`Type ${name} to go on`, typed)),
        h("div", { class: "all actions" }, button, h("button", { type: "button", text: "Cancel", onclick: () => box.close() })),
      ),
    );
    typed.focus();
  };
  return h("button", { type: "button", class: "danger", text: words, onclick: open });
}

/** Ways to say what this view shows, elsewhere. */
export function copyAs(forms) {
  return h("button", {
    type: "button",
    text: "Copy as",
    onclick: () => {
      const made = typeof forms === "function" ? forms() : forms;
      dialog(
        "Copy as",
        h(
          "div",
          { class: "copies" },
          made.map(([name, text]) =>
            h("section", null, h("h3", { text: name }), h("pre", { tabindex: 0, "aria-label": name, text }), h("button", { type: "button", text: "Copy", "aria-label": `Copy as ${name}`, onclick: () => copy(text) })),
          ),
        ),
      );
    },
  });
}

/** As a word of a shell. */
export const quoted = (text) => (/^[\w@%+=:,./#-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
/** As a Python string. */
export const python = (text) => JSON.stringify(text);
/** As an SQL name. */
export const sqlName = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

// -- the palette ------------------------------------------------------------------------------

const actions = [];

/** Something the palette can do on this page. */
export function action(name, run) {
  actions.push({ name, hint: "on this page", run });
}

async function entries() {
  const found = [...document.querySelectorAll(".side nav a")].map((each) => ({ name: each.textContent, hint: "page", href: each.getAttribute("href") }));
  const names = await get("topics").then((answer) => answer.topics, () => []);
  for (const name of names) found.push({ name, hint: "topic", href: link("rows", { topic: name }) });
  const topic = parameter("topic");
  if (topic !== null) for (const each of document.querySelectorAll(".tabs a")) found.push({ name: `${topic}: ${each.textContent}`, hint: "page", href: each.getAttribute("href") });
  return [...actions, ...found, { name: "Switch between light and dark", hint: "theme", run: switchTheme }];
}

let palette = null;

async function openPalette() {
  if (palette) return;
  const list = h("ul", { role: "listbox", id: "palette-list", "aria-label": "Found" });
  const input = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Find a page, a topic or an action", placeholder: "Find a page, a topic or an action", autocomplete: "off", spellcheck: "false" });
  const box = (palette = h("dialog", { class: "palette", "aria-label": "Find" }, input, list));
  box.addEventListener("close", () => {
    box.remove();
    palette = null;
  });
  document.body.append(box);
  box.showModal();
  const all = await entries();
  let at = 0;
  let shown = [];
  const go = (entry) => {
    box.close();
    if (entry.run) entry.run();
    else location.href = entry.href;
  };
  const draw = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = all.filter((each) => words.every((word) => each.name.toLowerCase().includes(word))).slice(0, 50);
    at = Math.max(0, Math.min(at, shown.length - 1));
    show(
      list,
      shown.map((each, index) =>
        h("li", { role: "option", id: `palette-${index}`, "aria-selected": index === at ? "true" : "false", onclick: () => go(each) }, h("span", { text: each.name }), h("span", { class: "dim", text: each.hint })),
      ),
    );
    if (!shown.length) show(list, h("li", { role: "option", "aria-selected": "false", class: "dim", text: "Nothing of that name" }));
    input.setAttribute("aria-activedescendant", shown.length ? `palette-${at}` : "");
    const active = byId(`palette-${at}`);
    if (active) active.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => {
    at = 0;
    draw();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at += event.key === "ArrowDown" ? 1 : -1;
      at = (at + shown.length) % Math.max(1, shown.length);
      draw();
    } else if (event.key === "Enter" && shown[at]) {
      event.preventDefault();
      go(shown[at]);
    }
  });
  draw();
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
  const now = dark ? "light" : "dark";
  document.documentElement.dataset.theme = now;
  localStorage.setItem("virta-theme", now);
}

const leave = byId("sign-out");
if (leave) {
  leave.addEventListener("click", async () => {
    await attempt(() => post("sign-out", {}));
    location.reload();
  });
}
byId("theme").addEventListener("click", switchTheme);
byId("find").addEventListener("click", openPalette);
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
  }
});
onState((now) => {
  const place = byId("connection");
  place.textContent = { connecting: "connecting", open: "live", lost: "connection lost, trying again" }[now];
  place.className = now;
});
