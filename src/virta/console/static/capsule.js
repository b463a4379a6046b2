// A bug capsule: a range of rows, its schema, where groups stood and what should come out, in one file.
import { h, show, field } from "./dom.js";
import { number, plural } from "./format.js";
import { get, post } from "./live.js";
import { page, parameter, setAddress, setTitle, topicTabs, crumbs, trouble, copy, sqlName } from "./shell.js";

const name = parameter("topic", "");
const partition = Number(parameter("partition", 0));

async function start() {
  setTitle("Capsule", ...crumbs(name));
  const topic = await get("topic", { topic: name });
  const at = h("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "100:120, -15m:", value: parameter("at", "-20:") });
  const where = h("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "all rows of the range", value: parameter("where", "") });
  const note = h("input", { type: "text", placeholder: "The total is wrong after a refund", value: parameter("note", "") });
  const query = h("textarea", { class: "code", rows: 3, spellcheck: "false", value: parameter("q", `select count(*) as "rows" from ${sqlName(name)}`) });
  const expected = h("textarea", { class: "code", rows: 5, spellcheck: "false", placeholder: "what it gives now" });
  const said = h("div", { class: "results", role: "status" });
  const test = h("div", { class: "results" });
  const given = () => ({ topic: name, partition, at: at.value, where: where.value, note: note.value, query: query.value, expected: expected.value.trim() ? JSON.parse(expected.value) : null });

  const remember = () => setAddress({ at: at.value, where: where.value, note: note.value, q: query.value });
  async function look() {
    remember();
    try {
      const found = await post("capsule/look", { ...given(), expected: null });
      expected.value = JSON.stringify(found.expected, null, 2);
      const groups = Object.entries(found.positions);
      show(said, h("p", { class: "done", text: `${plural(found.rows, "row")}, offsets ${number(found.first)} to ${number(found.last)}${groups.length ? `; groups: ${groups.map(([group, offset]) => `${group} at ${number(offset)}`).join(", ")}` : ""}. Change what is expected to what should have come out.` }));
      show(test, h("h2", { text: "The test in it" }), h("pre", { tabindex: 0, "aria-label": "The test", text: found.test }), h("div", { class: "actions" }, h("button", { type: "button", text: "Copy the test", onclick: () => copy(found.test) })));
    } catch (error) {
      show(said, trouble(error));
    }
  }

  async function download() {
    remember();
    try {
      const response = await fetch("api/capsule", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(given()) });
      if (!response.ok) throw (await response.json()).error;
      const address = URL.createObjectURL(await response.blob());
      h("a", { href: address, download: "bug.capsule" }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
      show(said, h("p", { class: "done" }, "Made. Open it with ", h("code", { text: 'virta.open("bug.capsule")' }), ", or any command with ", h("code", { text: "-l bug.capsule" }), "; unzip it for the test."));
    } catch (error) {
      show(said, trouble(error instanceof SyntaxError ? { message: `What is expected is not JSON: ${error.message}` } : error));
    }
  }

  show(
    page,
    topicTabs(topic, "capsule"),
    h("p", { class: "hint", text: "One file to hand on: these rows with their times, the schema, where groups stood, and what should come out. It opens as a log of its own and brings a test." }),
    h(
      "form",
      { class: "panel form", onsubmit: (event) => (event.preventDefault(), download()) },
      field("Rows", at, "a range, as in Go to"),
      field("Only where", where),
      h("div", { class: "all" }, field("What is wrong", note)),
      h("div", { class: "all" }, field("A query over these rows", query)),
      h("div", { class: "all" }, field("What should come out, as JSON", expected)),
      h("div", { class: "all actions" }, h("button", { type: "button", text: "Look", onclick: look }), h("button", { type: "submit", class: "strong", text: "Download the capsule" })),
      h("div", { class: "all" }, said),
    ),
    test,
  );
}
start().catch((error) => show(page, trouble(error)));
