//! The budget for intermediate values of one rendering.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, context};

use crate::TextError;

/// Lists and objects may be nested this deep; JSON that arrives here was parsed with a smaller limit.
pub(crate) const MAX_DEPTH: usize = 160;
/// What an element of a list costs.
pub(crate) const ELEMENT_BYTES: usize = 56;
/// What looking at one value inside another costs.
const VISIT_BYTES: usize = 32;
/// Reading is this much cheaper than writing.
const BYTES_READ_PER_BYTE_WRITTEN: usize = 4;

/// Counts the bytes that a template produces, since the template engine itself counts instructions only: doubling a
/// string forty times takes forty instructions and a terabyte.
#[derive(Clone)]
pub(crate) struct Meter {
    shared: Arc<Shared>,
}

struct Shared {
    limit: usize,
    left: AtomicU64,
    namespaces: Mutex<Vec<Value>>,
}

impl Meter {
    pub(crate) fn new(limit: usize) -> Meter {
        let left = AtomicU64::new(limit as u64);
        Meter { shared: Arc::new(Shared { limit, left, namespaces: Mutex::new(Vec::new()) }) }
    }

    /// Pays for `bytes` bytes about to be written.
    pub(crate) fn write(&self, bytes: usize) -> Result<(), Error> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        match self.shared.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(limit_error(format!("intermediate values ({} bytes)", self.shared.limit))),
        }
    }

    /// Pays for reading `bytes` bytes.
    pub(crate) fn read(&self, bytes: usize) -> Result<(), Error> {
        self.write(bytes / BYTES_READ_PER_BYTE_WRITTEN + 1)
    }

    /// Pays for reading all of a value, and refuses one that is nested too deep or contains itself.
    pub(crate) fn read_deep(&self, value: &Value) -> Result<(), Error> {
        self.read_nested(value, 0)
    }

    /// Pays for a value that was just made, not for what it refers to.
    pub(crate) fn made(&self, value: Value) -> Result<Value, Error> {
        let bytes = match value.as_str() {
            Some(text) => text.len(),
            None => value.len().unwrap_or(0).saturating_mul(ELEMENT_BYTES),
        };
        self.write(bytes)?;
        Ok(value)
    }

    fn read_nested(&self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(limit_error(format!("nesting of values ({MAX_DEPTH} levels)")));
        }
        self.write(VISIT_BYTES)?;
        match value.kind() {
            ValueKind::String => self.read(value.as_str().map_or(0, str::len)),
            ValueKind::Seq => value.try_iter()?.try_for_each(|item| self.read_nested(&item, depth + 1)),
            ValueKind::Map => value.try_iter()?.try_for_each(|key| {
                self.read_nested(&key, depth + 1)?;
                self.read_nested(&value.get_item(&key)?, depth + 1)
            }),
            ValueKind::Iterable => self.read(value.len().unwrap_or(0).saturating_mul(ELEMENT_BYTES)),
            _ => Ok(()),
        }
    }

    /// Remembers a namespace, the one kind of value that can be changed after it was made.
    pub(crate) fn remember_namespace(&self, namespace: &Value) {
        self.shared.namespaces.lock().unwrap_or_else(PoisonError::into_inner).push(namespace.clone());
    }

    /// Empties all namespaces: two which refer to each other would otherwise never be freed.
    pub(crate) fn unlink_namespaces(&self) {
        let namespaces = std::mem::take(&mut *self.shared.namespaces.lock().unwrap_or_else(PoisonError::into_inner));
        let environment = Environment::empty();
        for namespace in namespaces {
            for key in namespace.try_iter().into_iter().flatten() {
                // Only names that were assigned with `set` can close a circle, and those are identifiers; for any
                // other key the assignment does not parse, which does no harm.
                let assignment = format!("{{% set namespace.{key} = none %}}");
                let _ = environment.render_str(&assignment, context! { namespace => namespace.clone() });
            }
        }
    }
}

/// Marks an error of the template engine as one of ours.
#[derive(Debug)]
pub(crate) enum Marker {
    Limit(String),
    Rejected(String),
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Marker::Limit(limit) => write!(f, "exceeds the limit on {limit}"),
            Marker::Rejected(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Marker {}

pub(crate) fn limit_error(limit: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, "limit").with_source(Marker::Limit(limit))
}

/// The error of `raise_exception`.
pub(crate) fn rejected_error(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, "rejected").with_source(Marker::Rejected(message))
}

/// Our error for an error while rendering.
pub(crate) fn render_error(error: &Error) -> TextError {
    let line = error.line().unwrap_or(1);
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        match cause.downcast_ref::<Marker>() {
            Some(Marker::Limit(limit)) => return TextError::TemplateLimit { line, limit: limit.clone() },
            Some(Marker::Rejected(message)) => return TextError::TemplateRejected { line, message: message.clone() },
            None => next = cause.source(),
        }
    }
    match error.kind() {
        ErrorKind::OutOfFuel => TextError::TemplateLimit { line, limit: "instructions".into() },
        kind => {
            let reason = error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}"));
            TextError::TemplateRender { line, reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::functions;
    use minijinja::value::Object;

    #[derive(Debug)]
    struct Tracked {
        _alive: Arc<()>,
    }

    impl Object for Tracked {}

    #[test]
    fn circles_of_namespaces_are_freed() {
        let alive = Arc::new(());
        let meter = Meter::new(1 << 20);
        let namespaces = [functions::namespace(None).unwrap(), functions::namespace(None).unwrap()];
        namespaces.iter().for_each(|namespace| meter.remember_namespace(namespace));
        let [a, b] = namespaces;
        let circle = "{% set a.b = b %}{% set b.a = a %}{% set a.tracked = tracked %}";
        let tracked = Value::from_object(Tracked { _alive: alive.clone() });
        Environment::empty().render_str(circle, context! { a, b, tracked }).unwrap();
        assert_eq!(Arc::strong_count(&alive), 2);
        meter.unlink_namespaces();
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
