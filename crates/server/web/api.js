// Talks to the server: requests with the key, errors as messages, answers as streams.

const KEY = "cascadia.key";
const NEEDS_KEY = "This server needs a key.";

/** Statuses of a server that starts again, or of a proxy before one that does. */
const RESTARTING = [502, 503, 504];
/** How long to wait before each attempt to go on with an answer, in milliseconds. */
const WAITS = [250, 500, 1000, 2000, 4000, ...Array(14).fill(4000)];

/** An error of the server or of the connection to it. */
export class RequestError extends Error {}

/** The connection broke, or the server behind it. */
class ConnectionLost extends RequestError {}

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

/** What the server's status was in the last minutes, the oldest first. */
export async function recent(signal) {
  return observed("status/recent", signal);
}

/** How the KV cache is used, and what happened to it lately. */
export async function cache(signal) {
  return observed("debug/kv", signal);
}

/** How many tokens a text has. */
export async function countTokens(prompt, model) {
  const [headers, body] = [{ "content-type": "application/json" }, JSON.stringify({ prompt, model: model ?? undefined })];
  return (await request("tokenize", { method: "POST", headers, body })).json();
}

/**
 * The chunks of an answer as they arrive. Where the connection breaks after the first, the same request goes on after the last
 * event that came; `waits(true)` says so meanwhile.
 */
export async function* chat(body, { signal, waits }) {
  declined = false;
  const sent = { ...body, stream: true, stream_options: { include_usage: true } };
  const options = { method: "POST", body: JSON.stringify(sent), signal };
  let [last, attempt] = [null, 0];
  for (;;) {
    const headers = { "content-type": "application/json", ...(last ? { "last-event-id": last } : {}) };
    try {
      const response = await request("v1/chat/completions", { ...options, headers });
      for await (const { id, data } of events(response.body)) {
        if (attempt > 0) waits(false);
        [last, attempt] = [id ?? last, 0];
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new RequestError(chunk.error.message);
        yield chunk;
      }
      throw new ConnectionLost("The answer was interrupted: the connection was closed.");
    } catch (error) {
      if (!(error instanceof ConnectionLost) || last === null || attempt === WAITS.length) throw error;
      waits(true);
      await pause(WAITS[attempt++], signal);
    }
  }
}

/** Waits, unless the signal ends that. */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stopped = () => (clearTimeout(timer), reject(signal.reason));
    const timer = setTimeout(() => (signal.removeEventListener("abort", stopped), resolve()), milliseconds);
    signal.addEventListener("abort", stopped, { once: true });
  });
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
      throw new ConnectionLost("The server cannot be reached. Is it still running?");
    }
    if (response.ok) return response;
    if (response.status !== 401) {
      const Kind = RESTARTING.includes(response.status) ? ConnectionLost : RequestError;
      throw new Kind(await explanation(response));
    }
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

/** Server-sent events: their ids and data. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(lost);
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = (name) =>
        part
          .split("\n")
          .filter((line) => line.startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).trimStart());
      const data = fields("data");
      if (data.length > 0) yield { id: fields("id").at(-1), data: data.join("\n") };
    }
  }
}

function lost(error) {
  throw error.name === "AbortError"
    ? error
    : new ConnectionLost("The connection to the server was lost, and could not be made again.");
}
