"""Makes the expected results in this folder with the reference implementations.

    python make.py [rainier-33m/tokenizer.json]      (needs: transformers, jinja2, tokenizers, sentencepiece)

templates.json   chat templates rendered by transformers' own renderer
strings.json     what is tokenised
byte-level-*.json     small byte-level BPE tokenizers with the ids that the tokenizers package gives
sentencepiece-*.json  small SentencePiece BPE models with the ids that the sentencepiece package gives
byte-fallback.json    the first of those as a tokenizer.json, with the ids that the tokenizers package gives
rainier-ids.json      ids of the tokenizer of rainier-33m, if its file is given
"""

import io
import json
import pathlib
import random
import sys
from datetime import datetime

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent

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
{{ 'abcdef'[1:4] }} {{ 'abcdef'[-2:] }} {{ 'héllo'[1] }} {{ [1, 2, 3, 4][1:-1] }} {{ 'abc'[::-1] }} {{ [1,2,3][:0] }}
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
                        case["error"] = str(error)
                    cases.append(case)
    unix = int((NOW - datetime(1970, 1, 1)).total_seconds())
    save("templates.json", {"templates": templates, "conversations": conversations, "tools": TOOLS, "unix_seconds": unix,
                            "cases": cases})


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizers.

TEXT = """
The river came down from the mountain in the spring, and nobody in the village was surprised. It's what rivers do, they'd
say; we've seen it 1, 2, 3, 10, 100, 1984 and 2026 times before. I'll tell you more: in 12345678 years it won't have
changed. "Don't you think so?" asked the miller's daughter; he'd never thought about it, and she's right that he's slow.
Der Fluß fließt über die Brücke, während die Mühle schläft. Größe, Öl, Äpfel und süße Trauben: alles für 3,50 Euro!
Où est la rivière? Elle coule à côté du château, là-bas, où l'été est très beau. Señor, mañana comeré piñas y jalapeños.
Река течёт медленно, и никто не удивлён. Вода была холодная. Το ποτάμι κυλάει αργά προς τη θάλασσα.
河水从山上流下来，村里没有人感到惊讶。水很冷。川は山から流れてくる。水はとても冷たいです。강물이 산에서 흘러내린다.
النهر يجري ببطء نحو البحر. नदी धीरे-धीरे बहती है। שלום עולם. 🙂🙂 👩‍👩‍👧‍👦 🇫🇷 ❤️ ½ ² ③ Ⅷ ﬁ
def flow(x, y=3):
    if x > 0 and y != 1:
        return {"depth": x ** 2, 'name': f"{y:>10}"}  # nothing
\t\tfor (int i = 0; i < 10; ++i) { a[i] += b[i] * 0x1F; }
https://example.org/path?query=1&other=two#part   user@example.com   C:\\\\Users\\\\name   ~/.config
The the THE tHe there then them these those this that other another mother brother weather whether
aaaa aaa aa a   bbbb    cc     d      ........ !!!! ???? ---- ==== ____ #### **** //// \\\\\\\\
water water water waters watery watering watered waterfall underwater river rivers riverbank
"""

SPECIALS = ["<|begin|>", "<|end|>", "<|user|>"]

ADVERSARIAL = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "a", " a", "a ", "  a  b   c    ", "hello world",
    "Hello World", "HELLO'S", "it's I'LL we'Ve THEY'RE d'accord 'tis rock'n'roll", "''", "'", "'s", " 's", "s's",
    "1", "12", "123", "1234", "12345678901234567890", "1,234.56", "3.14e-10", "0x1F", "１２３", "½²③Ⅷ", "٣٤٥",
    "...", "!!!???", "a.b.c", "foo_bar", "__init__", "snake_case camelCase PascalCase SCREAMING_CASE", "iPhone XMLHttpRequest",
    "tab\tseparated\t\tvalues", "line\nbreak", "line\r\nbreak\r", "trailing \n", "\n leading", "a\n\n\nb", "  \n\n  x",
    "ünïcödé", "Ünïcödé ÄÖÜ ß", "e\u0301 combining", "\u0301", "n\u0303o", "ﬁ ligature", "İstanbul ıi", "ǅungla",
    "Привет, мир!", "Καλημέρα κόσμε", "你好，世界", "こんにちは世界", "안녕하세요", "مرحبا بالعالم", "नमस्ते दुनिया", "שלום",
    "🙂", "👩‍👩‍👧‍👦", "🇫🇷🇩🇪", "❤️", "a🙂b", "🙂 🙂", "\U0001d4d7\U0001d4ee", "\u200b", "a\u200bb", "\ufeff", "\u00a0", "a\u00a0b",
    "\u2028", "\u3000", "\u2003x", "\x00", "\x01\x02", "\x7f", "a\x00b", "\u0085", "\x1c", "\x0b\x0c",
    "▁", "▁▁", " ▁ ", "a▁b", "Ġ", "Ġa", "Ċ", "<0x41>", "<0x0A>", "<0xZZ>", "<s>", "</s>", "<unk>", "<|end|>", "<|begin|>x",
    "before<|end|>after", " <|end|> ", "<|end|><|end|>", "<|en", "|>", "<|user|>hi<|end|>", "<|END|>", "< |end|>", "<|end |>",
    "the", " the", "the the", "thethe", "theth", "water", "waterwater", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ab" * 40, "abc" * 30, "\n" * 20, " " * 33, "\t" * 9, "-" * 50, "=" * 17, "🙂" * 7, "é" * 13, "水" * 9,
    "def f(x):\n    return x\n\n\nclass A:\n\tpass", "{\"a\": [1, 2, {\"b\": null}]}", "<div class=\"x\">&nbsp;</div>",
    "SELECT * FROM t WHERE a='b';", "https://example.org/a?b=c&d=%20e#f", "C:\\Users\\x", "a+b=c*d/e-f", "(((())))", "[[]]{}",
    "$100 €50 £20 ¥3", "50% #1 @me", "~`^|\\", "“quotes” ‘single’ «guillemets» — – …", "¿Qué? ¡Sí!", "№ § ¶ † ‡ • °",
    "Z̸a̸l̸g̸o̸", "\u202eright to left", "x\u0338", "\ud7ff\ue000\U0010ffff", "Å Å Å", "Ω Ω", "한글", "한글",
    "river's riverbank\nrivers", "The river came down from the mountain", " The river", "the  river", "water\u00adfall",
]


