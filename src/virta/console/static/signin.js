// Signing in with a user of the broker.
import { h, show, field } from "./dom.js";
import { post } from "./live.js";
import { page, facts, trouble } from "./shell.js";

const name = h("input", { type: "text", required: true, autocomplete: "username", spellcheck: "false", autocapitalize: "none" });
const password = h("input", { type: "password", required: true, autocomplete: "current-password" });
const wrong = h("div");
const submit = h("button", { type: "submit", class: "strong", text: "Sign in" });

show(
  page,
  h(
    "form",
    {
      class: "panel narrow",
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        show(wrong);
        try {
          await post("sign-in", { name: name.value, password: password.value });
          if (location.pathname.endsWith("/sign-in")) location.href = "./";
          else location.reload();
        } catch (error) {
          show(wrong, trouble(error));
          submit.disabled = false;
          password.select();
        }
      },
    },
    h("p", { class: "dim", text: facts.visitor ? `You are signed in as ${facts.visitor}, who may not read anything here.` : "This log asks who you are. Users are the broker's: virta user add makes one." }),
    field("User", name),
    field("Password", password),
    wrong,
    h("div", { class: "actions" }, submit),
  ),
);
name.focus();
