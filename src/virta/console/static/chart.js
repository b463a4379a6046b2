// Small charts in SVG, drawn from tokens of the theme.
import { s, h, show } from "./dom.js";

/** A sparkline of some numbers. */
export function spark(values, label, width = 96, height = 20) {
  const most = Math.max(1e-9, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 1.5 - (value / most) * (height - 3)).toFixed(1)}`);
  const line = points.length > 1 ? s("polyline", { points: points.join(" "), class: "line" }) : null;
  const area = points.length > 1 ? s("polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}`, class: "area" }) : null;
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, area, line);
}

/**
 * Bars or a line over labels, with a read-out under the pointer.
 * @param {{x: string[], y: number[], kind?: string, label: string, height?: number, format?: (v: number) => string}} given
 */
export function chart(given) {
  const { x, y, kind = "bars", label, height = 160, format = String } = given;
  const width = 640;
  const left = 4, bottom = 18, top = 8;
  const most = Math.max(1e-9, ...y), least = Math.min(0, ...y);
  const place = (value) => top + (1 - (value - least) / (most - least || 1)) * (height - top - bottom);
  const slot = (width - 2 * left) / Math.max(1, y.length);
  const centre = (at) => left + slot * (at + 0.5);
  const marks =
    kind === "line"
      ? [s("polyline", { class: "line", points: y.map((value, at) => `${centre(at).toFixed(1)},${place(value).toFixed(1)}`).join(" ") })]
      : y.map((value, at) =>
          s("rect", { class: "bar", x: (left + slot * at + Math.min(1, slot * 0.1)).toFixed(2), width: Math.max(0.6, slot - Math.min(2, slot * 0.2)).toFixed(2), y: Math.min(place(value), place(0)).toFixed(2), height: Math.max(value ? 1 : 0, Math.abs(place(0) - place(value))).toFixed(2) }),
        );
  const ruler = s("line", { class: "ruler", x1: -9, x2: -9, y1: top, y2: height - bottom });
  const said = h("p", { class: "readout dim" }, `${label}: up to ${format(most)}`);
  const svg = s(
    "svg",
    { class: height < 150 ? "chart low" : "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}; ${y.length} values, up to ${format(most)}` },
    s("line", { class: "axis", x1: 0, x2: width, y1: place(0), y2: place(0) }),
    marks,
    ruler,
  );
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = Math.max(0, Math.min(y.length - 1, Math.floor((((event.clientX - box.left) / box.width) * width - left) / slot)));
    if (y[at] === undefined) return;
    ruler.setAttribute("x1", centre(at));
    ruler.setAttribute("x2", centre(at));
    show(said, h("strong", { text: format(y[at]) }), ` ${x[at]}`);
  });
  svg.addEventListener("pointerleave", () => {
    ruler.setAttribute("x1", -9);
    ruler.setAttribute("x2", -9);
    show(said, `${label}: up to ${format(most)}`);
  });
  return h("figure", { class: "figure" }, svg, h("div", { class: "ends" }, h("span", { text: x[0] ?? "" }), said, h("span", { text: x[x.length - 1] ?? "" })));
}
