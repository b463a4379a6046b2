// Rows into a topic: from a form, pasted, made up, or from a file.
import { h, show, field } from "./dom.js";
import { number, plural, bytes, rate, span } from "./format.js";
import { get, post, open } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, crumbs, trouble, link, copyAs, quoted, facts, action } from "./shell.js";
import { table } from "./table.js";

const name = parameter("topic", "");
const result = h("div", { role: "status", class: "panel", hidden: true });
let topic;

function told(...children) {
  result.hidden = false;
  show(result, children);
}

function appended(answer) {
  const where =
    answer.first === null
      ? "over several partitions"
      : answer.first === answer.last
        ? `at offset ${number(answer.first)}`
        : `at offsets ${number(answer.first)} to ${number(answer.last)}`;
  told(
    h("p", null, h("strong", { text: `Appended ${plural(answer.rows, "row")}` }), ` ${where}, acknowledged at ${answer.durability}`),
    answer.first === null ? null : h("p", null, h("a", { href: link("rows", { topic: name, partition: answer.partition || null, at: answer.first }), text: "See it in the topic" })),
  );
}

async function doing(button, call) {
  button.disabled = true;
  try {
    await call();
  } catch (error) {
    told(trouble(error));
  } finally {
    button.disabled = false;
  }
}

// -- form -------------------------------------------------------------------------------------

const plainText = (type) => /^(large_)?(string|binary)|^dictionary/.test(type) || type.startsWith("fixed_size_binary");

function control(column, value) {
  if (column.type === "bool")
    return h("select", { "data-column": column.name }, [["", column.nullable ? "null" : "choose"], ["true", "true"], ["false", "false"]].map(([v, text]) => h("option", { value: v, selected: String(value) === v, text })));
  const nested = /^(struct|list|large_list|map|fixed_size_list)/.test(column.type);
  const text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (nested) return h("textarea", { class: "code", rows: 2, "data-column": column.name, placeholder: "JSON", value: text });
  return h("input", { type: "text", inputmode: column.number ? "decimal" : null, "data-column": column.name, value: text, placeholder: column.nullable ? "null" : "", autocomplete: "off" });
}

