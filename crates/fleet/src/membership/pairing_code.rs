//! The short code that lets machines join: shown on the coordinator, typed on the others.

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::FleetError;

/// Letters and digits of which none looks like another. No vowels, so that no words come out.
const ALPHABET: &[u8; 20] = b"34679CDFHJKMNPQRTWXY";
/// Letters of a code: 34 bits, of which nobody can try more than a few.
const LETTERS: usize = 8;
/// Random bytes below this stand for letters evenly; others are drawn again.
const EVEN: u8 = 240;

/// A pairing code, such as `K7QF-3MXP`; wiped when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PairingCode(Zeroizing<[u8; LETTERS]>);

impl PairingCode {
    /// A new one.
    pub fn new() -> Result<PairingCode, FleetError> {
        let mut letters = Zeroizing::new([0; LETTERS]);
        for letter in letters.iter_mut() {
            *letter = ALPHABET[random_below_even()? as usize % ALPHABET.len()];
        }
        Ok(PairingCode(letters))
    }

    /// What both machines begin with.
    pub(crate) fn letters(&self) -> &[u8] {
        &self.0[..]
    }
}

/// A random byte that stands for a letter.
fn random_below_even() -> Result<u8, FleetError> {
    let mut byte = [0];
    loop {
        let filled = SystemRandom::new().fill(&mut byte);
        filled.map_err(|_| FleetError::pairing("the system gives no random numbers"))?;
        if byte[0] < EVEN {
            return Ok(byte[0]);
        }
    }
}

impl fmt::Display for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in self.0.iter().enumerate() {
            let dash = if at == LETTERS / 2 { "-" } else { "" };
            write!(f, "{dash}{}", char::from(*letter))?;
        }
        Ok(())
    }
}

/// Secrets are not written into logs.
impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode")
    }
}

impl FromStr for PairingCode {
    type Err = FleetError;

    /// In small letters too, with or without the dash.
    fn from_str(text: &str) -> Result<PairingCode, FleetError> {
        let typed = text.chars().filter(|letter| !letter.is_whitespace() && *letter != '-');
        let typed: Zeroizing<Vec<char>> = Zeroizing::new(typed.map(|letter| letter.to_ascii_uppercase()).collect());
        let known = |letter: char| ALPHABET.iter().copied().find(|known| char::from(*known) == letter);
        let mut letters = Zeroizing::new([0; LETTERS]);
        if typed.len() != LETTERS {
            let problem =
                format!("a pairing code has eight letters and digits, such as K7QF-3MXP; these are {}", typed.len());
            return Err(FleetError::mistyped(problem));
        }
        for (letter, typed) in letters.iter_mut().zip(typed.iter()) {
            let unknown = || FleetError::mistyped(format!("no pairing code has a `{typed}`; look at it again"));
            *letter = known(*typed).ok_or_else(unknown)?;
        }
        Ok(PairingCode(letters))
    }
}

impl TryFrom<String> for PairingCode {
    type Error = FleetError;

    fn try_from(text: String) -> Result<PairingCode, FleetError> {
        Zeroizing::new(text).parse()
    }
}

impl From<PairingCode> for String {
    fn from(code: PairingCode) -> String {
        code.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_is_short_and_no_two_are_alike() {
        let codes: std::collections::BTreeSet<String> =
            (0..100).map(|_| PairingCode::new().expect("random numbers").to_string()).collect();
        assert_eq!(codes.len(), 100);
        for code in codes {
            assert!(code.len() == 9 && code.as_bytes()[4] == b'-', "{code}");
            assert!(!code.contains(['O', '0', 'I', 'L', '1', 'B', '8', 'S', '5', 'Z', '2', 'U', 'V', 'G']), "{code}");
        }
    }

    #[test]
    fn it_may_be_typed_in_small_letters_and_without_the_dash() {
        let code: PairingCode = "K7QF-3MXP".parse().expect("a code");
        for typed in ["k7qf3mxp", "K7QF 3MXP\n", " k7QF-3mxp", "K7-QF-3M-XP"] {
            assert_eq!(typed.parse::<PairingCode>().ok(), Some(code.clone()), "{typed}");
        }
        for (wrong, why) in [
            ("K7QF-3MX", "these are 7"),
            ("K7QF-3MXPP", "these are 9"),
            ("", "these are 0"),
            ("K7QF-3MXO", "has a `O`"),
        ] {
            let error = wrong.parse::<PairingCode>().expect_err("it is mistyped").to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_the_same_way(text in ".{0,24}") {
            if let Ok(code) = text.parse::<PairingCode>() {
                prop_assert_eq!(code.to_string().parse::<PairingCode>().ok(), Some(code));
            }
        }
    }
}
