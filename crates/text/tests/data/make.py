"""Makes the expected results in this folder with the reference implementations.

    python make.py [rainier-33m/tokenizer.json]      (needs: transformers, jinja2, tokenizers, sentencepiece)

templates.json   chat templates rendered by transformers' own renderer
sentencepiece-*.json  small SentencePiece BPE models with the ids that the sentencepiece package gives
rainier-ids.json      ids of the tokenizer of rainier-33m, if its file is given
"""

import io
import json
import pathlib
import sys
from datetime import datetime

import jinja2
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
TOKENIZERS = HERE.parents[3] / "fixtures" / "tokenizers"
sys.path.insert(0, str(TOKENIZERS))
import strings  # noqa: E402

# ---------------------------------------------------------------------------------------------------------------------
# Chat templates, written after the formats of the model families they are named for.

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set system_message = '<<SYS>>\\n' + messages[0]['content'] | trim + "
    "'\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 %}{% set content = system_message + message['content'] %}{% else %}"
    "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)

LLAMA31 = """\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message is taken out so that it can go to the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have these functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool roles are supported") }}
    {%- endif %}
{%- endfor %}
"""

QWEN25 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nThese functions may be called:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nAnswer with a JSON object inside <tool_call></tool_call>.<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""

RAINIER = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}<|system|>{{ message['content'] }}"
    "<|end|>{% elif message['role'] == 'user' %}<|user|>{{ message['content'] }}<|end|>"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

# A tour of the language: what the templates above do not use but others do.
FEATURES = """\
{%- macro shout(text, times=1) -%}
{{ text | upper }}{{ '!' * times }}
{%- endmacro %}
{% set ns = namespace(total=0, names=[]) %}
{% for message in messages %}
  {% if message.role == 'system' %}
    {% continue %}
  {% endif %}
  {% set ns.total = ns.total + 1 %}
  {% set ns.names = ns.names + [message.role] %}
  {% if loop.index > 4 %}{% break %}{% endif %}
  {{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }} {{ loop.cycle('odd', 'even') }}
  {{ shout(message.role, times=2) }} {{ shout('x') }}
{% else %}
nothing
{% endfor %}
{{ ns.total }} {{ ns.names | join(', ') }} {{ ns.names }} {{ ns.names | unique | list }} {{ ns.names[::-1] }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'b'] }} {{ 7 // 2 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 3 * 'ab' }}
{{ "it's" }} {{ ["it's", 'say "x"', 'tab\\t'] }} {{ {'a': 1, 'b': [true, none]} }} {{ (1, 2) }} {{ (1,) }}
{{ 1e20 }} {{ 1.0 }} {{ 1e-7 }} {{ 0.1 + 0.2 }} {{ 10 | float }} {{ '3' | int + 1 }}
{{ '  pad '.strip() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a b  c'.split() }}|{{ 'xxab'.lstrip('x') }}|{{ 'abxx'.rstrip('x') }}
{{ 'hello'.startswith('he') }} {{ 'hello'.endswith(('lo', 'x')) }} {{ 'hello'.replace('l', 'L', 1) }} {{ 'hello world'.title() }}
{{ 'hello'.upper() }} {{ 'Hello'.lower() }} {{ 'hello' | capitalize }} {{ 'aXbX' | replace('X', '-') }} {{ 'hello'.find('l') }}
{% for key, value in {'x': 1, 'y': 2}.items() %}{{ key }}={{ value }};{% endfor %}
{% for item in [3, 1, 2] | sort %}{{ item }}{% endfor %} {{ [3, 1, 2] | max }} {{ [1, 2] | sum }} {{ range(2, 8, 3) | list }}
{{ messages | map(attribute='role') | join('/') }} {{ ['a ', ' b'] | map('trim') | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', '==', 'user') | list | length }}
{{ missing is defined }} {{ missing | default('fallback') }} [{{ missing }}] {{ none is none }} {{ '' or 'empty' }} {{ 'x' if missing }}
{{ {'ü': 'é\\n"q"', 'n': [1, 2.5, none, true, {}], 'e': []} | tojson }}
{{ {'b': 1, 'a': {'ü': [1, 2], 'z': []}} | tojson(indent=2) }}
{{ {'b': 1, 'a': 'é<&>😀'} | tojson(ensure_ascii=true, sort_keys=true) }} {{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}
{{ 'abcdef'[1:4] }} {{ 'abcdef'[-2:] }} {{ 'héllo'[1] }} {{ [1, 2, 3, 4][1:-1] }} {{ 'abc'[::-1] }} {{ [1,2,3][:0] }} {{ [][::-1] }} {{ ''[::-1] }}
{{ 'abcdef'[5:1:-2] }} {{ [1,2,3,4][1:9:-1] }} {{ [1,2,3,4][-9:9:3] }} {{ (1,2,3)[::-2] }} {{ 'abc'[2:-9:-1] }} {{ none is iterable }}
{{ 'b' in 'abc' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 'z' not in ['y'] }} {{ 1 < 2 and 2 < 3 }} {{ not false }}
{% set captured %}inner {{ 1 + 1 }}{% endset %}[{{ captured }}] {% set a, b = [1, 2] %}{{ a }}{{ b }}
{% filter upper %}filtered {{ 'text' }}{% endfilter %} {%- if true -%} tight {%- endif %} {# comment #}
{% raw %}{{ not rendered }} {% if %}{% endraw %}
{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %j %y %I %p %%') }} {{ 'line one\\nline two' | indent(2) }} {{ 'x' | string + 'y' }}
    {% if true %}
    indented block
    {% endif %}
{{ 'last line' }}   trailing
"""

