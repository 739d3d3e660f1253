// The conversation on the page: its messages in order, the empty state, and the scrolling that follows an answer.

import { byId, element } from "./elements.js";
import { MessageView } from "./message.js";

const EXAMPLES = [
  ["Tell a story", "Tell a short story about a lighthouse keeper who finds a letter in a bottle."],
  ["Explain", "Explain how rain forms, in three short paragraphs."],
  ["Write", "Write a polite letter that asks a neighbour to water the plants."],
  ["Plan", "List what to pack for two days of walking in the mountains."],
];

const NEAR_THE_END = 80;

/** Shows one conversation at a time. */
export class Transcript {
  /** `actions` holds `retry`, `edit`, `choose` and `example`. */
  constructor(actions) {
    this.actions = actions;
    this.scroller = byId("scroller");
    this.list = byId("transcript");
    this.views = [];
    this.follows = true;
    this.pending = null;
    this.scroller.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.scroller;
      this.follows = scrollHeight - scrollTop - clientHeight < NEAR_THE_END;
    });
  }

  /** Shows a conversation from its first message on. */
  show(conversation, answering) {
    this.views = conversation.messages.map((message) => new MessageView(message, this.actions));
    this.list.replaceChildren(...this.views.map((view) => view.node));
    if (this.views.length === 0) this.list.append(this.empty());
    if (answering) this.views.at(-1)?.setAnswering(true);
    this.drawFeet();
    this.scrollToEnd();
  }

  /** Called when a message has grown; redraws in the next frame. */
  grew(message) {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.views.find((view) => view.message === message)?.update();
      if (this.follows) this.scrollToEnd();
    });
  }

  /** Called when an answer has ended. */
  ended(message) {
    this.views.find((view) => view.message === message)?.setAnswering(false);
    this.drawFeet();
    if (this.follows) this.scrollToEnd();
  }

  drawFeet() {
    const busy = this.views.at(-1)?.answering ?? false;
    this.views.forEach((view, index) => view.drawFoot({ last: !busy && index === this.views.length - 1, busy }));
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.follows = true;
  }

  empty() {
    const example = ([name, text]) =>
      element(
        "button",
        { type: "button", class: "example", click: () => this.actions.example(text) },
        element("strong", {}, name),
        element("span", {}, text),
      );
    return element(
      "section",
      { class: "empty" },
      element("h2", {}, "What is on your mind?"),
      element("div", { class: "examples" }, ...EXAMPLES.map(example)),
    );
  }
}
