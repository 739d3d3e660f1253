//! A model in shards on several workers gives the tokens that it gives in one piece, whatever happens on the way.

mod admission;
mod chaos;
mod frames;
mod hanging_machines;
mod harness;
mod hash_model;
mod kill_points;
mod many_losses;
mod planning;
mod pushing;
mod registry;
mod same_tokens;
mod serving;
mod shards;
mod simulation;
mod slow_machines;
mod sockets;
mod standbys;
mod wire;
mod wrong_rows;
