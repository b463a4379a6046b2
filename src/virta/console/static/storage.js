// What lies on disk, and what would be removed.
import { h, show } from "./dom.js";
import { number, plural, bytes, time, span } from "./format.js";
import { get } from "./live.js";
import { page, parameter, setTitle, topicTabs, crumbs, trouble, link, facts, copyAs, quoted } from "./shell.js";
import { chart } from "./chart.js";
import { list } from "./table.js";

const name = parameter("topic");

const kept = (retention) => [retention.age === null ? "" : span(retention.age), retention.bytes === null ? "" : bytes(retention.bytes), retention.rows === null ? "" : plural(retention.rows, "row")].filter(Boolean).join(", ") || "everything";

function planPart(plan) {
  const section = h("section", { class: "panel" }, h("h2", { text: "What the steward would do now" }));
  if (plan.error) section.append(trouble(plan.error));
  else if (!plan.parts.length) section.append(h("p", { class: "dim", text: "Nothing: no retention or rewrite is due." }));
  else
    section.append(
      h("p", null, h("strong", { text: `${plural(plan.rows, "row")}, ${bytes(plan.bytes)}` }), ` in ${plural(plan.segments, "segment")} would go or be rewritten. Nothing was done.`),
      list("The plan", [["Topic"], ["Why"], ["Offsets"], ["Segments", true], ["Rows", true], ["Bytes", true]], plan.parts.map((each) => [each.topic + (each.partition ? ` / ${each.partition}` : ""), each.error || each.reason || "clearing up", `${number(each.from_offset)} to ${number(Math.max(each.from_offset, each.to_offset - 1))}`, number(each.segments), number(each.rows), bytes(each.bytes)])),
    );
  section.append(h("div", { class: "actions" }, copyAs([["command line, dry run", `virta steward -l ${quoted(facts.log)} --once --dry-run`], ["command line", `virta steward -l ${quoted(facts.log)} --once`]])));
  return section;
}

async function overview() {
  const { topics } = await get("storage");
  const total = topics.reduce((sum, each) => sum + (each.bytes || 0), 0);
  show(
    page,
    h("p", { class: "lead" }, h("strong", { text: bytes(total) }), ` in ${plural(topics.length, "topic")}`),
    list(
      "Topics by size",
      [["Topic"], ["Size", true], ["Rows", true], ["Bytes a row", true], ["Blocks", true], ["Rows a block", true], ["Segments", true], ["In memory", true], ["Compression"], ["Keeps"]],
      topics.sort((a, b) => (b.bytes || 0) - (a.bytes || 0)).map((each) => [h("th", { scope: "row" }, h("a", { href: link("storage", { topic: each.name }), text: each.name })), ...(each.error ? [each.error, "", "", "", "", "", "", "", ""] : [bytes(each.bytes), number(each.rows), number(each.rows ? each.bytes / each.rows : 0), number(each.blocks), number(each.blocks ? each.rows / each.blocks : 0), number(each.segments), bytes(each.memory), each.compression, kept(each.retention)])]),
    ),
  );
  page.append(planPart(await get("storage/plan").catch((error) => ({ error }))));
}

async function one() {
  setTitle("Storage", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const found = await get("storage/topic", { topic: name });
  show(
    page,
    topicTabs(topic, "storage"),
    h("p", { class: "lead" }, h("strong", { text: bytes(found.bytes) }), `, ${plural(found.rows, "row")}, ${plural(found.blocks, "block")}; compression ${found.compression}; keeps ${kept(found.retention)}`),
    found.partitions.map((each) => [
      found.partitions.length > 1 ? h("h2", { text: `Partition ${each.number}` }) : null,
      list(
        `Segments of partition ${each.number}`,
        [["Segment"], ["Offsets"], ["Rows", true], ["Size", true], ["Blocks", true], ["Rows a block", true], ["From"], ["To"], ["State"]],
        each.segments.map((one) => [h("th", { scope: "row", class: "mono", text: String(one.base) }), one.end > one.base ? `${number(one.base)} to ${number(one.end - 1)}` : "–", number(one.rows), bytes(one.bytes), number(one.blocks), number(one.blocks ? one.rows / one.blocks : 0), one.oldest ? time(one.oldest) : "–", one.newest ? time(one.newest) : "–", one.active ? "written to" : one.rows < one.end - one.base ? "sealed, compacted" : "sealed"]),
      ),
      each.block_sizes.length ? h("section", { class: "panel" }, h("h2", { text: "Blocks by size" }), chart({ label: "blocks", x: each.block_sizes.map(([most]) => `up to ${bytes(most)}`), y: each.block_sizes.map(([, count]) => count), format: (value) => plural(value, "block") })) : null,
    ]),
  );
  page.append(planPart(await get("storage/plan", { topic: name }).catch((error) => ({ error }))));
}

(name === null ? overview() : one()).catch((error) => show(page, trouble(error)));
