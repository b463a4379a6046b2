// A range of rows once more, into another topic.
import { h, show, field } from "./dom.js";
import { number, plural, span, rate } from "./format.js";
import { get, open } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, crumbs, trouble, link, copyAs, quoted, python, sqlName, facts } from "./shell.js";
import { table } from "./table.js";

const name = parameter("topic", "");
const result = h("div", { role: "status", class: "panel", hidden: true });
let running = null;

const told = (...children) => ((result.hidden = false), show(result, children));

async function start() {
  setTitle("Replay", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const names = (await get("topics")).topics;
  const at = h("input", { type: "text", value: parameter("at", ""), placeholder: "all of it", spellcheck: "false" });
  const where = h("input", { type: "text", value: parameter("where", ""), placeholder: "every row", spellcheck: "false" });
  const target = h("input", { type: "text", list: "targets", value: parameter("target", `${name}-replay`), spellcheck: "false" });
  const create = h("input", { type: "checkbox", checked: true, id: "create" });
  const speed = h("select", null, [["0", "as fast as it goes"], ["1", "as it came"], ["10", "10 times as fast"], ["100", "100 times as fast"]].map(([value, text]) => h("option", { value, text, selected: value === parameter("speed") })));
  const partition = topic.partitions.length > 1 ? h("select", null, topic.partitions.map((each) => h("option", { value: String(each.number), text: String(each.number) }))) : null;
  const sql = h("textarea", { class: "code", rows: 3, spellcheck: "false", value: parameter("sql", ""), placeholder: "select *, upper(user) as user from rows" });
  const begin = h("button", { type: "submit", class: "strong", text: "Replay" });
  const look = h("button", { type: "button", text: "Dry run", onclick: () => run(true) });
  const stop = h("button", { type: "button", text: "Stop", hidden: true, onclick: () => end("stopped") });
  const query = () => {
    const rows = `select * exclude (_offset, _timestamp) from ${sqlName(name)}${where.value ? ` where ${where.value}` : ""}`;
    return sql.value.trim() ? `with rows as (select * from ${sqlName(name)}${where.value ? ` where ${where.value}` : ""}) ${sql.value.trim()}` : rows;
  };
  let last = null;
  const end = (word) => {
    if (running) running.stop();
    running = null;
    stop.hidden = true;
    begin.disabled = look.disabled = false;
    if (last && last.done !== undefined)
      told(
        h("p", null, h("strong", { text: `Replayed ${plural(last.done, "row")}` }), ` into ${target.value} in ${span(last.seconds)}, ${word}`),
        h("p", null, h("a", { href: link("rows", { topic: target.value.trim() }), text: "See them" })),
      );
  };
  const run = (dry) => {
    setAddress({ at: at.value, where: where.value, sql: sql.value, target: target.value, speed: speed.value === "0" ? null : speed.value });
    last = null;
    let began = false;
    begin.disabled = look.disabled = true;
    stop.hidden = dry;
    told(h("p", { text: dry ? "Looking …" : "Replaying …" }));
    running = open({
      request: () => {
        if (began) return { op: "stop" };
        began = true;
        return { op: "replay", topic: name, partition: partition ? partition.value : 0, at: at.value, where: where.value, sql: sql.value, target: target.value, create: create.checked, speed: speed.value, dry_run: dry };
      },
      got: (message) => {
        if (dry) {
          told(h("p", null, h("strong", { text: plural(message.count, "row") }), " would go into ", h("strong", { text: target.value }), "; nothing was appended"), message.preview ? table(message.preview.columns, message.preview.rows, "The first rows") : null);
          return;
        }
        last = message;
        told(h("p", null, h("strong", { text: `${number(message.done)}${message.total !== null ? ` of ${number(message.total)}` : ""} rows` }), `, ${rate(message.done / Math.max(0.001, message.seconds))} a second`));
      },
      failed: (error) => {
        end("failed");
        told(trouble(error));
      },
      ended: () => end("done"),
    });
  };
  show(
    page,
    topicTabs(topic, "replay"),
    h("p", { class: "lead", text: "Append rows of this topic to another one: filtered, changed, at the speed they came. Dry run shows what would go in." }),
    h(
      "form",
      { class: "panel form", onsubmit: (event) => (event.preventDefault(), run(false)) },
      field("Range", at, "10:20, -1h:, 2026-11-18:end; empty is all of it"),
      field("Where", where),
      partition ? field("Partition", partition) : null,
      field("Speed", speed),
      field("Into topic", target),
      h("datalist", { id: "targets" }, names.map((each) => h("option", { value: each }))),
      h("div", { class: "field check" }, create, h("label", { for: "create", text: "Make it if it is not there" })),
      h("div", { class: "all" }, field("SQL", sql, "A query over the table rows: the range, with _offset and _timestamp. Empty: the rows as they are.")),
      h("div", { class: "all actions" }, begin, look, stop, copyAs(() => [
        ["link", location.href],
        ["command line", `virta read -l ${quoted(facts.log)} ${quoted(`${name}@${at.value || ":"}`)}${where.value ? ` --where ${quoted(where.value)}` : ""} -o arrow | virta append -l ${quoted(facts.log)} ${quoted(target.value)} -`],
        ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    rows = log.sql(${python(query())})\n    log.topic(${python(target.value)}).append(rows)`],
        ["SQL", query()],
      ])),
    ),
    result,
  );
}
start().catch((error) => show(page, trouble(error)));
