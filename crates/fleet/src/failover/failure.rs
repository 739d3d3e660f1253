//! How a step failed that was sent to a machine, and who is at fault.

use cascadia_model::StepPlan;

use crate::wire::link::LinkError;

/// How an exchange failed.
pub(crate) enum Failure {
    /// The machine is of no more use.
    Lost(String),
    /// It is well, and cannot run this plan.
    Plan(String),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        Failure::Lost(error.to_string())
    }
}

/// Who is at fault for a step that was answered without rows that are numbers: the machine, unless another one had
/// trouble with the same sequences.
pub(crate) fn blame(plan: &StepPlan, node: &str, problem: String, before: &mut Option<(String, Vec<u64>)>) -> Failure {
    let sequences: Vec<u64> = plan.steps.iter().map(|step| step.id).collect();
    match before {
        Some((other, suspects)) if other != node && sequences.iter().all(|sequence| suspects.contains(sequence)) => {
            Failure::Plan(format!("neither {other} nor {node} could compute it: {problem}"))
        }
        _ => {
            *before = Some((node.to_owned(), sequences));
            Failure::Lost(problem)
        }
    }
}
