// A plain table of values, for previews and results that fit into a page.
import { h } from "./dom.js";
import { cell } from "./format.js";

/** @param {{name: string, type?: string, number?: boolean}[]} columns @param {any[][]} rows */
export function table(columns, rows, label) {
  return h(
    "div",
    { class: "scroll tall", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      { class: "list values-table" },
      h("thead", null, h("tr", null, columns.map((each) => h("th", { scope: "col", class: each.number ? "number" : null, title: each.said || null, text: each.name })))),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            null,
            row.map((value, at) => {
              const [text, kind, title] = cell(value);
              return h("td", { class: `${kind}${columns[at].number ? " number" : ""}`, title: title || null, text });
            }),
          ),
        ),
      ),
    ),
  );
}

/**
 * A list: heads as `[text, isNumber]`, rows of texts or of cells that are made already.
 * @param {string} label @param {[string, boolean?][]} heads @param {any[][]} rows
 */
export function list(label, heads, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      { class: "list" },
      h("thead", null, h("tr", null, heads.map(([text, isNumber]) => h("th", { scope: "col", class: isNumber ? "number" : null, text })))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((each, at) => (each instanceof Node ? each : h("td", { class: heads[at][1] ? "number" : null, text: each })))))),
    ),
  );
}
