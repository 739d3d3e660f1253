// One message on the page: text, reasoning, error and actions.

import { announce, copyButton, element, iconButton } from "./elements.js";
import { Markdown } from "./markdown.js";

/** A message and its element. */
export class MessageView {
  /** `actions` holds `retry` and `edit`, where they are possible. */
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
    this.foot = element("div", { class: "foot" });
    const ofUser = message.role === "user";
    this.node = element(
      "article",
      { class: `message ${message.role}`, "aria-label": ofUser ? "You said" : "The model said" },
      ofUser ? null : this.folded,
      this.body,
      this.foot,
    );
    this.answer = new Markdown(this.body);
    this.thinking = new Markdown(this.thoughts);
    this.update();
  }

  /** Shows the message as it is now. */
  update() {
    const { role, content, reasoning } = this.message;
    if (role === "user") {
      this.body.textContent = content;
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

  /** Draws the line below the message; only the last ones can be changed. */
  drawFoot({ last, lastOfUser }) {
    const { role, content, error, stopped, usage, seconds, cut } = this.message;
    this.foot.replaceChildren();
    this.node.classList.toggle("last", last);
    if (this.answering) return;
    const notes = [
      stopped ? "Stopped" : null,
      cut ? "Length limit reached" : null,
      usage ? counted(usage.completion_tokens, "token") : null,
      usage && seconds > 0 ? `${speed(usage.completion_tokens / seconds)} tokens/s` : null,
    ];
    if (error) this.foot.append(element("p", { class: "error", role: "alert" }, error));
    const tools = element("div", { class: "tools" });
    if (content) tools.append(copyButton("Copy this message", () => content));
    if (lastOfUser) tools.append(iconButton("edit", "Edit this message", this.actions.edit));
    if (last) tools.append(iconButton("retry", role === "user" ? "Answer this" : "Regenerate", this.actions.retry));
    const note = notes.filter((text) => text !== null).join(" · ");
    this.foot.append(element("div", { class: "foot-row" }, tools, note && element("span", { class: "note" }, note)));
  }
}

function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function speed(value) {
  return value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}
