#!/usr/bin/env python3
"""Which clients can do what with the server: a table in docs/clients.md, made by running them.

    pip install uv                            # and node 20 or newer, with npm
    python checks/client_matrix.py            # prints the table
    python checks/client_matrix.py --write    # and puts it into docs/clients.md
    python checks/client_matrix.py --only aider-chat litellm

uv makes an environment for each Python client, as some exclude each other, and npm installs those of JavaScript into a temporary
folder: always the newest releases. What cannot be installed or fails is named below the table. check.sh does not run this: the
packages are many, change often, and take gigabytes (torch, for guidellm and lm-eval).
"""
import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Literal

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = ROOT / "target" / "release" / "cascadia"
MODEL = ROOT / "crates" / "cascadia" / "model" / "rainier-33m-q4_k_m.gguf"
BEGIN, END = "<!-- made by checks/client_matrix.py -->", "<!-- end -->"
FEATURES = ["chat", "stream", "format", "functions", "embeddings", "responses", "logprobs"]
QUESTION = "Tell me about a harbour at night."
MESSAGES = [{"role": "user", "content": QUESTION}]
COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"], "additionalProperties": False}
BOOK = {"name": "book", "description": "Books a ship.", "parameters": COLOUR}
TOOL = {"type": "function", "function": BOOK}
FORMAT = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
# How many families are told about functions, and how they write calls.
TEMPLATE = """<|bos|>{% if tools %}<|system|><tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
For each call return a json object within <tool_call></tool_call> tags.<|end|>{% endif %}
{%- for message in messages %}<|{{ message.role if message.role in ("system", "assistant") else "user" }}|>{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|end|>{% endfor %}<|assistant|>"""


@contextlib.contextmanager
def serving(template):
    """The address of a server that runs for as long as the block does."""
    command = [str(BINARY), "serve", "--port", "0", "--log-level", "error", "--ctx", "4096", "--template", str(template)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        found = re.search(r"(https?://\S+?)/,", process.stderr.readline())
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(timeout=60)


def is_colour(value):
    value = json.loads(value) if isinstance(value, str) else value
    assert value["colour"] in ("red", "green"), value
    return True


def streamed(parts):
    """More than one part, and together they are a text."""
    parts = list(parts)
    assert len(parts) > 1 and "".join(parts).strip(), parts
    return True


def run(*command, **more):
    """What a program printed; an error with the end of it where it failed."""
    done = subprocess.run(
        list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, **more)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-300:]}"
    return done.stdout


def like_openai(ask):
    """What a client does whose answers have the form of the package `openai`."""
    def functions():
        message = ask(tools=[TOOL], tool_choice="required").choices[0].message
        call = message.tool_calls[0]
        assert is_colour(call.function.arguments)
        called = {"id": call.id, "type": "function", "function": {"name": "book", "arguments": call.function.arguments}}
        history = [{"role": "assistant", "content": "", "tool_calls": [called]},
                   {"role": "tool", "tool_call_id": call.id, "content": "Booked."}]
        return ask(tools=[TOOL], messages=MESSAGES + history, max_tokens=8).choices[0].message
    return {
        "chat": lambda: ask(max_tokens=8).choices[0].message.content,
        "stream": lambda: streamed(part.choices[0].delta.content or "" for part in ask(max_tokens=8, stream=True) if part.choices),
        "format": lambda: is_colour(ask(response_format=FORMAT).choices[0].message.content),
        "functions": functions,
        "logprobs": lambda: ask(max_tokens=8, logprobs=True, top_logprobs=2).choices[0].logprobs.content[0].top_logprobs[1],
    }


def openai_client(url):
    import openai
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = lambda **more: client.chat.completions.create(**{"model": "default", "messages": MESSAGES, "max_tokens": 200, **more})
    return {
        **like_openai(ask),
        "embeddings": lambda: client.embeddings.create(model="default", input=["a", "b"]).data[1].embedding,
        "responses": lambda: client.responses.create(model="default", input=QUESTION, max_output_tokens=8).output_text,
    }


