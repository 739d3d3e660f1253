//! Where a report goes: to the terminal as tables or JSON, and into files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cascadia_eval::EvalError;
use cascadia_eval::report::Report;
use serde::Serialize;

use crate::flags::ReportFlags;
use crate::output::{print, print_json};

impl ReportFlags {
    /// Refuses files that cannot be written, before anything is measured.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for path in self.files() {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let problem = match folder {
                _ if path.is_dir() => Some((io::ErrorKind::IsADirectory, "it is a folder")),
                Some(folder) if !folder.is_dir() => Some((io::ErrorKind::NotFound, "there is no such folder")),
                _ => None,
            };
            if let Some((kind, problem)) = problem {
                let (path, source) = (path.to_path_buf(), io::Error::new(kind, problem));
                return Err(EvalError::Write { path, source }.into());
            }
        }
        Ok(())
    }

    /// Files that will be written.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.out, &self.html].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Prints a report and writes the files that were asked for.
    pub(crate) fn deliver(&self, report: &Report) -> anyhow::Result<()> {
        self.deliver_as(report, &report.tables(), report)
    }

    /// The same with other data and another text; the page is that of the report.
    pub(crate) fn deliver_as(&self, data: &impl Serialize, text: &str, page: &Report) -> anyhow::Result<()> {
        let json = serde_json::to_value(data)?;
        if let Some(path) = &self.out {
            write(path, &format!("{json:#}\n"))?;
        }
        if let Some(path) = &self.html {
            write(path, &page.html())?;
        }
        if self.json {
            print_json(&json)?;
        } else {
            print(text)?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<(), EvalError> {
    fs::write(path, text).map_err(|source| EvalError::Write { path: path.to_path_buf(), source })
}
