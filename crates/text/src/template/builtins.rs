//! The filters, tests and functions that templates may use.

use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, functions};

use crate::template::clock::Clock;
use crate::template::meter::{ELEMENT_BYTES, Meter, limit_error, rejected_error};
use crate::template::operators::{self, NATIVE};
use crate::template::python::{JsonStyle, MeteredText};
use crate::template::text_methods;

const MAX_RANGE: usize = 10_000;
const MAX_INDENT: usize = 64;
/// Frames of loops, macros and blocks within each other.
const MAX_RECURSION: usize = 128;

/// Filters that look at one element or a number.
const SHALLOW_FILTERS: &[&str] =
    &["abs", "attr", "bool", "d", "default", "first", "float", "int", "last", "round", "safe"];
/// Filters that read a text, or count a list, and make at most a text of about the same length.
const TEXT_FILTERS: &[&str] = &["capitalize", "count", "e", "escape", "length", "lower", "title", "trim", "upper"];
/// Filters that read a list, an object or a text to the end and may make a list of it.
const SEQUENCE_FILTERS: &[&str] = &[
    "dictsort",
    "items",
    "list",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "sort",
    "sum",
    "unique",
];
/// Tests that compare values, and so read them to the end.
const COMPARING_TESTS: &[&str] =
    &["!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "in", "le", "lessthan", "lt", "ne"];
/// Tests that look at the kind of a value only.
const SHALLOW_TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "even",
    "false",
    "filter",
    "float",
    "integer",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// An environment with nothing but what chat templates need, all of it metered.
pub(crate) fn environment<'env>(meter: &Meter, clock: Clock, instructions: u64) -> Environment<'env> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(instructions));
    environment.set_recursion_limit(MAX_RECURSION);
    operators::register(&mut environment, meter);
    add_tests(&mut environment, meter);
    add_native_filters(&mut environment, meter);
    add_own_filters(&mut environment, meter);
    add_functions(&mut environment, meter, clock);
    let metered = meter.clone();
    environment.set_formatter(move |output, _, value| {
        let mut text = MeteredText::new(&metered);
        text.push_value(value)?;
        output.write_str(&text.text).map_err(Error::from)
    });
    let metered = meter.clone();
    environment.set_unknown_method_callback(move |state, value, method, arguments| {
        text_methods::call(&metered, state, &text_methods::Call { value, method, arguments })
    });
    environment
}

fn add_tests(environment: &mut Environment<'_>, meter: &Meter) {
    for &name in SHALLOW_TESTS {
        environment.add_test(name, move |values: Arguments| NATIVE.empty_state().perform_test(name, &plain(values)));
    }
    // For the template engine none is an empty list, for Python it is not.
    environment.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
    for &name in COMPARING_TESTS {
        let meter = meter.clone();
        environment.add_test(name, move |values: Arguments| {
            let values = plain(values);
            values.iter().try_for_each(|value| meter.read_deep(value))?;
            NATIVE.empty_state().perform_test(name, &values)
        });
    }
}

/// Filters of the template engine, preceded by a check of what they are about to read.
fn add_native_filters(environment: &mut Environment<'_>, meter: &Meter) {
    for &name in SHALLOW_FILTERS {
        environment.add_filter(name, move |values: Arguments| NATIVE.empty_state().apply_filter(name, &plain(values)));
    }
    for &name in TEXT_FILTERS {
        let meter = meter.clone();
        environment.add_filter(name, move |values: Arguments| {
            let values = plain(values);
            meter.read(values.first().and_then(Value::as_str).map_or(0, str::len))?;
            meter.made(NATIVE.empty_state().apply_filter(name, &values)?)
        });
    }
    for &name in SEQUENCE_FILTERS {
        let meter = meter.clone();
        environment.add_filter(name, move |values: Arguments| {
            let values = plain(values);
            values.iter().try_for_each(|value| meter.read_deep(value))?;
            let elements = values.first().and_then(|value| value.as_str().map(str::len).or_else(|| value.len()));
            meter.write(elements.unwrap_or(0).saturating_mul(ELEMENT_BYTES))?;
            NATIVE.empty_state().apply_filter(name, &values)
        });
    }
}

/// Positional arguments, with the keyword arguments as one value at the end.
type Arguments = Rest<ValueOrKwargs>;

fn plain(arguments: Arguments) -> Vec<Value> {
    arguments.0.into_iter().map(ValueOrKwargs::into_value).collect()
}

