#!/usr/bin/env python3
"""The clients that people use drive the server: the packages `openai`, `anthropic` and `ollama`, and `openai` of JavaScript.

    .venv/bin/python checks/clients.py

Starts `cascadia serve` with the model inside the program on free ports, once open and once with keys. The JavaScript client needs
node and npm, and says that it is skipped where they or the package cannot be had.
"""
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

import anthropic
import ollama
import openai

import program

# The package for JavaScript.
JAVASCRIPT_VERSION = "6.49.0"

QUESTION = [{"role": "user", "content": "Tell me about a harbour at night."}]


@contextlib.contextmanager
def serving(*options):
    """The address of a server that runs for as long as the block does."""
    command = [str(program.BINARY), "serve", "--port", "0", "--log-level", "warn", "--ctx", "1024", *map(str, options)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.search(r"(https?://\S+?)/,", line)
        if not found:
            raise SystemExit(f"no address from {' '.join(command)}: {line}{process.stderr.read()}")
        yield found.group(1)
    finally:
        process.terminate()
        if process.wait(timeout=60) != 0:
            raise SystemExit(f"exit code {process.returncode} from {' '.join(command)}")


def fails(kind, call, **expected):
    """The call must raise this kind of error, with these attributes."""
    try:
        call()
    except kind as error:
        for name, value in expected.items():
            assert getattr(error, name) == value, (name, getattr(error, name), value)
        return error
    raise AssertionError(f"no {kind.__name__}")


def status(url):
    return json.load(urllib.request.urlopen(f"{url}/status", timeout=60))


def openai_chat(client):
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=16, seed=7, user="anna")
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 16, answer
    again = client.chat.completions.create(model="default", messages=QUESTION, max_completion_tokens=16, seed=7)
    assert again.choices[0].message.content == answer.choices[0].message.content
    many = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=8, n=3, temperature=0.8, top_p=0.9, presence_penalty=0.5,
        frequency_penalty=0.5, logit_bias={"5": -100}, extra_body={"top_k": 40, "min_p": 0.05, "priority": "high"})
    assert len(many.choices) == 3
    stop = answer.choices[0].message.content.split()[2]
    stopped = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=16, seed=7, stop=[stop])
    assert stopped.choices[0].finish_reason == "stop" and stop not in stopped.choices[0].message.content


def openai_streams(client):
    settings = dict(model="default", messages=QUESTION, max_tokens=24, seed=3)
    whole = client.chat.completions.create(**settings).choices[0].message.content
    chunks = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole, (text, whole)
    assert chunks[-1].usage.completion_tokens == 24 and not chunks[-1].choices
    pieces = client.completions.create(model="default", prompt="Once upon", max_tokens=8, temperature=0, stream=True)
    text = "".join(piece.choices[0].text for piece in pieces)
    assert text == client.completions.create(model="default", prompt="Once upon", max_tokens=8, temperature=0).choices[0].text


def openai_chances(client):
    answer = client.chat.completions.create(
        model="default", messages=QUESTION, max_tokens=6, temperature=0, logprobs=True, top_logprobs=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == 6 and all(len(entry.top_logprobs) == 4 for entry in content), content
    assert all(entry.top_logprobs[0].token == entry.token and entry.logprob <= 0 for entry in content)
    text = b"".join(bytes(entry.bytes) for entry in content).decode(errors="replace")
    assert text.strip() == answer.choices[0].message.content.strip(), (text, answer.choices[0].message.content)
    legacy = client.completions.create(model="default", prompt="Once", max_tokens=3, logprobs=2).choices[0].logprobs
    # The chosen token is there too, where it is not one of the two.
    assert len(legacy.tokens) == len(legacy.token_logprobs) == 3 and len(legacy.top_logprobs[0]) in (2, 3)


def openai_prompts(client):
    """What evaluation harnesses ask: how likely prompts are, many at a time, by their tokens."""
    ask = lambda **fields: client.completions.create(model="default", temperature=0, **fields)
    text = ask(prompt="The harbour was quiet", echo=True, logprobs=1, max_tokens=4).choices[0]
    assert text.text.startswith("The harbour was quiet") and text.logprobs.token_logprobs[0] is None
    generated = ask(prompt="The harbour was quiet", logprobs=1, max_tokens=4).choices[0]
    assert text.logprobs.token_logprobs[-4:] == generated.logprobs.token_logprobs
    prompts = [[number + 5, 9, 12] for number in range(40)]
    many = ask(prompt=prompts, echo=True, logprobs=1, max_tokens=0).choices
    assert [choice.index for choice in many] == list(range(40))
    assert all(len(choice.logprobs.token_logprobs) == 3 for choice in many)
    alone = ask(prompt=prompts[30], echo=True, logprobs=1, max_tokens=0).choices[0]
    assert alone.logprobs.token_logprobs == many[30].logprobs.token_logprobs
    best = client.completions.create(model="default", prompt="Once", max_tokens=4, n=2, best_of=5, seed=3)
    assert len(best.choices) == 2 and best.usage.completion_tokens > 8


SHIP = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 24}, "masts": {"type": "integer", "minimum": 1, "maximum": 5},
                   "cargo": {"type": "array", "items": {"enum": ["salt", "wood"]}, "maxItems": 3}},
    "required": ["name", "masts", "cargo"], "additionalProperties": False,
}


