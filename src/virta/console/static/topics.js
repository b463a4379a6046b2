// The topics of the log, live.
import { h, show } from "./dom.js";
import { number, rate, bytes, age } from "./format.js";
import { spark } from "./chart.js";
import { open } from "./live.js";
import { page, trouble, link, facts, copyAs, quoted, python } from "./shell.js";

const rows = new Map();
const body = h("tbody");
const summary = h("p", { class: "lead", role: "status" }, "Looking at the log");
const search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter topics by name", oninput: () => draw() });
const copies = copyAs([
  ["command line", `virta topic ls -l ${quoted(facts.log)}`],
  ["command line, live", `virta top -l ${quoted(facts.log)}`],
  ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    for name in log.topics():\n        print(name, log.topic(name).stats())`],
  ["SQL", "show tables"],
]);
const actions = h("div", { class: "actions" }, search, copies, facts.create ? h("a", { class: "button", href: "new", text: "New topic" }) : null);
const table = h(
  "div",
  { class: "scroll", tabindex: 0, role: "region", "aria-label": "Topics" },
  h(
    "table",
    { class: "list" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        ["Topic", "Rows/s", "Last minute", "Next offset", "Size", "Newest row", "Group lag", "Head"].map((name, at) =>
          h("th", { scope: "col", class: at === 1 || (at > 2 && at < 7) ? "number" : null, text: name }),
        ),
      ),
    ),
    body,
  ),
);
let last = null;

function cells() {
  const name = h("a"), kind = h("span", { class: "tag" });
  return {
    tr: null, name, kind,
    rate: h("td", { class: "number" }), spark: h("td"), next: h("td", { class: "number" }), size: h("td", { class: "number" }),
    newest: h("td", { class: "number" }), lag: h("td", { class: "number" }), head: h("td", { class: "mono dim" }),
  };
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function row(topic, now) {
  let row = rows.get(topic.name);
  if (!row) {
    row = cells();
    row.tr = h("tr", null, h("th", { scope: "row" }, row.name, " ", row.kind), row.rate, row.spark, row.next, row.size, row.newest, row.lag, row.head);
    row.name.href = link("rows", { topic: topic.name });
    rows.set(topic.name, row);
  }
  set(row.name, topic.name);
  if (topic.error) {
    set(row.kind, topic.code);
    set(row.rate, topic.error);
    return row.tr;
  }
  set(row.kind, [topic.kind === "update" ? "update" : "", topic.partitions > 1 ? `${topic.partitions} partitions` : "", topic.locked ? "locked" : ""].filter(Boolean).join(" · "));
  row.kind.hidden = !row.kind.textContent;
  set(row.rate, rate(topic.rate));
  row.rate.classList.toggle("busy", topic.rate > 0);
  show(row.spark, spark(topic.spark, `rows per second of ${topic.name} in the last minute`));
  set(row.next, number(topic.next));
  set(row.size, bytes(topic.bytes));
  set(row.newest, age(topic.newest, now));
  if (topic.group === null) set(row.lag, "–");
  else if (row.group !== topic.group) show(row.lag, (row.lagLink = h("a", { href: link("groups", { group: topic.group, topic: topic.name }), title: `the slowest group is ${topic.group}` })));
  row.group = topic.group;
  if (topic.group !== null) set(row.lagLink, number(topic.lag));
  row.lag.classList.toggle("warn", topic.lag > 0);
  set(row.head, topic.head ? topic.head.slice(0, 12) : "–");
  row.head.title = topic.head || "";
  return row.tr;
}

function draw() {
  if (!last) return;
  const { topics, now } = last;
  const wanted = search.value.trim().toLowerCase();
  const shown = topics.filter((each) => each.name.toLowerCase().includes(wanted));
  const all = shown.map((each) => row(each, now));
  if (all.length !== body.children.length || all.some((tr, at) => body.children[at] !== tr)) body.replaceChildren(...all);
  const total = topics.reduce((sum, each) => sum + (each.rate || 0), 0);
  const size = topics.reduce((sum, each) => sum + (each.bytes || 0), 0);
  show(summary, h("strong", { text: number(topics.length) }), topics.length === 1 ? " topic, " : " topics, ", h("strong", { text: bytes(size) }), ", ", h("strong", { text: rate(total) }), " rows/s");
  table.hidden = !topics.length;
  empty.hidden = topics.length > 0;
}

const empty = h(
  "div",
  { class: "empty", hidden: true },
  h("h2", { text: "No topics yet" }),
  h("p", { text: "Make one here, or from a shell:" }),
  h("pre", { text: "virta topic create orders id:int user:str amount:float\nvirta gen orders --rate 50" }),
);
show(page, h("div", { class: "bar" }, summary, actions), table, empty);
open({
  request: () => ({ op: "topics" }),
  got: (message) => {
    last = message;
    draw();
  },
  failed: (error) => show(page, trouble(error)),
});