def anthropic_client(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask = lambda **more: client.messages.create(**{"model": "default", "messages": MESSAGES, "max_tokens": 200, **more})
    form = {"format": {"type": "json_schema", "schema": COLOUR}}
    tool = {"name": "book", "description": "Books a ship.", "input_schema": COLOUR}

    def stream():
        with client.messages.stream(model="default", messages=MESSAGES, max_tokens=8) as events:
            return streamed(events.text_stream)

    def functions():
        answer = ask(tools=[tool], tool_choice={"type": "any"})
        call = answer.content[-1]
        assert is_colour(call.input)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "Booked."}
        history = [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        return ask(tools=[tool], messages=MESSAGES + history, max_tokens=8)
    return {
        "chat": lambda: ask(max_tokens=8).content[0].text,
        "stream": stream,
        "format": lambda: is_colour(ask(output_config=form).content[0].text),
        "functions": functions,
    }


def ollama_client(url):
    import ollama
    client = ollama.Client(host=url)
    ask = lambda **more: client.chat(**{"model": "default", "messages": MESSAGES, "options": {"num_predict": 200}, **more})
    short = {"num_predict": 8}
    # Ollama's API cannot demand a call: an earlier one and its result go in.
    history = [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "book", "arguments": {"colour": "red"}}}]},
               {"role": "tool", "tool_name": "book", "content": "Booked."}]
    return {
        "chat": lambda: ask(options=short).message.content,
        "stream": lambda: streamed(part.message.content for part in ask(options=short, stream=True)),
        "format": lambda: is_colour(ask(format=COLOUR).message.content),
        "functions": lambda: ask(tools=[TOOL], messages=MESSAGES + history).message,
        "embeddings": lambda: client.embed(model="default", input=["a", "b"]).embeddings[1],
        "logprobs": lambda: ask(options=short, logprobs=True, top_logprobs=2).logprobs[0].top_logprobs[1],
    }


def litellm_client(url):
    import litellm
    litellm.suppress_debug_info = True
    where = dict(model="openai/default", api_base=f"{url}/v1", api_key="none")
    ask = lambda **more: litellm.completion(**{**where, "messages": MESSAGES, "max_tokens": 200, **more})
    return {
        **like_openai(ask),
        "embeddings": lambda: litellm.embedding(**where, input=["a"], encoding_format="float").data[0],
        "responses": lambda: litellm.responses(**where, input=QUESTION, max_output_tokens=8).output[0].content[0].text,
    }


def langchain(model, form, functions, vectors=None, logprobs=None, responses=None):
    """What every chat model of LangChain can do."""
    def call():
        from langchain_core.messages import HumanMessage, ToolMessage
        bound, question = model.bind_tools([TOOL], **functions), HumanMessage(QUESTION)
        answer = bound.invoke([question])
        # Ollama's API cannot demand a call.
        if functions:
            assert is_colour(answer.tool_calls[0]["args"])
            model.bind_tools([TOOL]).invoke([question, answer, ToolMessage("Booked.", tool_call_id=answer.tool_calls[0]["id"])])
        return True
    calls = {
        "chat": lambda: model.invoke(QUESTION).content,
        "stream": lambda: streamed(part.text for part in model.stream(QUESTION)),
        "format": lambda: is_colour(model.with_structured_output({"title": "colour", **COLOUR}, **form).invoke(QUESTION)),
        "functions": call,
        # Twenty texts at once.
        "embeddings": vectors and (lambda: vectors.embed_documents(["text"] * 20)[19]),
        "responses": responses and (lambda: responses.invoke(QUESTION).content),
        "logprobs": logprobs,
    }
    return {feature: call for feature, call in calls.items() if call}


def langchain_openai_client(url):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    where = dict(model="default", base_url=f"{url}/v1", api_key="none")
    model = ChatOpenAI(**where, max_tokens=200, max_retries=0)
    # Texts go as tokens of another vocabulary unless told not to.
    vectors = OpenAIEmbeddings(**where, check_embedding_ctx_length=False)
    return langchain(
        model, {"method": "json_schema"}, {"tool_choice": "required"}, vectors,
        lambda: model.bind(logprobs=True).invoke(QUESTION).response_metadata["logprobs"]["content"][0],
        ChatOpenAI(**where, max_tokens=200, max_retries=0, use_responses_api=True))


def langchain_anthropic_client(url):
    from langchain_anthropic import ChatAnthropic
    model = ChatAnthropic(model="default", base_url=url, api_key="none", max_tokens=200, max_retries=0)
    return langchain(model, {"method": "json_schema"}, {"tool_choice": "any"})


def langchain_ollama_client(url):
    from langchain_ollama import ChatOllama, OllamaEmbeddings
    model = ChatOllama(model="default", base_url=url, num_predict=200)
    return langchain(model, {"method": "json_schema"}, {}, OllamaEmbeddings(model="default", base_url=url))


