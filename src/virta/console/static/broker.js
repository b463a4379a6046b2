// The broker: who is connected, how long answers take, what is slow, what its log says.
import { h, show, field } from "./dom.js";
import { bytes, number, plural, rate, span, time } from "./format.js";
import { open, post } from "./live.js";
import { page, trouble, attempt, say, copyAs, facts } from "./shell.js";
import { chart } from "./chart.js";
import { list } from "./table.js";

const lead = h("p", { class: "lead", role: "status" }, "Asking the broker …");
const numbers = h("dl", { class: "facts" });
const latency = h("div", { class: "results" });
const slow = h("div", { class: "results" });
const connections = h("div", { class: "results" });
const verbs = h("select", { "aria-label": "Verb", onchange: () => last && drawLatency(last) });
const level = h("select", { "aria-label": "Least level", onchange: () => drawLines() }, ["debug", "info", "warning", "error"].map((each) => h("option", { value: each, text: each, selected: each === "info" })));
const lines = h("div", { class: "log", tabindex: 0, role: "log", "aria-label": "The broker's log" });
const LEVELS = ["debug", "info", "warning", "error", "critical"];
let kept = [];
let last = null, before = null;

const boundary = (seconds) => (seconds < 1 ? `${+(seconds * 1000).toPrecision(3)} ms` : `${seconds} s`);

function drawLatency(found) {
  const all = Object.keys(found.latency).sort();
  if ([...verbs.options].map((each) => each.value).join() !== ["", ...all].join()) {
    const chosen = verbs.value;
    show(verbs, h("option", { value: "", text: "all verbs" }), all.map((each) => h("option", { value: each, text: each.replaceAll("_", " "), selected: each === chosen })));
  }
  const counts = found.bounds.map(() => 0).concat(0);
  for (const verb of verbs.value ? [verbs.value] : all) found.latency[verb].forEach((count, at) => (counts[at] += count));
  const total = counts.reduce((sum, each) => sum + each, 0);
  if (!total) return show(latency, h("p", { class: "dim", text: "Nothing was asked yet." }));
  const upTo = found.bounds.map((bound) => `up to ${boundary(bound)}`).concat("longer");
  const quantile = (share) => {
    let sum = 0;
    const at = counts.findIndex((count) => (sum += count) >= share * total);
    return upTo[at];
  };
  show(latency, chart({ label: "answers", x: upTo, y: counts, height: 130, format: (value) => plural(value, "answer") }), h("p", { class: "hint", text: `${plural(total, "answer")}: half ${quantile(0.5)}, 99 of 100 ${quantile(0.99)}. Waits that were asked for are not counted.` }));
}

function drawLines() {
  const least = LEVELS.indexOf(level.value);
  const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
  show(
    lines,
    kept
      .filter((each) => LEVELS.indexOf(each.level) >= least)
      .slice(-300)
      .map((each) => h("p", null, h("span", { class: "dim", text: time(each.time * 1e6, false) }), " ", h("span", { class: each.level === "info" || each.level === "debug" ? "dim" : each.level === "warning" ? "warn" : "bad", text: each.level }), " ", h("strong", { text: each.event }), " ", Object.entries(each.fields).map(([key, value]) => [h("span", { class: "dim", text: ` ${key}=` }), typeof value === "string" ? value : JSON.stringify(value)]))),
  );
  if (!lines.children.length) show(lines, h("p", { class: "dim", text: "Nothing yet." }));
  if (atEnd) lines.scrollTop = lines.scrollHeight;
}

