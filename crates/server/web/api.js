// Talks to the server: requests with the key, errors as messages, answers as streams.

const KEY = "cascadia.key";
const NEEDS_KEY = "This server needs a key.";

/** An error of the server or of the connection to it. */
export class RequestError extends Error {}

let askForKey = async () => null;
let asking = null;
/** Whether the user declined to enter a key; then only their own actions ask again. */
let declined = false;

/** Sets the function that asks for a key. Its argument says whether one was rejected; it returns a key or null. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** The served models. */
export async function models(signal) {
  declined = false;
  return (await (await request("v1/models", { signal })).json()).data;
}

/** The server's status. */
export async function status(signal) {
  return observed("status", signal);
}

/** How the KV cache is used, and what happened to it lately. */
export async function cache(signal) {
  return observed("debug/kv", signal);
}

/** The chunks of an answer as they arrive. */
export async function* chat(body, signal) {
  declined = false;
  const headers = { "content-type": "application/json" };
  const text = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
  const response = await request("v1/chat/completions", { method: "POST", headers, body: text, signal });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new RequestError(chunk.error.message);
    yield chunk;
  }
  throw new RequestError("The answer was interrupted: the connection was closed.");
}

async function observed(path, signal) {
  if (declined) throw new RequestError(NEEDS_KEY);
  return (await request(path, { signal })).json();
}

async function request(path, options) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new RequestError("The server cannot be reached. Is it still running?");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw new RequestError(await explanation(response));
    // Another request may have asked for the key in the meantime.
    if (sessionStorage.getItem(KEY) !== key) continue;
    asking ??= askForKey(key !== null).finally(() => (asking = null));
    const entered = await asking;
    declined = !entered;
    if (declined) throw new RequestError(NEEDS_KEY);
    sessionStorage.setItem(KEY, entered);
  }
}

async function explanation(response) {
  const said = await response.json().then(
    (body) => body.error?.message,
    () => null,
  );
  const wait = response.headers.get("retry-after");
  const text = said ?? `The server answered with status ${response.status}.`;
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return response.status === 429 && wait && !sentence.includes(`${wait} s`)
    ? `${sentence} (try again in ${wait} s)`
    : sentence;
}

/** The data of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n").filter((line) => line.startsWith("data:"));
      if (lines.length > 0) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
}