PLAIN = [{"role": "user", "content": "Hello there"}]
DIALOGUE = [
    {"role": "system", "content": "  You are terse. "},
    {"role": "user", "content": "What is 2+2? <b>&\"quotes\" 'single'</b>\n"},
    {"role": "assistant", "content": " Four. "},
    {"role": "user", "content": "Grüße — 你好 🙂\ttab\\backslash {{ not a tag }}"},
]
TOOL_TALK = [
    {"role": "user", "content": "Weather in Paris?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "get_weather", "arguments": {"city": "Paris", "unit": "°C", "days": 2, "exact": 0.5}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": "22.5"},
    {"role": "assistant", "content": "It is 22.5 degrees."},
    {"role": "user", "content": "Thanks"},
]
WRONG_ORDER = [{"role": "assistant", "content": "me first"}, {"role": "assistant", "content": "again"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city <now>, 'quoted' & ünïcode",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "default": 1}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}},
]

NOW = datetime(2026, 3, 9, 14, 5, 7)


class FixedTime(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def make_templates():
    chat_template_utils.datetime = FixedTime
    templates = {
        "llama2": LLAMA2, "llama3.1": LLAMA31, "mistral": MISTRAL, "qwen2.5": QWEN25, "chatml": CHATML,
        "zephyr": ZEPHYR, "rainier": RAINIER, "features": FEATURES,
        "generation": "{% for m in messages %}\n{% generation %}\n{{ m.content }}\n{%- endgeneration %}\n{% endfor %}",
    }
    conversations = {"plain": PLAIN, "dialogue": DIALOGUE, "tools": TOOL_TALK, "wrong order": WRONG_ORDER}
    cases = []
    for template_name, template in templates.items():
        for conversation_name, conversation in conversations.items():
            for tools in (None, TOOLS):
                for prompt in (False, True):
                    variables = {"bos_token": "<s>", "eos_token": "</s>"}
                    case = {"template": template_name, "conversation": conversation_name, "tools": tools is not None,
                            "add_generation_prompt": prompt}
                    try:
                        rendered, _ = chat_template_utils.render_jinja_template(
                            [conversation], tools=tools, chat_template=template, add_generation_prompt=prompt, **variables)
                        case["expected"] = rendered[0]
                    except Exception as error:
                        # What raise_exception raises is the template's own word; other errors need not say the same.
                        case["rejection" if type(error) is jinja2.TemplateError else "error"] = str(error)
                    cases.append(case)
    unix = int((NOW - datetime(1970, 1, 1)).total_seconds())
    save("templates.json", {"templates": templates, "conversations": conversations, "tools": TOOLS, "unix_seconds": unix,
                            "cases": cases})


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizers; the other kinds are in fixtures/tokenizers.

def inputs():
    """The strings that the small vocabularies of fixtures/tokenizers are compared on."""
    return json.loads((TOKENIZERS / "strings.json").read_text(encoding="utf-8"))


def make_sentencepiece():
    for name, options in {
        "prefix": {},
        "bare": {"add_dummy_prefix": False},
        "symbols": {"user_defined_symbols": ["<sep>", "\u2581\u2581\u2581", "river\u2581bank"], "byte_fallback": False},
    }.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(strings.TEXT.strip().split("\n")), model_writer=model, model_type="bpe", vocab_size=720,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
            allow_whitespace_only_pieces=True, character_coverage=0.99, minloglevel=2,
            **{"byte_fallback": True, "add_dummy_prefix": True, **options})
        proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
        if name == "bare":
            # Unused pieces may be merged through but not be the result.
            normal = [piece for piece in proto.pieces if piece.type == 1 and len(piece.piece) > 1]
            for piece in normal[3:60:4]:
                piece.type = 5
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        ids = [processor.encode(text, out_type=int) for text in inputs()]
        decoded = [processor.decode(each) for each in ids]
        save(f"sentencepiece-{name}.json", {
            "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
            "vocabulary": {"tokens": [piece.piece for piece in proto.pieces], "types": [piece.type for piece in proto.pieces],
                           "scores": [piece.score for piece in proto.pieces]},
            "ids": ids, "decoded": decoded})


def make_rainier(path):
    """The ids of a real tokenizer, which is not in this folder."""
    tokenizer = tokenizers.Tokenizer.from_file(path)
    parsed = [tokenizer.encode(text, add_special_tokens=False).ids for text in inputs()]
    save("rainier-ids.json", parsed)


def save(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=False)
    (HERE / name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    make_templates()
    make_sentencepiece()
    if len(sys.argv) > 1:
        make_rainier(sys.argv[1])
