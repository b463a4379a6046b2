// Consumer groups: who reads, how far behind, whether it gets better; putting one somewhere else.
import { h, show, field } from "./dom.js";
import { number, plural, rate, span, cell, time } from "./format.js";
import { get, open, post } from "./live.js";
import { page, parameter, setTitle, trouble, link, say, attempt, forGood, copyAs, quoted, python, facts, action } from "./shell.js";
import { chart, spark } from "./chart.js";
import { list, table } from "./table.js";

const name = parameter("group");
const topic = parameter("topic");

/** Whether it gets better, in words. */
function outlook(each) {
  if (!each.rows) return ["caught up", "good"];
  if (each.growth === null) return ["measuring", "dim"];
  if (each.growth > 0.05) return [`growing by ${rate(each.growth)} rows/s`, "warn"];
  if (each.growth < -0.05) return [`gone in ${span(each.clear)}`, "good"];
  return [each.members.length ? "steady" : "nobody reads", each.members.length ? "dim" : "warn"];
}

const lagLine = (each) => spark(each.lags, `lag of ${each.group} on ${each.topic} in the last minute, now ${number(each.rows)} rows`);

// -- all groups -----------------------------------------------------------------------------------

function overview() {
  const place = h("div", null, h("p", { class: "dim", text: "Looking for groups …" }));
  const search = h("input", { type: "search", placeholder: "Filter by group or topic", "aria-label": "Filter groups", oninput: () => draw() });
  const lead = h("p", { class: "lead", role: "status" });
  let last = null;
  show(page, h("div", { class: "bar" }, lead, h("div", { class: "actions" }, search, copyAs([
    ["command line", `virta group ls -l ${quoted(facts.log)}`],
    ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    for group in log.groups():\n        print(group.group, group.topic, group.lag.rows, group.lag.seconds)`],
  ]))), place);
  const draw = () => {
    if (!last) return;
    if (!last.length) {
      show(lead);
      return show(place, h("div", { class: "empty" }, h("h2", { text: "No groups yet" }), h("p", { text: "A group is there once a reader has joined it:" }), h("pre", { text: 'with log.topic("orders").reader(group="billing") as reader:\n    for batch in reader.batches():\n        …' })));
    }
    const words = search.value.trim().toLowerCase();
    const shown = last.filter((each) => `${each.group} ${each.topic}`.toLowerCase().includes(words));
    const behind = last.filter((each) => each.rows).length;
    show(lead, h("strong", { text: number(last.length) }), last.length === 1 ? " group, " : " groups, ", h("strong", { text: number(behind) }), " behind");
    const focused = document.activeElement && place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    show(
      place,
      list(
        "Groups",
        [["Group"], ["Topic"], ["Members", true], ["Rows behind", true], ["Time behind", true], ["Last minute"], ["Reads", true], ["Outlook"]],
        shown.map((each) => {
          const [words, kind] = outlook(each);
          return [
            h("th", { scope: "row" }, h("a", { href: link("groups", { group: each.group, topic: each.topic }), text: each.group })),
            h("td", null, h("a", { href: link("rows", { topic: each.topic }), text: each.topic })),
            number(each.members.length),
            h("td", { class: `number${each.rows ? " warn" : ""}`, text: number(each.rows) }),
            each.rows ? span(each.seconds) : "–",
            h("td", null, lagLine(each)),
            each.reading === null ? "–" : `${rate(each.reading)}/s`,
            h("td", { class: kind, text: words }),
          ];
        }),
      ),
    );
    if (focused) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  };
  open({ request: () => ({ op: "groups" }), got: (message) => ((last = message.groups), draw()), failed: (error) => show(page, trouble(error)) });
}

// -- one group --------------------------------------------------------------------------------------

async function one() {
  setTitle(name, h("a", { class: "crumb", href: "groups", text: "Groups" }), h("a", { class: "crumb", href: link("rows", { topic }), text: topic }));
  const known = await get("topic", { topic });
  const lead = h("p", { class: "lead", role: "status" }, "Looking …");
  const standing = h("div", { class: "results" });
  const members = h("div", { class: "results" });
  show(
    page,
    h("div", { class: "bar" }, lead, h("div", { class: "actions" }, copyAs(() => [
      ["link", location.href],
      ["command line", `virta group show -l ${quoted(facts.log)} ${quoted(name)} ${quoted(topic)}`],
      ["command line, reset", `virta group reset -l ${quoted(facts.log)} ${quoted(name)} ${quoted(topic)} --to ${quoted(to.value || "-1h")} --dry-run`],
      ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    group = log.topic(${python(topic)}).group(${python(name)})\n    print(group.describe())`],
    ]))),
    standing,
    h("section", { class: "panel" }, h("h2", { text: "Members" }), members),
    resetPart(known),
  );
  open({
    request: () => ({ op: "groups", group: name, topic }),
    got: ({ groups }) => {
      const found = groups[0];
      if (!found) {
        show(standing);
        show(members, h("p", { class: "dim", text: "Nobody reads." }));
        return show(lead, "There is no such group (any more): nobody reads, and nothing was committed. A reset makes it begin somewhere.");
      }
      const [words, kind] = outlook(found);
      show(lead, h("strong", { text: found.rows ? `${plural(found.rows, "row")} behind` : "Caught up" }), found.rows ? `, the oldest ${span(found.seconds)} ago; ` : "; ", h("span", { class: kind, text: words }), found.reading === null ? "" : `; reads ${rate(found.reading)} rows/s`);
      show(
        standing,
        h("div", { class: "panel" }, h("h2", { text: "Rows behind" }), found.lags.length > 1 ? chart({ kind: "line", label: "rows behind, last minute", height: 110, x: found.lags.map((_, at) => (at === found.lags.length - 1 ? "now" : `${found.lags.length - 1 - at} s ago`)), y: found.lags, format: (value) => plural(value, "row") }) : h("p", { class: "dim", text: "Measuring …" })),
        list(
          "Partitions",
          [["Partition"], ["Stands at", true], ["End", true], ["Rows behind", true], ["Time behind", true], ["Read by"]],
          found.partitions.map((each) => [
            h("th", { scope: "row", text: String(each.partition) }),
            h("td", { class: "number" }, each.offset === null ? "nothing committed" : h("a", { href: link("rows", { topic, partition: each.partition || null, at: each.offset }), title: "The next row it reads", text: number(each.offset) })),
            number(each.next),
            h("td", { class: `number${each.rows ? " warn" : ""}`, text: number(each.rows) }),
            each.rows ? span(each.seconds) : "–",
            h("td", { class: each.owner ? "mono" : "dim", text: each.owner || "nobody" }),
          ]),
        ),
      );
      show(
        members,
        found.members.length
          ? list("Members", [["Member"], ["Instance"], ["Partitions"], ["Session ends in", true]], found.members.map((each) => [h("th", { scope: "row", class: "mono", text: each.member }), each.instance || "–", each.partitions.join(", ") || "none", span(each.expires)]))
          : h("p", { class: "dim", text: "Nobody reads at the moment. Its positions are kept." }),
      );
    },
    failed: (error) => show(page, trouble(error)),
  });
}

