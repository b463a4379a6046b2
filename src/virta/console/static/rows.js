// The rows of a topic: a tail that follows, a table that goes anywhere, a filter.
import { h, show } from "./dom.js";
import { number, plural, bytes } from "./format.js";
import { get, open } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, trouble, attempt, link, copyAs, quoted, python, sqlName, action, facts, say } from "./shell.js";
import { widthsOf } from "./grid.js";
import { detail } from "./detail.js";

const PAGE = 100;
const KEPT_PAGES = 300;
const name = parameter("topic", "");

let topic = null;
let partition = Number(parameter("partition", 0));
let range = null; // {start, stop} where the table is held to one
let grid, status, skippedNote, stream, search;

// -- rows by offset ----------------------------------------------------------------------------

const cache = {
  pages: new Map(), // page number → Map(offset → row), or a promise
  start: 0,
  next: 0,
  seen: 0, // where following had come when it was paused

  get first() {
    return range ? Math.max(range.start, this.start) : this.start;
  },
  get end() {
    return range && range.stop !== null ? Math.min(range.stop, this.next) : this.next;
  },
  get count() {
    return Math.max(0, this.end - this.first);
  },
  name(at) {
    return this.first + at;
  },
  at(at) {
    const offset = this.first + at;
    const found = this.pages.get(Math.floor(offset / PAGE));
    if (!found || found.loading) return found && found.rows ? (found.rows.get(offset) ?? undefined) : undefined;
    return found.rows.get(offset) ?? (offset < found.upTo ? null : undefined);
  },
  put(rows, next) {
    for (const row of rows) {
      const key = Math.floor(row[0] / PAGE);
      let place = this.pages.get(key);
      if (!place) this.pages.set(key, (place = { rows: new Map(), upTo: 0, from: row[0], loading: false }));
      place.rows.set(row[0], row);
      if (place.from === key * PAGE || place.rows.size === PAGE) place.upTo = Math.max(place.upTo, row[0] + 1);
    }
    if (next !== undefined) this.next = next;
    while (this.pages.size > KEPT_PAGES) this.pages.delete(this.pages.keys().next().value);
  },
  want(from, to) {
    this.inSight = [this.first + from, this.first + to];
    this.load();
  },
  /** Some pages that follow one another: one request, so that a large block is read once for them. */
  async fetch(keys) {
    const first = keys[0];
    const places = keys.map((key) => {
      const place = this.pages.get(key) || { rows: new Map(), upTo: 0, from: key * PAGE };
      place.loading = true;
      this.pages.set(key, place);
      return place;
    });
    try {
      const got = await get("rows", { topic: name, partition, start: first * PAGE, stop: (first + keys.length) * PAGE });
      for (const row of got.rows) places[Math.floor(row[0] / PAGE) - first].rows.set(row[0], row);
      places.forEach((place, at) => {
        place.from = keys[at] * PAGE;
        place.upTo = Math.max(place.upTo, Math.min(got.next, (keys[at] + 1) * PAGE));
      });
      if (grid.columns.length === 0) setColumns(got.rows);
      else grid.widen(widthsOf(allColumns(), got.rows));
    } catch (error) {
      for (const place of places) place.upTo = 0;
      tell(error.message, "bad");
    } finally {
      for (const place of places) place.loading = false;
      grid.plan();
    }
  },
  /** Ask for what is in sight and not here: at once, and then as often as a scroll bar that is dragged needs. */
  load() {
    if (this.resting) return void (this.due = true);
    this.resting = setTimeout(() => {
      this.resting = 0;
      if (!this.due) return;
      this.due = false;
      this.load();
    }, 25);
    const [from, to] = this.inSight;
    let wanted = [];
    for (let key = Math.floor(from / PAGE); key * PAGE < to; key++) {
      const place = this.pages.get(key);
      if (!place || (!place.loading && place.upTo < Math.min((key + 1) * PAGE, to, this.end))) wanted.push(key);
      else if (wanted.length) {
        this.fetch(wanted);
        wanted = [];
      }
    }
    if (wanted.length) this.fetch(wanted);
  },
};

