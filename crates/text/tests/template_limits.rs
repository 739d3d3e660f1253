//! Templates made to exhaust time, stack or memory end in an error, and soon.

use std::time::{Duration, Instant};

use cascadia_text::{ChatTemplate, Clock, Conversation, TemplateLimits, TextError};
use proptest::prelude::*;
use serde_json::json;

/// Generous for a machine that runs other tests as well; in truth these take a few milliseconds.
const SOON: Duration = Duration::from_secs(60);

fn render(source: &str) -> Result<String, TextError> {
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]);
    ChatTemplate::new(source, TemplateLimits::default())?.render(&Conversation {
        messages: &messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        prefill: None,
        bos_token: Some("<s>"),
        eos_token: None,
        extra: None,
        clock: Clock::default(),
    })
}

/// Renders, insists on a quick end, and returns the error if there was one.
fn survive(name: &str, source: &str) -> Option<TextError> {
    let start = Instant::now();
    let result = render(source);
    assert!(start.elapsed() < SOON, "{name} took {:?}", start.elapsed());
    result.err()
}

fn assert_limited(name: &str, source: &str) {
    let error = survive(name, source).unwrap_or_else(|| panic!("{name} must fail"));
    let is_limit = matches!(error, TextError::TemplateLimit { .. } | TextError::TooLarge { .. });
    assert!(is_limit || error.to_string().contains("too many elements"), "{name}: {error}");
}

#[test]
fn deep_nesting_is_refused_before_parsing() {
    const DEEP: usize = 50_000;
    let wrapped =
        |open: &str, middle: &str, close: &str| format!("{}{middle}{}", open.repeat(DEEP), close.repeat(DEEP));
    let expression = |open: &str, close: &str| format!("{{{{ {} }}}}", wrapped(open, "1", close));
    let cases = [
        ("if", wrapped("{% if 1 %}", "x", "{% endif %}")),
        ("for", wrapped("{% for a in messages %}", "x", "{% endfor %}")),
        ("unclosed if", "{% if 1 %}".repeat(DEEP)),
        ("unclosed for", "{%- for a in b -%}".repeat(DEEP)),
        ("set block", wrapped("{% set a %}", "x", "{% endset %}")),
        ("filter block", wrapped("{% filter trim %}", "x", "{% endfilter %}")),
        ("with", wrapped("{% with %}", "x", "{% endwith %}")),
        ("macro", wrapped("{% macro m() %}", "x", "{% endmacro %}")),
        ("generation", wrapped("{% generation %}", "x", "{% endgeneration %}")),
        ("elif", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(DEEP))),
        ("parentheses", expression("(", ")")),
        ("lists", expression("[", "]")),
        ("maps", expression("{1:", "}")),
        ("calls", expression("range(", ")")),
        ("subscripts", expression("a[", "]")),
        ("not", expression("not ", "")),
        ("minus", expression("-", "")),
        ("attributes", format!("{{{{ a{} }}}}", ".b".repeat(DEEP))),
        ("methods with arguments", format!("{{{{ a{} }}}}", ".b(1, 1)".repeat(DEEP))),
        ("filters with arguments", format!("{{{{ a{} }}}}", "|replace('a', 'b')".repeat(DEEP))),
        ("tests with arguments", format!("{{{{ a{} }}}}", " is in([1, 2])".repeat(DEEP))),
        ("sum of lists", format!("{{{{ []{} }}}}", "+[1, 2]".repeat(DEEP))),
        ("items", format!("{{{{ a{} }}}}", "[0]".repeat(DEEP))),
        ("filters", format!("{{{{ 'a'{} }}}}", "|trim".repeat(DEEP))),
        ("tests", format!("{{{{ a{} }}}}", " is defined".repeat(DEEP))),
        ("conditions", format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(DEEP))),
        ("concatenation", format!("{{{{ a{} }}}}", " ~ a".repeat(DEEP))),
        ("sum", format!("{{{{ 1{} }}}}", "+1".repeat(DEEP))),
        ("product", format!("{{{{ 1{} }}}}", "*1".repeat(DEEP))),
        ("power", format!("{{{{ 1{} }}}}", "**1".repeat(DEEP))),
        ("and", format!("{{{{ 1{} }}}}", " and 1".repeat(DEEP))),
        ("comparisons", format!("{{{{ 1{} }}}}", " < 1".repeat(DEEP))),
        ("set targets", format!("{{% set {} = 1 %}}", wrapped("(", "a", ")"))),
        ("arguments", format!("{{{{ range({}) }}}}", "1,".repeat(100_000))),
        ("elements", format!("{{{{ [{}] }}}}", "1,".repeat(100_000))),
    ];
    for (name, source) in cases {
        assert_limited(name, &source);
    }
}

