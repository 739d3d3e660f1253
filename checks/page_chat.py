"""What the page does with conversations: versions, files, search, import, formulas, colours, and a server that is killed."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile

import program
from browser import free_port, until

ANSWERING = ".message.answering"
LAST = ".message:last-child"
FORMULAS = r"""Inline $a^2 + b^2$ and \(\frac{1}{2}\), but $5 and $10 are prices, and \$x\$ is text.

$$
\int_0^1 x\,dx = \frac{1}{2}
$$

\[ \sum_{k=1}^n k = \frac{n(n+1)}{2} \]

Wrong: $\frac{$ and $\undefined{x}$.

A claim.[^1]

[^1]: Its source.

```python
def area(r):  # of a circle
    return 3.14 * r ** 2, "done"
```
"""


# The shortest file that has a page with a line of text.
PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj
4 0 obj<</Length 49>>stream
BT /F 12 Tf 10 50 Td (The keeper is Ada Wren.) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
"""


def new_chat(page, settings):
    page.run("localStorage.clear(); localStorage.setItem('cascadia.settings', JSON.stringify(arguments[0]))", settings)
    page.run("location.hash = '#chat/none'; setTimeout(() => location.hash = '#chat')")
    until(lambda: page.count(".empty") == 1, "a new chat")


def ask(page, text):
    page.click("#message")
    page.write(text)
    page.press("enter")
    return answered(page)


def answered(page):
    until(lambda: page.count(ANSWERING) == 0 and page.count(f"{LAST}.assistant") == 1, "an answer to end")
    return page.text(f"{LAST} .body")


def tool(page, message, label):
    """Presses a button below a message."""
    page.run("document.querySelectorAll('.message')[arguments[0]].querySelector(`[aria-label='${arguments[1]}']`).click()",
             message, label)


def versions(page, message):
    return page.run("return document.querySelectorAll('.message')[arguments[0]].querySelector('.tools .note')?.textContent ?? ''",
                    message)


def keeps_versions(page, check):
    """Retries and edits keep what was there, and lead back to it, also after a reload."""
    new_chat(page, {"seed": 3, "max_tokens": 24})
    first = ask(page, "Tell me of the sea.")
    ask(page, "And the ships?")
    tool(page, 1, "Edit this message")
    check(page.text("#editing-what") == "Editing the answer", "it does not say what is edited")
    page.run("message.value = ''")
    page.write("Salt water.")
    page.press("enter")
    until(lambda: page.text(f"{LAST} .body") == "Salt water.", "the edited answer")
    check(page.count(".message") == 2 and versions(page, 1) == "2 of 2", f"versions: {versions(page, 1)}")
    check("Edited" in page.text(f"{LAST} .foot"), "an edited answer does not say so")
    tool(page, 1, "Regenerate")
    check(answered(page) == first, "the same seed gave another answer")
    check(versions(page, 1) == "3 of 3", f"versions: {versions(page, 1)}")
    page.send("POST", "/refresh")
    until(lambda: page.count(".message") == 2, "the conversation after a reload")
    tool(page, 1, "Version before")
    until(lambda: page.text(f"{LAST} .body") == "Salt water.", "the second version")
    tool(page, 1, "Version before")
    until(lambda: page.count(".message") == 4, "what followed the first version")
    tool(page, 0, "Edit this message")
    page.write(" Briefly.")
    page.press("enter")
    answered(page)
    check(page.count(".message") == 2 and versions(page, 0) == "2 of 2", "an edited question is no version of its own")
    tool(page, 0, "Version before")
    until(lambda: page.count(".message") == 4 and versions(page, 1) == "1 of 3", "versions within a version")


def takes_files(page, check):
    """Files are counted, sent before the text, and those that are no text are refused."""
    new_chat(page, {"seed": 3, "max_tokens": 8})
    with tempfile.TemporaryDirectory() as folder:
        names = ("notes.txt", "picture.png", "long.txt", "letter.pdf", "damaged.pdf")
        notes, picture, long, letter, damaged = [pathlib.Path(folder) / name for name in names]
        letter.write_bytes(PDF)
        damaged.write_bytes(b"%PDF-1.4\nnothing")
        notes.write_text("The ship left at ```dawn```.\n")
        picture.write_bytes(b"\x89PNG\0\xff")
        long.write_text("word " * 20_000)
        for path in (notes, picture, long, letter, damaged):
            page.choose("#file-chooser", path)
        states = lambda: page.run("return [...document.querySelectorAll('#files .file-state')].map((node) => node.textContent)")
        until(lambda: len(states()) == 5 and "counting…" not in states(), "the files to be counted")
    check(states()[0].endswith(" tokens") and states()[1] == "this is no text", f"the files are {states()}")
    check(states()[3].endswith(" tokens") and states()[4] == "a damaged PDF", f"the PDFs are {states()}")
    check(states()[2].endswith("of which 4,096 fit"), f"a file that does not fit is {states()[2]!r}")
    page.run("""window.sent = []; window.realFetch = window.fetch;
        window.fetch = (path, options) => (sent.push(options?.body), realFetch(path, options));""")
    ask(page, "When?")
    sent = json.loads(page.run("return sent.find((body) => body?.includes('messages'))"))["messages"]
    files = "File “notes.txt”:\n````\nThe ship left at ```dawn```.\n````\n\nFile “letter.pdf”:\n```\nThe keeper is Ada Wren.\n```"
    check(sent == [{"role": "user", "content": f"{files}\n\nWhen?"}], f"sent: {sent}")
    check(page.text(".message.user .body") == "When?" and page.text(".message.user .file-name") == "notes.txt", "the message")
    tool(page, 0, "Edit this message")
    check(page.text("#files .file-name") == "notes.txt", "editing loses the files")
    page.press("escape")
    page.run("window.fetch = window.realFetch")


def searches_and_imports(page, check):
    """Conversations are found by what was said in them; exported ones come back, and others are refused."""
    new_chat(page, {"seed": 3, "max_tokens": 8})
    ask(page, "The lighthouse keeper")
    page.press("n", held="alt")
    ask(page, "Something else")
    titles = lambda: page.run("return [...document.querySelectorAll('.conversations li a')].map((link) => link.firstChild.textContent)")
    check(len(titles()) == 2, f"there are {titles()}")
    page.press("f", held="alt")
    page.write("lightHOUSE")
    until(lambda: titles() == ["The lighthouse keeper"], "the conversation that is searched for")
    page.write(" zebra")
    until(lambda: page.text(".conversations h2") == "Nothing found", "nothing to be found")
    page.run("search.value = ''; search.dispatchEvent(new Event('input'))")
    with tempfile.TemporaryDirectory() as folder:
        page.command("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
        page.click("#export-all")
        saved = pathlib.Path(folder) / "cascadia-conversations.json"
        until(saved.exists, "the exported file")
        page.run("localStorage.clear(); location.hash = '#chat/none'; setTimeout(() => location.hash = '#chat')")
        until(lambda: titles() == [], "no conversations")
        page.choose("#import-chooser", saved)
        until(lambda: len(titles()) == 2, "the imported conversations")
        page.choose("#import-chooser", saved)
        wrong = pathlib.Path(folder) / "wrong.json"
        wrong.write_text('{"id": "x", "title": 1, "messages": [{"role": "user", "content": null}]}')
        page.choose("#import-chooser", wrong)
        until(lambda: "wrong.json has no conversations" in page.text("#notices"), "a word about a wrong file")
    check(len(titles()) == 2, f"the same file again made {titles()}")
    page.run("document.getElementById('notice-import').remove()")


def draws_formulas(page, check, show_messages):
    """Formulas, notes and colours of code; what is no formula stays as it is."""
    show_messages(page, ("user", "Show me."), ("assistant", FORMULAS))
    until(lambda: page.count(".katex") == 4, "four formulas")
    said = page.text(".message.assistant .body")
    for expected in ["but $5 and $10 are prices, and $x$ is text", r"Wrong: \frac{ and", r"\undefined{x}"]:
        check(expected in said, f"{expected!r} is not in {said!r}")
    check(page.count(".math.display .katex-display") == 2, "formulas on lines of their own")
    check(page.text("annotation") == "a^2 + b^2", "screen readers do not get the formula")
    page.run("return document.fonts.ready.then(() => true)")
    fonts = page.run("return [...document.fonts].filter((font) => font.status === 'loaded').map((font) => font.family)")
    check("KaTeX_Main" in "".join(fonts), f"fonts: {fonts}")
    check(page.text(".message.assistant p sup") == "1" and page.text(".note-text").endswith("Its source."), "the note")
    kinds = page.run("return [...document.querySelectorAll('pre span')].map((node) => [node.className, node.textContent])")
    check(kinds == [["code-word", "def"], ["code-comment", "# of a circle"], ["code-word", "return"], ["code-number", "3.14"],
                    ["code-number", "2"], ["code-text", '"done"']], f"colours: {kinds}")


class MortalServer:
    """A server that can be killed, and started again at the same address."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        command = [program.BINARY, "serve", "--port", str(self.port), "--log-level", "error"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def goes_on_after_a_kill(page, server, check, picture=None):
    """An answer whose server is killed says so, and goes on with the same words when a new one is there."""
    until(lambda: answers(page, server), "the server to start")
    new_chat(page, {"seed": 11, "max_tokens": 3000})
    for _ in range(20):
        page.click("#message")
        page.write("Tell me a long story about a captain, his daughter, and the sea.")
        page.press("enter")
        until(lambda: len(page.text(f"{LAST}.assistant .body")) > 200, "an answer to begin")
        server.kill()
        until(lambda: page.count(".waiting:not([hidden])") == 1 or page.count(ANSWERING) == 0, "the page to see that it is gone")
        # On a busy machine all of it may have come before.
        if page.count(".waiting:not([hidden])") == 1:
            break
        server.start()
        until(lambda: reaches(page), "the server to start again")
        new_chat(page, {"seed": 11, "max_tokens": 3000})
    before = page.text(f"{LAST} .body")
    if picture:
        page.size(1280, 480, scale=1.25)
        page.prefer("light")
        page.screenshot(picture)
    server.start()
    whole = answered(page)
    check(whole.startswith(before) and len(whole) > len(before), "the answer did not go on")
    check(page.count(".error") == 0 and page.count(".waiting:not([hidden])") == 0, "an error remains")
    tool(page, 1, "Regenerate")
    check(answered(page) == whole, "the resumed answer is another than one that was not disturbed")


def answers(page, server):
    try:
        page.open(server.url + "/")
    except RuntimeError:
        return False
    return "rainier" in page.text("#model")


def reaches(page):
    return page.run("return fetch('livez').then(({ok}) => ok, () => false)")