const to = h("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "oldest, newest, -1h, 2026-11-18T10:00Z, 1700", value: parameter("to", "") });

function resetPart(known) {
  const told = h("div", { class: "results", role: "status" });
  const many = known.partitions.length > 1;
  const which = many ? h("select", null, h("option", { value: "", text: "all" }), known.partitions.map((each) => h("option", { value: String(each.number), text: String(each.number) }))) : null;
  const body = () => ({ group: name, topic, to: to.value, partition: which && which.value !== "" ? which.value : null });

  async function preview() {
    show(told, h("p", { class: "dim", text: "Looking …" }));
    try {
      const plan = await post("group/plan", body());
      const again = plan.parts.find((each) => each.again);
      show(
        told,
        h("p", null, h("strong", { text: plural(plan.again, "row") }), " would be read again, ", h("strong", { text: plural(plan.skipped, "row") }), " would never be read. Nothing was done."),
        list("The plan", [["Partition"], ["From", true], ["To", true], ["Read again", true], ["Passed over", true]], plan.parts.map((each) => [h("th", { scope: "row", text: String(each.partition) }), each.before === null ? "nothing committed" : number(each.before), h("td", { class: "number" }, h("a", { href: link("rows", { topic, partition: each.partition || null, at: each.after }), text: number(each.after) })), number(each.again), number(each.skipped)])),
        again ? await firstRows(again) : null,
        known.may.alter ? h("div", { class: "actions" }, h("button", { type: "button", class: "strong", text: "Reset the group", onclick: reset })) : h("p", { class: "hint", text: "You may look at this, not do it." }),
      );
    } catch (error) {
      show(told, trouble(error));
    }
  }

  async function firstRows(part) {
    const got = await get("rows", { topic, partition: part.partition, start: part.after, stop: Math.min(part.before, part.after + 5) });
    const columns = [{ name: "offset", number: true }, { name: "time" }, ...known.row_columns];
    return [h("h3", { text: `The first that would be read again in partition ${part.partition}` }), table(columns, got.rows.map((row) => [row[0], time(row[1]), ...row.slice(2)]), "Rows that would be read again")];
  }

  async function reset(event) {
    event.target.disabled = true;
    try {
      const done = await post("group/reset", body());
      show(told, h("p", { class: "done", text: `Done: ${plural(done.again, "row")} will be read again, ${plural(done.skipped, "row")} passed over.` }));
    } catch (error) {
      show(told, trouble(error));
    }
  }

  action("Reset this group", () => to.focus());
  return h(
    "section",
    { class: "panel" },
    h("h2", { text: "Put it somewhere else" }),
    h("form", { class: "fields", onsubmit: (event) => (event.preventDefault(), preview()) }, h("div", { class: "wide" }, field("To", to)), which ? field("Partition", which) : null, h("button", { type: "submit", text: "Preview" })),
    h("p", { class: "hint", text: "Its readers have to be stopped first; a group that is being read is left alone." }),
    told,
    known.may.alter
      ? h("div", { class: "actions" }, forGood("Forget the group", "Its positions are forgotten; a reader of this name begins anew.", name, async (typed) => {
          await post("group/remove", { group: name, topic, typed });
          say("Forgotten");
          location.href = "groups";
        }))
      : null,
  );
}

if (name === null || topic === null) overview();
else one().catch((error) => show(page, trouble(error)));
