// One row: its fields with their types, its place, its neighbours.
import { h, show } from "./dom.js";
import { bytes, time, number } from "./format.js";
import { get, post } from "./live.js";
import { link, attempt, copy, copyAs, quoted, python, sqlName, say, facts } from "./shell.js";

/** How a value is shown whole. */
function text(value) {
  if (value === null) return "null";
  if (typeof value === "object" && "$cut" in value) return value.$cut;
  if (typeof value === "object" && "$hex" in value) return hexLines(value.$hex);
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function hexLines(digits) {
  const lines = [];
  for (let at = 0; at < digits.length; at += 32) {
    const part = digits.slice(at, at + 32);
    const pairs = part.match(/../g) || [];
    const signs = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${signs.join("")}`);
  }
  return lines.join("\n");
}

function valueOf(place, field) {
  const body = h("pre", { tabindex: 0, "aria-label": field.name, text: text(field.value) });
  const cut = field.value !== null && typeof field.value === "object" && ("$cut" in field.value || "$hex" in field.value) && field.size > field.shown;
  const more = h("div", { class: "actions" });
  if (cut) {
    more.append(
      h("button", {
        type: "button", class: "quiet", text: `Show all ${bytes(field.size)}`,
        onclick: async (event) => {
          const got = await attempt(() => get("value", { ...place, column: field.name }));
          if (!got) return;
          show(body, text(got.value));
          event.target.remove();
        },
      }),
    );
  }
  if (field.size !== null) {
    more.append(
      h("button", {
        type: "button", class: "quiet", "aria-pressed": "false", text: "Hex",
        onclick: async (event) => {
          const on = event.target.getAttribute("aria-pressed") !== "true";
          const got = on ? await attempt(() => get("value", { ...place, column: field.name, form: "hex" })) : null;
          if (on && !got) return;
          event.target.setAttribute("aria-pressed", on);
          show(body, on ? hexLines(got.hex) + (got.size > got.hex.length / 2 ? `\n… ${bytes(got.size)} in all` : "") : text(field.value));
        },
      }),
      h("a", { class: "button quiet", href: link("api/raw", { ...place, column: field.name }), download: `${place.topic}-${place.offset}-${field.name}`, text: "Download" }),
    );
  }
  const known = (field.recognised || []).map((each) =>
    h("details", { open: true }, h("summary", null, each.format, each.note ? h("span", { class: "dim", text: ` · ${each.note}` }) : null), each.value === undefined ? null : h("pre", { tabindex: 0, "aria-label": `${field.name} as ${each.format}`, text: text(each.value) })),
  );
  return h(
    "section",
    { class: "value" },
    h("p", null, h("strong", { text: field.name }), h("span", { class: "dim mono", text: field.said }), field.key ? h("span", { class: "tag", text: "key" }) : null, field.size !== null ? h("span", { class: "dim", text: bytes(field.size) }) : null),
    known.length && field.hex ? null : body,
    known,
    more.children.length ? more : null,
  );
}

/**
 * A row, whole. `onGo` is called with the offset of a neighbour; without it they are links.
 */
export async function detail({ topic, partition, offset, onGo, onClose }) {
  const row = await get("row", { topic, partition, offset });
  const place = { topic, partition, offset };
  const go = (to, words) =>
    to === null || to === undefined
      ? null
      : onGo
        ? h("button", { type: "button", text: words, onclick: () => onGo(to) })
        : h("a", { class: "button", href: link("row", { topic, partition: partition || null, offset: to }), text: words });
  const sameKey = (direction, words) =>
    h("button", {
      type: "button", text: words,
      onclick: async (event) => {
        const button = event.currentTarget;
        button.disabled = true;
        const found = await attempt(() => look(direction, button));
        button.disabled = false;
        button.textContent = words;
        if (found === undefined) return;
        if (found === null) say(direction === "next" ? "No newer row has this key" : "No older row has this key");
        else if (onGo) onGo(found);
        else location.href = link("row", { topic, partition: partition || null, offset: found });
      },
    });
  const look = async (direction, button) => {
    for (let from = null; ; ) {
      const found = await get("near", { ...place, direction, from });
      if (found.offset !== null || found.at === undefined) return found.offset;
      from = found.at;
      if (!button.isConnected) return undefined; // whoever looked has gone on
      button.textContent = `looking at ${number(from)} …`;
    }
  };
  const block = row.block;
  return [
    h(
      "header",
      null,
      h("h2", null, onGo ? h("a", { href: link("row", { topic, partition: partition || null, offset }), text: `Row ${number(offset)}` }) : `Row ${number(offset)}`),
      h("div", { class: "actions" }, copyAs(() => [
        ["link", new URL(link("row", { topic, partition: partition || null, offset }), document.baseURI).href],
        ["command line", `virta read -l ${quoted(facts.log)} ${quoted(`${topic}@${offset}:${offset + 1}`)}${partition ? ` -p ${partition}` : ""}`],
        ["Python", `import virta\n\nwith virta.open(${python(facts.log)}) as log:\n    print(log.topic(${python(topic)})${partition ? `.partition(${partition})` : ""}[${offset}:${offset + 1}].to_arrow())`],
        ["SQL", `select * from ${sqlName(row.update ? `${topic}@:` : topic)} where _offset = ${offset}`],
      ]), h("button", { type: "button", class: "quiet", text: "Copy JSON", onclick: () => copy(JSON.stringify(Object.fromEntries(row.fields.map((each) => [each.name, each.value])), null, 2)) }), onClose ? h("button", { type: "button", class: "quiet", "aria-label": "Close the row", text: "×", onclick: onClose }) : null),
    ),
    h("p", { class: "dim" }, `${time(row.timestamp)} UTC · partition ${partition} `, row.deletes ? h("span", { class: "tag warn", text: "deletes its key" }) : null),
    h("div", { class: "actions" }, go(row.previous, "‹ Before"), go(row.next, "After ›"), row.keys.length ? [sameKey("previous", "‹ Same key"), sameKey("next", "Same key ›")] : null),
    h("div", { class: "values" }, row.fields.map((field) => valueOf(place, field))),
    h(
      "section",
      { class: "value" },
      h("h3", { text: "Where it lies" }),
      h(
        "dl",
        { class: "facts" },
        [
          ["block", `${number(block.first)} to ${number(block.last)}, ${number(block.rows)} rows, ${bytes(block.bytes)}`],
          ["hash", block.hash],
          ["follows", block.previous],
          ["producer", block.producer ? `${block.producer}, sequence ${number(block.sequence)}` : "not named"],
          ["epoch", String(block.epoch)],
          ["schema", `version ${block.schema_version}`],
        ].map(([name, said]) => [h("dt", { text: name }), h("dd", { class: name === "hash" || name === "follows" ? "mono" : null, text: said })]),
      ),
    ),
    h(
      "div",
      { class: "actions" },
      h("a", { class: "button", href: link("rows", { topic, partition: partition || null, at: `${Math.max(0, offset - 50)}:${offset + 51}` }), text: "± 50 rows" }),
      facts.write ? h("a", { class: "button", href: link("produce", { topic, partition: partition || null, row: offset }), text: "Edit and send again" }) : null,
      h("a", { class: "button", href: link("api/proof", { topic, partition: partition || null, offset }), download: `proof-${offset}.json`, text: "Proof" }),
      h("a", { class: "button", href: link("capsule", { topic, partition: partition || null, at: `${Math.max(0, offset - 10)}:${offset + 1}` }), text: "Capsule" }),
      facts.write && row.update && !row.deletes
        ? h("button", {
            type: "button", class: "danger", text: "Delete this key",
            onclick: async () => {
              const key = Object.fromEntries(row.fields.filter((each) => each.key).map((each) => [each.name, each.value]));
              if (await attempt(() => post("delete", { topic, key }))) say("Deleted: a row that says so was appended. Send the old row again to undo it.");
            },
          })
        : null,
      row.keys.length ? h("a", { class: "button", href: link("key", { topic, partition: partition || null, offset }), text: "History of this key" }) : null,
    ),
  ];
}
