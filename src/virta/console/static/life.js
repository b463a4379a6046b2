// Cells on a plane, live: a Game of Life, a board, a heat map.
import { h, show } from "./dom.js";
import { number, plural, rate } from "./format.js";
import { get, open } from "./live.js";
import { page, parameter, setTitle, topicTabs, crumbs, trouble, link, copyAs, quoted, python, sqlName, facts } from "./shell.js";

const name = parameter("topic", "life");

async function start() {
  setTitle("Cells", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const canvas = h("canvas", { class: "cells", role: "img", "aria-label": "The cells" });
  const status = h("p", { class: "state", role: "status", text: "reading …" });
  const hover = h("p", { class: "state mono" });
  const cells = new Map();
  let box = null, changes = [], planned = 0, rows = 0;

  const put = ([x, y, shown]) => {
    if (shown) cells.set(`${x},${y}`, [x, y, shown]);
    else cells.delete(`${x},${y}`);
    if (!box) box = { left: x, right: x, top: y, bottom: y };
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x);
    box.top = Math.min(box.top, y);
    box.bottom = Math.max(box.bottom, y);
  };

  function draw() {
    planned = 0;
    if (!box) return;
    const wide = box.right - box.left + 1, high = box.bottom - box.top + 1;
    const room = canvas.parentElement.clientWidth - 2;
    const scale = devicePixelRatio || 1;
    const size = Math.max(1, Math.min(26, Math.floor(Math.min(room / wide, Math.max(240, innerHeight - 300) / high))));
    const pixels = [wide * size, high * size];
    if (canvas.width !== Math.round(pixels[0] * scale) || canvas.height !== Math.round(pixels[1] * scale)) {
      canvas.width = Math.round(pixels[0] * scale);
      canvas.height = Math.round(pixels[1] * scale);
      canvas.style.setProperty("width", `${pixels[0]}px`);
      canvas.style.setProperty("height", `${pixels[1]}px`);
    }
    const colour = getComputedStyle(document.documentElement);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colour.getPropertyValue("--sunken");
    pen.fillRect(0, 0, ...pixels);
    const gap = size >= 6 ? 1 : 0;
    const most = [...cells.values()].reduce((found, each) => Math.max(found, Math.abs(each[2])), 1);
    pen.fillStyle = colour.getPropertyValue("--accent");
    for (const [x, y, shown] of cells.values()) {
      pen.globalAlpha = 0.25 + 0.75 * Math.min(1, Math.abs(shown) / most);
      pen.fillRect((x - box.left) * size, (y - box.top) * size, size - gap, size - gap);
    }
    pen.globalAlpha = 1;
    canvas.cellSize = size;
    const now = performance.now();
    changes = changes.filter(([at]) => now - at < 5000);
    const recent = changes.reduce((sum, each) => sum + each[1], 0) / 5;
    const said = `${number(cells.size)} alive of ${number(wide * high)}, ${rate(recent)} changes/s, ${plural(rows, "row")}`;
    if (status.textContent !== said) status.textContent = said;
    status.className = "state live";
    canvas.setAttribute("aria-label", `The cells: ${number(cells.size)} alive of ${number(wide)} by ${number(high)}`);
  }
  const plan = () => (planned = planned || requestAnimationFrame(draw));

  canvas.addEventListener("pointermove", (event) => {
    if (!box) return;
    const x = box.left + Math.floor(event.offsetX / canvas.cellSize), y = box.top + Math.floor(event.offsetY / canvas.cellSize);
    const found = cells.get(`${x},${y}`);
    hover.textContent = `x ${x}, y ${y}: ${found ? (found[2] === 1 ? "alive" : found[2]) : "nothing"}`;
  });
  canvas.addEventListener("click", (event) => {
    const x = box.left + Math.floor(event.offsetX / canvas.cellSize), y = box.top + Math.floor(event.offsetY / canvas.cellSize);
    location.href = link("rows", { topic: name, where: `x = ${x} and y = ${y}` });
  });
  show(
    page,
    topicTabs(topic, "life"),
    h("div", { class: "bar" }, h("div", { class: "states" }, status, hover), h("div", { class: "actions" }, copyAs([
      ["link", location.href],
      ["command line", `virta sql -l ${quoted(facts.log)} ${quoted(`select * from ${sqlName(name)}`)}`],
      ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    for change in log.topic(${python(name)}).changes():\n        print(change)`],
      ["SQL", `select * from ${sqlName(name)}`],
    ]))),
    h("div", { class: "plane" }, canvas),
    h("p", { class: "hint", text: "Every cell is a key of this topic and every change a row. A click shows the history of a cell." }),
  );
  const again = () => plan();
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  open({
    request: () => ({ op: "cells", topic: name }),
    got: (message) => {
      if (message.all) {
        cells.clear();
        box = null;
        if (!message.cells.length) status.textContent = "no cells yet; they appear as they come";
      } else changes.push([performance.now(), message.cells.length]);
      message.cells.forEach(put);
      rows = message.rows;
      plan();
    },
    failed: (error) => show(page, topicTabs(topic, "life"), trouble(error)),
  });
}
start().catch((error) => show(page, trouble(error)));
