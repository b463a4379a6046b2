// Two moments, two topics or two logs, held against each other by key.
import { h, show, field } from "./dom.js";
import { cell, number, plural } from "./format.js";
import { get, post } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, crumbs, trouble, copyAs, python, facts, quoted } from "./shell.js";

const name = parameter("topic", "");
const FIELDS = ["before", "after", "other_topic", "other", "keys"];

async function start() {
  setTitle("Diff", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const input = (key, placeholder) => h("input", { type: "text", class: "mono", spellcheck: "false", autocomplete: "off", placeholder, value: parameter(key, "") });
  const given = {
    before: input("before", "100, -1h, 2026-11-18T10:00Z"),
    after: input("after", "now"),
    other_topic: input("other_topic", name),
    other: input("other", "this log"),
    keys: input("keys", topic.keys.join(", ") || "id"),
  };
  const result = h("div", { class: "results" });
  const button = h("button", { type: "submit", class: "strong", text: "Compare" });
  const values = () => Object.fromEntries(FIELDS.map((key) => [key, given[key].value.trim()]));

  async function run() {
    const asked = values();
    setAddress(asked, true);
    button.disabled = true;
    show(result, h("p", { class: "dim", role: "status", text: "Comparing …" }));
    try {
      draw(await post("diff", { topic: name, ...asked }));
    } catch (error) {
      show(result, trouble(error));
    }
    button.disabled = false;
  }

  function draw(found) {
    const total = found.inserted + found.updated + found.deleted;
    const told = h("p", { class: "lead", role: "status" }, total ? [h("strong", { class: "good", text: `${number(found.inserted)} added` }), ", ", h("strong", { class: "warn", text: `${number(found.updated)} changed` }), ", ", h("strong", { class: "bad", text: `${number(found.deleted)} removed` })] : h("strong", { text: "No difference" }), ` between ${plural(found.rows[0], "key")} and ${number(found.rows[1])}, by ${found.keys.join(", ")}`);
    if (!total) return show(result, told);
    const keys = new Set(found.keys);
    const WORDS = { insert: ["added", "good"], update: ["changed", "warn"], delete: ["removed", "bad"] };
    show(
      result,
      told,
      h(
        "div",
        { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Differences" },
        h(
          "table",
          { class: "list values-table" },
          h("thead", null, h("tr", null, h("th", { scope: "col", text: "What" }), found.columns.map((each) => h("th", { scope: "col", class: each.number ? "number" : null, text: keys.has(each.name) ? `${each.name} (key)` : each.name })))),
          h(
            "tbody",
            null,
            found.changes.map(([kind, old, now]) =>
              h(
                "tr",
                null,
                h("th", { scope: "row", class: WORDS[kind][1], text: WORDS[kind][0] }),
                found.columns.map((each, at) => {
                  const [text, sort] = cell((now || old)[at]);
                  const changed = kind === "update" && JSON.stringify(old[at]) !== JSON.stringify(now[at]);
                  return h("td", { class: `${sort}${each.number ? " number" : ""}${changed ? " changed" : ""}` }, changed ? [h("del", { text: cell(old[at])[0] }), " → ", h("ins", { text })] : text);
                }),
              ),
            ),
          ),
        ),
      ),
      found.more ? h("p", { class: "dim", text: `The first ${number(found.changes.length)} of ${number(total)} differences are shown.` }) : null,
    );
  }

  const place = (text) => (/^\d+$/.test(text) ? text : python(text));
  const code = () => {
    const { before, after, other_topic: second } = values();
    if (second || topic.kind !== "update") return `log.diff(${python(name)}, ${python(second || name)})`;
    return `log.topic(${python(name)}).diff(${place(before || "0")}${after ? `, ${place(after)}` : ""})`;
  };
  show(
    page,
    topicTabs(topic, "diff"),
    h(
      "form",
      { class: "panel form", onsubmit: (event) => (event.preventDefault(), run()) },
      field("Before, as of", given.before, "an offset or a time; empty: now"),
      field("After, as of", given.after, "an offset or a time; empty: now"),
      field("After, of topic", given.other_topic, "empty: the same"),
      facts.create ? field("After, of log", given.other, "a directory or virta://host:port; empty: this one") : null,
      field("By the keys", given.keys, "empty: the topic's own"),
      h("div", { class: "all actions" }, button, copyAs(() => [
        ["link", location.href],
        ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    for change in ${code()}:\n        print(change)`],
        ["pytest", `import virta\n\n\ndef test_nothing_else_changed():\n    with virta.open(${python(facts.log)}) as log:\n        found = ${code()}\n        assert (found.inserted, found.updated, found.deleted) == (0, 0, 0), list(found)`],
      ])),
    ),
    result,
  );
  if (FIELDS.some((key) => parameter(key))) await run();
}
addEventListener("popstate", () => location.reload());
start().catch((error) => show(page, trouble(error)));
