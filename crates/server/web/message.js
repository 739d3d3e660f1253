// One message on the page: text, files, reasoning, error and actions.

import { announce, copyButton, element, iconButton } from "./elements.js";
import { fileList } from "./files.js";
import { Markdown } from "./markdown.js";

/** A message and its element. */
export class MessageView {
  /** `actions` holds `retry`, `edit` and `choose`, each called with a message. */
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.answering = false;
    this.body = element("div", { class: "body" });
    this.thoughts = element("div", { class: "thoughts-body" });
    this.folded = element(
      "details",
      { class: "thoughts", hidden: true },
      element("summary", {}, "Thoughts"),
      this.thoughts,
    );
    this.waiting = element("p", { class: "waiting", role: "status", hidden: true }, "The connection is lost. Trying again…");
    this.foot = element("div", { class: "foot" });
    const ofUser = message.role === "user";
    this.node = element(
      "article",
      { class: `message ${message.role}`, "aria-label": ofUser ? "You said" : "The model said" },
      ofUser ? null : this.folded,
      message.files ? fileList(message.files) : null,
      this.body,
      this.waiting,
      this.foot,
    );
    this.answer = new Markdown(this.body);
    this.thinking = new Markdown(this.thoughts);
    this.update();
  }

  /** Shows the message as it is now. */
  update() {
    const { role, content, reasoning, waiting } = this.message;
    this.waiting.hidden = !waiting;
    if (role === "user") {
      this.body.textContent = content;
      this.body.hidden = content === "";
    } else {
      const complete = this.answer.update(content);
      if (this.answering) complete.forEach((node) => announce(node.textContent));
      this.folded.hidden = !reasoning;
      if (reasoning) this.thinking.update(reasoning);
      this.folded.firstChild.textContent = this.answering && content === "" ? "Thinking…" : "Thoughts";
    }
  }

  /** Called when an answer starts or ends. */
  setAnswering(answering) {
    if (this.answering && !answering) {
      // The last block is complete only now.
      this.update();
      announce(this.body.lastChild?.textContent ?? "No answer");
    }
    this.answering = answering;
    this.node.classList.toggle("answering", answering);
    this.node.setAttribute("aria-busy", String(answering));
    this.update();
  }

  /** Draws the line below the message. While an answer is under way, nothing can be changed. */
  drawFoot({ last, busy }) {
    const { role, content, error, stopped, edited, usage, seconds, cut } = this.message;
    this.foot.replaceChildren();
    this.node.classList.toggle("last", last);
    if (this.answering) return;
    const notes = [
      edited ? "Edited" : null,
      stopped ? "Stopped" : null,
      cut ? "Length limit reached" : null,
      usage ? counted(usage.completion_tokens, "token") : null,
      usage && seconds > 0 ? `${speed(usage.completion_tokens / seconds)} tokens/s` : null,
    ];
    if (error) this.foot.append(element("p", { class: "error", role: "alert" }, error));
    const tools = element("div", { class: "tools" });
    if (content) tools.append(copyButton("Copy this message", () => content));
    if (!busy) tools.append(...this.changes(role));
    const note = notes.filter((text) => text !== null).join(" · ");
    this.foot.append(element("div", { class: "foot-row" }, tools, note && element("span", { class: "note" }, note)));
  }

  /** What changes the conversation from this message on. */
  changes(role) {
    const { message, actions } = this;
    const retry = role === "user" ? "Answer this" : "Regenerate";
    return [
      iconButton("edit", "Edit this message", () => actions.edit(message)),
      iconButton("retry", retry, () => actions.retry(message)),
      ...this.versions(),
    ];
  }

  /** Leads to the other versions of this message, if it has some. */
  versions() {
    const { message, actions } = this;
    if (!message.versions) return [];
    const { shown, others } = message.versions;
    const step = (name, label, version) =>
      iconButton(name, label, () => actions.choose(message, version), { disabled: !(version in others) });
    return [
      step("left", "Version before", shown - 1),
      element("span", { class: "note", role: "status" }, `${shown + 1} of ${others.length}`),
      step("right", "Version after", shown + 1),
    ];
  }
}

function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function speed(value) {
  return value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}