def llama_index_client(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike
    where = dict(api_base=f"{url}/v1", api_key="none", max_retries=0)
    model = OpenAILike(
        model="default", **where, is_chat_model=True, is_function_calling_model=True, should_use_structured_outputs=True, max_tokens=200)
    colour = pydantic_colour()
    vectors = OpenAILikeEmbedding(model_name="default", **where)

    def functions():
        from llama_index.core.tools import FunctionTool
        tool = FunctionTool.from_defaults(lambda colour: "Booked.", name="book", description="Books a ship.", fn_schema=colour)
        answer = model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
        return is_colour(model.get_tool_calls_from_response(answer)[0].tool_kwargs)
    return {
        "chat": lambda: model.complete(QUESTION).text,
        "stream": lambda: streamed(part.delta or "" for part in model.stream_chat([ChatMessage(QUESTION)])),
        "format": lambda: model.as_structured_llm(colour).complete(QUESTION).raw.colour,
        "functions": functions,
        "embeddings": lambda: vectors.get_text_embedding_batch(["text"] * 20)[19],
    }


def pydantic_colour():
    import pydantic
    return pydantic.create_model("Colour", colour=(Literal["red", "green"], ...))


def instructor_client(url):
    import instructor
    import openai
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = lambda mode, **more: instructor.from_openai(plain, mode=mode).chat.completions.create(
        model="default", messages=MESSAGES, max_retries=0, max_tokens=200, **{"response_model": pydantic_colour(), **more})
    parts = lambda: ask(instructor.Mode.JSON_SCHEMA, response_model=instructor.Partial[pydantic_colour()], stream=True)
    return {
        "chat": lambda: ask(instructor.Mode.TOOLS, response_model=None).choices[0].message.content,
        "stream": lambda: list(parts())[-1].colour,
        "format": lambda: ask(instructor.Mode.JSON_SCHEMA).colour,
        "functions": lambda: ask(instructor.Mode.TOOLS).colour,
    }


def outlines_client(url):
    import openai
    import outlines
    model = outlines.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), "default")
    return {
        "chat": lambda: model(QUESTION, max_tokens=8),
        "stream": lambda: streamed(model.stream(QUESTION, max_tokens=8)),
        "format": lambda: is_colour(model(QUESTION, pydantic_colour(), max_tokens=200)),
    }


def pydantic_ai_client(url):
    from pydantic_ai import Agent, Embedder, NativeOutput, ToolOutput
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    model = OpenAIChatModel("default", provider=provider)
    ask = lambda model=model, kind=str, tokens=200: Agent(
        model, output_type=kind, model_settings={"max_tokens": tokens}, retries=0).run_sync(QUESTION).output

    async def stream():
        async with Agent(model, model_settings={"max_tokens": 8}).run_stream(QUESTION) as answer:
            return streamed([part async for part in answer.stream_text(delta=True, debounce_by=None)])
    return {
        "chat": lambda: ask(tokens=8),
        "stream": lambda: asyncio.run(stream()),
        "format": lambda: ask(kind=NativeOutput(pydantic_colour())).colour,
        "functions": lambda: ask(kind=ToolOutput(pydantic_colour())).colour,
        "embeddings": lambda: Embedder(OpenAIEmbeddingModel("default", provider=provider)).embed_documents_sync(["a", "b"]).embeddings[1],
        "responses": lambda: ask(OpenAIResponsesModel("default", provider=provider), tokens=16),
    }


