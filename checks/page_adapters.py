"""The model picker with adapters, and the dashboard while adapters use memory of the KV cache."""
import json
import pathlib
import tempfile

import gguf
import numpy as np
from safetensors.numpy import save_file

import program
from browser import until
from serving import Server

NAMES = ["harbour", "mountain", "river"]
RANK = 128
LAST_ANSWER = ".message.assistant:last-child .body"


class ServerWithAdapters(Server):
    """The embedded model with random adapters of its queries, one more than fit into the memory that they have to themselves."""

    def __init__(self):
        self.shown = tempfile.TemporaryDirectory()
        for seed, name in enumerate(NAMES):
            write(pathlib.Path(self.shown.name) / name, seed)
        super().__init__("--adapters", self.shown.name, "--adapter-memory", "2800K", "--parallel", 2, "--ctx", 1024, tenants=0)

    def __exit__(self, *ending):
        try:
            super().__exit__(*ending)
        finally:
            self.shown.cleanup()


def write(folder, seed):
    """A random adapter, as PEFT writes it."""
    chance, tensors = np.random.default_rng(seed), {}
    queries = (tensor for tensor in gguf.GGUFReader(program.EMBEDDED_MODEL).tensors if tensor.name.endswith("attn_q.weight"))
    for layer, tensor in enumerate(queries):
        columns, rows = (int(size) for size in tensor.shape)
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        for part, shape in (("lora_A", (RANK, columns)), ("lora_B", (rows, RANK))):
            tensors[f"{name}.{part}.weight"] = chance.normal(0, 0.1, shape).astype(np.float32)
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"], "bias": "none"}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "adapter_model.safetensors")


def ask(page, model):
    """Chooses a model, and asks it in a new conversation."""
    page.press("n", held="alt")
    page.run("model.value = arguments[0]; model.dispatchEvent(new Event('change'))", model)
    page.click("#message")
    page.write("Tell me of the sea.")
    page.press("enter")
    until(lambda: page.count(".message.answering") == 0 and page.count(".message.assistant") == 1, "an answer")
    return page.text(LAST_ANSWER)


def answers_with_adapters(page, server, check):
    """Adapters are a group of the model picker; the one that is chosen answers, and the dashboard shows where it lies."""
    page.open(server.url + "/")
    until(lambda: page.count("#model optgroup option") == len(NAMES), "the adapters in the picker")
    page.run("localStorage.setItem('cascadia.settings', JSON.stringify({temperature: 0, max_tokens: 40}))")
    page.open(server.url + "/?again")
    until(lambda: page.count("#model optgroup option") == len(NAMES), "the adapters in the picker")
    names = page.run("return [...model.options].map((option) => option.value)")
    base, *adapters = names
    check(adapters == [f"{base}:{name}" for name in NAMES], f"the picker has {names}")
    label = page.run("return model.querySelector('optgroup').label")
    check(label == f"Adapters of {base}", f"adapters are grouped as {label!r}")
    answers = {ask(page, name) for name in names}
    check(len(answers) == len(names), f"the base and its adapters answer alike: {answers}")
    status = page.run("return fetch('status').then((response) => response.json())")
    used = {adapter["name"]: adapter["requests"] for adapter in status["adapters"]["most_used"]}
    check(all(used.get(name, 0) >= 1 for name in NAMES), f"the server counts requests of adapters as {used}")
    page.press("b", held="alt")
    until(lambda: "pages lent" in page.text("section[aria-label='KV cache, lately']"), "the event that pages are lent")
    check("adapters needed memory" in page.text("section[aria-label='KV cache, lately']"), "the reason is not shown")
    pages = lambda name: int(page.text(f".legend li.{name} b").replace(",", ""))
    until(lambda: pages("lent") > 0, "pages of adapters in the pool")
    shown = page.run("return fetch('debug/kv').then((response) => response.json())")
    classes = [shown[name] for name in ("whole_sequences", "windows", "tails") if shown[name]]
    counted = sum(one[name] for one in classes for name in ("held", "cached", "lent", "free"))
    parts = {name: pages(name) for name in ("held", "cached", "lent", "free")}
    check(sum(parts.values()) == counted == sum(one["pages"] for one in classes), f"{parts} are not {counted} pages")
