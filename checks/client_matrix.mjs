// The clients of JavaScript for checks/client_matrix.py: node client_matrix.mjs NAME ADDRESS
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [name, url] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const question = "Tell me about a harbour at night.";
const messages = [{ role: "user", content: question }];
const colour = {
  type: "object",
  properties: { colour: { enum: ["red", "green"] } },
  required: ["colour"],
  additionalProperties: false,
};

function isColour(value) {
  const found = typeof value === "string" ? JSON.parse(value) : value;
  assert.ok(["red", "green"].includes(found.colour), JSON.stringify(found));
  return true;
}

// More than one part, and together they are a text.
async function streamed(parts, text) {
  const texts = [];
  for await (const part of parts) texts.push(text(part));
  assert.ok(texts.length > 1 && texts.join("").trim(), JSON.stringify(texts));
  return true;
}

async function openai() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const ask = (more) => client.chat.completions.create({ model: "default", messages, max_tokens: 200, ...more });
  const format = { type: "json_schema", json_schema: { name: "colour", schema: colour } };
  const tools = [{ type: "function", function: { name: "book", description: "Books a ship.", parameters: colour } }];
  return {
    chat: async () => (await ask({ max_tokens: 8 })).choices[0].message.content,
    stream: async () => streamed(await ask({ max_tokens: 8, stream: true }), (part) => part.choices[0]?.delta.content ?? ""),
    format: async () => isColour((await ask({ response_format: format })).choices[0].message.content),
    functions: async () => {
      const { message } = (await ask({ tools, tool_choice: "required" })).choices[0];
      const [call] = message.tool_calls;
      assert.ok(isColour(call.function.arguments));
      const result = { role: "tool", tool_call_id: call.id, content: "Booked." };
      return (await ask({ tools, messages: [...messages, message, result], max_tokens: 8 })).choices[0].message;
    },
    embeddings: async () => (await client.embeddings.create({ model: "default", input: ["a", "b"] })).data[1].embedding.length,
    responses: async () =>
      (await client.responses.create({ model: "default", input: question, max_output_tokens: 8 })).output_text,
    logprobs: async () =>
      (await ask({ max_tokens: 8, logprobs: true, top_logprobs: 2 })).choices[0].logprobs.content[0].top_logprobs[1],
  };
}

async function anthropic() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const ask = (more) => client.messages.create({ model: "default", messages, max_tokens: 200, ...more });
  const tools = [{ name: "book", description: "Books a ship.", input_schema: colour }];
  return {
    chat: async () => (await ask({ max_tokens: 8 })).content[0].text,
    stream: () => streamed(client.messages.stream({ model: "default", messages, max_tokens: 8 }), (event) => event.delta?.text ?? ""),
    format: async () => isColour((await ask({ output_config: { format: { type: "json_schema", schema: colour } } })).content[0].text),
    functions: async () => {
      const answer = await ask({ tools, tool_choice: { type: "any" } });
      const call = answer.content.at(-1);
      assert.ok(isColour(call.input));
      const result = { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "Booked." }] };
      return ask({ tools, messages: [...messages, { role: "assistant", content: answer.content }, result], max_tokens: 8 });
    },
  };
}

async function ollama() {
  const { Ollama } = await import("ollama");
  const client = new Ollama({ host: url });
  const short = { options: { num_predict: 8 } };
  const ask = (more) => client.chat({ model: "default", messages, options: { num_predict: 200 }, ...more });
  const tools = [{ type: "function", function: { name: "book", description: "Books a ship.", parameters: colour } }];
  // Ollama's API cannot demand a call: an earlier one and its result go in.
  const history = [
    { role: "assistant", content: "", tool_calls: [{ function: { name: "book", arguments: { colour: "red" } } }] },
    { role: "tool", tool_name: "book", content: "Booked." },
  ];
  return {
    chat: async () => (await ask(short)).message.content,
    stream: async () => streamed(await ask({ ...short, stream: true }), (part) => part.message.content),
    format: async () => isColour((await ask({ format: colour })).message.content),
    functions: async () => (await ask({ tools, messages: [...messages, ...history] })).message,
    embeddings: async () => (await client.embed({ model: "default", input: ["a", "b"] })).embeddings[1].length,
    logprobs: async () => (await ask({ ...short, logprobs: true, top_logprobs: 2 })).logprobs[0].top_logprobs[1],
  };
}

// The AI SDK of Vercel.
async function ai() {
  const { embedMany, generateText, jsonSchema, Output, stepCountIs, streamText, tool } = await import("ai");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const provider = createOpenAICompatible({ name: "cascadia", baseURL: `${url}/v1`, supportsStructuredOutputs: true });
  const settings = { model: provider("default"), prompt: question, maxOutputTokens: 200, maxRetries: 0 };
  return {
    chat: async () => (await generateText({ ...settings, maxOutputTokens: 8 })).text,
    stream: () => streamed(streamText({ ...settings, maxOutputTokens: 8 }).textStream, (part) => part),
    format: async () => isColour((await generateText({ ...settings, output: Output.object({ schema: jsonSchema(colour) }) })).output),
    functions: async () => {
      let booked;
      const book = tool({
        description: "Books a ship.",
        inputSchema: jsonSchema(colour),
        execute: (input) => {
          booked = input;
          return "Booked.";
        },
      });
      // The first step must call, once; the second answers.
      const providerOptions = { cascadia: { parallel_tool_calls: false } };
      const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" });
      const more = { tools: { book }, stopWhen: stepCountIs(2), prepareStep, providerOptions };
      const { steps } = await generateText({ ...settings, ...more });
      return isColour(booked) && steps.length === 2;
    },
    embeddings: async () =>
      (await embedMany({ model: provider.embeddingModel("default"), values: ["a", "b"] })).embeddings[1].length,
  };
}

// A turn of `codex exec`. Its own instructions are longer than the small model's context, whose answers may not end without a schema.
async function codex() {
  const turn = () => {
    const home = mkdtempSync(join(here, "codex-"));
    const work = join(home, "work");
    const instructions = join(home, "instructions.md");
    const schema = join(home, "schema.json");
    mkdirSync(work);
    writeFileSync(instructions, "You are a helper.");
    writeFileSync(schema, JSON.stringify(colour));
    writeFileSync(
      join(home, "config.toml"),
      `model = "default"
model_provider = "cascadia"
model_instructions_file = ${JSON.stringify(instructions)}
[model_providers.cascadia]
name = "cascadia"
base_url = "${url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`,
    );
    const command = ["exec", "--skip-git-repo-check", "--sandbox", "read-only", "--json", "--output-schema", schema, "Which colour?"];
    const done = spawnSync(join(here, "node_modules", ".bin", "codex"), command, {
      cwd: work,
      env: { ...process.env, CODEX_HOME: home },
      encoding: "utf8",
      timeout: 120_000,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const events = done.stdout.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
    assert.equal(events.at(-1)?.type, "turn.completed", done.stdout.slice(-300) || done.stderr.slice(-300));
    return events.findLast((event) => event.item?.type === "agent_message").item.text;
  };
  return { responses: turn, format: () => isColour(turn()) };
}

const clients = { openai, "@anthropic-ai/sdk": anthropic, ollama, ai, "@openai/codex": codex };
const outcomes = {};
for (const [feature, call] of Object.entries(await clients[name]())) {
  try {
    outcomes[feature] = (await call()) ? null : "nothing came back";
  } catch (error) {
    outcomes[feature] = `${error.name}: ${error.message}`;
  }
}
const { version } = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
console.log(JSON.stringify({ version, outcomes }));