function valueOf(column, text) {
  if (text === "" && column.nullable) return null;
  if (column.type === "bool") return text === "" ? undefined : text === "true";
  if (plainText(column.type)) return text;
  if (/^(struct|list|large_list|map|fixed_size_list|u?int|double|float|halffloat)/.test(column.type)) {
    if (/^-?\d{16,}$/.test(text)) return { $whole: text };
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

// numbers JavaScript cannot hold go as they were typed
const body = (value) => JSON.stringify(value).replace(/\{"\$whole":"(-?\d+)"\}/g, "$1");

function formPart(values) {
  const again = h("input", { type: "checkbox", checked: true, id: "again" });
  const submit = h("button", { type: "submit", class: "strong", text: "Append" });
  const fields = topic.columns.map((column) => field(column.name, control(column, values && values[column.name]), column.said + (column.nullable ? ", may be null" : "") + (topic.keys.includes(column.name) ? ", key" : "")));
  return h(
    "form",
    {
      class: "form",
      onsubmit: (event) => {
        event.preventDefault();
        doing(submit, async () => {
          const row = {};
          for (const element of event.target.querySelectorAll("[data-column]")) {
            const column = topic.columns.find((each) => each.name === element.dataset.column);
            const value = valueOf(column, element.value);
            if (value !== undefined) row[column.name] = value;
          }
          const response = await fetch("api/append", { method: "POST", headers: { "content-type": "application/json" }, body: body({ topic: name, rows: [row] }) });
          const answer = await response.json();
          if (!response.ok) throw Object.assign(new Error(answer.error.message), answer.error);
          appended(answer);
          if (!again.checked) event.target.reset();
        });
      },
    },
    fields,
    h("div", { class: "all actions" }, submit, h("div", { class: "field check" }, again, h("label", { for: "again", text: "Keep what is typed" }))),
  );
}

// -- paste --------------------------------------------------------------------------------------

function pastePart() {
  const text = h("textarea", { class: "code", rows: 10, spellcheck: "false", placeholder: `{${topic.columns.map((each) => `"${each.name}": …`).join(", ")}}` });
  const form = h("select", null, [["", "tell by itself"], ["jsonl", "JSON, a row per line"], ["json", "JSON array"], ["csv", "CSV"], ["tsv", "TSV"]].map(([value, words]) => h("option", { value, text: words })));
  const look = h("button", { type: "button", text: "Check", onclick: () => send(look, true) });
  const submit = h("button", { type: "submit", class: "strong", text: "Append all" });
  const send = (button, dry) =>
    doing(button, async () => {
      const answer = await post("append", { topic: name, text: text.value, form: form.value || null, dry_run: dry });
      if (dry) told(h("p", null, h("strong", { text: plural(answer.rows, "row") }), " fit the topic; nothing was appended"), table(answer.preview.columns, answer.preview.rows, "The first rows"));
      else appended(answer);
    });
  return h(
    "form",
    { class: "form", onsubmit: (event) => (event.preventDefault(), send(submit, false)) },
    h("div", { class: "all" }, field("Rows", text, "JSON objects, or a table with a line of column names; copied from a spreadsheet is TSV")),
    field("Form", form),
    h("div", { class: "all actions" }, submit, look),
  );
}

// -- made up ------------------------------------------------------------------------------------

function generatePart() {
  const names = Object.keys(topic.templates);
  const text = h("textarea", { class: "code", rows: 8, spellcheck: "false", placeholder: "from the columns", value: names.length ? topic.templates[names[0]] : "" });
  const choose = names.length
    ? field("Template", h("select", { onchange: (event) => (text.value = topic.templates[event.target.value] || "") }, [...names, ""].map((each) => h("option", { value: each, text: each || "from the columns" }))))
    : null;
  const count = h("input", { type: "text", inputmode: "numeric", value: "100" });
  const speed = h("input", { type: "text", inputmode: "decimal", placeholder: "at once" });
  const seed = h("input", { type: "text", inputmode: "numeric", placeholder: "another each time" });
  let running = null;
  const start = h("button", { type: "submit", class: "strong", text: "Start" });
  const stop = h("button", { type: "button", text: "Stop", hidden: true, onclick: () => ended("stopped") });
  const look = h("button", { type: "button", text: "Look first", onclick: () => run(true) });
  let last = null;
  const ended = (word) => {
    if (running) running.stop();
    running = null;
    stop.hidden = true;
    start.disabled = false;
    if (last) told(h("p", null, h("strong", { text: `Appended ${plural(last.done, "row")}` }), ` in ${span(last.seconds)}, ${word}`), h("p", null, h("a", { href: link("rows", { topic: name }), text: "See them in the topic" })));
  };
  const run = (dry) => {
    last = null;
    if (!dry) {
      start.disabled = true;
      stop.hidden = false;
    }
    let began = false;
    running = open({
      request: () => {
        if (began) return { op: "stop" }; // after a lost connection nobody wants them twice
        began = true;
        return { op: "generate", topic: name, template: text.value, count: count.value, rate: speed.value, seed: seed.value, dry_run: dry };
      },
      got: (message) => {
        if (message.preview) return told(h("p", { text: "Rows like these; nothing was appended" }), table(message.preview.columns, message.preview.rows, "Made-up rows"));
        last = message;
        told(h("p", null, h("strong", { text: `${number(message.done)}${message.count ? ` of ${number(message.count)}` : ""} rows` }), `, ${rate(message.done / Math.max(0.001, message.seconds))} a second`));
      },
      failed: (error) => {
        told(trouble(error));
        ended("failed");
      },
      ended: () => ended("done"),
    });
  };
  return h(
    "form",
    { class: "form", onsubmit: (event) => (event.preventDefault(), run(false)) },
    choose,
    field("How many", count, "empty: for ever, at a rate"),
    field("Rows a second", speed),
    field("Seed", seed, "the same seed, the same rows"),
    h("div", { class: "all" }, field("Rows", text, "JSON with functions: {{count}}, {{int 1 9}}, {{float 0 1}}, {{name}}, {{word}}, {{choice a b}}, {{now}}, {{uuid}}, {{maybe 0.5 name}}; empty: from the columns")),
    h("div", { class: "all actions" }, start, stop, look),
  );
}

// -- a file -----------------------------------------------------------------------------------------

function filePart() {
  const file = h("input", { type: "file", accept: ".jsonl,.json,.csv,.tsv,.parquet,.arrow,.arrows" });
  const submit = h("button", { type: "submit", class: "strong", text: "Import" });
  return h(
    "form",
    {
      class: "form",
      onsubmit: (event) => {
        event.preventDefault();
        const chosen = file.files[0];
        if (!chosen) return told(h("p", { text: "Choose a file first" }));
        told(h("p", { text: `Importing ${chosen.name}, ${bytes(chosen.size)} …` }));
        doing(submit, async () => {
          const response = await fetch(link("api/import", { topic: name, name: chosen.name }), { method: "POST", body: chosen });
          const answer = await response.json();
          if (!response.ok) throw Object.assign(new Error(answer.error.message), answer.error);
          told(h("p", null, h("strong", { text: `Imported ${plural(answer.rows, "row")}` }), answer.known ? `; ${plural(answer.known, "row")} of this file were there already` : ""));
        });
      },
    },
    h("div", { class: "all" }, field("File", file, "JSON lines, JSON, CSV, TSV, Parquet or Arrow. The same file sent twice is imported once.")),
    h("div", { class: "all actions" }, submit),
  );
}

// -- the page -----------------------------------------------------------------------------------------

const PARTS = [
  ["form", "Form", formPart],
  ["paste", "Paste", pastePart],
  ["generate", "Make up", generatePart],
  ["file", "File", filePart],
];

async function start() {
  setTitle("Produce", ...crumbs(name));
  topic = await get("topic", { topic: name });
  const values = parameter("row") === null ? null : await whole();
  const place = h("div", { class: "panel" });
  const buttons = h(
    "div",
    { class: "actions", role: "group", "aria-label": "How" },
    PARTS.map(([key, words]) => h("button", { type: "button", "data-part": key, text: words, onclick: () => choose(key) })),
  );
  const choose = (key) => {
    setAddress({ how: key === "form" ? null : key });
    for (const each of buttons.children) each.setAttribute("aria-pressed", each.dataset.part === key);
    result.hidden = true;
    show(place, PARTS.find(([one]) => one === key)[2](values));
  };
  show(
    page,
    topicTabs(topic, "produce"),
    topic.may.write && !topic.config.locked ? null : h("p", { class: "trouble", text: topic.config.locked ? "This topic is locked: it takes no more rows." : "You may look at this topic, but not write to it." }),
    h("div", { class: "bar" }, buttons, copyAs(() => [
      ["command line", `virta append -l ${quoted(facts.log)} ${quoted(name)} rows.jsonl`],
      ["command line, made up", `virta gen -l ${quoted(facts.log)} ${quoted(name)} --count 100`],
      ["Python", `import virta\n\nwith virta.open(${JSON.stringify(facts.log)}) as log:\n    log.topic(${JSON.stringify(name)}).append([{${topic.columns.map((each) => `"${each.name}": …`).join(", ")}}])`],
    ])),
    place,
    result,
  );
  choose(PARTS.some(([key]) => key === parameter("how")) ? parameter("how") : "form");
  for (const [key, words] of PARTS) action(`Produce: ${words}`, () => choose(key));
}

/** The row that is to be sent again, with whole values. */
async function whole() {
  const place = { topic: name, partition: parameter("partition", 0), offset: parameter("row") };
  const row = await get("row", place);
  const values = {};
  for (const each of row.fields) {
    const cut = each.value !== null && typeof each.value === "object" && ("$cut" in each.value || "$hex" in each.value);
    values[each.name] = cut ? (await get("value", { ...place, column: each.name, form: "json" })).value : each.value;
  }
  return values;
}
start().catch((error) => show(page, trouble(error)));
