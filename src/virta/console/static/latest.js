// The newest row of each key: the table that a topic with keys is, kept up to date.
import { h, show } from "./dom.js";
import { number, span } from "./format.js";
import { get, open } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, crumbs, trouble, link, copyAs, quoted, python, sqlName, facts } from "./shell.js";
import { widthsOf } from "./grid.js";

const name = parameter("topic", "");
// What takes longer is read again when somebody asks.
const QUICK_SECONDS = 0.5;
const EVERY_MS = 1000;

async function start() {
  setTitle("Latest", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const where = h("input", { type: "text", class: "wide mono", spellcheck: "false", placeholder: "where: amount > 100", "aria-label": "Only keys where", value: parameter("where", "") });
  const status = h("p", { class: "state", role: "status", text: "reading …" });
  const place = h("div", { class: "results" });
  const source = {
    rows: [],
    get count() {
      return this.rows.length;
    },
    at: (at) => source.rows[at],
    want() {},
  };
  const grid = document.createElement("virta-grid");
  grid.setAttribute("label", "The newest row of each key");
  const again = h("button", { type: "button", text: "Read again", hidden: true, onclick: () => read() });
  const keys = topic.keys.map(sqlName).join(", ");
  const filter = () => where.value.trim();
  let busy = false, due = false, timer = 0, took = 0;

  async function read() {
    if (busy) return void (due = true);
    busy = true;
    due = false;
    try {
      const found = await get("latest", { topic: name, where: parameter("where") });
      took = found.seconds;
      const rows = found.rows.map((row) => [row[0], Date.parse(row[1]) * 1000, ...row.slice(2)]);
      source.rows = rows;
      const columns = found.columns.map((each, index) => (index < 2 ? { ...each, name: ["offset", "time"][index] } : each));
      if (JSON.stringify(columns) !== JSON.stringify(grid.columns)) grid.setColumns(columns, widthsOf(columns, rows));
      grid.hidden = !rows.length;
      show(place, rows.length ? null : h("p", { class: "dim", text: parameter("where") ? "No key matches." : "There are no keys yet." }));
      grid.changed();
      again.hidden = took <= QUICK_SECONDS;
      status.className = took <= QUICK_SECONDS ? "state live" : "state";
      status.textContent = `${number(found.count)} ${found.count === 1 ? "key" : "keys"}${found.count > rows.length ? `, the ${number(rows.length)} that changed last` : ""}, read in ${span(took)}`;
    } catch (error) {
      show(place, trouble(error));
      status.textContent = "";
    }
    busy = false;
    if (due) later();
  }
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(read, EVERY_MS);
  };

  show(
    page,
    topicTabs(topic, "latest"),
    h(
      "form",
      { class: "bar", onsubmit: (event) => (event.preventDefault(), setAddress({ where: filter() }, true), read()) },
      h("div", { class: "fields" }, where, h("button", { type: "submit", text: "Go" })),
      h("div", { class: "actions" }, again, copyAs(() => [
        ["link", location.href],
        ["command line", `virta sql -l ${quoted(facts.log)} ${quoted(sql())}`],
        ["Python", topic.kind === "update" ? `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    print(log.topic(${python(name)}).table()${filter() ? `.where(${python(filter())})` : ""}.to_arrow())` : `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    print(log.sql(${python(sql())}))`],
        ["SQL", sql()],
      ])),
    ),
    h("div", { class: "states" }, status),
    place,
    grid,
  );
  document.body.classList.add("full");
  grid.source = source;
  grid.addEventListener("choose", (event) => {
    if (topic.partitions.length === 1) location.href = link("row", { topic: name, offset: event.detail[0] });
  });
  function sql() {
    const newest = topic.kind === "update" ? sqlName(name) : `(from ${sqlName(name)} qualify row_number() over (partition by ${keys} order by _timestamp desc, _offset desc) = 1)`;
    return `select * from ${newest}${filter() ? ` where ${filter()}` : ""} order by _offset desc`;
  }
  await read();
  const seen = new Map();
  for (const part of topic.partitions) {
    open({
      request: () => ({ op: "rows", topic: name, partition: part.number, quiet: true }),
      got: (message) => {
        const changed = seen.has(part.number) && seen.get(part.number) !== message.next;
        seen.set(part.number, message.next);
        if (changed && took <= QUICK_SECONDS) later();
      },
      failed: (error) => show(place, trouble(error)),
    });
  }
}
addEventListener("popstate", () => location.reload());
start().catch((error) => show(page, trouble(error)));
