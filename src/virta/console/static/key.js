// What a key has been: every row of it, the newest first, with what changed.
import { h, show } from "./dom.js";
import { cell, number, plural, time } from "./format.js";
import { get, open } from "./live.js";
import { page, parameter, setTitle, topicTabs, crumbs, trouble, link, copyAs, quoted, python, sqlName, facts } from "./shell.js";

const name = parameter("topic", "");
const partition = Number(parameter("partition", 0));
const offset = Number(parameter("offset", 0));

async function start() {
  const [topic, key] = await Promise.all([get("topic", { topic: name }), get("key", { topic: name, partition, offset })]);
  const said = Object.entries(key.key).map(([column, value]) => `${column} ${cell(value)[0]}`).join(", ");
  setTitle(said, ...crumbs(name));
  const status = h("p", { class: "state", role: "status", text: "looking …" });
  const stop = h("button", { type: "button", text: "Stop", onclick: () => (search.stop(), (stop.hidden = true), (status.textContent = `stopped; ${plural(rows.length, "row")} found`)) });
  const place = h("div", { class: "results" });
  let rows = [];
  let next = null, last = null;
  show(
    page,
    topicTabs(topic, "rows"),
    h(
      "div",
      { class: "bar" },
      h("div", { class: "states" }, status),
      h("div", { class: "actions" }, stop, h("a", { class: "button", href: link("rows", { topic: name, partition: partition || null, where: key.where }), text: "As rows" }), copyAs([
        ["link", location.href],
        ["command line", `virta read -l ${quoted(facts.log)} ${quoted(name)} --where ${quoted(key.where)}`],
        ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    for row in log.topic(${python(name)}).where(${python(key.where)}):\n        print(row)`],
        ["SQL", `select * from ${topic.kind === "update" ? sqlName(`${name}@:`) : sqlName(name)} where ${key.where} order by _offset`],
      ])),
    ),
    place,
  );
  const draw = () => {
    const keys = new Set(Object.keys(key.key));
    const columns = key.columns.map((each, at) => ({ ...each, at: at + 2 })).filter((each) => !keys.has(each.name));
    show(
      place,
      h(
        "div",
        { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "History of the key" },
        h(
          "table",
          { class: "list values-table" },
          h("thead", null, h("tr", null, h("th", { scope: "col", class: "number", text: "offset" }), h("th", { scope: "col", text: "time" }), columns.map((each) => h("th", { scope: "col", class: each.number ? "number" : null, text: each.name })))),
          h(
            "tbody",
            null,
            rows.slice(0, 1000).map((row, at) => {
              const before = rows[at + 1];
              return h(
                "tr",
                { class: row[0] === offset ? "marked" : null },
                h("th", { scope: "row", class: "number" }, h("a", { href: link("row", { topic: name, partition: partition || null, offset: row[0] }), text: number(row[0]) })),
                h("td", { class: "dim", text: time(row[1]) }),
                columns.map((each) => {
                  const [text, kind] = cell(row[each.at]);
                  const changed = before && JSON.stringify(before[each.at]) !== JSON.stringify(row[each.at]);
                  return h("td", { class: `${kind}${each.number ? " number" : ""}${changed ? " changed" : ""}`, title: changed ? `was ${cell(before[each.at])[0]}` : null, text });
                }),
              );
            }),
          ),
        ),
      ),
      h("p", { class: "hint" }, h("span", { class: "changed", text: "marked" }), " values are other than in the row before."),
    );
  };
  const search = open({
    request: () => ({ op: "search", topic: name, partition, where: key.where, after: next, done: last && last.done }),
    got: (message) => {
      const got = message.rows || [];
      // the past comes backwards in stretches, what is new at the end
      rows = rows.length && got.length && got[0][0] > rows[0][0] ? [...got.slice().reverse(), ...rows] : [...rows, ...got.slice().reverse()];
      if (message.next !== undefined) next = message.next;
      if (message.total !== undefined) last = message;
      if (got.length || (message.done && !rows.length)) draw();
      if (!last) return;
      stop.hidden = Boolean(last.done);
      status.className = last.done ? "state live" : "state";
      status.textContent = last.done ? `${plural(rows.length, "row")} of this key${last.more ? ", the newest" : ""}` : `${plural(rows.length, "row")}; looked at ${number(last.scanned)} of ${number(last.total)} rows`;
    },
    failed: (error) => show(place, trouble(error)),
  });
}
start().catch((error) => show(page, trouble(error)));