/// How quickly is shown by `cargo test -- --nocapture`; it should stay under 50 ms.
#[test]
fn a_deep_template_is_refused_at_once() {
    let source = "{% if 1 %}".repeat(50_000);
    let start = Instant::now();
    assert!(ChatTemplate::new(&source, TemplateLimits::default()).is_err());
    eprintln!("50,000 nested blocks refused in {:?}", start.elapsed());
}

#[test]
fn expressions_at_the_limits_still_work() {
    let chain = |link: &str| format!("{{{{ (1{}) is defined }}}}", link.repeat(240));
    for link in ["+1", " ~ 1", " and 1", " if 1 else 1", "|string", "*1", "-1", " or 0"] {
        assert_eq!(render(&chain(link)).unwrap(), "True", "{link}");
    }
    let nested = format!("{}x{}", "{% if 1 %}".repeat(100), "{% endif %}".repeat(100));
    assert_eq!(render(&nested).unwrap(), "x");
    let brackets = format!("{{{{ {}1{} }}}}", "(".repeat(70), ")".repeat(70));
    assert_eq!(render(&brackets).unwrap(), "1");
    let long_text = "words and 'quotes' {braces} % signs ".repeat(2_000);
    assert_eq!(render(&long_text).unwrap(), long_text);
}

#[test]
fn endless_work_runs_out_of_instructions() {
    let cases = [
        ("nested loops", "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
        ("recursive macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
        ("mutual macros", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
        ("recursive loop", "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
        ("recursive block", "{% block a %}{{ self.a() }}{% endblock %}"),
        ("nested format width", "{{ '{:>{}}'.format(1, 999999999) }}"),
        (
            "caller",
            "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% call m() %}{{ m() }}{% endcall %}{% endcall %}",
        ),
    ];
    for (name, source) in cases {
        assert!(survive(name, source).is_some(), "{name} must fail");
    }
}

#[test]
fn values_cannot_grow_without_bound() {
    let doubled = |step: &str| {
        format!(
            "{{% set ns = namespace(x='ab') %}}{{% for i in range(60) %}}{{% set ns.x = {step} %}}{{% endfor %}}{{{{ ns.x|length }}}}"
        )
    };
    let cases = [
        ("repeat", "{{ 'x' * 1000000000 }}".to_owned()),
        ("repeat a constant twice", "{{ 'x' * 90000000 ~ 'x' * 90000000 }}".to_owned()),
        ("many constants", "{% set a = 'x' * 90000000 %}".repeat(500)),
        ("repeat a list", "{{ ([1] * 90000000)|length }}".to_owned()),
        ("number times text", "{{ 900000000 * 'x' }}".to_owned()),
        ("concatenate", doubled("ns.x ~ ns.x")),
        ("add", doubled("ns.x + ns.x")),
        ("add lists", doubled("[ns.x] + [ns.x, ns.x]")),
        ("double a list", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}".into()),
        ("list of itself", doubled("[ns.x, ns.x]")),
        ("tuple of itself", doubled("(ns.x, ns.x)")),
        ("map of itself", doubled("{'a': ns.x, 'b': ns.x}")),
        ("dict of itself", doubled("dict(a=ns.x, b=ns.x)")),
        ("multiply", doubled("ns.x * 99")),
        ("join", doubled("[ns.x, ns.x]|join(ns.x)")),
        ("join method", doubled("ns.x.join([ns.x, ns.x])")),
        ("replace", doubled("ns.x|replace('a', ns.x)")),
        ("replace nothing", doubled("ns.x|replace('', ns.x)")),
        ("replace method", doubled("ns.x.replace('a', ns.x)")),
        ("format method", doubled("'{0}{0}{0}'.format(ns.x)")),
        ("format width", "{{ '{:>999999999}'.format(1) }}".into()),
        ("json", doubled("[ns.x, ns.x]|tojson")),
        ("json indent", "{{ [1]|tojson(indent=999999999) }}".into()),
        ("indent", "{{ 'a\\nb'|indent(999999999) }}".into()),
        ("capture", "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}".into()),
        ("range", "{{ range(1000000000)|list }}".into()),
        ("output", "{% for i in range(9000) %}{{ 'x' * 1000 }}{% endfor %}".into()),
        ("captured text", format!("{{% set a %}}{{% for i in range(9999) %}}{{% for j in range(9999) %}}{}{{% endfor %}}{{% endfor %}}{{% endset %}}", "text".repeat(200_000))),
        ("raw block", format!("{{% for i in range(9999) %}}{{% raw %}}{}{{% endraw %}}{{% endfor %}}", "{".repeat(500_000))),
        ("white space", format!("{{% for i in range(9999) %}}{}{{% endfor %}}", " ".repeat(500_000))),
        ("deep list", "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}".into()),
        ("namespace in itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".into()),
        ("circle through a list", "{% set ns = namespace() %}{% set a = [ns] %}{% set ns.x = a %}{{ a == [a] }}".into()),
        ("circles compared", "{% set a = namespace() %}{% set a.x = a %}{% set b = namespace() %}{% set b.x = b %}{{ a == b }}".into()),
        ("circles tested", "{% set a = namespace() %}{% set a.x = a %}{% set b = namespace() %}{% set b.x = b %}{{ a is eq(b) }}".into()),
        ("circle in a list", "{% set a = namespace() %}{% set a.x = a %}{{ a in [a] }}".into()),
        ("circle as JSON", "{% set a = namespace() %}{% set a.x = a %}{{ a|tojson }}".into()),
        ("circle as text", "{% set a = namespace() %}{% set a.x = a %}{{ a|string ~ a }}".into()),
        ("circle sorted", "{% set a = namespace() %}{% set a.x = a %}{{ [a, a]|sort }}".into()),
    ];
    for (name, source) in cases {
        assert_limited(name, &source);
    }
}

#[test]
fn slow_operations_on_long_texts_are_paid_for() {
    let long = "{% set x = 'ab' * 400000 %}";
    for step in [
        "x[0]",
        "x[:9]",
        "x|length",
        "x|upper",
        "x.strip()",
        "x.find('c')",
        "'c' in x",
        "x|list|length",
        "x.split('a')|length",
        "x == x ~ ''",
        "x|trim|length",
    ] {
        let source = format!("{long}{{% for i in range(9999) %}}{{% set y = {step} %}}{{% endfor %}}");
        assert!(survive(step, &source).is_some(), "{step} must fail");
    }
}

#[test]
fn nothing_outside_the_template_can_be_reached() {
    for source in [
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% extends 'base' %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__['os'] }}",
        "{{ debug() }}",
        "{{ request.application.__globals__ }}",
        "{{ messages.append('x') }}",
        "{{ messages.__class__ }}{{ messages.__class__.x }}",
        "{{ 'operator ~'(1, 2) }}",
    ] {
        let rendered = render(source);
        assert!(rendered.is_err(), "{source}: {rendered:?}");
    }
}

/// Pieces from which templates that sometimes parse can be put together.
const FRAGMENTS: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{# ",
    " #}",
    "if ",
    "endif",
    "for m in messages",
    "endfor",
    "set x = ",
    "set x",
    "endset",
    "macro f(a)",
    "endmacro",
    "f(1)",
    "elif 1",
    "else",
    "raw",
    "endraw",
    "generation",
    "endgeneration",
    "messages",
    "[0]",
    "[1:]",
    ".content",
    ".role",
    "x",
    "1",
    "2.5",
    "'a'",
    "\"b\"",
    "none",
    "true",
    "namespace(x=1)",
    "x.y",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "~",
    "+",
    "-",
    "*",
    "**",
    "/",
    "%",
    "==",
    "<",
    "in ",
    "not ",
    "is ",
    "defined",
    "|",
    "tojson",
    "trim",
    "join",
    "length",
    "replace('a', 'b')",
    ".split()",
    ".items()",
    "loop.index",
    "text",
    "\n",
    " ",
    "🙂",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_templates_never_panic(pieces in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..24)) {
        let _ = render(&pieces.concat());
        let _ = render(&format!("{{{{ {} }}}}", pieces.concat()));
    }

    #[test]
    fn plain_text_is_copied(
        words in prop::collection::vec(prop::sample::select(&["a", "{ ", "}} ", "%} ", "# ", "\n", " ", "🙂", "word", "{x"]), 0..400)
    ) {
        let text = words.concat();
        let rendered = render(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        // Jinja removes one line break at the end of a template.
        prop_assert_eq!(rendered, text.strip_suffix('\n').unwrap_or(&text));
    }
}