/// Filters whose result can be much longer than their input, or that Python defines differently.
fn add_own_filters(environment: &mut Environment<'_>, meter: &Meter) {
    let metered = meter.clone();
    environment.add_filter("string", move |value: Value| {
        let mut text = MeteredText::new(&metered);
        text.push_value(&value)?;
        Ok::<_, Error>(text.text)
    });
    let metered = meter.clone();
    environment.add_filter("replace", move |text: Value, old: Value, new: Value, count: Option<i64>| {
        text_methods::replace(&metered, [&text, &old, &new], count)
    });
    let metered = meter.clone();
    environment.add_filter("join", move |values: Value, separator: Option<Value>, options: Kwargs| {
        let attribute: Option<String> = options.get("attribute")?;
        options.assert_all_used()?;
        text_methods::join(&metered, &values, &separator.unwrap_or_else(|| "".into()), attribute.as_deref())
    });
    let metered = meter.clone();
    environment.add_filter("indent", move |values: Arguments| {
        let values = plain(values);
        let text = values.first().and_then(Value::as_str).unwrap_or_default();
        let named = |value: &Value| value.get_attr("width").ok().and_then(|width| width.as_usize());
        let widths = values.iter().skip(1).filter_map(|value| value.as_usize().or_else(|| named(value)));
        let width = widths.max().unwrap_or(4);
        if width > MAX_INDENT {
            return Err(limit_error(format!("indentation ({MAX_INDENT} columns)")));
        }
        metered.write(text.len() + (text.lines().count() + 1) * width)?;
        NATIVE.empty_state().apply_filter("indent", &values)
    });
    let metered = meter.clone();
    environment.add_filter("map", move |state: &mut State, values: Value, rest: Arguments| {
        map(&metered, state, &values, &plain(rest))
    });
    let metered = meter.clone();
    environment.add_filter("tojson", move |value: Value, indent: Option<Value>, options: Kwargs| {
        let style = json_style(indent, &options)?;
        let mut text = MeteredText::new(&metered);
        text.push_json(&value, &style)?;
        Ok::<_, Error>(text.text)
    });
}

fn add_functions(environment: &mut Environment<'_>, meter: &Meter, clock: Clock) {
    // The source scan writes this variable into products of constants.
    environment.add_global("one_", 1);
    environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(rejected_error(message.to_string()))
    });
    environment.add_function("strftime_now", move |format: &str| {
        clock.format(format).ok_or_else(|| {
            let reason = format!("strftime_now: the format `{format}` is not supported");
            Error::new(ErrorKind::InvalidOperation, reason)
        })
    });
    environment.add_function("range", |lower: isize, upper: Option<isize>, step: Option<isize>| {
        let values = functions::range(lower, upper, step)?;
        match values.len() {
            Some(length) if length <= MAX_RANGE => Ok(values),
            _ => Err(limit_error(format!("the length of a range ({MAX_RANGE})"))),
        }
    });
    let metered = meter.clone();
    environment.add_function("dict", move |value: Option<Value>, options: Kwargs| {
        value.iter().try_for_each(|value| metered.read_deep(value))?;
        let made = functions::dict(value, options)?;
        metered.read_deep(&made)?;
        metered.made(made)
    });
    let metered = meter.clone();
    environment.add_function("namespace", move |defaults: Option<ValueOrKwargs>| {
        let namespace = functions::namespace(defaults)?;
        metered.read_deep(&namespace)?;
        metered.remember_namespace(&namespace);
        metered.made(namespace)
    });
}

/// `map(attribute="name", default=…)`, or `map("filter", arguments…)`.
fn map(meter: &Meter, state: &mut State<'_, '_>, values: &Value, rest: &[Value]) -> Result<Value, Error> {
    let mut mapped = Vec::new();
    for value in values.try_iter()? {
        meter.write(ELEMENT_BYTES)?;
        let by_name = rest.first().and_then(Value::as_str);
        mapped.push(match by_name {
            Some(filter) => {
                let arguments: Vec<Value> = std::iter::once(value).chain(rest[1..].iter().cloned()).collect();
                state.apply_filter(filter, &arguments)?
            }
            None => {
                let options = rest.first().ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
                let attribute = options.get_attr("attribute")?;
                let found = value.get_item(&attribute)?;
                if found.is_undefined() { options.get_attr("default")? } else { found }
            }
        });
    }
    Ok(Value::from(mapped))
}

/// Reads the keyword arguments that Hugging Face gives to `tojson`.
fn json_style(indent: Option<Value>, options: &Kwargs) -> Result<JsonStyle, Error> {
    let indent = indent.or(options.get::<Option<Value>>("indent")?).filter(|value| !value.is_none());
    let indent = match indent.as_ref().map(|value| (value.as_usize(), value.as_str())) {
        None => None,
        Some((Some(width), _)) if width <= MAX_INDENT => Some(" ".repeat(width)),
        Some((_, Some(text))) if text.len() <= MAX_INDENT => Some(text.to_owned()),
        Some(_) => return Err(limit_error(format!("indentation ({MAX_INDENT} columns)"))),
    };
    let separators = options.get::<Option<Value>>("separators")?.filter(|value| !value.is_none());
    let (item_separator, key_separator) = match separators {
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    Ok(JsonStyle { indent, item_separator, key_separator, ensure_ascii, sort_keys })
}
