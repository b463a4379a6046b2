// <virta-grid>: a table of any number of rows, of which only those in sight are in the page.
//
// It knows positions, not offsets: `source.count` rows, `source.at(i)` gives one (undefined: not here yet,
// null: not there any more), `source.want(from, to)` says what is in sight. Up to some millions of pixels the
// browser scrolls; beyond that a small move moves by rows and a large one by its share of the whole.
import { h } from "./dom.js";
import { cell, time } from "./format.js";

const ROW = 26;
const HEAD = 28;
// Browsers draw nothing beyond some 17 to 33 million pixels.
const MOST_PIXELS = 8_000_000;

/** Set a style, if it is another one than was set last. */
function set(element, name, value) {
  const known = (element.styles = element.styles || {});
  if (known[name] === value) return;
  known[name] = value;
  element.style[name] = value;
}

const EMPTY = { count: 0, at: () => null, want: () => {} };

class Grid extends HTMLElement {
  constructor() {
    super();
    this.source = EMPTY;
    this.columns = [];
    this.follow = false;
    this.top = 0;
    this.active = -1;
    this.marked = null;
    this.pool = [];
    this.planned = 0;
    this.expected = 0;
  }

  connectedCallback() {
    this.head = h("div", { class: "ghead", role: "row", "aria-rowindex": 1 });
    this.layer = h("div", { class: "glayer", role: "rowgroup" });
    this.inner = h("div", { class: "ginner" }, h("div", { role: "rowgroup", class: "gheads" }, this.head), this.layer);
    this.scroller = h("div", { class: "gscroll", role: "grid", tabindex: 0, "aria-label": this.getAttribute("label") || "Rows" }, this.inner);
    this.replaceChildren(this.scroller);
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.layer.addEventListener("click", (event) => {
      const row = event.target.closest("[role=row]");
      if (row && row.at !== undefined) this.choose(row.at, true);
    });
    // asked once, not at every draw: the answer costs a layout
    this.room = this.scroller.clientHeight;
    this.sized = new ResizeObserver(() => {
      this.room = this.scroller.clientHeight;
      this.draw();
    });
    this.sized.observe(this);
  }

  disconnectedCallback() {
    this.sized.disconnect();
  }

  /** Show these columns: `{name, number}`; the first two are offset and time. */
  setColumns(columns, widths) {
    this.columns = columns;
    this.widths = [];
    this.widen(widths);
    this.scroller.setAttribute("aria-colcount", columns.length);
    this.head.replaceChildren(
      ...columns.map((each) => h("span", { role: "columnheader", class: each.number ? "num" : null, title: each.said || null, text: each.name })),
    );
    this.layer.replaceChildren();
    this.pool = [];
    this.plan();
  }

  /** Make columns wider where these say so; none becomes narrower while somebody reads. */
  widen(widths) {
    const wider = widths.map((each, at) => Math.max(each, this.widths[at] || 0));
    if (wider.every((each, at) => each === this.widths[at])) return;
    this.widths = wider;
    this.style.setProperty("--cols", wider.map((each) => `${Math.round(each * 7.55 + 20)}px`).join(" "));
  }

  get visible() {
    return Math.max(1, (this.room - HEAD) / ROW);
  }

  get maxTop() {
    return Math.max(0, this.source.count - this.visible);
  }

  get height() {
    return Math.min(this.source.count * ROW, MOST_PIXELS);
  }

  get scaled() {
    return this.source.count * ROW > MOST_PIXELS;
  }

  /** The rows changed, or there are more of them. `shift`: so many were added before the first. */
  changed(shift = 0) {
    if (shift) {
      this.top += shift;
      if (this.active >= 0) this.active += shift;
    }
    this.plan();
  }

  plan() {
    if (!this.planned) this.planned = requestAnimationFrame(() => this.draw());
  }

  /** Bring a position into the middle of the view. */
  goTo(at, mark = null) {
    this.follow = false;
    this.marked = mark;
    this.top = Math.max(0, Math.min(at - Math.floor(this.visible / 2), this.maxTop));
    this.draw();
  }

  goToTop(at) {
    this.follow = false;
    this.top = Math.max(0, Math.min(at, this.maxTop));
    this.draw();
  }

