// SQL over all topics.
import { h, show } from "./dom.js";
import { number, plural, span, cell, time } from "./format.js";
import { get, open } from "./live.js";
import { page, parameter, setAddress, trouble, link, copyAs, quoted, python, facts, action, sqlName } from "./shell.js";
import { table } from "./table.js";
import { chart } from "./chart.js";

const HISTORY = "virta-sql-history";
const SHOWN = 500;
const text = h("textarea", { class: "code", rows: 7, spellcheck: "false", "aria-label": "Query", value: parameter("q", ""), placeholder: "select user, count(*), sum(amount) from orders group by 1 order by 3 desc" });
const limit = h("select", { "aria-label": "Row limit" }, ["100", "1000", "10000"].map((each) => h("option", { value: each, text: `up to ${number(Number(each))} rows`, selected: each === parameter("limit", "1000") })));
const run = h("button", { type: "submit", class: "strong", text: "Run" });
const cancel = h("button", { type: "button", text: "Cancel", hidden: true, onclick: () => stop("cancelled") });
const state = h("p", { class: "state", role: "status" });
const output = h("div", { class: "output" });
const drawing = h("div");
let running = null;
let columns = [];
let rows = [];
let begun = 0;
let ticking = 0;

function history() {
  try {
    return JSON.parse(localStorage.getItem(HISTORY) || "[]");
  } catch {
    return [];
  }
}

function remember(query) {
  localStorage.setItem(HISTORY, JSON.stringify([query, ...history().filter((each) => each !== query)].slice(0, 50)));
  drawHistory();
}

function stop(word) {
  if (running) running.stop();
  running = null;
  cancel.hidden = true;
  run.disabled = false;
  clearInterval(ticking);
  if (word) state.textContent = word;
}

function start(query) {
  stop();
  columns = [];
  rows = [];
  show(output);
  show(drawing);
  setAddress({ q: query, limit: limit.value === "1000" ? null : limit.value });
  remember(query);
  run.disabled = true;
  cancel.hidden = false;
  begun = performance.now();
  state.className = "state";
  state.textContent = "running …";
  ticking = setInterval(() => (state.textContent = `running, ${span((performance.now() - begun) / 1000)}`), 250);
  let asked = false;
  running = open({
    request: () => {
      if (asked) rows = [];
      asked = true;
      return { op: "sql", query, limit: Number(limit.value), us: parameter("us") };
    },
    got: (message) => {
      if (message.columns) columns = message.columns;
      rows = rows.concat(message.rows);
      if (!message.done) return;
      stop();
      state.textContent = `${plural(rows.length, "row")}${message.more ? ", and more: raise the limit or export" : ""} in ${span(message.seconds)}`;
      draw();
    },
    failed: (error) => {
      stop("");
      show(output, trouble(error));
    },
  });
}

function draw() {
  if (!columns.length) return;
  const kind = parameter("chart");
  show(output, table(columns, rows.slice(0, SHOWN), "Result"), rows.length > SHOWN ? h("p", { class: "dim", text: `The first ${number(SHOWN)} of ${number(rows.length)} rows are shown.` }) : null);
  const numbers = columns.map((each, at) => ({ ...each, at })).filter((each) => each.number);
  if (!numbers.length || rows.length < 2) return show(drawing);
  const y = numbers.find((each) => each.name === parameter("y")) || numbers[numbers.length - 1];
  const x = columns.map((each, at) => ({ ...each, at })).find((each) => each.name === parameter("x")) || { ...columns[0], at: 0 };
  const choose = (name, label, options, value) =>
    h("label", { class: "pick" }, label, " ", h("select", { onchange: (event) => (setAddress({ [name]: event.target.value }), draw()) }, options.map((each) => h("option", { value: each, text: each, selected: each === value }))));
  const form = kind || "none";
  show(
    drawing,
    h(
      "div",
      { class: "panel" },
      h("div", { class: "actions" }, choose("chart", "Chart", ["none", "bars", "line"], form), form === "none" ? null : [choose("x", "over", columns.map((each) => each.name), x.name), choose("y", "of", numbers.map((each) => each.name), y.name)]),
      form === "none" ? null : chart({ kind: form, label: y.name, x: rows.map((row) => cell(row[x.at])[0]), y: rows.map((row) => Number(row[y.at]) || 0), format: (value) => number(value) === "0" && value ? String(value) : Number.isInteger(value) ? number(value) : value.toPrecision(4) }),
    ),
  );
}

