//! A model in shards on several workers gives the tokens that it gives in one piece, whatever happens on the way.

mod faults;
mod frames;
mod harness;
mod pushing;
mod same_tokens;
mod shards;
mod sockets;
