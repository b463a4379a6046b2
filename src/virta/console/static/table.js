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
