// Talks to the server: requests with the key, errors as messages, answers as streams.

const KEY = "cascadia.key";
const NEEDS_KEY = "This server needs a key.";

/** What the server, or the way to it, refused. */
export class RequestError extends Error {}

let askForKey = async () => null;
let asking = null;
/** Whether somebody chose not to give a key; then only what they ask for themselves asks again. */
let declined = false;

/** Says who is asked for a key; given whether one was sent already, it answers with a key or null. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** The models that are served. */
export async function models(signal) {
  declined = false;
  return (await (await request("v1/models", { signal })).json()).data;
}

/** What the server is doing, as numbers. */
export async function status(signal) {
  if (declined) throw new RequestError(NEEDS_KEY);
  return (await request("status", { signal })).json();
}

/** The chunks of an answer while it is made. */
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
    // Another request may have asked in the meantime.
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
