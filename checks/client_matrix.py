#!/usr/bin/env python3
"""Which clients can do what with the server: a table in docs/clients.md, made by running them.

    pip install openai anthropic ollama litellm langchain-openai langchain-anthropic langchain-ollama instructor \
        "pydantic-ai-slim[openai]" openai-agents huggingface_hub llama-index-llms-openai-like
    python checks/client_matrix.py            # prints the table
    python checks/client_matrix.py --write    # and puts it into docs/clients.md

Packages that are not installed are left out and named. check.sh does not run this: the packages are many, and change often.
"""
import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = ROOT / "target" / "release" / "cascadia"
BEGIN, END = "<!-- made by checks/client_matrix.py -->", "<!-- end -->"
FEATURES = ["chat", "stream", "format", "functions", "embeddings"]
QUESTION = "Tell me about a harbour at night."
COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"], "additionalProperties": False}
BOOK = {"name": "book", "description": "Books a ship.", "parameters": COLOUR}
# How many families are told about functions, and how they write calls.
TEMPLATE = """{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
For each call return a json object within <tool_call></tool_call> tags.
{% endif %}{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{% endfor %}{%- endfor %}assistant: """


@contextlib.contextmanager
def serving(template):
    """The address of a server that runs for as long as the block does."""
    command = [str(BINARY), "serve", "--port", "0", "--log-level", "warn", "--ctx", "2048", "--template", str(template)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        found = re.search(r"(https?://\S+?)/,", process.stderr.readline())
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(timeout=60)


def is_colour(text):
    assert json.loads(text)["colour"] in ("red", "green"), text


def openai_client(url):
    import openai
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = lambda **more: client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": QUESTION}], **{"max_tokens": 200, **more})
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
    tool = {"type": "function", "function": BOOK}
    return {
        "chat": lambda: ask(max_tokens=8).choices[0].message.content,
        "stream": lambda: len(list(ask(max_tokens=8, stream=True))),
        "format": lambda: is_colour(ask(response_format=form).choices[0].message.content),
        "functions": lambda: is_colour(ask(tools=[tool], tool_choice="required").choices[0].message.tool_calls[0].function.arguments),
        "embeddings": lambda: client.embeddings.create(model="default", input=["a", "b"]).data[1].embedding,
    }


def anthropic_client(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask = lambda **more: client.messages.create(
        model="default", messages=[{"role": "user", "content": QUESTION}], **{"max_tokens": 200, **more})
    form = {"output_config": {"format": {"type": "json_schema", "schema": COLOUR}}}
    tool = {"name": "book", "description": "Books a ship.", "input_schema": COLOUR}
    return {
        "chat": lambda: ask(max_tokens=8).content[0].text,
        "stream": lambda: len(list(ask(max_tokens=8, stream=True))),
        "format": lambda: is_colour(ask(extra_body=form).content[0].text),
        "functions": lambda: is_colour(json.dumps(ask(tools=[tool], tool_choice={"type": "any"}).content[-1].input)),
    }


def ollama_client(url):
    import ollama
    client = ollama.Client(host=url)
    ask = lambda **more: client.chat(
        model="default", messages=[{"role": "user", "content": QUESTION}], **{"options": {"num_predict": 200}, **more})
    return {
        "chat": lambda: ask(options={"num_predict": 8}).message.content,
        "stream": lambda: len(list(ask(options={"num_predict": 8}, stream=True))),
        "format": lambda: is_colour(ask(format=COLOUR).message.content),
        "functions": lambda: ask(tools=[{"type": "function", "function": BOOK}]),
    }


def litellm_client(url):
    import litellm
    litellm.suppress_debug_info = True
    ask = lambda **more: litellm.completion(
        model="openai/default", api_base=f"{url}/v1", api_key="none", messages=[{"role": "user", "content": QUESTION}],
        **{"max_tokens": 200, **more})
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
    tool = {"type": "function", "function": BOOK}
    vectors = lambda: litellm.embedding(
        model="openai/default", api_base=f"{url}/v1", api_key="none", input=["a"], encoding_format="float").data[0]
    return {
        "chat": lambda: ask(max_tokens=8).choices[0].message.content,
        "stream": lambda: len(list(ask(max_tokens=8, stream=True))),
        "format": lambda: is_colour(ask(response_format=form).choices[0].message.content),
        "functions": lambda: is_colour(ask(tools=[tool], tool_choice="required").choices[0].message.tool_calls[0].function.arguments),
        "embeddings": vectors,
    }


def langchain(model, form=None, functions=None):
    """What every chat model of LangChain can do."""
    tool = {"type": "function", "function": BOOK}
    bound = lambda: model.bind_tools([tool], **(functions or {})).invoke(QUESTION).tool_calls
    return {
        "chat": lambda: model.invoke(QUESTION).content,
        "stream": lambda: len(list(model.stream(QUESTION))),
        "format": lambda: is_colour(json.dumps(model.with_structured_output({"title": "colour", **COLOUR}, **(form or {})).invoke(QUESTION))),
        "functions": bound,
    }


def langchain_openai_client(url):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    where = dict(model="default", base_url=f"{url}/v1", api_key="none")
    model = ChatOpenAI(**where, max_tokens=200, max_retries=0)
    # Twenty texts at once, as tokens of another vocabulary unless told not to.
    vectors = OpenAIEmbeddings(**where, check_embedding_ctx_length=False)
    return {**langchain(model, {"method": "json_schema"}, {"tool_choice": "required"}),
            "embeddings": lambda: len(vectors.embed_documents(["text"] * 20))}


def langchain_anthropic_client(url):
    from langchain_anthropic import ChatAnthropic
    model = ChatAnthropic(model="default", base_url=url, api_key="none", max_tokens=200, max_retries=0)
    return langchain(model, None, {"tool_choice": "any"})


def langchain_ollama_client(url):
    from langchain_ollama import ChatOllama
    return langchain(ChatOllama(model="default", base_url=url, num_predict=200), {"method": "json_schema"})


def instructor_client(url):
    import instructor
    import openai
    import pydantic
    from typing import Literal
    Colour = pydantic.create_model("Colour", colour=(Literal["red", "green"], ...))
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = lambda mode: instructor.from_openai(plain, mode=mode).chat.completions.create(
        model="default", messages=[{"role": "user", "content": QUESTION}], response_model=Colour, max_retries=0, max_tokens=200)
    return {"format": lambda: ask(instructor.Mode.JSON_SCHEMA).colour, "functions": lambda: ask(instructor.Mode.TOOLS).colour}


def pydantic_ai_client(url):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel("default", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    return {"chat": lambda: Agent(model, model_settings={"max_tokens": 8}).run_sync(QUESTION).output}


def openai_agents_client(url):
    import openai
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    settings = ModelSettings(max_tokens=8)
    run = lambda kind: asyncio.run(
        Runner.run(Agent(name="a", model=kind(model="default", openai_client=client), model_settings=settings), QUESTION))
    return {"chat": lambda: (run(OpenAIChatCompletionsModel), run(OpenAIResponsesModel))}


def huggingface_hub_client(url):
    from huggingface_hub import InferenceClient
    client = InferenceClient(base_url=f"{url}/v1", api_key="none")
    ask = lambda **more: client.chat_completion(
        model="default", messages=[{"role": "user", "content": QUESTION}], **{"max_tokens": 200, **more})
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
    tool = {"type": "function", "function": BOOK}
    return {
        "chat": lambda: ask(max_tokens=8).choices[0].message.content,
        "stream": lambda: len(list(ask(max_tokens=8, stream=True))),
        "format": lambda: is_colour(ask(response_format=form).choices[0].message.content),
        "functions": lambda: is_colour(ask(tools=[tool], tool_choice="required").choices[0].message.tool_calls[0].function.arguments),
    }


def llama_index_client(url):
    from llama_index.llms.openai_like import OpenAILike
    model = OpenAILike(model="default", api_base=f"{url}/v1", api_key="none", is_chat_model=True, max_tokens=8, max_retries=0)
    return {"chat": lambda: model.complete(QUESTION).text, "stream": lambda: len(list(model.stream_complete(QUESTION)))}


CLIENTS = {
    "openai": openai_client,
    "anthropic": anthropic_client,
    "ollama": ollama_client,
    "litellm": litellm_client,
    "langchain-openai": langchain_openai_client,
    "langchain-anthropic": langchain_anthropic_client,
    "langchain-ollama": langchain_ollama_client,
    "instructor": instructor_client,
    "pydantic-ai-slim": pydantic_ai_client,
    "openai-agents": openai_agents_client,
    "huggingface_hub": huggingface_hub_client,
    "llama-index-llms-openai-like": llama_index_client,
}


def row(name, url):
    """The line of a client, and what went wrong; `None` where it is not installed."""
    try:
        version, calls = importlib.metadata.version(name), CLIENTS[name](url)
    except ImportError:
        return None, []
    cells, problems = [], []
    for feature in FEATURES:
        if feature not in calls:
            cells.append("–")
            continue
        try:
            calls[feature]()
            cells.append("yes")
        except Exception as error:
            cells.append("no")
            problems.append(f"{name}, {feature}: {type(error).__name__}: {str(error)[:300]}")
    return f"| {name} {version} | {' | '.join(cells)} |", problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/clients.md")
    write = parser.parse_args().write
    os.environ["OPENAI_API_KEY"] = "none"
    rows, problems, missing = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder) / "template.jinja"
        template.write_text(TEMPLATE)
        with serving(template) as url:
            for name in CLIENTS:
                line, wrong = row(name, url)
                (rows if line else missing).append(line or name)
                problems += wrong
    table = "\n".join([f"| Client | {' | '.join(FEATURES)} |", "|---" * (len(FEATURES) + 1) + "|", *rows])
    print(table)
    for problem in problems:
        print(problem, file=sys.stderr)
    if missing:
        print("not installed:", ", ".join(missing), file=sys.stderr)
    if write:
        page = ROOT / "docs" / "clients.md"
        before, rest = page.read_text().split(BEGIN)
        page.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
