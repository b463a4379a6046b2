// The time scrubber: drag, and the topic stands as it stood then.
import { h, show, later } from "./dom.js";
import { number, plural, time, moment, span } from "./format.js";
import { get } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, trouble, link, crumbs, copyAs, quoted, python, sqlName, facts } from "./shell.js";
import { chart } from "./chart.js";
import { table, list } from "./table.js";

const name = parameter("topic", "");
const partition = Number(parameter("partition", 0));

async function start() {
  setTitle("Time", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const found = await get("histogram", { topic: name, partition });
  if (!found.counts.length) return show(page, topicTabs(topic, "time"), h("p", { class: "empty", text: "There are no rows yet." }));
  const { edges, counts } = found;
  const first = edges[0], last = edges[edges.length - 1];
  const STEPS = 2000;
  const asked = parameter("us");
  let us = asked === null ? last : Number(asked);
  const slider = h("input", { type: "range", min: 0, max: STEPS, step: 1, class: "scrubber", "aria-label": "The moment", value: String(Math.round(((us - first) / Math.max(1, last - first)) * STEPS)) });
  const said = h("p", { class: "lead", role: "status" });
  const rows = h("div", { class: "output" });
  const figure = chart({ label: "rows", x: counts.map((_, at) => time(edges[at])), y: counts, format: (value) => plural(value, "row") });
  let current = { offset: found.offsets[found.offsets.length - 1] };

  const draw = async () => {
    setAddress({ us: us >= last ? null : us });
    slider.setAttribute("aria-valuetext", `${time(us)} UTC`);
    current = await get("asof", { topic: name, partition, us });
    const share = current.next > current.start ? (current.offset - current.start) / (current.next - current.start) : 0;
    show(
      said,
      h("strong", { text: `${time(us)} UTC` }), ": ",
      h("strong", { text: plural(current.offset - current.start, "row") }), ` of ${number(current.next - current.start)} were there (${Math.round(share * 100)} %), head `,
      h("span", { class: "mono", text: current.head ? current.head.slice(0, 16) : "–" }),
    );
    const columns = [{ name: "offset", number: true }, { name: "time" }, ...topic.row_columns];
    const shown = current.rows.slice().reverse().map((row) => [row[0], time(row[1]), ...row.slice(2)]);
    const parts = [h("h2", { text: "The newest rows then" }), shown.length ? table(columns, shown, "Rows as of then") : h("p", { class: "dim", text: "None yet." })];
    if (current.groups.length) {
      parts.unshift(
        h(
          "section",
          { class: "panel" },
          h("h2", { text: "Where groups stood then" }),
          list("Groups as of then", [["Group"], ["Offset", true], ["Behind", true], ["Last commit"]], current.groups.map((each) => [
            h("th", { scope: "row" }, h("a", { href: link("groups", { group: each.group, topic: name }), text: each.group })),
            h("td", { class: "number" }, h("a", { href: link("rows", { topic: name, partition: partition || null, at: each.offset }), text: number(each.offset) })),
            plural(Math.max(0, current.offset - each.offset), "row"),
            `${time(each.committed)} UTC`,
          ])),
        ),
      );
    }
    show(rows, parts);
  };
  const soon = later(40, () => draw().catch((error) => show(rows, trouble(error))));
  slider.addEventListener("input", () => {
    us = Math.round(first + (Number(slider.value) / STEPS) * (last - first));
    soon();
  });
  const query = () => `select * from ${sqlName(name)} where _timestamp <= timestamptz '${moment(us)}' order by _offset desc limit 100`;
  const atThatTime = () => link("sql", { q: `select * from ${sqlName(name)} order by _offset desc limit 100`, us });
  show(
    page,
    topicTabs(topic, "time"),
    h("section", { class: "panel" }, figure, slider, h("p", { class: "hint", text: `${span((last - first) / 1e6)} of history. Drag, or use the arrow keys: what is below stands as it stood at that moment.` })),
    h(
      "div",
      { class: "bar" },
      said,
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", text: "Rows until then", onclick: () => (location.href = link("rows", { topic: name, partition: partition || null, at: `:${current.offset}` })) }),
        h("button", { type: "button", text: "SQL as of then", onclick: () => (location.href = atThatTime()) }),
        topic.keys.length ? h("button", { type: "button", text: "Diff with now", onclick: () => (location.href = link("diff", { topic: name, before: moment(us) })) }) : null,
        copyAs(() => [
          ["link", location.href],
          ["command line", `virta read -l ${quoted(facts.log)} ${quoted(`${name}@:${current.offset}`)}`],
          ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    rows = log.topic(${python(name)})[:${current.offset}]`],
          ["SQL", query()],
        ]),
      ),
    ),
    rows,
  );
  await draw();
}

start().catch((error) => show(page, trouble(error)));
