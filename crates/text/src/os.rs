//! What the operating system offers for threads that others should not wait for.

/// About a third of what a thread of usual priority gets where both want a processor.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Lowers the priority of this thread, where the system offers that for a thread alone.
pub(crate) fn lower_thread_priority() {
    // A refusal changes nothing but speed.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}
