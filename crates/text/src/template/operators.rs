//! The operators of the template language, which charge the meter for the values they make.

use std::sync::LazyLock;

use minijinja::value::{Rest, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, context};

use crate::template::guard::operator;
use crate::template::meter::{ELEMENT_BYTES, Meter};
use crate::template::python::MeteredText;

/// The template engine as it comes, for work on values that were found to be small enough.
pub(crate) static NATIVE: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);

type Operator = fn(&Meter, &[Value]) -> Result<Value, Error>;

/// Registers the functions that [`guard`](super::guard) calls instead of operators.
pub(crate) fn register(environment: &mut Environment<'_>, meter: &Meter) {
    let operators: [(&'static str, Operator); 15] = [
        (operator::CONCATENATE, concatenate),
        (operator::ADD, add),
        (operator::MULTIPLY, multiply),
        (operator::EQUAL, |meter, values| compare(meter, values, |left, right| left == right)),
        (operator::NOT_EQUAL, |meter, values| compare(meter, values, |left, right| left != right)),
        (operator::LESS, |meter, values| compare(meter, values, |left, right| left < right)),
        (operator::LESS_OR_EQUAL, |meter, values| compare(meter, values, |left, right| left <= right)),
        (operator::GREATER, |meter, values| compare(meter, values, |left, right| left > right)),
        (operator::GREATER_OR_EQUAL, |meter, values| compare(meter, values, |left, right| left >= right)),
        (operator::IN, contained),
        (operator::ITEM, item),
        (operator::SLICE, slice),
        (operator::LIST, list),
        (operator::TUPLE, tuple),
        (operator::MAP, map),
    ];
    for (name, apply) in operators {
        let meter = meter.clone();
        environment.add_function(name, move |values: Rest<Value>| apply(&meter, &values));
    }
}

fn concatenate(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    let mut text = MeteredText::new(meter);
    values.iter().try_for_each(|value| text.push_value(value))?;
    Ok(Value::from(text.text))
}

fn add(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    if let [left, right] = values {
        if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
            meter.write(left.len() + right.len())?;
            return Ok(Value::from([left, right].concat()));
        }
        if is_list(left) && is_list(right) {
            let elements = left.try_iter()?.chain(right.try_iter()?);
            return collect(meter, elements).map(Value::from);
        }
    }
    native("a + b", values)
}

fn multiply(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    let times = values.iter().filter_map(Value::as_usize).max().unwrap_or(0);
    let bytes = values.iter().map(|value| match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or(0).saturating_mul(ELEMENT_BYTES),
    });
    meter.write(bytes.max().unwrap_or(0).saturating_mul(times))?;
    native("a * b", values)
}

fn compare(meter: &Meter, values: &[Value], relation: fn(&Value, &Value) -> bool) -> Result<Value, Error> {
    let [left, right] = values else { return Err(Error::from(ErrorKind::MissingArgument)) };
    // Comparing a text with a text stops at the first difference, and both are bounded.
    if left.as_str().is_none() && right.as_str().is_none() {
        meter.read_deep(left)?;
        meter.read_deep(right)?;
    }
    Ok(Value::from(relation(left, right)))
}

fn contained(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    if let [element, container] = values {
        match container.kind() {
            // A key is found without reading the values.
            ValueKind::Map => meter.read_deep(element)?,
            _ => meter.read_deep(container)?,
        }
    }
    native("a in b", values)
}

fn item(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    let [container, key] = values else { return Err(Error::from(ErrorKind::MissingArgument)) };
    if let Some(text) = container.as_str() {
        meter.read(text.len())?;
    }
    container.get_item(key)
}

fn slice(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    let [container, bounds @ ..] = values else { return Err(Error::from(ErrorKind::MissingArgument)) };
    if let Some(text) = container.as_str() {
        meter.read(text.len())?;
        let characters: Vec<char> = text.chars().collect();
        let chosen = slice_indices(characters.len(), bounds)?.map(|index| characters[index]);
        return meter.made(Value::from(chosen.collect::<String>()));
    }
    if !is_list(container) {
        let reason = format!("a value of type {} cannot be sliced", container.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    let elements: Vec<Value> = container.try_iter()?.collect();
    meter.read(elements.len().saturating_mul(ELEMENT_BYTES))?;
    let chosen = slice_indices(elements.len(), bounds)?.map(|index| elements[index].clone()).collect::<Vec<_>>();
    meter.made(if container.is_tuple() { Value::from(Tuple::from(chosen)) } else { Value::from(chosen) })
}

/// The positions that Python's `[start:stop:step]` chooses of `length` elements.
fn slice_indices(length: usize, bounds: &[Value]) -> Result<impl Iterator<Item = usize> + use<>, Error> {
    let bound = |index: usize| match bounds.get(index).filter(|bound| !bound.is_none()) {
        Some(bound) => i64::try_from(bound.clone()).map(Some),
        None => Ok(None),
    };
    let step = bound(2)?.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "a slice cannot have a step of 0"));
    }
    let length = length as i64;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: i64| {
        let from_front = if bound < 0 { bound.saturating_add(length) } else { bound };
        from_front.clamp(lowest, highest)
    };
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (start, stop) = (bound(0)?.map_or(first, clamp), bound(1)?.map_or(last, clamp));
    let goes_on = move |position: &i64| if step > 0 { *position < stop } else { *position > stop };
    let positions = std::iter::successors(Some(start), move |position| position.checked_add(step)).take_while(goes_on);
    Ok(positions.filter_map(|position| usize::try_from(position).ok()))
}

fn list(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    collect(meter, values.iter().cloned()).map(Value::from)
}

fn tuple(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    collect(meter, values.iter().cloned()).map(|elements| Value::from(Tuple::from(elements)))
}

fn map(meter: &Meter, values: &[Value]) -> Result<Value, Error> {
    meter.write(values.len() * ELEMENT_BYTES)?;
    values.iter().try_for_each(|value| meter.read_deep(value))?;
    let pairs = values.as_chunks::<2>().0.iter();
    Ok(Value::from_pairs(pairs.map(|[key, value]| (key.clone(), value.clone()))))
}

/// A list of these values, which are checked as a whole: a list of lists can be exponentially large.
fn collect(meter: &Meter, elements: impl Iterator<Item = Value>) -> Result<Vec<Value>, Error> {
    elements
        .map(|element| {
            meter.write(ELEMENT_BYTES)?;
            meter.read_deep(&element)?;
            Ok(element)
        })
        .collect()
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Evaluates an expression over `a`, `b`, `c` and `d`.
fn native(expression: &'static str, values: &[Value]) -> Result<Value, Error> {
    let value = |index: usize| values.get(index).cloned().unwrap_or_default();
    let variables = context! { a => value(0), b => value(1), c => value(2), d => value(3) };
    // The engine's own error describes the operands; its line would be that of the tiny expression.
    NATIVE.compile_expression(expression)?.eval(variables).map_err(|error| {
        let detail = error.detail().unwrap_or("cannot be computed").to_owned();
        Error::new(error.kind(), detail)
    })
}
