// The chain of a topic: drawn, recomputed in sight, held against what was noted elsewhere.
import { h, show, field } from "./dom.js";
import { number, plural, bytes, span, time } from "./format.js";
import { get, post, open } from "./live.js";
import { page, parameter, setTitle, topicTabs, crumbs, trouble, link, copy, copyAs, quoted, python, facts, attempt, action } from "./shell.js";
import { blake3, fromHex } from "./blake3.js";

const name = parameter("topic");
const partition = Number(parameter("partition", 0));

// -- all topics --------------------------------------------------------------------------------------

async function overview() {
  const names = (await get("topics")).topics;
  const rows = new Map();
  const begin = h("button", { type: "button", class: "strong", text: "Verify all", onclick: () => all() });
  const state = h("p", { class: "state", role: "status", text: "Every byte is read and held against the hash chain." });
  const body = names.map((each) => {
    const said = h("td", { class: "wrap dim", text: "not looked at yet" });
    rows.set(each, said);
    return h("tr", null, h("th", { scope: "row" }, h("a", { href: link("verify", { topic: each }), text: each })), said);
  });
  const copies = copyAs([
    ["command line", `virta verify -l ${quoted(facts.log)}`],
    ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    for name, report in log.verify().items():\n        assert report.ok, (name, report.problems)`],
  ]);
  show(page, h("div", { class: "bar" }, state, h("div", { class: "actions" }, begin, copies)), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Topics" }, h("table", { class: "list" }, h("thead", null, h("tr", null, h("th", { scope: "col", text: "Topic" }), h("th", { scope: "col", text: "Found" }))), h("tbody", null, body))));
  action("Verify all topics", all);

  async function all() {
    begin.disabled = true;
    let bad = 0;
    for (const each of names) {
      const said = rows.get(each);
      const report = await run(each, null, (step) => (said.textContent = `${number(step.blocks)} blocks, ${bytes(step.bytes)} of ${bytes(step.total)}`)).catch((error) => ({ error }));
      const fine = report.ok === true;
      if (!fine) bad += 1;
      said.className = fine ? "wrap good" : "wrap bad";
      said.textContent = report.error ? report.error.message : fine ? `whole: ${plural(report.rows, "row")} in ${plural(report.blocks, "block")}` : report.problems[0].message;
    }
    state.textContent = bad ? `${plural(bad, "topic")} of ${number(names.length)} are not what was written` : `All ${plural(names.length, "topic")} are what was written`;
    state.className = bad ? "state bad" : "state live";
    begin.disabled = false;
  }
}

/** One verification; told each step, gives the report. */
function run(topic, against, told, held = {}) {
  return new Promise((resolve, reject) => {
    let report = null;
    held.stream = open({
      request: () => ({ op: "verify", topic, against }),
      got: (message) => (message.done ? (report = message) : told(message)),
      failed: reject,
      ended: () => resolve(report),
    });
  });
}

// -- one topic -----------------------------------------------------------------------------------------

async function one() {
  setTitle("Verify", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const drawn = await get("chain", { topic: name, partition }).catch((error) => ({ cells: [], segments: [], blocks: 0, head: topic.partitions[partition].head, error }));
  const cells = drawn.cells.map(([first, blocks, base, end, size, kind]) =>
    h("i", { class: ["", "control", "rewritten"][kind], title: `${blocks > 1 ? `blocks ${number(first)} to ${number(first + blocks - 1)}` : `block ${number(first)}`}: ${end > base ? `offsets ${number(base)} to ${number(end - 1)}` : "control block"}, ${bytes(size)}` }),
  );
  const strip = h("div", { class: "chain", role: "img", "aria-label": `The chain: ${plural(drawn.blocks, "block")}` }, cells);
  const starts = new Set(drawn.segments.map((each) => each.base));
  drawn.cells.forEach(([, , base], at) => {
    if (starts.has(base) && (at === 0 || drawn.cells[at - 1][3] <= base)) cells[at].classList.add("begins");
  });
  const state = h("p", { class: "state", role: "status", text: "Not verified yet in this view" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Verified", hidden: true });
  const result = h("div", { class: "results" });
  const begin = h("button", { type: "button", class: "strong", text: "Verify", onclick: () => start() });
  const stop = h("button", { type: "button", text: "Stop", hidden: true, onclick: () => ended("stopped") });
  const held = {};

  const ended = (word) => {
    if (held.stream) held.stream.stop();
    begin.disabled = false;
    stop.hidden = true;
    bar.hidden = true;
    if (word) state.textContent = word;
  };

  async function start(against = null) {
    begin.disabled = true;
    stop.hidden = bar.hidden = false;
    show(result);
    for (const each of cells) each.classList.remove("ok", "bad", "doubt");
    state.className = "state";
    state.textContent = "reading …";
    let at = 0;
    const step = (message) => {
      if (message.partition === partition) for (; at < cells.length && drawn.cells[at][0] + drawn.cells[at][1] <= message.blocks; at++) cells[at].classList.add("ok");
      bar.value = message.total ? message.bytes / message.total : 0;
      state.textContent = `${plural(message.blocks, "block")}, ${bytes(message.bytes)} of ${bytes(message.total)}`;
    };
    try {
      const report = await run(name, against, step, held);
      ended();
      tell(report, against);
    } catch (error) {
      ended("failed");
      show(result, trouble(error));
    }
  }

  function tell(report, against) {
    const until = report.trustworthy[partition];
    const bad = report.problems.filter((each) => each.severity === "damage" && (each.partition === null || each.partition === partition));
    const first = bad.map((each) => each.offset).filter((each) => each !== null).sort((a, b) => a - b)[0];
    cells.forEach((cell, at) => {
      const [, , base, end] = drawn.cells[at];
      const hit = bad.some((each) => each.offset !== null && each.offset >= base && each.offset < Math.max(end, base + 1));
      cell.classList.toggle("ok", !hit && (report.ok || (until !== undefined && base < until)));
      cell.classList.toggle("bad", hit);
      cell.classList.toggle("doubt", !hit && !report.ok && until !== undefined && base >= until);
    });
    state.className = report.ok ? "state live" : "state bad";
    state.textContent = report.ok ? `Whole: ${plural(report.rows, "row")} in ${plural(report.blocks, "block")}, ${bytes(report.bytes)} in ${span(report.seconds)}${against ? ", and the noted head is in its history" : ""}` : `Not what was written${first !== undefined ? `: the first bad block holds offset ${number(first)}` : ""}`;
    show(
      result,
      until !== undefined && !report.ok ? h("p", null, "Rows below offset ", h("strong", { text: number(until) }), " still verify. ", until > 0 ? h("a", { href: link("rows", { topic: name, partition: partition || null, at: `:${until}` }), text: "See them" }) : null) : null,
      report.problems.map((each) =>
        h(
          "div",
          { class: each.severity === "damage" ? "trouble" : "done" },
          h("p", { text: each.message }),
          h("p", { class: "hint mono", text: [each.file, each.position !== null ? `position ${number(each.position)}` : "", each.offset !== null ? `offset ${number(each.offset)}` : ""].filter(Boolean).join(" · ") }),
          each.cure ? h("p", { class: "hint", text: `Cure: ${each.cure}` }) : null,
        ),
      ),
    );
  }

  // -- a block ---------------------------------------------------------------------------------------

  const blockPart = h("div", { class: "results" }, h("p", { class: "dim", text: "Choose a block above, or type its number." }));
  const blockNumber = h("input", { type: "text", inputmode: "numeric", placeholder: "0" });
  async function look(at) {
    const found = await attempt(() => get("block", { topic: name, partition, number: at }));
    if (!found) return;
    blockNumber.value = String(at);
    cells.forEach((cell, place) => cell.classList.toggle("chosen", at >= drawn.cells[place][0] && at < drawn.cells[place][0] + drawn.cells[place][1]));
    const made = blake3(fromHex(found.previous + found.fields + found.digest));
    const same = made === found.hash;
    show(
      blockPart,
      h(
        "dl",
        { class: "facts" },
        [
          ["holds", found.control ? "an event of the log, no rows" : `offsets ${number(found.base)} to ${number(found.end - 1)}, ${plural(found.rows, "row")}`],
          ["bytes", bytes(found.bytes)],
          ["times", found.control ? time(found.newest) : `${time(found.oldest)} to ${time(found.newest, false)}`],
          ["epoch", String(found.epoch)],
          ["hash before", found.previous],
          ["fields", found.fields],
          ["digest of its bytes", found.digest],
          ["hash", found.hash],
        ].map(([key, text]) => [h("dt", { text: key }), h("dd", { class: /hash|digest|fields/.test(key) ? "mono" : null, text })]),
      ),
      found.rewritten
        ? h("p", { class: "done" }, "Rewritten (compacted, erased or joined): it keeps the hash of what it stands for, and its own bytes are held by a check. Its receipt is in the chain.")
        : h("p", { class: same ? "done" : "trouble" }, h("strong", { text: same ? "Recomputed in this browser: it matches. " : "Recomputed in this browser: it does not match. " }), h("span", { class: "dim", text: "BLAKE3(hash before ‖ fields ‖ digest)" })),
      h("div", { class: "actions" }, at > 0 ? h("button", { type: "button", text: "‹ Before", onclick: () => look(at - 1) }) : null, at + 1 < drawn.blocks ? h("button", { type: "button", text: "After ›", onclick: () => look(at + 1) }) : null, found.control ? null : h("a", { class: "button", href: link("rows", { topic: name, partition: partition || null, at: `${found.base}:${found.end}` }), text: "Its rows" })),
    );
  }
  strip.addEventListener("click", (event) => {
    const at = cells.indexOf(event.target);
    if (at >= 0) look(drawn.cells[at][0]);
  });

  // -- heads, other logs, proofs ------------------------------------------------------------------------

  const noted = h("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "64 hexadecimal digits, or the first 8" });
  const other = h("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "./backup or virta://host:7400" });
  const compared = h("div", { class: "results", role: "status" });
  const proofOffset = h("input", { type: "text", inputmode: "numeric", value: String(Math.max(topic.partitions[partition].start, topic.partitions[partition].next - 1)) });
  const proofFile = h("input", { type: "file", accept: "application/json,.json" });
  const proven = h("div", { class: "results", role: "status" });

  async function findHead() {
    try {
      const found = await get("find-head", { topic: name, partition, head: noted.value });
      show(
        compared,
        found.found
          ? h("p", { class: "done", text: found.is_head ? "This is the head: nothing was appended since." : `In the history: it ends at offset ${number(found.offset)}, and ${plural(found.behind, "row")} came since.` })
          : h("p", { class: "trouble", text: "Not in this chain: the history that was noted is not the one that is here." }),
      );
    } catch (error) {
      show(compared, trouble(error));
    }
  }

  const RELATIONS = {
    same: () => ["done", "The same history, to the last block."],
    ahead: (found) => ["done", `One history; this log is ${plural(found.mine - found.theirs, "row")} ahead.`],
    behind: (found) => ["done", `One history; the other log is ${plural(found.theirs - found.mine, "row")} ahead.`],
    apart: (found) => ["trouble", `Two histories: they differ from offset ${number(found.since)} on.`],
  };

  async function compareLogs() {
    show(compared, h("p", { class: "dim", text: "Comparing …" }));
    try {
      const found = await post("compare", { topic: name, partition, other: other.value });
      const [kind, text] = RELATIONS[found.relation](found);
      show(compared, h("p", { class: kind, text }));
    } catch (error) {
      show(compared, trouble(error));
    }
  }

  async function checkProof() {
    const chosen = proofFile.files[0];
    if (!chosen) return;
    try {
      const found = await post("check-proof", JSON.parse(await chosen.text()));
      show(proven, h("p", { class: "done", text: `It holds: row ${number(found.offset)} of ${found.topic} stood in the history that the head names, ${plural(found.blocks, "block")} before its end.` }), h("p", { class: "mono", text: found.head }), h("pre", { tabindex: 0, "aria-label": "The row", text: JSON.stringify(found.row, null, 2) }));
    } catch (error) {
      show(proven, trouble(error));
    }
  }

  const grouped = drawn.cells.some((each) => each[1] > 1);
  show(
    page,
    topicTabs(topic, "verify"),
    h("div", { class: "bar" }, state, h("div", { class: "actions" }, begin, stop, copyAs(() => [
      ["link", location.href],
      ["command line", `virta verify -l ${quoted(facts.log)} ${quoted(name)}${noted.value ? ` --against ${noted.value}` : ""}`],
      ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    report = log.topic(${python(name)}).verify(${noted.value ? `against=${python(noted.value)}` : ""})\n    assert report.ok, report.problems`],
    ]))),
    bar,
    h("div", { class: "panel" }, drawn.error ? trouble(drawn.error) : strip, h("p", { class: "hint" }, `${plural(drawn.blocks, "block")} in ${plural(drawn.segments.length, "segment")}, the oldest first${grouped ? "; a square stands for several" : ""}. `, h("span", { class: "legend ok", text: "verified" }), " ", h("span", { class: "legend control", text: "event" }), " ", h("span", { class: "legend rewritten", text: "rewritten" }), " ", h("span", { class: "legend bad", text: "bad" }), " ", h("span", { class: "legend doubt", text: "not trustworthy" })), result),
    h(
      "div",
      { class: "panels" },
      h("section", { class: "panel" }, h("h2", { text: "A block" }), h("form", { class: "fields", onsubmit: (event) => (event.preventDefault(), look(Number(blockNumber.value) || 0)) }, field("Block number", blockNumber), h("button", { type: "submit", text: "Look" })), blockPart),
      h(
        "section",
        { class: "panel" },
        h("h2", { text: "The head" }),
        h("p", { class: "hint", text: "It names the whole history before it. Note it elsewhere: then nobody can change the past unseen, not even whoever owns these files." }),
        h("p", { class: "mono wrapped", text: drawn.head }),
        h("div", { class: "actions" }, h("button", { type: "button", text: "Copy the head", onclick: () => copy(drawn.head) })),
        h("form", { class: "fields", onsubmit: (event) => (event.preventDefault(), findHead()) }, h("div", { class: "wide" }, field("A head that was noted", noted)), h("button", { type: "submit", text: "Find it" })),
        facts.write ? h("form", { class: "fields", onsubmit: (event) => (event.preventDefault(), compareLogs()) }, h("div", { class: "wide" }, field("Another log with this topic", other)), h("button", { type: "submit", text: "Compare" })) : null,
        compared,
      ),
      h(
        "section",
        { class: "panel" },
        h("h2", { text: "A proof" }),
        h("p", { class: "hint", text: "One file that shows that a row stood in this history: its block, and every header from there to the head." }),
        h("form", { class: "fields", onsubmit: (event) => (event.preventDefault(), (location.href = link("api/proof", { topic: name, partition: partition || null, offset: proofOffset.value }))) }, field("Offset of the row", proofOffset), h("button", { type: "submit", text: "Download the proof" })),
        h("form", { class: "fields", onsubmit: (event) => (event.preventDefault(), checkProof()) }, h("div", { class: "wide" }, field("A proof to check", proofFile)), h("button", { type: "submit", text: "Check it" })),
        proven,
      ),
    ),
  );
  action("Verify this topic", start);
  if (parameter("block") !== null) look(Number(parameter("block")));
}

(name === null ? overview() : one()).catch((error) => show(page, trouble(error)));
