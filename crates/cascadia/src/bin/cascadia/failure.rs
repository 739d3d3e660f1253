//! How a failed command ends: one readable paragraph and an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use cascadia::Error;
use cascadia_coordinator::CoordinatorError;
use cascadia_engine::EngineError;
use cascadia_eval::EvalError;
use cascadia_fleet::FleetError;
use cascadia_quantize::QuantizeError;

/// Wrong usage, as clap has it too.
const WRONG_USAGE: u8 = 2;
/// A worker that was removed from its fleet: starting it again is of no use.
const REVOKED: u8 = 3;

/// Options that make no sense, alone or together: what is wrong, and what to give instead.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUsage(pub(crate) String);

/// 0 when the command worked, 2 when it was asked for something that makes no sense, 3 when this worker was removed from
/// its fleet, 1 otherwise; the reason goes to standard error. A reader of standard output that leaves early (`| head`) is no failure.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    // Standard error may be closed as well; then there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: {}", paragraph(&error));
    if error.chain().any(is_wrong_usage) {
        ExitCode::from(WRONG_USAGE)
    } else if error.chain().any(is_revoked) {
        ExitCode::from(REVOKED)
    } else {
        ExitCode::FAILURE
    }
}

/// The chain of causes in one line, without saying anything twice.
fn paragraph(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn is_revoked(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(Error::Fleet(FleetError::Revoked { .. })))
}

/// Libraries pass on the errors of those below them, so each is looked for on every level.
fn is_wrong_usage(cause: &(dyn std::error::Error + 'static)) -> bool {
    let of_engine = |error: &EngineError| matches!(error, EngineError::Setting { .. });
    let of_quantize = |error: &QuantizeError| match error {
        QuantizeError::Setting { .. } => true,
        QuantizeError::Engine(error) => of_engine(error),
        _ => false,
    };
    let of_eval = |error: &EvalError| match error {
        EvalError::Option { .. } => true,
        EvalError::Engine(error) => of_engine(error),
        _ => false,
    };
    let of_coordinator = |error: &CoordinatorError| match error {
        CoordinatorError::Engine(error) => of_engine(error),
        CoordinatorError::Quantize(error) => of_quantize(error),
        _ => false,
    };
    let of_library = |error: &Error| match error {
        Error::Engine(error) => of_engine(error),
        Error::Quantize(error) => of_quantize(error),
        Error::Coordinator(error) => of_coordinator(error),
        _ => false,
    };
    cause.is::<WrongUsage>()
        || cause.downcast_ref().is_some_and(of_engine)
        || cause.downcast_ref().is_some_and(of_quantize)
        || cause.downcast_ref().is_some_and(of_eval)
        || cause.downcast_ref().is_some_and(of_coordinator)
        || cause.downcast_ref().is_some_and(of_library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_joined_once() {
        let inner = anyhow::anyhow!("no space left");
        let error = Err::<(), _>(inner).context("cannot write a.npy: no space left").unwrap_err();
        assert_eq!(paragraph(&error), "cannot write a.npy: no space left");
        let error = anyhow::anyhow!("it is empty").context("cannot open a.gguf");
        assert_eq!(paragraph(&error), "cannot open a.gguf: it is empty");
    }
}