def openai_forms(client):
    """Answers in a given form, at a temperature at which a small model would never keep to it by itself."""
    def answer(form, **more):
        settings = dict(model="default", messages=QUESTION, max_tokens=160, temperature=1, seed=11, response_format=form, **more)
        whole = client.chat.completions.create(**settings).choices[0]
        chunks = client.chat.completions.create(**settings, stream=True)
        assert whole.message.content == "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert whole.finish_reason == "stop", whole
        return whole.message.content
    ship = json.loads(answer({"type": "json_schema", "json_schema": {"name": "ship", "schema": SHIP}}))
    assert set(ship) == {"name", "masts", "cargo"} and 1 <= ship["masts"] <= 5 and set(ship["cargo"]) <= {"salt", "wood"}, ship
    assert answer({"type": "choice", "choices": ["port", "starboard"]}) in ("port", "starboard")
    assert re.fullmatch(r"\d{4}-\d{2}", answer({"type": "regex", "pattern": r"\d{4}-\d{2}"}))
    lark = {"type": "grammar", "grammar": 'start: "a" ("b" | "c") "d"'}
    assert answer(lark) in ("abd", "acd")
    for wrong in ({"type": "json_schema"}, {"type": "poem"}, {"type": "regex", "pattern": "(" * 30000}):
        fails(openai.BadRequestError, lambda: answer(wrong))


# How many families are told about functions, and how they write calls.
TEMPLATE = """{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
For each call return a json object within <tool_call></tool_call> tags.
{% endif %}{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{% endfor %}{%- endfor %}assistant: """


def tools():
    """Functions that have to be called, on a model whose template knows calls."""
    functions = [{"type": "function", "function": {"name": "book", "description": "Books a ship.", "parameters": SHIP}}]
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder) / "template.jinja"
        template.write_text(TEMPLATE)
        with serving("--template", template) as url:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            for choice in ("required", {"type": "function", "function": {"name": "book"}}):
                settings = dict(model="default", messages=QUESTION, tools=functions, tool_choice=choice, seed=5, max_tokens=700)
                answer = client.chat.completions.create(**settings).choices[0]
                assert answer.finish_reason == "tool_calls", answer
                call = answer.message.tool_calls[0]
                assert call.function.name == "book" and 1 <= json.loads(call.function.arguments)["masts"] <= 5, call
                one = client.chat.completions.create(**settings, parallel_tool_calls=False).choices[0]
                assert one.finish_reason == "tool_calls" and len(one.message.tool_calls) == 1, one
                deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**settings, stream=True)]
                parts = [part for delta in deltas for part in delta.tool_calls or [] if part.index == 0]
                assert parts[0].function.name == "book"
                assert "".join(part.function.arguments or "" for part in parts) == call.function.arguments
            turns = QUESTION + [answer.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "done"}]
            assert client.chat.completions.create(model="default", messages=turns, tools=functions, max_tokens=4).choices
            unknown = lambda: client.chat.completions.create(
                model="default", messages=QUESTION, tools=functions, tool_choice={"type": "function", "function": {"name": "sink"}})
            fails(openai.BadRequestError, unknown)
            speaker = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
            said = speaker.messages.create(
                model="default", messages=QUESTION, max_tokens=700, tool_choice={"type": "any"},
                tools=[{"name": "book", "description": "Books a ship.", "input_schema": SHIP}])
            assert said.stop_reason == "tool_use" and said.content[-1].input["masts"] >= 1, said


def openai_embeddings(client):
    # The package asks for base64 and decodes it.
    data = client.embeddings.create(model="default", input=["harbour", "parliament", "harbour"]).data
    assert data[0].embedding == data[2].embedding != data[1].embedding
    assert abs(sum(x * x for x in data[0].embedding) - 1) < 1e-3
    floats = client.embeddings.create(model="default", input="harbour", encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(floats, data[0].embedding, strict=True)) < 1e-6


