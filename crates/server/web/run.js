// A running answer: requests it and appends its chunks to a message until it ends or is stopped.

import { chat } from "./api.js";
import { sentText } from "./files.js";
import { requestFields } from "./settings.js";

const THOUGHT_BEGINS = "<think>";
const THOUGHT_ENDS = "</think>";

/** Running answers by conversation. */
const runs = new Map();

/** Whether this conversation is being answered. */
export const isRunning = (conversation) => runs.has(conversation.id);

/** The conversations that are being answered. */
export const running = () => [...runs.values()].map((run) => run.conversation);

/** The conversation of this id, if it is being answered. */
export const runningConversation = (id) => runs.get(id)?.conversation ?? null;

/** Stops the answer to a conversation. */
export function stop(conversation) {
  runs.get(conversation.id)?.controller.abort();
}

/**
 * Answers a conversation: adds a message to it, which is one of these versions, and calls `changed` whenever it has grown.
 */
export async function answer(conversation, versions, changed) {
  const sent = conversation.messages
    .map((message) => ({ role: message.role, content: sentText(message) }))
    .filter(({ content }) => content !== "");
  const system = conversation.settings.system.trim();
  const messages = system === "" ? sent : [{ role: "system", content: system }, ...sent];
  const message = { role: "assistant", content: "", versions };
  const controller = new AbortController();
  conversation.messages.push(message);
  runs.set(conversation.id, { conversation, controller });
  changed(message);
  try {
    const body = { messages, ...requestFields(conversation.settings) };
    if (conversation.model) body.model = conversation.model;
    const waits = (waiting) => changed(Object.assign(message, { waiting }));
    await receive(message, chat(body, { signal: controller.signal, waits }), () => changed(message));
  } catch (error) {
    if (error.name === "AbortError") message.stopped = true;
    else message.error = error.message;
  } finally {
    delete message.waiting;
    runs.delete(conversation.id);
    conversation.updated = Date.now();
    changed(message);
  }
}

async function receive(message, chunks, changed) {
  let [said, thought, firstAt] = ["", "", null];
  for await (const chunk of chunks) {
    if (chunk.usage) {
      message.usage = chunk.usage;
      message.seconds = firstAt === null ? 0 : (performance.now() - firstAt) / 1000;
    }
    const choice = chunk.choices[0];
    if (!choice) continue;
    if (choice.finish_reason === "length") message.cut = true;
    const { content, reasoning_content: reasoning } = choice.delta;
    if (!content && !reasoning) continue;
    firstAt ??= performance.now();
    said += content ?? "";
    thought += reasoning ?? "";
    Object.assign(message, divided(said, thought));
    changed();
  }
}

/** Separates reasoning from the answer; some models put it between marks. */
function divided(said, thought) {
  const text = said.trimStart();
  if (!text.startsWith(THOUGHT_BEGINS)) return thought ? { content: said, reasoning: thought } : { content: said };
  const [inside, ...after] = text.slice(THOUGHT_BEGINS.length).split(THOUGHT_ENDS);
  return { content: after.join(THOUGHT_ENDS).trimStart(), reasoning: (thought + inside).trim() };
}
