//! Loops that the x86-64 instruction sets share, as macros: each set compiles them with registers of its own.

pub(crate) mod block256;
pub(crate) mod codes256;
pub(crate) mod codes32;
pub(crate) mod dots;
pub(crate) mod elementwise;
pub(crate) mod four_blocks;
pub(crate) mod four_blocks_loop;