def openai_agents_client(url):
    import agents
    import openai
    agents.set_tracing_disabled(True)

    def agent(kind=agents.OpenAIChatCompletionsModel, tokens=200, choice=None, **more):
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        # The client refuses a response that is cut off, and a likely answer ends soon.
        settings = agents.ModelSettings(max_tokens=tokens, temperature=0, tool_choice=choice)
        return agents.Agent(name="a", model=kind(model="default", openai_client=client), model_settings=settings, **more)

    ask = lambda **more: asyncio.run(agents.Runner.run(agent(**more), QUESTION)).final_output

    async def stream():
        answer = agents.Runner.run_streamed(agent(tokens=8), QUESTION)
        return streamed([event.data.delta async for event in answer.stream_events()
                         if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"])

    def functions():
        booked = []

        @agents.function_tool
        def book(colour: Literal["red", "green"]) -> str:
            """Books a ship."""
            booked.append(colour)
            return "Booked."
        ask(tools=[book], choice="required")
        return booked
    return {
        "chat": lambda: ask(tokens=8),
        "stream": lambda: asyncio.run(stream()),
        "format": lambda: ask(output_type=pydantic_colour()).colour,
        "functions": functions,
        "responses": lambda: ask(kind=agents.OpenAIResponsesModel, tokens=1000),
    }


def huggingface_hub_client(url):
    from huggingface_hub import InferenceClient
    client = InferenceClient(base_url=f"{url}/v1", api_key="none")
    return like_openai(lambda **more: client.chat_completion(**{"model": "default", "messages": MESSAGES, "max_tokens": 200, **more}))


# A server of the Model Context Protocol with one tool.
MCP_SERVER = '''
from typing import Literal
from mcp.server.mcpserver import MCPServer
server = MCPServer("harbour")

@server.tool()
def book(colour: Literal["red", "green"]) -> str:
    """Books a ship."""
    return f"The {colour} ship is booked."

server.run()
'''


def mcp_client(url):
    import mcp
    import openai
    from mcp.client.stdio import stdio_client
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = lambda messages, **more: client.chat.completions.create(model="default", messages=messages, max_tokens=200, **more)

    async def loop():
        # The tools of the MCP server are the model's functions; its call goes there, and the result comes back.
        server = mcp.StdioServerParameters(command=sys.executable, args=["-c", MCP_SERVER])
        async with stdio_client(server) as (reads, writes), mcp.ClientSession(reads, writes) as session:
            await session.initialize()
            tools = [{"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.input_schema}}
                for tool in (await session.list_tools()).tools]
            message = (await ask(MESSAGES, tools=tools, tool_choice="required", parallel_tool_calls=False)).choices[0].message
            call = message.tool_calls[0]
            result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
            text = result.content[0].text
            assert re.fullmatch("The (red|green) ship is booked.", text), text
            history = [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": text}]
            return (await ask(MESSAGES + history, tools=tools)).choices[0].message
    return {"functions": lambda: asyncio.run(loop())}


def tokenizer(folder):
    """The files of the model's tokenizer, made by `transformers`. Nothing is looked up at the Hugging Face Hub."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    from transformers import AutoTokenizer
    AutoTokenizer.from_pretrained(str(MODEL.parent), gguf_file=MODEL.name).save_pretrained(folder)
    return folder


def lm_eval_client(url):
    def scores():
        here = ROOT / "checks" / "lm_eval"
        with tempfile.TemporaryDirectory() as folder:
            tasks = pathlib.Path(folder) / "tasks"
            tasks.mkdir()
            (tasks / "facts.yaml").write_text((here / "facts.yaml").read_text().replace("ITEMS", str(here / "items.jsonl")))
            words = tokenizer(f"{folder}/tokenizer")
            import lm_eval
            from lm_eval.tasks import TaskManager
            arguments = dict(
                model="default", base_url=f"{url}/v1/completions", tokenizer=words, num_concurrent=1,
                tokenizer_backend="huggingface", batch_size=8, max_length=2048, tokenized_requests=True)
            results = lm_eval.simple_evaluate(
                model="local-completions", model_args=arguments, tasks=["facts"], limit=5, bootstrap_iters=0,
                task_manager=TaskManager(include_path=str(tasks), include_defaults=False))
            return "acc,none" in results["results"]["facts"]
    return {"logprobs": scores}


def guidellm_client(url):
    def benchmark():
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "prompts.txt").write_text(f"{QUESTION}\n" * 4)
            run("guidellm", "run", "--backend", f"kind=openai_http,target={url},model=default,max_tokens=8",
                "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4",
                "--tokenizer", f"kind=huggingface_auto,model={tokenizer(folder / 'tokenizer')}",
                "--data", f"kind=text_file,path={folder / 'prompts.txt'}",
                "--output", f"kind=json,path={folder / 'results.json'}", "--disable-console-interactive", cwd=folder)
            totals = json.loads((folder / "results.json").read_text())["benchmarks"][0]["metrics"]["request_totals"]
            assert totals["successful"] == 4 and totals["errored"] == 0, totals
            return True
    return {"stream": benchmark}


def aider_client(url):
    def edit(*options):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "ship.py").write_text("colour = 'red'\n")
            # The small model edits nothing; that the conversation takes place is what counts.
            printed = run(
                "aider", "--model", "openai/default", "--openai-api-base", f"{url}/v1", "--openai-api-key", "none", "--yes", "--no-git",
                "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--map-tokens", "0", "--no-pretty",
                *options, "--message", "Make the colour green.", "ship.py", cwd=folder, env={**os.environ, "HOME": folder})
            assert re.search(r"Tokens: [\d.k]+ sent, [\d.k]+ received", printed), printed[-300:]
            return True
    return {"chat": lambda: edit("--no-stream"), "stream": lambda: edit("--stream")}


# By the package that names and versions a client: what else it needs, and what it does.
PYTHON = {
    "openai": ([], openai_client),
    "anthropic": ([], anthropic_client),
    "ollama": ([], ollama_client),
    "litellm": (["mcp"], litellm_client),
    "langchain-openai": ([], langchain_openai_client),
    "langchain-anthropic": ([], langchain_anthropic_client),
    "langchain-ollama": ([], langchain_ollama_client),
    "llama-index-llms-openai-like": (["llama-index-embeddings-openai-like"], llama_index_client),
    "instructor": (["openai"], instructor_client),
    "outlines": (["openai"], outlines_client),
    "pydantic-ai-slim": (["pydantic-ai-slim[openai]"], pydantic_ai_client),
    "openai-agents": ([], openai_agents_client),
    "huggingface_hub": ([], huggingface_hub_client),
    "mcp": (["openai"], mcp_client),
    "lm-eval": (["lm-eval[api]", "transformers", "gguf", "torch"], lm_eval_client),
    "guidellm": (["gguf"], guidellm_client),
    "aider-chat": ([], aider_client),
}
# The same for checks/client_matrix.mjs.
JAVASCRIPT = {
    "openai": [],
    "@anthropic-ai/sdk": [],
    "ollama": [],
    "ai": ["@ai-sdk/openai-compatible", "zod"],
    "@openai/codex": [],
}


def one(name, url):
    """Runs one client, in an environment that has it: prints its version, and per feature `null` or what went wrong."""
    outcomes = {}
    for feature, call in PYTHON[name][1](url).items():
        try:
            outcomes[feature] = None if call() else "nothing came back"
        except Exception as error:
            outcomes[feature] = f"{type(error).__name__}: {error}"
    print(json.dumps({"version": importlib.metadata.version(name), "outcomes": outcomes}))


def row(language, name, command):
    """The line of a client, and what went wrong."""
    label = f"{name} ({language})"
    environment = {
        **os.environ, "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return None, [f"{label} did not end within 15 minutes"]
    except (IndexError, ValueError):
        wrong = done.stderr.strip().splitlines() or ["no output"]
        return None, [f"{label} could not be installed or started: {wrong[-1]}"]
    outcomes = found["outcomes"]
    cells = ["–" if feature not in outcomes else "no" if outcomes[feature] else "yes" for feature in FEATURES]
    wrong = {f"{label}, {feature}": " ".join(error.split()) for feature, error in outcomes.items() if error}
    problems = [f"{cell}: {error}" for cell, error in wrong.items()]
    return f"| `{name}` {found['version']} | {language} | {' | '.join(cells)} |", problems


def commands(url, chosen, folder):
    """For every client its language, its name and the command that runs it."""
    script = pathlib.Path(__file__).resolve()
    uv = shutil.which("uv") or pathlib.Path(sys.executable).parent / "uv"
    for name, (packages, _) in PYTHON.items():
        if not chosen or name in chosen:
            needed = [part for package in (name, *packages) for part in ("--with", package)]
            yield "Python", name, [str(uv), "run", "--quiet", "--isolated", "--no-project", "--python", sys.executable, *needed,
                                   "python", str(script), "--one", name, "--url", url]
    copy = shutil.copy(script.with_suffix(".mjs"), folder)
    for name, packages in JAVASCRIPT.items():
        if not chosen or name in chosen:
            install = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--silent", name, *packages]
            subprocess.run(install, stdin=subprocess.DEVNULL, capture_output=True)
            yield "JavaScript", name, ["node", copy, name, url]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/clients.md")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="run these clients only")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return one(arguments.one, arguments.url)
    rows, problems = [], []
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder) / "template.jinja"
        template.write_text(TEMPLATE)
        with serving(template) as url:
            for command in commands(url, arguments.only, folder):
                line, wrong = row(*command)
                rows += [line] if line else []
                problems += [f"- {problem[:300]}." for problem in wrong]
                print(line or wrong[0], file=sys.stderr)
    table = "\n".join([f"| Client | Language | {' | '.join(FEATURES)} |", "|---" * (len(FEATURES) + 2) + "|", *rows])
    node = run("node", "--version").strip().removeprefix("v")
    programs = f"With Python {sys.version.split()[0]} and Node.js {node}, which limit how new a client can be."
    made = "\n\n".join([table, programs, *(["\n".join(problems)] if problems else [])])
    print(made)
    if arguments.write:
        page = ROOT / "docs" / "clients.md"
        before, rest = page.read_text().split(BEGIN)
        page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.split(END)[1]}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
