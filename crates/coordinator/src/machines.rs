//! Which machines of a fleet are meant.

use cascadia_fleet::{FleetError, FleetHome, HERE};

/// Machines of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machines {
    /// All members and this machine.
    All,
    /// These members; `here` is this machine.
    Named(Vec<String>),
}

impl Machines {
    /// From `all`, or from names with commas between them.
    pub fn parse(text: &str) -> Machines {
        match text {
            "all" => Machines::All,
            names => Machines::Named(names.split(',').map(str::to_owned).collect()),
        }
    }

    /// The names of the members that are meant, and whether this machine is meant too; an error if a name is not a
    /// member's.
    pub fn members(&self, home: &FleetHome) -> Result<(Vec<String>, bool), FleetError> {
        let members = home.member_names()?;
        let Machines::Named(names) = self else { return Ok((members, true)) };
        let (here, others): (Vec<_>, Vec<_>) = names.iter().cloned().partition(|name| name == HERE);
        match others.iter().find(|name| !members.contains(name)) {
            Some(stranger) => Err(FleetError::UnknownNode { node: stranger.clone(), members }),
            None => Ok((others, !here.is_empty())),
        }
    }
}
