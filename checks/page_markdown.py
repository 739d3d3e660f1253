"""Texts for the page's markdown: hostile ones, heavy ones, and what plain ones become."""

HOSTILE = [
    "<img src=x onerror=\"window.hacked = 1\">",
    "<script>window.hacked = 1</script><iframe src=\"https://evil.example/\"></iframe>",
    "[a](javascript:window.hacked=1) [b](JaVaScRiPt:window.hacked=1) [c](data:text/html,<script>hacked=1</script>)",
    "[a](  javascript:alert`1`) [b](java\nscript:x) [c](\x01javascript:x) [d](vbscript:x) [e](//evil.example) [f](x:y)",
    "![picture](https://evil.example/pixel.png) ![x](javascript:x)",
    "<https://evil.example/\" onmouseover=\"window.hacked=1> <javascript:x>",
    "[a](https://evil.example/\"onclick=window.hacked=1) https://evil.example/'\"><script>window.hacked=1</script>",
    "```\"><script>window.hacked=1</script>\n</code></pre><img src=x onerror=window.hacked=1>\n```",
    "| <img src=x onerror=hacked=1> | b |\n|---|---|\n| [x](javascript:y) | <b>bold</b> |",
    "<style>body { display: none }</style><a href=\"https://evil.example\" style=\"position:fixed\">x</a>",
    "# <svg onload=window.hacked=1>\n\n> <form action=https://evil.example><input autofocus onfocus=hacked=1>\n- <b>x",
    r"$\href{javascript:window.hacked=1}{x}$ \(\htmlStyle{position:fixed}{y}\) $$\includegraphics{https://evil.example/x.png}$$",
    r"$\html@mathml{<img src=x onerror=window.hacked=1>}{y}$ $\text{<script>window.hacked=1</script>}$ [^<b>x</b>]",
    "```html\n<script>window.hacked=1</script><!-- <img src=x onerror=window.hacked=1> -->\n```",
    "\u202e<math><mi xlink:href=\"javascript:hacked=1\">x</mi></math>&lt;script&gt;&#x3C;script&#x3E;",
]

# Elements within messages that no text may make, and links that lead where none may.
FIND_DANGER = """
    const words = (text) => text.trim().split(/ +/);
    const elements = words('P BR EM STRONG DEL CODE PRE FIGURE FIGCAPTION SPAN BUTTON svg use A UL OL LI ' +
        'INPUT TABLE THEAD TBODY TR TH TD DIV BLOCKQUOTE H3 H4 H5 H6 HR SUP');
    const attributes = words('class href title target rel type aria-label aria-hidden tabindex role');
    const apart = (link) => link.rel === 'noopener noreferrer' && link.target === '_blank';
    const leads = (link) => /^https?:$/.test(link.protocol) && apart(link);
    // What KaTeX draws has elements and styles of its own, but nothing that leads, loads or runs.
    const ofFormula = (node) => /^(a|img|image|script|iframe|object|form|style)$/i.test(node.tagName) ||
        [...node.attributes].some(({ name }) => /^(on|href|src|xlink)/i.test(name));
    const wrong = (node) => node.closest('.katex') ? ofFormula(node) : !elements.includes(node.tagName) ||
        [...node.attributes].some(({ name }) => !attributes.includes(name)) ||
        (node.tagName === 'A' && !leads(node)) || (node.tagName === 'BUTTON' && node.ariaLabel !== 'Copy this code');
    return [...document.querySelectorAll('.message .body *')].filter(wrong).map((node) => node.outerHTML);
"""

# What is the same for all links, code blocks and tables is left out of the comparison.
LEFT_OUT = r' (title|target|rel|tabindex|role|aria-label)="[^"]*"|<button.*?</button>| class="(to-left|heading-\d)"'

CASES = [
    ("a *b* **c** ***d*** ~~e~~ `f`",
     "<p>a <em>b</em> <strong>c</strong> <strong><em>d</em></strong> <del>e</del> <code>f</code></p>"),
    ("2 * 3 * 4 and snake_case_name and __init__",
     "<p>2 * 3 * 4 and snake_case_name and <strong>init</strong></p>"),
    ("**a *b* c** *d **e***", "<p><strong>a <em>b</em> c</strong> <em>d <strong>e</strong></em></p>"),
    ("`` a ` b `` \\*c\\* **open", "<p><code>a ` b</code> *c* **open</p>"),
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# A #\n### B\n#no", "<h3>A</h3><h5>B</h5><p>#no</p>"),
    ("- a\n- b\n  - c\n\n    d\n- e", "<ul><li>a</li><li>b<ul><li>c<p>d</p></li></ul></li><li>e</li></ul>"),
    ("3. a\n4. b\n\n   c", '<ol start="3"><li>a</li><li>b<p>c</p></li></ol>'),
    ("1. a\n\n2. b\ntext", "<ol><li>a</li><li>b<br>text</li></ol>"),
    ("* a\n\t* b\n\t\t* c", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li></ul>"),
    ("- [x] a\n- [ ] b", '<ul><li class="task"><input type="checkbox" disabled="" checked="">a</li>'
     '<li class="task"><input type="checkbox" disabled="">b</li></ul>'),
    ("> a\n> > b\n\n---", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><hr>"),
    ("```rust\nfn a() {}\n\n    b\n```\nafter", '<figure class="code"><figcaption><span>rust</span></figcaption>'
     '<pre><code><span class="code-word">fn</span> a() {}\n\n    b</code></pre></figure><p>after</p>'),
    ("```js\nlet a = 'x'; // y <b>\n```", '<figure class="code"><figcaption><span>js</span></figcaption><pre><code>'
     '<span class="code-word">let</span> a = <span class="code-text">\'x\'</span>; '
     '<span class="code-comment">// y &lt;b&gt;</span></code></pre></figure>'),
    ("$5 and $10, $ b$, $$", "<p>$5 and $10, $ b$, $$</p>"),
    ("\\$x\\$ and $5", "<p>$x$ and $5</p>"),
    ("one[^a] two\n\n[^a]: its *source*\n  goes on", "<p>one<sup>a</sup> two</p>"
     '<p class="note-text"><sup>a</sup> its <em>source</em><br>goes on</p>'),
    ("~~~\n```\nopen", '<figure class="code"><figcaption><span>text</span></figcaption>'
     "<pre><code>```\nopen</code></pre></figure>"),
    ("| a | b |\n|---|--:|\n| `x|y` | 1 |\n| only |",
     '<div class="table"><table><thead><tr><th>a</th><th class="to-right">b</th></tr></thead>'
     '<tbody><tr><td><code>x|y</code></td><td class="to-right">1</td></tr><tr><td>only</td>'
     '<td class="to-right"></td></tr></tbody></table></div>'),
    ("[a *b*](https://x.example/c_(d)) <https://y.example> https://z.example/q?a=1.",
     '<p><a href="https://x.example/c_(d)">a <em>b</em></a> <a href="https://y.example/">https://y.example</a> '
     '<a href="https://z.example/q?a=1">https://z.example/q?a=1</a>.</p>'),
]

# Long texts that a careless reader would take forever for, or fall over.
HEAVY = ["**a " * 30000, "[" * 60000, "> " * 30000 + "a", "`" * 3 + "a `" * 30000, "- " * 30000, "*_" * 30000,
         "|" * 60000 + "\n|-|-|", " " * 60000 + "#", "(" * 60000, "[a](" * 20000, "- a\n" * 20000,
         "$a " * 30000, "\\(" * 30000, "$$\n" * 20000, "[^a]" * 20000, "```js\n" + "/*" * 30000, "```py\n" + "\"'" * 30000]
