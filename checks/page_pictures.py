"""The pictures of the page in docs/, made while a few clients keep the server busy."""
import json
import threading
import time
import urllib.request

import program
from browser import until

QUESTION = "Why is the sky blue?"
PROMPTS = ["What is a Pod?", "Tell me about the sea.", "Explain how to configure a Deployment, step by step.",
           "Repeat this word for word: the ship lay at anchor, and the ship lay at rest, and the ship lay at anchor."]
BUSY_SECONDS = 75
FLEET_SECONDS = 3


FORMULAS = r"""The area under $f(x) = x^2$ from 0 to 1 is an integral:

$$
\int_0^1 x^2\,dx = \left[\frac{x^3}{3}\right]_0^1 = \frac{1}{3}
$$

A sum of $n$ thin rectangles comes close to it, and the closer the more there are:

```python
def area(n):
    width = 1 / n  # of a rectangle
    return sum((at * width) ** 2 * width for at in range(n))

print(area(1_000_000))  # 0.3333328...
```
"""


def make_formulas(page, show_messages):
    page.size(1280, 820, scale=1.25)
    page.prefer("light")
    page.run("localStorage.clear()")
    show_messages(page, ("user", "How large is the area under a parabola, and how would I compute it?"), ("assistant", FORMULAS))
    until(lambda: page.count(".katex") == 3, "the formulas")
    page.run("return document.fonts.ready.then(() => true)")
    page.screenshot(program.ROOT / "docs" / "page-formulas.png")
    page.size(390, 760, scale=2)
    page.prefer("dark")
    until(lambda: page.run("return sidebar.getBoundingClientRect().right") <= 0, "the sidebar to make way")
    page.screenshot(program.ROOT / "docs" / "page-phone.png")
    page.size(1280, 820)
    page.prefer("light")


def make_chat(page, address):
    page.size(1280, 820, scale=1.25)
    page.prefer("light")
    page.open(address)
    page.run("localStorage.clear(); localStorage.setItem('cascadia.settings', JSON.stringify("
             "{temperature: 0, max_tokens: 300}))")
    for title in ["A letter to the neighbours", "Packing for two days in the mountains"]:
        conversation = {"id": title, "title": title, "updated": int(time.time() * 1000) - 90_000_000, "settings": {},
                        "messages": [{"role": "user", "content": title}]}
        page.run("localStorage.setItem(arguments[0], arguments[1])", f"cascadia.conversation.{title}",
                 json.dumps(conversation))
    page.open(address + "?chat")
    until(lambda: "SmolLM2" in page.text("#model"), "the name of the model")
    page.write(QUESTION)
    page.press("enter")
    # While the answer comes.
    until(lambda: len(page.text(".message.assistant .body")) > 350, "the answer", seconds=60)
    page.screenshot(program.ROOT / "docs" / "page-chat.png")
    page.press("escape")


def make_dashboard(page, address):
    page.open(address)
    until(lambda: "rainier" in page.text("#model"), "the name of the model")
    page.size(1280, 1130, scale=1.25)
    page.prefer("dark")
    page.run("location.hash = '#dashboard'")
    clients = [threading.Thread(target=keep_asking, args=(address, number)) for number in range(6)]
    for client in clients:
        client.start()
    time.sleep(BUSY_SECONDS - 3)
    page.run("document.activeElement.blur()")
    page.screenshot(program.ROOT / "docs" / "page-dashboard.png")
    for client in clients:
        client.join()


def make_fleet(page, fleet):
    """After a machine was lost, while two clients are answered."""
    address = fleet.server.url + "/"
    clients = [threading.Thread(target=ask, args=(address, {"messages": [{"role": "user", "content": prompt}],
                                                            "max_tokens": 700})) for prompt in PROMPTS[1:3]]
    page.size(1280, 540, scale=1.25)
    page.prefer("light")
    for client in clients:
        client.start()
    time.sleep(FLEET_SECONDS)
    page.run("document.querySelector('section[aria-label=Fleet]').scrollIntoView({block: 'end'})")
    page.screenshot(program.ROOT / "docs" / "page-fleet.png")
    for client in clients:
        client.join()


def keep_asking(address, number):
    """Conversations of a few turns, one after the other, with a pause between them."""
    end = time.monotonic() + BUSY_SECONDS
    turn = number
    while time.monotonic() < end:
        messages = []
        for prompt in (PROMPTS[turn % len(PROMPTS)], "Go on."):
            messages.append({"role": "user", "content": prompt})
            body = {"messages": messages, "max_tokens": 40 + 30 * (turn % 4), "seed": turn}
            answer = ask(address, body)["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": answer})
        turn += 1
        time.sleep(1 + number)


def ask(address, body):
    request = urllib.request.Request(address + "v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)
