//! On which memory nodes new memory lies.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "setting the memory policy has no safe interface"))]

use std::io;

/// Spreads all memory that this thread, and those it starts later, use from now on over some nodes, page by page.
#[cfg(target_os = "linux")]
pub fn interleave_memory(nodes: &[usize]) -> io::Result<()> {
    const WORD_BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask = [0 as libc::c_ulong; 1024 / WORD_BITS];
    for &node in nodes {
        let word = mask.get_mut(node / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % WORD_BITS);
    }
    // The system takes one less than it is told.
    let bits = mask.len() * WORD_BITS + 1;
    // SAFETY: the call reads as many bits as `mask` has, and keeps no pointer to them.
    let code = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_INTERLEAVE, mask.as_ptr(), bits) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Other systems decide for themselves.
#[cfg(not(target_os = "linux"))]
pub fn interleave_memory(_nodes: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
