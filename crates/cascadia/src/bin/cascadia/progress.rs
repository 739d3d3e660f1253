//! Progress bars on standard error, seen only when it is a terminal.

use cascadia_hub::Progress as Transfer;
use cascadia_quantize::QuantizeProgress;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts to a total known when it starts.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar with a label; `total` may change with every `set`.
    pub(crate) fn new(label: &str) -> Progress {
        Progress::with_style(label, "{msg} [{bar:30}] {pos}/{len} {eta}")
    }

    /// A bar that counts bytes.
    pub(crate) fn bytes(label: &str) -> Progress {
        Progress::with_style(label, "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    fn with_style(label: &str, template: &str) -> Progress {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(label.to_owned());
        Progress { bar }
    }

    /// Shows another label.
    pub(crate) fn label(&self, label: &str) {
        self.bar.set_message(label.to_owned());
    }

    /// Shows how far a conversion is.
    pub(crate) fn show(&self, QuantizeProgress { tensor, done, total }: QuantizeProgress<'_>) {
        self.label(tensor);
        self.set(done, total);
    }

    /// Shows how far a file is.
    pub(crate) fn transfer(&self, Transfer { file, done, total }: Transfer<'_>) {
        self.label(file);
        self.set(done, total);
    }

    /// Shows how far the work is.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
