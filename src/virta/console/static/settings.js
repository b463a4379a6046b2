// What a topic is, and changing it.
import { h, show, field } from "./dom.js";
import { bytes, number, plural } from "./format.js";
import { get, post } from "./live.js";
import { page, parameter, setTitle, topicTabs, trouble, say, attempt, forGood, crumbs, copyAs, quoted, facts } from "./shell.js";

const name = parameter("topic", "");

const OPTIONS = [
  ["durability", "Durability", ["os", "disk", "memory"], "what an acknowledgement promises", (c) => c.durability],
  ["compression", "Compression", ["none", "lz4", "zstd"], "of new blocks", (c) => c.compression],
  ["segment_bytes", "Segment size", null, "64 KiB to 16 GiB", (c) => bytes(c.segment_bytes).replace(" ", "")],
  ["retention_age", "Keep for", null, "7d, 12h; empty: for ever", (c) => (c.retention_age_seconds === null ? "" : `${c.retention_age_seconds}s`)],
  ["retention_bytes", "Keep at most", null, "10GiB; empty: all", (c) => (c.retention_bytes === null ? "" : bytes(c.retention_bytes).replace(" ", ""))],
  ["retention_rows", "Keep rows", null, "empty: all", (c) => (c.retention_rows === null ? "" : String(c.retention_rows))],
];

function optionForm(topic) {
  const controls = new Map();
  const save = h("button", { type: "submit", text: "Change" });
  return h(
    "form",
    {
      class: "panel form",
      onsubmit: async (event) => {
        event.preventDefault();
        const options = {};
        for (const [key, , , , read] of OPTIONS) {
          const value = controls.get(key).value.trim();
          if (value === read(topic.config)) continue;
          options[key] = value === "" ? null : key === "retention_rows" ? Number(value) : value;
        }
        if (!Object.keys(options).length) return say("Nothing is different");
        save.disabled = true;
        await attempt(async () => {
          await post("alter", { topic: name, options });
          say("Changed");
          await start();
        });
        save.disabled = false;
      },
    },
    h("h2", { class: "all", text: "Options" }),
    OPTIONS.map(([key, words, choices, hint, read]) => {
      const value = read(topic.config);
      const control = choices ? h("select", null, choices.map((each) => h("option", { value: each, text: each, selected: each === value }))) : h("input", { type: "text", value });
      controls.set(key, control);
      return field(words, control, hint);
    }),
    h("div", { class: "all actions" }, save),
  );
}

function columnPart(topic) {
  const added = h("input", { type: "text", class: "mono", placeholder: "note:str? priority:int?", spellcheck: "false" });
  return h(
    "section",
    { class: "panel" },
    h("h2", { text: "Columns" }),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Columns" },
      h(
        "table",
        { class: "list" },
        h("thead", null, h("tr", null, ["Column", "Type", "Null", "Key"].map((text) => h("th", { scope: "col", text })))),
        h(
          "tbody",
          null,
          topic.columns.map((each) =>
            h("tr", null, h("th", { scope: "row", text: each.name }), h("td", { class: "mono", text: each.said }), h("td", { class: "dim", text: each.nullable ? "may be" : "never" }), h("td", { text: topic.keys.includes(each.name) ? "key" : "" })),
          ),
        ),
      ),
    ),
    topic.may.alter
      ? h(
          "form",
          {
            class: "bar",
            onsubmit: async (event) => {
              event.preventDefault();
              await attempt(async () => {
                await post("alter", { topic: name, columns: added.value });
                say("Columns added");
                await start();
              });
            },
          },
          h("div", { class: "fields" }, h("div", { class: "field wide" }, h("label", { for: "added", text: "Add columns; they may be null, since old rows have none" }), Object.assign(added, { id: "added" }))),
          h("button", { type: "submit", text: "Add" }),
        )
      : null,
  );
}

async function start() {
  setTitle("Settings", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const config = topic.config;
  const told = [
    ["kind", topic.kind],
    ["keys", topic.keys.join(", ") || "none"],
    ["version", number(topic.version)],
    ["rows", number(topic.stats.rows)],
    ["size", `${bytes(topic.stats.bytes)} in ${plural(topic.stats.blocks, "block")}, ${plural(topic.stats.segments, "segment")}`],
    ["partitions", number(topic.partitions.length)],
    ["durable up to", topic.partitions.map((each) => number(each.durable)).join(", ")],
    ["row limit", bytes(config.row_limit_bytes)],
    ["locked", config.locked ? "yes, for good" : "no"],
    ["deletion", config.topic_deletion ? "allowed" : "not allowed"],
    ["id", topic.id],
    ["head", topic.partitions.map((each) => each.head).join(" ")],
  ];
  show(
    page,
    topicTabs(topic, "settings"),
    h("div", { class: "bar" }, h("span"), copyAs([
      ["command line", `virta topic create -l ${quoted(facts.log)} ${quoted(name)} ${topic.words.map(quoted).join(" ")}${topic.keys.length ? ` --keys ${quoted(topic.keys.join(","))}` : ""}${topic.kind === "update" ? " --kind update" : ""}${topic.partitions.length > 1 ? ` --partitions ${topic.partitions.length}` : ""}`],
      ["command line, show", `virta topic show -l ${quoted(facts.log)} ${quoted(name)}`],
    ])),
    h("div", { class: "panels" }, h("section", { class: "panel" }, h("h2", { text: "This topic" }), h("dl", { class: "facts" }, told.map(([key, text]) => [h("dt", { text: key }), h("dd", { class: key === "id" || key === "head" ? "mono" : null, text })]))), columnPart(topic)),
    topic.may.alter && !config.locked ? optionForm(topic) : null,
    topic.may.alter || topic.may.delete
      ? h(
          "section",
          { class: "panel" },
          h("h2", { text: "For good" }),
          h(
            "div",
            { class: "actions" },
            topic.may.alter && !config.locked ? forGood("Lock the topic", "A locked topic takes no more rows and cannot be changed any more.", name, async (typed) => {
                  await post("lock", { topic: name, typed });
                  await start();
                }) : null,
            topic.may.delete ? forGood("Delete the topic", `All ${plural(topic.stats.rows, "row")} are deleted.`, name, async (typed) => {
                  await post("drop", { topic: name, typed });
                  location.href = "./";
                }) : null,
          ),
        )
      : null,
  );
}
start().catch((error) => show(page, trouble(error)));