// -- rows that match -----------------------------------------------------------------------------

const matches = {
  rows: [],
  get count() {
    return this.rows.length;
  },
  at(at) {
    return this.rows[at];
  },
  want() {},
};

// -- what is shown ---------------------------------------------------------------------------------

function allColumns() {
  return [{ name: "offset", number: true }, { name: "time" }, ...topic.row_columns];
}

function setColumns(sample) {
  const columns = allColumns();
  grid.setColumns(columns, widthsOf(columns, sample));
}

function tell(text, kind = "") {
  if (status.textContent !== text) status.textContent = text;
  status.className = `state ${kind}`;
}

function drawState() {
  const filter = parameter("where");
  if (filter) return;
  const held = cache.next - cache.seen;
  followButton.setAttribute("aria-pressed", grid.follow ? "true" : "false");
  followButton.textContent = grid.follow ? "Pause" : "Follow";
  if (range && range.stop !== null) tell(`${plural(cache.count, "row")} in this range`);
  else if (grid.follow) tell(cache.count ? `following ${plural(cache.count, "row")}` : "no rows yet; they appear here as they come", cache.count ? "live" : "");
  else tell(held > 0 ? `paused, ${number(held)} held` : "paused at your place", held > 0 ? "held" : "");
}

// A number that changes ten times a second is read by nobody.
let stateDue = 0;
function stateSoon() {
  stateDue = stateDue || setTimeout(() => {
    stateDue = 0;
    drawState();
  }, 200);
}

function skipped(count) {
  if (!count) return;
  skippedNote.hidden = false;
  skippedTotal += count;
  show(skippedNote, `skipped ${number(skippedTotal)}`, h("button", { type: "button", class: "quiet", "aria-label": "Forget the skipped rows", text: "×", onclick: () => ((skippedTotal = 0), (skippedNote.hidden = true)) }));
  skippedNote.title = "More rows came than a browser can show; they are in the log, scroll up to them";
}
let skippedTotal = 0;

function follow() {
  let version = topic.version;
  let began = false;
  stream = open({
    request: () => ({ op: "rows", topic: name, partition, after: began ? cache.next : undefined, quiet: Boolean(parameter("where")) }),
    got: async (message) => {
      if (message.lost) {
        say(`${plural(message.lost, "row")} that were shown were lost by a crash`, "bad");
        cache.pages.clear();
        return;
      }
      if (message.version !== version) {
        version = message.version;
        topic = await get("topic", { topic: name });
        cache.pages.clear();
        setColumns(message.rows);
      }
      const moved = message.start - cache.start;
      const before = range ? 0 : moved;
      cache.start = message.start;
      cache.put(message.rows, message.next);
      if (!grid.columns.length && message.rows.length) setColumns(message.rows);
      if (began && grid.follow) skipped(message.skipped);
      if (!began) {
        began = true;
        await place();
      }
      if (grid.follow) cache.seen = cache.next;
      grid.changed(began && moved > 0 ? -before : 0);
      stateSoon();
    },
    failed: (error) => show(page, trouble(error)),
  });
}

/** Go where the address says. */
async function place() {
  const at = parameter("at");
  if (at === null) {
    range = null;
    grid.follow = true;
    cache.seen = cache.next;
    return;
  }
  // a plain offset needs no asking
  const found = /^\d+$/.test(at) ? { point: true, start: Math.max(cache.start, Math.min(Number(at), cache.next - 1)) } : await attempt(() => get("seek", { topic: name, partition, at }));
  if (!found) return;
  grid.follow = false;
  cache.seen = cache.next;
  if (found.point) {
    range = null;
    grid.goTo(found.start - cache.first, found.start);
  } else {
    range = { start: found.start, stop: found.stop };
    if (found.stop === null) grid.setFollow(true);
    grid.goToTop(0);
  }
  grid.plan();
  drawState();
}

// -- filter ------------------------------------------------------------------------------------------

