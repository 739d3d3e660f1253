// What checks/clients.py does with the `openai` package of Python, in short with that of JavaScript: node clients.mjs BASE_URL
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me about a harbour at night." }];
const settings = { model: "default", messages, max_tokens: 16, seed: 7 };

const answer = await client.chat.completions.create(settings);
assert.equal(answer.usage.completion_tokens, 16);

let text = "";
for await (const chunk of await client.chat.completions.create({ ...settings, stream: true })) {
  text += chunk.choices[0]?.delta.content ?? "";
}
assert.equal(text, answer.choices[0].message.content);

const scored = await client.completions.create({ model: "default", prompt: "Once", echo: true, logprobs: 1, max_tokens: 0 });
assert.ok(scored.choices[0].text === "Once" && scored.choices[0].logprobs.token_logprobs[0] === null);

const first = await client.responses.create({ model: "default", input: "Hello", max_output_tokens: 4 });
const next = await client.responses.create({
  model: "default",
  input: "And?",
  previous_response_id: first.id,
  max_output_tokens: 4,
});
assert.ok(next.output_text.length > 0 && next.previous_response_id === first.id);

const vectors = await client.embeddings.create({ model: "default", input: ["harbour", "parliament"] });
assert.equal(vectors.data.length, 2);

await assert.rejects(client.chat.completions.create({ ...settings, temperature: 3 }), (error) => error.param === "temperature");