  scrolled() {
    const now = this.scroller.scrollTop;
    const moved = now - this.expected;
    if (Math.abs(moved) < 1) return;
    const most = this.scroller.scrollHeight - this.scroller.clientHeight;
    if (!this.scaled) this.top = now / ROW;
    else if (now <= 0) this.top = 0;
    else if (now >= most - 1) this.top = this.maxTop;
    else if (Math.abs(moved) < 3 * this.scroller.clientHeight) this.top += moved / ROW;
    else this.top = (now / most) * this.maxTop;
    this.top = Math.max(0, Math.min(this.top, this.maxTop));
    this.expected = now;
    this.setFollow(this.top >= this.maxTop - 0.75);
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settle(), 160);
    this.plan();
  }

  setFollow(value) {
    if (value === this.follow) return;
    this.follow = value;
    this.dispatchEvent(new CustomEvent("follow", { detail: value }));
  }

  /** Put the scroll bar where the rows are. */
  settle() {
    const most = HEAD + this.height - this.room;
    const wanted = this.scaled ? (this.maxTop ? (this.top / this.maxTop) * most : 0) : this.top * ROW;
    if (Math.abs(wanted - this.scroller.scrollTop) >= 1) this.scroller.scrollTop = wanted;
    this.expected = this.scroller.scrollTop;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.visible) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.choose((this.active < 0 ? Math.floor(this.top) : this.active) + moves[event.key], false);
    else if (event.key === "Home") this.choose(0, false);
    else if (event.key === "End") {
      this.choose(this.source.count - 1, false);
      this.setFollow(true);
    } else if (event.key === "Enter" && this.active >= 0) this.choose(this.active, true);
    else return;
    event.preventDefault();
  }

  choose(at, open) {
    if (!this.source.count) return;
    this.active = Math.max(0, Math.min(at, this.source.count - 1));
    if (this.active < this.top) this.top = this.active;
    else if (this.active > this.top + this.visible - 1) this.top = Math.min(this.maxTop, this.active - this.visible + 1);
    if (this.top < this.maxTop - 0.75) this.setFollow(false);
    this.draw();
    const row = this.source.at(this.active);
    if (open && row) this.dispatchEvent(new CustomEvent("choose", { detail: row }));
  }

  draw() {
    cancelAnimationFrame(this.planned);
    this.planned = 0;
    if (!this.scroller) return;
    const count = this.source.count;
    set(this.inner, "height", `${HEAD + this.height}px`);
    set(this.layer, "height", `${Math.min(this.height, this.room - HEAD)}px`);
    if (this.follow) this.top = this.maxTop;
    this.top = Math.max(0, Math.min(this.top, this.maxTop));
    if (this.follow || !this.scaled) this.settle();
    this.scroller.setAttribute("aria-rowcount", count + 1);
    const from = Math.floor(this.top);
    const to = Math.min(count, Math.ceil(this.top + this.visible));
    while (this.pool.length < to - from) this.pool.push(this.row());
    for (let slot = 0; slot < this.pool.length; slot++) {
      const row = this.pool[slot];
      const at = from + slot;
      const hidden = at >= to;
      if (row.away !== hidden) row.hidden = row.away = hidden;
      if (hidden) continue;
      set(row, "transform", `translateY(${((at - this.top) * ROW).toFixed(1)}px)`);
      this.fill(row, at);
    }
    const active = this.active >= from && this.active < to ? this.pool[this.active - from] : null;
    if (active) this.scroller.setAttribute("aria-activedescendant", active.id);
    else this.scroller.removeAttribute("aria-activedescendant");
    this.source.want(from, to);
  }

  row() {
    const cells = this.columns.map(() => h("span", { role: "gridcell" }));
    const row = h("div", { class: "grow", role: "row", id: `row-${++rows}` }, cells);
    // what each cell says, kept here: asking the page for it costs more than telling it
    row.cells = cells.map((element) => {
      const text = document.createTextNode("");
      element.append(text);
      return { element, text, said: "", kind: "", title: "" };
    });
    this.layer.append(row);
    return row;
  }

  fill(row, at) {
    const given = this.source.at(at);
    const classes = `grow${at === this.active ? " active" : ""}${given && this.marked !== null && given[0] === this.marked ? " marked" : ""}${given === null ? " gone" : ""}`;
    if (row.classes !== classes) row.className = row.classes = classes;
    if (row.at === at && row.given === given && given !== undefined) return;
    row.at = at;
    row.given = given;
    row.setAttribute("aria-rowindex", at + 2);
    for (let place = 0; place < row.cells.length; place++) {
      const it = row.cells[place];
      let text = "", kind = "", title = "";
      if (given === undefined) kind = "wait";
      else if (given === null) [text, kind] = place ? ["", ""] : [String(this.source.name ? this.source.name(at) : ""), "num"];
      else if (place === 0) [text, kind] = [String(given[0]), "num offset"];
      else if (place === 1) [text, kind] = [given[1] === null ? "" : time(given[1]), "time"];
      else [text, kind, title = ""] = cell(given[place]);
      if (this.columns[place].number && kind !== "wait") kind += " num";
      if (it.said !== text) it.text.data = it.said = text;
      if (it.kind !== kind) it.element.className = it.kind = kind;
      if (it.title !== title) it.element.title = it.title = title;
    }
  }
}
let rows = 0;

customElements.define("virta-grid", Grid);

/** Widths in characters, from the columns' names and some rows. */
export function widthsOf(columns, sample) {
  return columns.map((column, at) => {
    if (at === 0) return Math.max(6, String(sample.length ? sample[sample.length - 1][0] : "").length + 1);
    if (at === 1) return 23;
    const longest = sample.slice(-60).reduce((most, row) => Math.max(most, cell(row[at])[0].length), 0);
    return Math.max(4, Math.min(column.name.length, 24), Math.min(longest, 50)) + 1;
  });
}