function startSearch() {
  if (search) search.stop();
  const where = parameter("where");
  matches.rows = [];
  stopButton.hidden = true;
  grid.active = -1;
  if (!where) {
    grid.source = cache;
    follow2();
    return;
  }
  if (stream) stream.again();
  grid.source = matches;
  grid.follow = true;
  stopButton.hidden = false;
  followButton.hidden = true;
  tell("looking …");
  let next = null;
  const sort = (rows) => {
    if (!rows.length) return 0;
    if (!grid.columns.length) setColumns(rows);
    if (matches.rows.length && rows[rows.length - 1][0] < matches.rows[0][0]) {
      matches.rows = rows.concat(matches.rows);
      return rows.length;
    }
    matches.rows = matches.rows.concat(rows);
    return 0;
  };
  let last = null;
  search = open({
    request: () => ({ op: "search", topic: name, partition, where, at: parameter("at"), after: next, done: last && last.done }),
    got: (message) => {
      const shift = sort(message.rows || []);
      if (message.next !== undefined) next = message.next;
      if (message.total !== undefined) last = message;
      grid.changed(grid.follow ? 0 : shift);
      if (!last) return;
      const found = plural(matches.rows.length, "match").replace("matchs", "matches");
      if (last.done) {
        stopButton.hidden = true;
        tell(`${found}${last.more ? `, the newest; looked at ${number(last.scanned)} of ${number(last.total)} rows` : ` in ${plural(last.total, "row")}`}`, "live");
      } else tell(`${found}; looked at ${number(last.scanned)} of ${number(last.total)} rows (${Math.floor((100 * last.scanned) / Math.max(1, last.total))} %)`);
    },
    failed: (error) => {
      stopButton.hidden = true;
      tell(error.message, "bad");
    },
  });
}

function follow2() {
  followButton.hidden = false;
  grid.follow = false;
  place().then(() => {
    grid.plan();
    drawState();
  });
  if (stream) stream.again();
}

// -- the page ------------------------------------------------------------------------------------------

const seek = h("input", { type: "text", id: "seek", size: 22, spellcheck: "false", autocomplete: "off", placeholder: "17, -100, -15m, 10:20, #hash", "aria-label": "Go to an offset, a time or a range", value: parameter("at", "") });
const where = h("input", { type: "text", id: "where", class: "wide", spellcheck: "false", autocomplete: "off", placeholder: "where: amount > 100 and user = 'ada'", "aria-label": "Only rows where", value: parameter("where", "") });
const followButton = h("button", { type: "button", text: "Pause", onclick: () => toggle() });
const stopButton = h("button", { type: "button", text: "Stop", hidden: true, onclick: () => stop() });

function toggle() {
  if (grid.follow) grid.setFollow(false);
  else {
    if (range && range.stop !== null) {
      seek.value = "";
      setAddress({ at: null });
      range = null;
    }
    grid.setFollow(true);
  }
  grid.plan();
}

function stop() {
  search.stop();
  stopButton.hidden = true;
  tell(`stopped; ${plural(matches.rows.length, "row")} found`);
}

const form = h(
  "form",
  {
    class: "bar",
    onsubmit: (event) => {
      event.preventDefault();
      const changed = where.value.trim() !== (parameter("where") || "");
      setAddress({ at: seek.value.trim(), where: where.value.trim() }, true);
      if (changed || where.value.trim()) startSearch();
      else attempt(place);
    },
  },
  h("div", { class: "fields" }, seek, where, h("button", { type: "submit", text: "Go" })),
);

function exportAs() {
  return h("label", { class: "pick" }, "Export ", h("select", { onchange: (event) => { const form = event.target.value; event.target.value = ""; if (form) location.href = link("api/export", { topic: name, partition: partition || null, at: parameter("at"), where: parameter("where"), form }); } }, ["", "jsonl", "csv", "parquet", "arrow", "tsv", "json"].map((each) => h("option", { value: each, text: each || "choose" }))));
}

