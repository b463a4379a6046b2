// A new topic.
import { h, show, field } from "./dom.js";
import { post } from "./live.js";
import { page, setTitle, trouble, link, parameter, copyAs, quoted, facts } from "./shell.js";

setTitle("New topic", h("a", { class: "crumb", href: "./", text: "Topics" }));
const name = h("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off", value: parameter("name", "") });
const columns = h("textarea", { class: "code", rows: 3, spellcheck: "false", placeholder: "id:int user:str amount:float note:str?", value: parameter("columns", "") });
const keys = h("input", { type: "text", spellcheck: "false", placeholder: "id", value: parameter("keys", "") });
const kind = h("select", null, ["append", "update"].map((each) => h("option", { value: each, text: each })));
const partitions = h("input", { type: "text", inputmode: "numeric", value: "1" });
const durability = h("select", null, ["os", "disk", "memory"].map((each) => h("option", { value: each, text: each })));
const age = h("input", { type: "text", placeholder: "for ever" });
const wrong = h("div");
const submit = h("button", { type: "submit", class: "strong", text: "Make it" });
show(
  page,
  h(
    "form",
    {
      class: "panel form",
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        try {
          const options = { durability: durability.value };
          if (age.value.trim()) options.retention_age = age.value.trim();
          await post("create", { name: name.value, columns: columns.value, keys: keys.value, kind: kind.value, partitions: partitions.value, options });
          location.href = link("produce", { topic: name.value.trim() });
        } catch (error) {
          show(wrong, trouble(error));
          submit.disabled = false;
        }
      },
    },
    h("div", { class: "all" }, field("Name", name)),
    h("div", { class: "all" }, field("Columns", columns, "name:type, a ? for what may be null. int float str bool bytes datetime date time duration decimal(10,2) uuid label, str[], {lat:float,lon:float}, map<str,int>. Empty: key and value as bytes.")),
    field("Keys", keys, "columns that identify a row"),
    field("Kind", kind, "update: the newest row of a key counts"),
    field("Partitions", partitions),
    field("Durability", durability, "what an acknowledgement promises"),
    field("Keep for", age, "7d, 12h"),
    h("div", { class: "all" }, wrong),
    h("div", { class: "all actions" }, submit, copyAs(() => [
      ["command line", `virta topic create -l ${quoted(facts.log)} ${quoted(name.value || "orders")} ${columns.value.split(/\s+/).filter(Boolean).map(quoted).join(" ")}${keys.value.trim() ? ` --keys ${quoted(keys.value.replace(/\s/g, ""))}` : ""}${kind.value === "append" ? "" : ` --kind ${kind.value}`}`],
    ])),
  ),
);
name.focus();
