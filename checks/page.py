#!/usr/bin/env python3
"""The web page does what it should, in Chromium, against the built program and its embedded model.

    .venv/bin/python checks/page.py [--screenshots] [--times]

With --screenshots it also makes the pictures in docs/ anew. With --times heavy texts have a limit in seconds, for a
machine that does nothing else. Without Chromium it says so and checks nothing.
"""
import json
import pathlib
import re
import sys
import tempfile
import time

import browser
import page_access
import page_adapters
import page_chat
import page_fleet
import page_markdown
import page_pictures
import page_real
import program
from browser import Browser, becomes, until
from serving import Server

ANSWERING = ".message.answering"
LAST_ANSWER = ".message.assistant:last-child .body"
LONG = "Tell me a long story about a captain, his daughter, and the sea."
CONVERSATION = {"id": "1-2-3", "title": "Kept", "created": 1, "updated": 1, "settings": {}}


def check(true, what):
    if not true:
        raise SystemExit(f"wrong: {what}")


def answered(page):
    until(lambda: page.count(ANSWERING) == 0 and page.count(".message.assistant") > 0, "an answer to end")
    return page.text(LAST_ANSWER)


def stopped(page):
    until(lambda: page.text(LAST_ANSWER) != "", "an answer to begin")
    try:
        page.click("#stop")
    except RuntimeError:
        # On a busy machine all of it may have come already, and there is nothing to click.
        check(page.count(ANSWERING) == 0, "an answer cannot be stopped")
    return answered(page)


def loads(page, address):
    """The page comes from the server alone and names the model and the place."""
    page.open(address)
    until(lambda: "rainier" in page.text("#model"), "the name of the model")
    place = lambda: re.sub(r"\s+", " ", page.text("#privacy"))
    until(lambda: place() == "Everything stays on this machine", "the place to be named")
    check(page.count(".example") == 4, "the empty state has no examples")
    check(page.run("return document.activeElement.id") == "message", "the message field has no focus")
    page.run("localStorage.setItem('cascadia.settings', JSON.stringify({seed: 7, max_tokens: 160}))")
    page.open(address + "?again")


def streams(page):
    """A message sent with the keyboard alone is answered piece by piece."""
    page.write("One line")
    page.press("enter", held="shift")
    page.write("and another")
    page.run("""window.lengths = new Set();
        new MutationObserver(() => lengths.add(document.querySelector(arguments[0])?.textContent.length ?? 0))
            .observe(document.getElementById('transcript'), {childList: true, subtree: true, characterData: true});
        """.replace("arguments[0]", json.dumps(LAST_ANSWER)))
    page.press("enter")
    first = answered(page)
    check(page.text(".message.user .body") == "One line\nand another", "shift and enter did not make a new line")
    check(len(first) > 20, f"the answer is {first!r}")
    # A fast machine, or a busy one, may draw a whole answer at once; not every time.
    for _ in range(40):
        if page.run("return lengths.size") > 2:
            break
        page.press("r", held="alt")
        answered(page)
    check(page.run("return lengths.size") > 2, "the answer did not come piece by piece")
    check(re.match(r"\d+ tokens · [\d.,]+ tokens/s", page.text(".note")), f"the note is {page.text('.note')!r}")
    check("of 4,096 tokens" in page.text("#context-use"), "the use of the context is not shown")
    said = page.text("#announcer").replace(" ", "")
    check(first.replace(" ", "")[-20:] in said, "the answer was not announced")


def retries_and_edits(page):
    """Versions are page_chat's; here the keys for the last ones."""
    first = page.text(LAST_ANSWER)
    page.press("r", held="alt")
    check(answered(page) == first and page.count(".message") == 2, "the same seed gave another answer, or two")
    page.click("#message")
    page.press("up")
    check(page.run("return message.value") == "One line\nand another", "up does not edit the last message")
    page.press("escape")
    check(page.run("return message.value") == "", "escape does not leave editing")
    page.press("up")
    page.write(" line")
    page.press("enter")
    answered(page)
    check(page.text(".message.user .body") == "One line\nand another line", "the edited message was not sent")
    check(page.count(".message") == 2, "editing added messages")


