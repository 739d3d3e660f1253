// Dialogs that ask the user for a name, a key or a confirmation.

import { byId } from "./elements.js";

/** Asks; returns the text entered, true if no text is asked for, or null. */
export function ask({ title, text, accept, value, secret }) {
  const dialog = byId("question");
  const input = byId("question-input");
  byId("question-title").textContent = title;
  byId("question-text").textContent = text;
  byId("question-accept").textContent = accept;
  input.hidden = value === undefined;
  input.type = secret ? "password" : "text";
  input.value = value ?? "";
  dialog.returnValue = "";
  byId("question-cancel").onclick = () => dialog.close();
  dialog.showModal();
  (input.hidden ? byId("question-accept") : input).focus();
  input.select();
  return new Promise((resolve) => {
    const closed = () => {
      const entered = value === undefined ? true : input.value.trim();
      input.value = "";
      resolve(dialog.returnValue === "accept" && entered ? entered : null);
    };
    dialog.addEventListener("close", closed, { once: true });
  });
}

/** Asks for the key of the server. */
export function askForKey(refused) {
  const text = refused
    ? "The server does not accept this key. Check it, or ask the administrator for one."
    : "The administrator of this server can give you one. It is kept until you close this tab.";
  return ask({ title: "This server needs a key", text, accept: "Use this key", value: "", secret: true });
}

/** Shows a dialog without a result; a click outside closes it. */
export function open(dialog) {
  dialog.onclick = (event) => {
    if (event.target === dialog) dialog.close();
  };
  dialog.showModal();
}