def strings():
    """The list above plus random mixtures."""
    source = random.Random(7)
    pool = [text for text in ADVERSARIAL if text] + TEXT.split()
    mixed = []
    for _ in range(120):
        glue = source.choice(["", " ", "  ", "\n", "\t", "\u00a0"])
        mixed.append(glue.join(source.choice(pool) for _ in range(source.randint(2, 6)))[:120])
    alphabet = "aabbeehhttTrrww  \n\t'sdlm0123.,!?é水🙂▁ĠΩ\u0301<>|_"
    for _ in range(120):
        mixed.append("".join(source.choice(alphabet) for _ in range(source.randint(1, 40))))
    return ADVERSARIAL + mixed


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_byte_level():
    kinds = {
        "gpt-2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None, False),
        "llama-bpe": (split(LLAMA3), None, True),
        "qwen2": (split(QWEN2), normalizers.NFC(), False),
        "tekken": (split(TEKKEN), None, True),
        "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False)]), None, False),
    }
    inputs = strings()
    models_made = {}
    for pre, (pre_tokenizer, normalizer, ignore_merges) in kinds.items():
        tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        if normalizer:
            tokenizer.normalizer = normalizer
        trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator([TEXT], trainer)
        if ignore_merges:
            # A token that merges cannot build: only a whole-word lookup finds it.
            document = json.loads(tokenizer.to_str())
            document["model"]["vocab"]["Ġriverbank"] = tokenizer.get_vocab_size()
            tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
        tokenizer.add_tokens([AddedToken("   ", normalized=False), AddedToken("<tool>", normalized=False)])
        document = json.loads(tokenizer.to_str())
        size = tokenizer.get_vocab_size()
        tokens = [tokenizer.id_to_token(id) for id in range(size)]
        types = [1] * size
        for entry in document["added_tokens"]:
            types[entry["id"]] = 3 if entry["special"] else 4
        parsed = [tokenizer.encode(text, add_special_tokens=False).ids for text in inputs]
        tokenizer.encode_special_tokens = True
        plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in inputs]
        decoded = [tokenizer.decode(ids, skip_special_tokens=True) for ids in parsed]
        models_made[pre] = {
            "json": json.loads(tokenizer.to_str()),
            "vocabulary": {"tokens": tokens, "types": types,
                           "merges": [" ".join(pair) for pair in document["model"]["merges"]]},
            "parsed": parsed, "plain": plain, "decoded": decoded,
        }
    for pre, model in models_made.items():
        save(f"byte-level-{pre}.json", {"pre": pre, **model})
    save("strings.json", inputs)


def make_sentencepiece():
    inputs = strings()
    for name, options in {
        "prefix": {},
        "bare": {"add_dummy_prefix": False},
        "symbols": {"user_defined_symbols": ["<sep>", "\u2581\u2581\u2581", "river\u2581bank"], "byte_fallback": False},
    }.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT.strip().split("\n")), model_writer=model, model_type="bpe", vocab_size=720,
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
        ids = [processor.encode(text, out_type=int) for text in inputs]
        decoded = [processor.decode(each) for each in ids]
        save(f"sentencepiece-{name}.json", {
            "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
            "vocabulary": {"tokens": [piece.piece for piece in proto.pieces], "types": [piece.type for piece in proto.pieces],
                           "scores": [piece.score for piece in proto.pieces]},
            "ids": ids, "decoded": decoded})


def make_byte_fallback():
    """A SentencePiece vocabulary as a tokenizer.json in the style of Llama 2, with merges derived from the scores."""
    data = json.loads((HERE / "sentencepiece-prefix.json").read_text(encoding="utf-8"))["vocabulary"]
    vocabulary = {token: id for id, token in enumerate(data["tokens"])}
    pairs = [(-data["scores"][id], token[:cut], token[cut:]) for token, id in vocabulary.items() if data["types"][id] == 1
             for cut in range(1, len(token)) if token[:cut] in vocabulary and token[cut:] in vocabulary]
    merges = [(left, right) for _, left, right in sorted(pairs, key=lambda pair: (pair[0], vocabulary[pair[1]], vocabulary[pair[2]]))]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    parsed = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings()]
    decoded = [tokenizer.decode(ids, skip_special_tokens=True) for ids in parsed]
    save("byte-fallback.json", {"json": json.loads(tokenizer.to_str()), "parsed": parsed, "decoded": decoded})


def make_rainier(path):
    """The ids of a real tokenizer, which is not in this folder."""
    tokenizer = tokenizers.Tokenizer.from_file(path)
    parsed = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings()]
    save("rainier-ids.json", parsed)


def save(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=False)
    (HERE / name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    make_templates()
    make_byte_level()
    make_sentencepiece()
    make_byte_fallback()
    if len(sys.argv) > 1:
        make_rainier(sys.argv[1])