def stops(page):
    """Escape ends an answer here and on the server, and keeps what came."""
    page.press("s", held="alt")
    page.click("#setting-max_tokens")
    page.run("arguments[0].select()", page.run("return document.getElementById('setting-max_tokens')"))
    page.write("3000")
    page.press("escape")
    page.click("#message")
    page.write(LONG)
    page.press("enter")
    for _ in range(20):
        until(lambda: len(page.text(LAST_ANSWER)) > 80, "an answer to begin")
        page.press("escape")
        kept = answered(page)
        if "Stopped" in page.text(".message:last-child .note"):
            break
        # On a busy machine all of it may have come before.
        page.press("r", held="alt")
    check("Stopped" in page.text(".message:last-child .note"), "the answer was not stopped")
    check(len(kept) > 80, "what came before was not kept")
    until(lambda: status(page)["service"]["jobs_cancelled_total"] == 1, "the server to cancel the job")
    return kept


def status(page):
    return page.run("return fetch('status').then((response) => response.json())")


def keeps(page, kept):
    """A reload shows the same conversation, with its settings; it can be renamed, exported and deleted."""
    page.send("POST", "/refresh")
    until(lambda: page.count(".message") == 4, "the conversation after a reload")
    check(page.text(LAST_ANSWER) == kept, "another answer after a reload")
    page.click(".conversations li.current .icon-button")
    page.click("#menu button:nth-child(1)")
    page.write("Renamed")
    page.press("enter")
    until(lambda: page.text(".conversations li.current a") == "Renamed", "the new name")
    with tempfile.TemporaryDirectory() as folder:
        page.command("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
        page.click(".conversations li.current .icon-button")
        page.click("#menu button:nth-child(2)")
        path = pathlib.Path(folder) / "renamed.json"
        until(path.exists, "the exported file")
        saved = json.loads(path.read_text())
    check(saved["settings"]["max_tokens"] == 3000 and len(saved["messages"]) == 4, "the file is not complete")
    page.run("location.hash = '#chat'")
    until(lambda: page.count(".empty") == 1, "a new chat")
    page.click(".conversations li .icon-button")
    page.click("#menu button:nth-child(3)")
    page.click("#question-accept")
    until(lambda: page.count(".conversations li") == 0, "the conversation to go")


def shows_numbers(page):
    """The dashboard follows an answer."""
    page.click("#message")
    page.write(LONG)
    page.press("enter")
    until(lambda: page.text(LAST_ANSWER) != "", "an answer to begin")
    page.press("b", held="alt")
    speed = "section[aria-label='Tokens per second'] .big span"
    moves = lambda: float(page.text(speed).replace(",", "") or 0) > 0
    # On a busy machine the answer may end before the dashboard looks twice; it then sees what the next one has added.
    for _ in range(10):
        if becomes(moves, 10):
            break
        page.press("b", held="alt")
        until(lambda: page.count("#chat:not([hidden])") == 1, "the conversation")
        page.press("r", held="alt")
        answered(page)
        page.press("b", held="alt")
    check(moves(), "no tokens per second")
    check(page.text("section[aria-label=Requests] .big span") in ("0", "1"), "the running request is not counted")
    charts = [page.count(path) for path in ("path.line.generated", "path.line.running", "path.cell")]
    check(charts == [1, 1, 4], f"charts have {charts} parts")
    check("ms" in page.text(".latencies tbody tr:nth-child(3) td"), "no percentiles")
    check("%" in page.text(".stages"), "no stages")
    page.press("b", held="alt")
    until(lambda: page.count("#chat:not([hidden])") == 1, "the conversation")
    page.press("escape")
    answered(page)


def follows_the_theme(page):
    ground = lambda: page.run("return getComputedStyle(document.body).backgroundColor")
    page.prefer("light")
    light = ground()
    page.prefer("dark")
    dark = ground()
    page.click("#switch-theme")
    check(light != dark and ground() == light, f"system: {light}, {dark}; then light: {ground()}")
    page.press("t", held="alt")
    page.prefer("light")
    check(ground() == dark, "the dark theme is not dark")
    page.press("t", held="alt")
    check(page.run("return localStorage.getItem('cascadia.theme')") == "system", "the third theme is not the system's")


def show_messages(page, *messages):
    """Puts a conversation into the storage and shows it."""
    conversation = {**CONVERSATION, "messages": [{"role": role, "content": content} for role, content in messages]}
    page.run("localStorage.setItem('cascadia.conversation.1-2-3', arguments[0]); location.hash = '#chat'; "
             "setTimeout(() => location.hash = '#chat/1-2-3')", json.dumps(conversation))
    until(lambda: page.count(".message") == len(messages), "the messages")


def stays_inert(page):
    """Nothing that a model or a user writes becomes markup, runs, or is fetched."""
    for source in page_markdown.HOSTILE:
        show_messages(page, ("user", source), ("assistant", source))
        found = page.run(page_markdown.FIND_DANGER)
        check(found == [], f"{source!r} made {found}")
    check(page.run("return window.hacked === undefined"), "a script of a message ran")
    for source, expected in page_markdown.CASES:
        drawn = page.run("return import('./page/markdown.js').then(({ markdown }) => "
                         "markdown(arguments[0]).map((node) => node.outerHTML).join(''))", source)
        check(re.sub(page_markdown.LEFT_OUT, "", drawn) == expected, f"{source!r} was drawn as {drawn}")
    longest = (0.0, "")
    for source in page_markdown.HEAVY:
        begin = time.monotonic()
        page.run("return import('./page/markdown.js').then(({ markdown }) => markdown(arguments[0]).length)", source)
        longest = max(longest, (time.monotonic() - begin, source[:20]))
    print(f"  the heaviest text, {longest[1]!r}…, took {longest[0]:.1f} s", flush=True)
    check(longest[0] < 10 or "--times" not in sys.argv, "a heavy text takes too long")


def folds_thoughts(page):
    """What the server sends as reasoning is folded; an error within a stream is shown beside what came."""
    page.run("""window.realFetch = window.fetch;
        window.fetch = async (path, options) => {
            if (path !== 'v1/chat/completions') return realFetch(path, options);
            const delta = (delta) => `data: ${JSON.stringify({choices: [{delta}]})}\\n\\n`;
            const parts = [delta({reasoning_content: 'Let me see.'}), delta({content: '**Yes'}), delta({content: '**'}),
                'data: {"error": {"message": "The engine fell over."}}\\n\\n'].join('');
            const bytes = new TextEncoder().encode(parts);
            return new Response(new ReadableStream({ start(stream) {
                for (const part of [bytes.slice(0, 50), bytes.slice(50)]) stream.enqueue(part);
                stream.close();
            } }));
        };""")
    page.press("n", held="alt")
    page.write("Why?")
    page.press("enter")
    until(lambda: "The engine fell over." in page.text(".error"), "the error")
    check(page.text(LAST_ANSWER) == "Yes" and page.count(f"{LAST_ANSWER} strong") == 1, "the answer is not shown")
    check(page.text(".thoughts-body") == "Let me see.", "the thoughts are not shown")
    check(page.count(".thoughts[open]") == 0, "the thoughts are not folded")
    page.run("window.fetch = window.realFetch")


def says_when_full(page):
    page.press("n", held="alt")
    page.run("localStorage.setItem('cascadia.conversation.big', JSON.stringify({id: 'big', title: 'Big', updated: 1, "
             "settings: {}, messages: [{role: 'user', content: 'x'.repeat(4499000)}]}))")
    page.write("more " * 20)
    page.run("message.value += 'x'.repeat(1000)")
    page.press("enter")
    until(lambda: "storage is full" in page.text("#notices"), "a notice")
    stopped(page)
    page.run("localStorage.clear()")


def fits_a_phone(page, address):
    page.size(390, 844)
    page.open(address)
    wide = "| a | b |\n|---|---|\n| " + "x" * 200 + " | y |\n\n`" + "y" * 300 + "`"
    show_messages(page, ("user", "word " * 40), ("assistant", wide))
    wide = page.run("return [...document.querySelectorAll('body, .stage, .scroller, .message')]"
                    ".filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.className)")
    check(wide == [], f"wider than a phone: {wide}")
    page.click("#open-sidebar")
    until(lambda: page.run("return sidebar.getBoundingClientRect().left") == 0, "the sidebar")
    page.press("escape")
    page.size(1280, 820)


def asks_for_a_key(page, address, key):
    """Whoever does not give a key is not asked again and again; a wrong one is told from a right one."""
    page.open(address + "?keys#dashboard")
    until(lambda: page.count("#question[open]") == 1, "the question for a key")
    page.press("escape")
    until(lambda: "needs a key" in page.text("#dashboard .notice"), "the dashboard to say what it lacks")
    time.sleep(1.2)
    check(page.count("#question[open]") == 0, "the dashboard asked again by itself")
    page.click("#notices button")
    for entered, expected in [("wrong", "does not accept this key"), (key, None)]:
        until(lambda: page.count("#question[open]") == 1, "the question for a key")
        page.write(entered)
        page.press("enter")
        if expected:
            until(lambda: expected in page.text("#question-text"), "a second question")
    until(lambda: "rainier" in page.text("#model"), "the name of the model")
    check(page.run("return sessionStorage.getItem('cascadia.key')") == key, "the key is not kept for the tab")
    check(page.run("return !JSON.stringify(localStorage).includes(arguments[0])", key), "the key is kept for longer")
    page.press("b", held="alt")
    page.click("#message")
    page.write("Hello")
    page.press("enter")
    stopped(page)


def check_quiet(page, address, allowed=()):
    """No errors in the console, and no request to anywhere else."""
    errors = [line["message"] for line in page.log("browser") if line["level"] in ("SEVERE", "WARNING")]
    errors = [line for line in errors if not any(word in line for word in allowed)]
    check(errors == [], f"the console says {errors[:3]}")
    elsewhere = [url for url in page.requests() if not url.startswith((address, "data:", f"blob:{address}"))]
    check(elsewhere == [], f"requests to {elsewhere}")


def main():
    if not browser.is_there():
        print("SKIPPED: chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
        return
    begin = time.monotonic()
    with Browser() as page:
        page.size(1280, 820)

        def scene(function, *arguments, allowed=()):
            value = function(page, *arguments)
            check_quiet(page, server.url, allowed)
            print(f"  {function.__name__.replace('_', ' ')} ({time.monotonic() - begin:.1f} s)", flush=True)
            return value

        with Server(tenants=0) as server:
            address = server.url + "/"
            scene(loads, address)
            scene(streams)
            scene(retries_and_edits)
            scene(keeps, scene(stops))
            for function in [shows_numbers, follows_the_theme, stays_inert, folds_thoughts, says_when_full]:
                scene(function)
            for function in [page_chat.keeps_versions, page_chat.takes_files, page_chat.searches_and_imports]:
                scene(function, check)
            scene(page_chat.draws_formulas, check, show_messages)
            scene(page_access.can_be_used_by_all, address, check, show_messages)
            scene(fits_a_phone, address)
            if "--screenshots" in sys.argv:
                scene(page_pictures.make_formulas, show_messages)
                scene(page_pictures.make_dashboard, address)
        with page_chat.MortalServer() as server:
            picture = program.ROOT / "docs" / "page-resume.png" if "--screenshots" in sys.argv else None
            scene(page_chat.goes_on_after_a_kill, server, check, picture, allowed=["net::ERR_"])
        with Server(tenants=1) as server:
            scene(asks_for_a_key, server.url + "/", server.keys[0], allowed=["401"])
        if real := program.stored_model(page_real.MODEL):
            with page_real.server(real) as server:
                scene(page_real.talks_with_two_models, server, check)
                if "--screenshots" in sys.argv:
                    scene(page_pictures.make_chat, server.url + "/")
        with page_adapters.ServerWithAdapters() as server:
            scene(page_adapters.answers_with_adapters, server, check)
        with page_fleet.Fleet() as fleet:
            server = fleet.server
            scene(page_fleet.shows_a_fleet, fleet, check)
            if "--screenshots" in sys.argv:
                scene(page_pictures.make_fleet, fleet)


if __name__ == "__main__":
    main()
