// One row on a page of its own.
import { h, show } from "./dom.js";
import { page, parameter, setTitle, topicTabs, trouble, link } from "./shell.js";
import { detail } from "./detail.js";
import { get } from "./live.js";

const name = parameter("topic", "");
const partition = Number(parameter("partition", 0));
const offset = Number(parameter("offset", 0));

async function start() {
  setTitle(`Row ${offset}`, h("a", { class: "crumb", href: "./", text: "Topics" }), h("a", { class: "crumb", href: link("rows", { topic: name, partition: partition || null, at: offset }), text: name }));
  const topic = await get("topic", { topic: name });
  show(page, topicTabs(topic, "rows"), h("div", { class: "panel whole" }, await detail({ topic: name, partition, offset })));
}
start().catch((error) => show(page, trouble(error)));
