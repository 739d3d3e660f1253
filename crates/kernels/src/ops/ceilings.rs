//! What the CPU could do at most: arithmetic in registers, and plain reading.
#![expect(unsafe_code, reason = "kernels compiled for an instruction set may only be called where the CPU has it")]

use crate::reading::ReadAhead;

/// Measured ceilings of one instruction set.
pub struct CeilingOps {
    pub(crate) peak_int8: unsafe fn(usize) -> u64,
    pub(crate) peak_float: unsafe fn(usize) -> u64,
    pub(crate) read: unsafe fn(&[u8], ReadAhead) -> u64,
}

impl CeilingOps {
    /// Multiplies and adds bytes in registers for `rounds` rounds; returns how many operations that were.
    pub(crate) fn peak_int8(&self, rounds: usize) -> u64 {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.peak_int8)(rounds) }
    }

    /// Multiplies and adds floats in registers for `rounds` rounds; returns how many operations that were.
    pub(crate) fn peak_float(&self, rounds: usize) -> u64 {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.peak_float)(rounds) }
    }

    /// Reads every byte and returns a sum that nobody needs.
    pub(crate) fn read(&self, bytes: &[u8], ahead: ReadAhead) -> u64 {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.read)(bytes, ahead) }
    }
}