def openai_responses(client):
    settings = dict(model="default", input="Tell me about the sea.", instructions="Be brief.", max_output_tokens=16, temperature=0)
    response = client.responses.create(**settings)
    assert response.status == "incomplete" and response.usage.output_tokens == 16, response
    with client.responses.stream(**settings) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    kinds = [event.type for event in events]
    assert text == response.output_text, (text, response.output_text)
    assert kinds[0] == "response.created" and kinds[-1] == "response.incomplete", kinds
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Go on"}]
    assert client.responses.create(model="default", input=conversation, max_output_tokens=4).output_text
    assert client.responses.retrieve(response.id).output_text == response.output_text
    more = client.responses.create(model="default", input="And?", previous_response_id=response.id, max_output_tokens=4)
    assert more.previous_response_id == response.id and more.usage.input_tokens > response.usage.input_tokens
    client.responses.delete(response.id)
    fails(openai.NotFoundError, lambda: client.responses.retrieve(response.id))
    likely = client.responses.create(**settings, include=["message.output_text.logprobs"], top_logprobs=2)
    assert len(likely.output[0].content[0].logprobs) == 16, likely
    # What Codex offers.
    offered = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]
    assert client.responses.create(model="default", input="Hi", tools=offered, max_output_tokens=2).output_text


def openai_errors(client):
    chat = client.chat.completions.create
    fails(openai.NotFoundError, lambda: chat(model="gpt-4o", messages=QUESTION), code="model_not_found", param="model")
    fails(openai.BadRequestError, lambda: chat(model="default", messages=QUESTION, temperature=3), param="temperature")
    fails(openai.BadRequestError, lambda: chat(model="default", messages=QUESTION, n=9), param="n")
    fails(openai.BadRequestError, lambda: chat(model="default", messages=[]), param="messages")
    long = [{"role": "user", "content": "word " * 4000}]
    fails(openai.BadRequestError, lambda: chat(model="default", messages=long), code="context_length_exceeded")
    error = fails(openai.BadRequestError, lambda: client.responses.create(model="default", input="x", previous_response_id="r"))
    for field, value in {"use_beam_search": True, "prompt_logprobs": 1, "grammar": 'root ::= "a"'}.items():
        wrong = lambda: chat(model="default", messages=QUESTION, extra_body={field: value})
        fails(openai.BadRequestError, wrong, code="unsupported", param=field)
    assert error.request_id.startswith("req_")


def openai_cancellation(client, url):
    ends = json.loads(program.run("inspect", program.EMBEDDED_MODEL, "--json"))["tokenizer"]["stop"]
    never = {str(token): -100 for token in ends}
    # On a busy machine all of an answer may be told before its reader has left.
    for _ in range(20):
        before = status(url)["service"]["jobs_cancelled_total"]
        stream = client.completions.create(model="default", prompt="a", max_tokens=900, logit_bias=never, stream=True)
        next(iter(stream))
        stream.close()
        while (now := status(url)["service"])["running"] > 0:
            time.sleep(0.05)
        if now["jobs_cancelled_total"] > before:
            return
    raise AssertionError("the answer went on although its reader had left")


def anthropic_doors(url):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    settings = dict(model="default", system="Be brief.", messages=QUESTION, max_tokens=16, extra_body={"temperature": 0})
    message = client.messages.create(**settings)
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 16, message
    count = client.messages.count_tokens(model="default", system="Be brief.", messages=QUESTION).input_tokens
    assert count == message.usage.input_tokens + message.usage.cache_read_input_tokens
    with client.messages.stream(**settings) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens == 16
    assert text == message.content[0].text
    blocks = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    assert client.messages.create(**{**settings, "messages": blocks}).content == message.content
    begun = QUESTION + [{"role": "assistant", "content": message.content[0].text}]
    continued = client.messages.create(**{**settings, "messages": begun}).content[0].text
    assert continued and not continued.startswith(message.content[0].text[:10]), continued
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"temperature": 0, "output_config": {"format": {"type": "json_schema", "schema": schema}}}
    said = client.messages.create(**{**settings, "max_tokens": 60, "extra_body": form}).content[0].text
    assert json.loads(said) in ({"a": 1}, {"a": 2}), said
    fails(anthropic.NotFoundError, lambda: client.messages.create(**{**settings, "model": "claude"}))
    fails(anthropic.BadRequestError, lambda: client.messages.create(**{**settings, "max_tokens": 0}))


