//! Memory on machines with several memory nodes (NUMA).

use std::io;
use std::path::Path;

use crate::os::SystemFiles;

/// Spreads the memory that this thread, and those it starts later, use from now on over all memory nodes, page by page:
/// weights that are read from a file now, and KV caches. Returns how many nodes there are; with one there is nothing to
/// spread. Weights that the system has in its cache already stay where they are.
pub fn interleave_memory() -> io::Result<usize> {
    let nodes = SystemFiles::at(Path::new("/")).memory_nodes();
    if nodes.len() > 1 {
        cascadia_weights::interleave_memory(&nodes)?;
    }
    Ok(nodes.len().max(1))
}
