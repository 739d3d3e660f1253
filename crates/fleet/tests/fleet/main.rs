//! A model in shards on several workers gives the tokens that it gives in one piece, whatever happens on the way.

mod admission;
mod approval;
mod chaos;
mod clocks;
mod frames;
mod hanging_machines;
mod harness;
mod hash_model;
mod kill_points;
mod many_losses;
mod planning;
mod pushing;
mod recheck;
mod registry;
mod revocation;
mod same_tokens;
mod scrub;
mod serving;
mod shards;
mod simulation;
mod slow_links;
mod slow_machines;
mod sockets;
mod standbys;
mod wire;
mod wrong_rows;
