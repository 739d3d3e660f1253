"""A conversation with a real model on the page, and another model of the same server."""
import program
from browser import until
from serving import Server

MODEL = "smollm2:135m"
LAST_ANSWER = ".message.assistant:last-child .body"


def server(path):
    """SmolLM2 and the embedded model behind one address."""
    return Server(program.EMBEDDED_MODEL, model=path, tenants=0)


def ask(page, question, answers):
    """Asks in the conversation that is open; the text of the answer, which is the so manieth."""
    page.click("#message")
    page.write(question)
    page.press("enter")
    until(lambda: page.count(".message.answering") == 0 and page.count(".message.assistant") == answers, "an answer", seconds=120)
    return page.text(LAST_ANSWER)


def talks_with_two_models(page, server, check):
    """A real model knows what it is asked, and remembers it; the next conversation is with the other model, which is a toy."""
    page.open(server.url + "/")
    page.run("localStorage.clear(); localStorage.setItem('cascadia.settings', JSON.stringify({temperature: 0, max_tokens: 60}))")
    page.open(server.url + "/?again")
    until(lambda: page.run("return model.options.length") == 2, "two models in the picker")
    real, toy = page.run("return [...model.options].map((option) => option.value)")
    answer = ask(page, "What is the chemical symbol for gold?", 1)
    check("is Au." in answer, f"{real} answers {answer!r}")
    answer = ask(page, "What is it used for?", 2)
    check("gold" in answer.lower(), f"{real} has forgotten what was asked: {answer!r}")
    loaded = lambda: page.run("return fetch('status').then((reply) => reply.json()).then(({models}) => models.map(({loaded}) => loaded))")
    check(loaded() == [True, False], f"{toy} is in memory before it is asked")
    page.press("n", held="alt")
    page.run("model.value = arguments[0]; model.dispatchEvent(new Event('change'))", toy)
    answer = ask(page, "What is the chemical symbol for gold?", 1)
    check(len(answer) > 20 and loaded() == [True, True], f"{toy} answers {answer!r}")
