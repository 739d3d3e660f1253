"""The page with axe-core, which finds what people with a keyboard, a screen reader or weak eyes cannot use."""
import importlib.util
import pathlib

import page_chat
from browser import until

RUN = """return axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.map(({id, help, nodes}) =>
    `${id}: ${help}: ${nodes.slice(0, 3).map(({html}) => html.slice(0, 160)).join(' | ')}`))"""


def axe():
    """The script, out of a package that carries it."""
    package = importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]
    return (pathlib.Path(package) / "axe.min.js").read_text()


def can_be_used_by_all(page, address, check, show_messages):
    """No rule is broken: in a conversation, its menus and dialogs, on the dashboard, in both themes, on a phone."""
    script, found = axe(), []

    def look(where):
        page.run(script)
        found.extend(f"{where}: {problem}" for problem in page.run(RUN))

    page.open(address + "?access")
    until(lambda: "rainier" in page.text("#model"), "the name of the model")
    for theme in ["light", "dark"]:
        page.prefer(theme)
        show_messages(page, ("user", "Show me."), ("assistant", "<think>Well.</think>" + page_chat.FORMULAS))
        until(lambda: page.count(".katex") == 4, "the formulas")
        look(f"in a conversation ({theme})")
        page.press("s", held="alt")
        look(f"in the settings ({theme})")
        page.press("escape")
        page.run("location.hash = '#dashboard'")
        until(lambda: page.count(".latencies") == 1, "the dashboard")
        look(f"on the dashboard ({theme})")
        page.run("location.hash = '#chat'")
        until(lambda: page.count(".empty") == 1, "a new chat")
        look(f"in a new chat ({theme})")
    page.size(390, 844)
    look("on a phone")
    page.size(1280, 820)
    page.prefer("light")
    check(found == [], "axe-core finds:\n  " + "\n  ".join(found))