function draw(found) {
  const passed = before ? found.uptime - before.uptime : 0;
  const per = (key) => (passed > 0 ? (found[key] - before[key]) / passed : null);
  const requests = Object.values(found.requests).reduce((sum, each) => sum + each, 0);
  found.all = requests;
  const cpu = passed > 0 ? (found.process.cpu_seconds - before.process.cpu_seconds) / passed : null;
  show(lead, h("strong", { text: plural(found.open, "connection") }), ", ", h("strong", { text: before ? `${rate(per("all"))} requests/s` : "measuring" }), `, up for ${span(found.uptime)}`, found.stopping ? h("span", { class: "tag warn", text: "stopping" }) : null);
  const told = [
    ["in", `${bytes(found.received)}${before ? `, ${bytes(per("received"))}/s` : ""}`],
    ["out", `${bytes(found.sent)}${before ? `, ${bytes(per("sent"))}/s` : ""}`],
    ["connections taken", `${number(found.taken)}, refused ${number(found.refused)}`],
    ["failed logins", number(found.failed_logins)],
    ["errors answered", Object.entries(found.errors).map(([code, count]) => `${code} ${number(count)}`).join(", ") || "none"],
    ["processor", cpu === null ? "–" : `${(100 * cpu).toFixed(1)} % of a core`],
    ["memory", bytes(found.process.resident_bytes)],
    ["open files", number(found.process.descriptors)],
    ["console tabs", number(found.tabs)],
    ["version", found.version],
  ];
  show(numbers, told.map(([key, text]) => [h("dt", { text: key }), h("dd", { text })]));
  drawLatency(found);
  show(slow, found.slow.length ? list("Slow requests", [["At"], ["Verb"], ["Topic"], ["Connection"], ["Took", true]], found.slow.slice(0, 20).map((each) => [time(each.at * 1e6, false), each.verb.replaceAll("_", " "), each.topic || "–", each.connection, span(each.seconds)])) : h("p", { class: "dim", text: `No answer took longer than ${boundary(found.slow_bound)}.` }));
  show(
    connections,
    found.connections.length
      ? list("Connections", [["Connection"], ["Address"], ["Client"], ["User"], ["TLS"], ["Since"], ["Silent for"], ["In flight", true]], found.connections.map((each) => [h("th", { scope: "row", class: "mono", text: each.name }), each.address, each.client || "–", each.user, each.encrypted ? "yes" : "no", span(each.seconds), span(each.silent), number(each.in_flight)]))
      : h("p", { class: "dim", text: "Nobody is connected." }),
    found.open > found.connections.length ? h("p", { class: "dim", text: `The first ${number(found.connections.length)} of ${number(found.open)}.` }) : null,
  );
  if (found.lines.length) {
    kept = kept.concat(found.lines).slice(-1000);
    drawLines();
  }
  if (found.faults) drawFaults(found.faults);
  before = last = found;
}

// -- faults on purpose --------------------------------------------------------------------------------

const delay = h("input", { type: "text", inputmode: "decimal", value: "0" });
const share = h("input", { type: "text", inputmode: "decimal", value: "0" });
const paused = h("input", { type: "checkbox", id: "paused" });
const full = h("input", { type: "checkbox", id: "full" });
const faultState = h("p", { class: "state", role: "status" });
let touched = false;

function drawFaults(now) {
  const on = [now.paused && "paused", now.delay_seconds && `answers ${span(now.delay_seconds)} late`, now.disk_full && "disk full", now.drop_percent && `${now.drop_percent} % of requests cut`].filter(Boolean);
  faultState.textContent = on.length ? `Failing on purpose: ${on.join(", ")}` : "Nothing fails on purpose.";
  faultState.className = on.length ? "state held" : "state";
  if (touched) return;
  delay.value = String(now.delay_seconds);
  share.value = String(now.drop_percent);
  paused.checked = now.paused;
  full.checked = now.disk_full;
}

async function set(values) {
  touched = false;
  await attempt(() => post("broker/faults", values));
}

const faults = h(
  "section",
  { class: "panel" },
  h("h2", { text: "Faults on purpose" }),
  h("p", { class: "hint", text: "For trying how clients bear it. They end with the broker, or with All well." }),
  h(
    "form",
    {
      class: "form",
      oninput: () => (touched = true),
      onsubmit: (event) => (event.preventDefault(), set({ delay_seconds: Number(delay.value), drop_percent: Number(share.value), paused: paused.checked, disk_full: full.checked })),
    },
    field("Delay answers, seconds", delay),
    field("Cut connections, percent of requests", share),
    h("div", { class: "field check" }, paused, h("label", { for: "paused", text: "Answer nothing (paused)" })),
    h("div", { class: "field check" }, full, h("label", { for: "full", text: "Refuse appends: disk full" })),
    h("div", { class: "all actions" }, h("button", { type: "submit", text: "Apply" }), h("button", { type: "button", text: "All well", onclick: () => set({ delay_seconds: 0, drop_percent: 0, paused: false, disk_full: false }) }), h("button", {
      type: "button", class: "danger", text: "Cut all connections",
      onclick: async () => {
        const done = await attempt(() => post("broker/drop", {}));
        if (done) say(`${plural(done.dropped, "connection")} cut`);
      },
    })),
  ),
  faultState,
);

show(
  page,
  h("div", { class: "bar" }, lead, h("div", { class: "actions" }, facts.broker ? copyAs([["metrics", `curl ${new URL("metrics", document.baseURI)}`], ["health", `curl ${new URL("health", document.baseURI)}`]]) : null)),
  h("div", { class: "panels" }, h("section", { class: "panel" }, h("h2", { text: "Numbers" }), numbers), h("section", { class: "panel" }, h("header", null, h("h2", { text: "How long answers take" }), verbs), latency)),
  h("section", { class: "results" }, h("h2", { text: "Slow requests" }), slow),
  h("section", { class: "results" }, h("h2", { text: "Connections" }), connections),
  h("section", { class: "panel" }, h("header", null, h("h2", { text: "Log" }), level), lines),
  facts.development ? faults : null,
);
drawLines();
open({
  request: () => ({ op: "broker", after: kept.length ? kept[kept.length - 1].number : 0 }),
  got: draw,
  failed: (error) => show(page, trouble(error)),
});
