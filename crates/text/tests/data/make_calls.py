"""Makes calls.json: calls as the public chat templates of model families write them.

    python make_calls.py      (needs: transformers, jinja2, and for their templates: trl, axolotl)

Each entry has the name of the template, of our format for it, the end of the prompt, and the answer that the template
writes for a message with calls, up to the token that ends it.
"""

import importlib.metadata
import json
import pathlib
import re

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
PACKAGES = {"trl": "chat_templates/", "axolotl": "chat_templates/templates/"}
FORMATS = {
    "harmony": r"gptoss", "deepseek-v3": r"deepseek_?v3", "glm-4.5": r"glm4moe", "qwen3-coder": r"qwen3_(5_.*think|6|8)|nemotron_3",
    "gemma4": r"gemma4|diffusion_gemma", "mistral": r"mistral_v(2v3|3_tekken)", "command-a": r"command_a_(rag|tool_use)",
    "tool-calls-list": r"jamba", "hermes": r"qwen(2_5|3|_25|3_instruct_2507|3_vl)$|exaone4", "llama-json": r"llama3_[12]|llama4",
}
END = re.compile(r"(<\|(im_end|eot_id|eot|end|eom|END_OF_TURN_TOKEN)\|>|<｜end▁of▁sentence｜>|<turn\|>|\[\|endofturn\|\]|</s>).{0,80}$", re.S)
ARGUMENTS = {"city": "Paris", "days": 2, "exact": 0.5, "names": ["é", None, True], "nested": {"a": {}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
OTHER = {"id": "call00002", "type": "function", "function": {"name": "noop", "arguments": {}}}
ONE = {"role": "assistant", "content": "", "tool_calls": [CALL]}
MESSAGES = {
    "one": ONE,
    "two": {**ONE, "content": "I look.", "tool_calls": [CALL, OTHER]},
    "reasoned": {**ONE, "reasoning_content": "Look it up."},
}
USER = {"role": "user", "content": "How warm is it in Paris?"}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather", "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "number"},
            "names": {"type": "array"}, "nested": {"type": "object"}}}}},
    {"type": "function", "function": {
        "name": "noop", "description": "Nothing", "parameters": {"type": "object", "properties": {}}}},
]


def render(template, messages, **options):
    if "['arguments'] +" in template:  # wants text
        messages = json.loads(json.dumps(messages))
        for call in [call for message in messages for call in message.get("tool_calls", [])]:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return chat_template_utils.render_jinja_template(
        [messages], chat_template=template, bos_token="<s>", eos_token="</s>", tools=TOOLS, **options)[0][0]


def entries(name, template):
    names = [known for known, pattern in FORMATS.items() if re.match(pattern, name)]
    for case, message in MESSAGES.items() if names else ():
        try:
            prompt = render(template, [USER], add_generation_prompt=True)
            whole = render(template, [USER, message])
        except Exception as error:
            print(f"{name}, {case}: {error}")
            continue
        if whole.startswith(prompt):
            yield {"template": name, "format": names[0], "case": case, "prompt": prompt[-40:],
                   "answer": END.sub("", whole[len(prompt):])}


def main():
    found = []
    for package, folder in PACKAGES.items():
        for file in importlib.metadata.files(package):
            if folder in str(file) and file.suffix == ".jinja" and not file.stem.endswith("_training"):
                found += entries(file.stem, pathlib.Path(file.locate()).read_text(encoding="utf-8"))
    text = json.dumps(found, ensure_ascii=False, indent=0)
    (HERE / "calls.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(found)} answers, {len({entry['format'] for entry in found})} formats")


if __name__ == "__main__":
    main()
