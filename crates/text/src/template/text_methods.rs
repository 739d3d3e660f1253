//! Python's methods of strings, dictionaries and lists.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, State};
use minijinja_contrib::pycompat;

use crate::template::meter::{ELEMENT_BYTES, Meter, limit_error};
use crate::template::python::MeteredText;

/// A field of `str.format` may be padded to fewer columns than this has digits for.
const MAX_FORMAT_DIGITS: usize = 3;

/// `value.method(arguments…)`.
pub(crate) struct Call<'a> {
    pub(crate) value: &'a Value,
    pub(crate) method: &'a str,
    pub(crate) arguments: &'a [Value],
}

/// Calls a method after checking how large its result can be.
pub(crate) fn call(meter: &Meter, state: &mut State<'_, '_>, call: &Call<'_>) -> Result<Value, Error> {
    let Call { value, method, arguments } = *call;
    if let Some(text) = value.as_str() {
        meter.read(text.len())?;
        match (method, arguments) {
            ("replace", [old, new, rest @ ..]) => {
                return replace(meter, [value, old, new], rest.first().and_then(Value::as_i64));
            }
            ("join", [values]) => return join(meter, values, value, None),
            ("format", _) => check_format(meter, text, arguments)?,
            ("split" | "splitlines", _) => {
                let separator = arguments.first().and_then(Value::as_str);
                let pieces = match separator {
                    Some(separator) if !separator.is_empty() => text.matches(separator).count(),
                    _ => text.chars().filter(|character| character.is_whitespace()).count(),
                };
                meter.write((pieces + 1).saturating_mul(ELEMENT_BYTES) + text.len())?;
            }
            _ => {}
        }
    } else if value.kind() == ValueKind::Seq {
        meter.read_deep(value)?;
    }
    meter.made(pycompat::unknown_method_callback(state, value, method, arguments)?)
}

/// `text.replace(old, new, count)`.
pub(crate) fn replace(meter: &Meter, operands: [&Value; 3], count: Option<i64>) -> Result<Value, Error> {
    let [text, old, new] = operands.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    meter.read(text.len())?;
    let found = text.matches(old.as_str()).count().min(most);
    meter.write(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::from(text.replacen(&old, &new, most)))
}

/// `separator.join(values)`, of one attribute of each value if one is named.
pub(crate) fn join(meter: &Meter, values: &Value, separator: &Value, attribute: Option<&str>) -> Result<Value, Error> {
    let mut text = MeteredText::new(meter);
    for (index, value) in values.try_iter()?.enumerate() {
        if index > 0 {
            text.push_value(separator)?;
        }
        match attribute {
            Some(name) => text.push_value(&value.get_attr(name)?)?,
            None => text.push_value(&value)?,
        }
    }
    Ok(Value::from(text.text))
}

/// Pays for the longest text that `str.format` can make of these arguments.
fn check_format(meter: &Meter, format: &str, arguments: &[Value]) -> Result<(), Error> {
    let digits = format.split(|character: char| !character.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if digits > MAX_FORMAT_DIGITS || format.contains(":{") {
        return Err(limit_error(format!("the width of a formatted field ({MAX_FORMAT_DIGITS} digits)")));
    }
    let mut all = MeteredText::new(meter);
    for argument in arguments {
        match Kwargs::try_from(argument.clone()) {
            Ok(named) => named.args().try_for_each(|name| all.push_value(&named.get(name)?))?,
            Err(_) => all.push_value(argument)?,
        }
    }
    let field_bytes = all.text.len().saturating_add(10_usize.pow(MAX_FORMAT_DIGITS as u32));
    meter.write(format.matches('{').count().saturating_mul(field_bytes))
}
