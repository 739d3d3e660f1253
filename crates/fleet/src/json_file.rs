//! Small files of JSON that are there as a whole or as they were, also when the disk is full or the power goes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::FleetError;

/// Reads one, if it is there.
pub fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, FleetError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| FleetError::file(path, error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FleetError::io("read", path)(error)),
    }
}

/// Puts one in the place of what was there, in a folder that is made if need be; when this returns without an error it is on the disk.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FleetError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| FleetError::file(path, error.to_string()))?;
    text.push(b'\n');
    fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(FleetError::io("create a file in", folder))?;
    file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(FleetError::io("write", path))?;
    file.persist(path).map_err(|error| FleetError::io("write", path)(error.error))?;
    sync_folder(folder);
    Ok(())
}

/// Lets names of files be kept too when the power goes; where folders cannot be synced, the system does so itself.
pub(crate) fn sync_folder(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}