def ollama_doors(url):
    client = ollama.Client(host=url)
    model = client.list().models[0].model
    options = {"temperature": 0, "num_predict": 12}
    answer = client.chat(model=model, messages=QUESTION, options=options)
    assert answer.done and answer.eval_count == 12, answer
    pieces = list(client.chat(model=model, messages=QUESTION, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == answer.message.content
    assert pieces[-1].done_reason == "length"
    text = client.generate(model=model, prompt="Once upon", raw=True, options=options).response
    assert "".join(piece.response for piece in client.generate(model=model, prompt="Once upon", raw=True, options=options, stream=True)) == text
    shown = client.show(model)
    assert shown.modelinfo[f"{shown.details.family}.context_length"] == 1024 and "completion" in shown.capabilities
    assert client.ps().models[0].model == model
    assert client.generate(model=model).done_reason == "load"
    assert client.generate(model=model, keep_alive=0).done_reason == "unload" == client.chat(model=model, keep_alive=0).done_reason
    likely = client.chat(model=model, messages=QUESTION, options=options, logprobs=True, top_logprobs=2)
    assert len(likely.logprobs) == 12 and likely.eval_duration < likely.total_duration, likely
    fails(ollama.ResponseError, lambda: client.chat(model=model, messages=QUESTION, think=True), status_code=400)
    fails(ollama.ResponseError, lambda: client.chat(model="other", messages=QUESTION), status_code=404)


def javascript(url):
    """The package of the same name for JavaScript, installed once; says so where it cannot be had."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        return "skipped, because node or npm is not installed"
    here = pathlib.Path(__file__).resolve().parent
    folder = here.parent / ".venv" / "javascript"
    folder.mkdir(parents=True, exist_ok=True)
    script = here / "clients.mjs"
    shutil.copy(script, folder)
    package = f"openai@{JAVASCRIPT_VERSION}"
    install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", package]
    if not (folder / "node_modules" / "openai").exists() and subprocess.run(install, capture_output=True).returncode != 0:
        return f"skipped, because npm cannot install {package}"
    subprocess.run([node, str(folder / script.name), f"{url}/v1"], check=True, timeout=300)
    return "as expected"


def keys():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "keys.json"
        key = program.run("keys", "new", "--file", file, "--name", "anna", "--max-tokens", 8).strip()
        assert key not in file.read_text()
        with serving("--keys", file) as url:
            ask = lambda key: openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0).chat.completions.create(
                model="default", messages=QUESTION).usage.completion_tokens
            assert ask(key) <= 8
            fails(openai.AuthenticationError, lambda: ask("csk-0"), code="invalid_api_key")
            client = anthropic.Anthropic(base_url=url, api_key="csk-0", max_retries=0)
            fails(anthropic.AuthenticationError, lambda: client.messages.create(model="default", messages=QUESTION, max_tokens=1))
            assert anthropic.Anthropic(base_url=url, api_key=key).messages.create(model="default", messages=QUESTION, max_tokens=1)


def no_template():
    """A model that was not made for conversations says so, without a word about where its file lies."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plain.gguf"
        command = ["-m", "gguf.scripts.gguf_new_metadata", "--force", "--remove-metadata", "tokenizer.chat_template"]
        subprocess.run([sys.executable, *command, program.EMBEDDED_MODEL, path], check=True, capture_output=True)
        with serving(path) as url:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            ask = lambda: client.chat.completions.create(model="default", messages=QUESTION)
            error = fails(openai.BadRequestError, ask, code="unsupported", param="messages")
            assert "no chat template" in error.message and folder not in error.message, error.message
            assert client.completions.create(model="default", prompt="The sea", max_tokens=2).usage.completion_tokens == 2


def main():
    with serving() as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        checks = {
            "openai: chat": lambda: openai_chat(client),
            "openai: streams": lambda: openai_streams(client),
            "openai: logprobs": lambda: openai_chances(client),
            "openai: prompts": lambda: openai_prompts(client),
            "openai: forms": lambda: openai_forms(client),
            "openai: embeddings": lambda: openai_embeddings(client),
            "openai: responses": lambda: openai_responses(client),
            "openai: errors": lambda: openai_errors(client),
            "openai: cancellation": lambda: openai_cancellation(client, url),
            "anthropic": lambda: anthropic_doors(url),
            "ollama": lambda: ollama_doors(url),
            "openai of JavaScript": lambda: javascript(url),
            "tools": tools,
            "no template": no_template,
            "keys": keys,
        }
        for name, check in checks.items():
            said = check()
            print(f"  {name}: {said or 'as expected'}", flush=True)
    versions = ", ".join(f"{module.__name__} {module.__version__}" for module in (openai, anthropic))
    print(f"clients: {versions} and ollama drive the server")


if __name__ == "__main__":
    main()
