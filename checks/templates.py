#!/usr/bin/env python3
"""The public chat templates of many model families render byte for byte as in `transformers`.

    .venv/bin/python checks/templates.py [FOLDER]

The templates are the models' own files. They come with the packages `trl` (verbatim copies) and `axolotl`, which
check.sh installs for these files alone; FOLDER holds more of them (*.jinja). Where a template rejects a conversation, we
give the same message; where `transformers` fails otherwise, we fail, too, or go over a None as over an empty list.
"""
import importlib.metadata
import json
import pathlib
import subprocess
import sys
from datetime import datetime, timezone

import jinja2
from transformers.utils import chat_template_utils

import program

MODEL = program.ROOT / "fixtures" / "qwen2"
BEGIN, END = "<|begin|>", "<|end|>"  # of that model
PACKAGES = {"trl": "chat_templates/", "axolotl": "chat_templates/templates/"}
LEAST = 40
NOW = 1773065107

USER = {"role": "user", "content": "What is 2 < 3 & \"more\"? Don't say <b>no</b>.\n\n  Grüße, 你好 🙂"}
SYSTEM = {"role": "system", "content": "  You are terse.\nAlways.  "}
ANSWER = {"role": "assistant", "content": "  It is so.\n"}
THOUGHT = {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nYes."}
REASONED = {"role": "assistant", "content": "Yes.", "reasoning_content": "Let me see."}
ARGUMENTS = {"city": "Paris", "days": 2, "exact": 0.5, "names": ["é", None, True], "nested": {"a": {}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
OTHER_CALL = {"id": "call00002", "type": "function", "function": {"name": "noop", "arguments": {}}}
TEXT_CALL = {**CALL, "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"temperature\": 22.5}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look "}, {"type": "text", "text": "here."}]}

CONVERSATIONS = {
    "one question": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ANSWER, {"role": "user", "content": " And then? "}],
    "ends with an answer": [USER, ANSWER],
    "thoughts": [USER, THOUGHT, USER, REASONED, USER],
    "developer": [{"role": "developer", "content": "Be kind."}, USER],
    "parts": [SYSTEM, PARTS],
    "call": [USER, CALLING],
    "result": [SYSTEM, USER, CALLING, RESULT],
    "answered call": [USER, {**CALLING, "content": "I will look."}, RESULT, ANSWER, USER],
    "call without content": [USER, {**CALLING, "content": None}, RESULT],
    "reasoned call": [USER, {**CALLING, "reasoning_content": "Look it up."}, RESULT],
    "two calls": [USER, {**CALLING, "tool_calls": [CALL, OTHER_CALL]}, RESULT, {**RESULT, "tool_call_id": "call00002", "content": "done"}],
    "call as text": [USER, {**CALLING, "tool_calls": [TEXT_CALL]}, RESULT],
    "wrong order": [ANSWER, ANSWER],
    "two questions": [USER, USER],
    "two systems": [SYSTEM, USER, SYSTEM],
    "unknown role": [{"role": "stranger", "content": "Boo"}],
    "nothing": [],
}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city <now>, 'quoted' & ünïcode",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Where", "enum": ["Paris", "Rome"]},
            "days": {"type": "integer", "default": 1, "minimum": 0.5},
            "names": {"type": "array", "items": {"type": "string"}, "nullable": True}}},
        "return": {"type": "number", "description": "degrees"}}},
    {"type": "function", "function": {"name": "noop", "description": "Nothing", "parameters": {"type": "object", "properties": {}}}},
]
OPTIONS = [
    {}, {"add_generation_prompt": True}, {"tools": TOOLS, "add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False}, {"tools": TOOLS, "enable_thinking": True, "thinking": True},
]


class FixedTime(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None)


def reference(template, request):
    """The rendered text, or the exception."""
    variables = {key: value for key, value in request.items() if key not in ("messages", "now")}
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [request["messages"]], chat_template=template, bos_token=BEGIN, eos_token=END, **variables)
        return rendered[0]
    except Exception as error:
        return error


def differs(expected, answer):
    if not isinstance(expected, Exception):
        return answer.get("text") != expected
    if type(expected) is jinja2.TemplateError:  # raise_exception
        return not answer.get("error", "").endswith(f"rejects this conversation: {expected}")
    return "error" not in answer and str(expected) != "'NoneType' object is not iterable"


def check(name, path):
    template = path.read_text(encoding="utf-8")
    requests = [{"messages": messages, "now": NOW, "add_generation_prompt": False, **options}
                for messages in CONVERSATIONS.values() for options in OPTIONS]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [str(program.BINARY), "tokenize", str(MODEL), "--json", "--template", str(path)]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} from {' '.join(command)}\n{done.stderr.decode()}")
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    expected = [reference(template, request) for request in requests]
    wrong = [case for case in zip(requests, expected, answers, strict=True) if differs(*case[1:])]
    rejected = sum(isinstance(text, Exception) for text in expected)
    print(f"  {name}: {len(requests) - rejected} rendered, {rejected} rejected, {len(wrong)} differ", flush=True)
    for request, text, answer in wrong[:2]:
        print(f"    {json.dumps(request, ensure_ascii=False)[:400]}\n    expected {text!r}\n    but got  {answer.get('error') or answer['text']!r}")
    return not wrong


def templates():
    """Name and path of every template."""
    for package, folder in PACKAGES.items():
        for file in importlib.metadata.files(package):
            if folder in str(file) and file.suffix == ".jinja" and not file.stem.endswith("_training"):
                yield f"{package} {file.stem}", pathlib.Path(file.locate())
    for folder in sys.argv[1:]:
        for path in sorted(pathlib.Path(folder).glob("*.jinja")):
            yield path.stem, path


def main():
    chat_template_utils.datetime = FixedTime
    results = {name: check(name, path) for name, path in templates()}
    wrong = [name for name, is_right in results.items() if not is_right]
    if wrong or len(results) < LEAST:
        raise SystemExit(f"{len(wrong)} of {len(results)} templates differ: {', '.join(wrong)}")
    print(f"{len(results)} templates, {len(CONVERSATIONS) * len(OPTIONS)} conversations each: all equal")


if __name__ == "__main__":
    main()