const past = h("ul", { class: "past" });
function drawHistory() {
  const all = history();
  show(past, all.length ? all.slice(0, 20).map((query) => h("li", null, h("button", { type: "button", class: "quiet", title: query, text: query.replace(/\s+/g, " "), onclick: () => ((text.value = query), start(query)) }))) : h("li", { class: "dim", text: "Queries you ran stand here" }));
}

const names = h("ul", { class: "names" });
async function drawNames() {
  const found = (await get("topics")).topics.slice(0, 30);
  const topics = await Promise.all(found.map((each) => get("topic", { topic: each }).catch(() => null)));
  show(
    names,
    topics.filter(Boolean).map((topic) =>
      h(
        "li",
        null,
        h("details", null, h("summary", { text: topic.name }), h("ul", null, ["_offset", "_timestamp", ...topic.columns.map((each) => each.name)].map((each) => h("li", null, h("button", { type: "button", class: "quiet mono", text: each, onclick: () => insert(sqlName(each)) }))))),
        h("button", { type: "button", class: "quiet", "aria-label": `Insert ${topic.name}`, text: "+", onclick: () => insert(sqlName(topic.name)) }),
      ),
    ),
  );
}

function insert(words) {
  const before = text.value.slice(0, text.selectionStart);
  const gap = before && !/\s$/.test(before) ? " " : "";
  text.setRangeText(gap + words, text.selectionStart, text.selectionEnd, "end");
  text.focus();
}

const chosen = () => (text.selectionStart !== text.selectionEnd ? text.value.slice(text.selectionStart, text.selectionEnd) : text.value).trim();
const form = h(
  "form",
  { class: "query", onsubmit: (event) => (event.preventDefault(), chosen() && start(chosen())) },
  text,
  h(
    "div",
    { class: "bar" },
    h("div", { class: "actions" }, run, cancel, limit, h("button", { type: "button", text: "Explain", onclick: () => chosen() && start(`explain ${chosen().replace(/^explain\s+/i, "")}`) })),
    h(
      "div",
      { class: "actions" },
      h("label", { class: "pick" }, "Export ", h("select", { onchange: (event) => { if (event.target.value && chosen()) location.href = link("api/sql/export", { q: chosen(), us: parameter("us"), form: event.target.value }); event.target.value = ""; } }, ["", "csv", "jsonl", "parquet", "arrow", "tsv", "json"].map((each) => h("option", { value: each, text: each || "choose" })))),
      copyAs(() => [
        ["link", location.href],
        ["command line", `virta sql -l ${quoted(facts.log)} ${quoted(text.value.trim())}`],
        ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    print(log.sql(${python(text.value.trim())}).to_arrow())`],
        ["SQL", text.value.trim()],
      ]),
    ),
  ),
);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit();
  }
});

const moment = parameter("us");
const then = moment === null ? null : h(
  "p",
  { class: "state held" },
  `All topics stand as of ${time(Number(moment))} UTC. `,
  h("button", { type: "button", class: "quiet", text: "Back to now", onclick: () => (setAddress({ us: null }), location.reload()) }),
);
show(
  page,
  h(
    "div",
    { class: "sql" },
    h("div", { class: "main" }, then, form, h("p", { class: "hint", text: "DuckDB's SQL over any topics, fixed to their rows of this moment. Ctrl-Enter runs; with a part selected, that part." }), state, drawing, output),
    h("aside", { "aria-label": "Topics and history" }, h("h2", { text: "Topics" }), names, h("h2", { text: "History" }), past),
  ),
);
drawHistory();
drawNames().catch((error) => show(names, trouble(error)));
if (parameter("q")) start(parameter("q"));
action("Cancel the query", () => stop("cancelled"));
