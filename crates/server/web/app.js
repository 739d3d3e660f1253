// A plain chat: sends the conversation and shows the answer while it comes.
"use strict";

const conversation = document.getElementById("conversation");
const form = document.getElementById("form");
const message = document.getElementById("message");
const history = [];

function show(role, text) {
  const line = document.createElement("div");
  line.className = role;
  line.textContent = text;
  conversation.append(line);
  return line;
}

async function ask(retry = true) {
  const headers = { "content-type": "application/json" };
  const key = localStorage.getItem("key");
  if (key) headers.authorization = `Bearer ${key}`;
  const body = JSON.stringify({ messages: history, stream: true, temperature: 0.8, min_p: 0.05 });
  const response = await fetch("v1/chat/completions", { method: "POST", headers, body });
  if (response.status === 401 && retry) {
    const entered = prompt("This server needs a key:");
    if (entered) {
      localStorage.setItem("key", entered.trim());
      return ask(false);
    }
  }
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const line = part.split("\n").find((line) => line.startsWith("data: "));
      if (line && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  history.push({ role: "user", content: message.value });
  show("user", message.value);
  message.value = "";
  const line = show("assistant", "");
  try {
    for await (const chunk of events(await ask())) {
      if (chunk.error) throw new Error(chunk.error.message);
      line.textContent += chunk.choices[0]?.delta.content ?? "";
    }
    history.push({ role: "assistant", content: line.textContent });
  } catch (error) {
    line.textContent += `\n${error.message}`;
  }
});

message.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    form.requestSubmit();
  }
});