function forms() {
  const at = parameter("at");
  const filter = parameter("where");
  const found = !at || at.includes(":") || at === "end" ? at || "-100:" : `${at}:`;
  const log = facts.log;
  const select = [];
  const held = range ?? written(at);
  if (held) {
    select.push(`_offset >= ${held.start}`);
    if (held.stop !== null) select.push(`_offset < ${held.stop}`);
  }
  if (filter) select.push(select.length ? `(${filter})` : filter);
  const slice = held ? `${held.start}:${held.stop ?? ""}` : at && /^-?\d+$/.test(at) ? `${at}:` : "-100:";
  return [
    ["link", location.href],
    ["command line", `virta read -l ${quoted(log)} ${quoted(`${name}@${found}`)}${filter ? ` --where ${quoted(filter)}` : ""}`],
    ["command line, live", `virta tail -l ${quoted(log)} ${quoted(name)}${filter ? ` --where ${quoted(filter)}` : ""}`],
    ["Python", `import virta\n\nwith virta.open(${python(log)}) as log:\n    rows = log.topic(${python(name)})[${slice}]${filter ? `.where(${python(filter)})` : ""}\n    print(rows.to_arrow())`],
    ["SQL", `select * from ${sqlName(!held && at?.includes(":") ? `${name}@${at}` : name)}${select.length ? ` where ${select.join(" and ")}` : ""} order by _offset`],
  ];
}

/** A range of offsets as it is written: what the server makes of it may not be here yet. */
function written(at) {
  const found = /^(\d+):(\d*)$/.exec(at ?? "");
  return found && { start: Number(found[1]), stop: found[2] ? Number(found[2]) : null };
}

const side = h("aside", { class: "detail", "aria-label": "Row", hidden: true });

async function openRow(offset) {
  setAddress({ row: offset });
  side.hidden = false;
  const shown = await attempt(() => detail({ topic: name, partition, offset, onGo: openRow, onClose: closeRow }));
  if (!shown) return;
  show(side, shown);
  if (matchMedia("(max-width: 760px)").matches) side.scrollIntoView();
}

function closeRow() {
  setAddress({ row: null });
  side.hidden = true;
  show(side);
  grid.scroller.focus();
}

async function start() {
  setTitle(name, h("a", { class: "crumb", href: "./", text: "Topics" }));
  topic = await get("topic", { topic: name });
  grid = document.createElement("virta-grid");
  grid.setAttribute("label", `Rows of ${name}`);
  status = h("p", { class: "state", role: "status" });
  skippedNote = h("p", { class: "state held", role: "status", hidden: true });
  const choose =
    topic.partitions.length > 1
      ? h(
          "select",
          { "aria-label": "Partition", onchange: (event) => (location.href = link("rows", { topic: name, partition: event.target.value })) },
          topic.partitions.map((each) => h("option", { value: String(each.number), selected: each.number === partition, text: `partition ${each.number}` })),
        )
      : null;
  form.append(h("div", { class: "actions" }, choose, followButton, stopButton, exportAs(), copyAs(forms)));
  const stats = topic.stats;
  show(
    page,
    topicTabs(topic, "rows"),
    form,
    h("div", { class: "states" }, status, skippedNote, h("p", { class: "state dim", text: `${bytes(stats.bytes)} in ${plural(stats.blocks, "block")}${topic.config.locked ? " · locked" : ""}` })),
    h("div", { class: "split" }, grid, side),
  );
  document.body.classList.add("full");
  grid.source = cache;
  grid.addEventListener("follow", () => {
    if (!grid.follow) cache.seen = cache.next;
    drawState();
    if (grid.follow) grid.plan();
  });
  grid.addEventListener("choose", (event) => openRow(event.detail[0]));
  setColumns([]);
  grid.columns = [];
  follow();
  if (parameter("where")) startSearch();
  if (parameter("row") !== null) openRow(Number(parameter("row")));
  action("Pause or follow the tail", toggle);
  action("Filter rows", () => where.focus());
  action("Go to an offset or a time", () => seek.focus());
}

addEventListener("popstate", () => {
  seek.value = parameter("at", "");
  where.value = parameter("where", "");
  startSearch();
});
addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") {
    event.preventDefault();
    where.focus();
  } else if (event.key === "p") toggle();
  else if (event.key === "Escape" && !side.hidden) closeRow();
});
start().catch((error) => show(page, trouble(error)));
