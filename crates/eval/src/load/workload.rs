//! What is asked: requests of mixed sizes from clients that behave differently, each a function of the seed and its number.

use std::fmt;
use std::str::FromStr;

use crate::random::Random;

/// Common words, most of them one token in most vocabularies.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "that", "he", "was", "it", "his", "is", "with", "as", "for", "had", "you", "not",
    "be", "her", "on", "at", "by", "which", "have", "or", "from", "this", "him", "but", "all", "she", "they", "were",
    "my", "are", "me", "one", "their", "so", "an", "said", "them", "we", "who", "would", "been", "will", "no", "when",
    "there", "if", "more", "out", "up", "into", "do", "any", "your", "what", "has", "man", "could", "other", "than",
];

/// A range of sizes, both ends included, sampled so that every doubling is equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest.
    pub least: u32,
    /// The largest.
    pub most: u32,
}

/// A kind of load. A request is the same whenever and by whomever it is sent.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Same seed, same requests.
    pub seed: u64,
    /// Words of a prompt of its own, about as many tokens.
    pub prompt: Sizes,
    /// Tokens asked for.
    pub answer: Sizes,
    /// Words that all prompts begin with.
    pub shared_prefix: u32,
    /// Part of the requests whose client leaves early.
    pub cancel: f64,
    /// Part of the requests whose client reads slowly.
    pub slow: f64,
    /// Temperatures, each as often as the others.
    pub temperatures: Vec<f64>,
    /// Who sends.
    pub tenants: usize,
    /// How many times as much the first tenant sends as each of the others.
    pub greed: u32,
}

/// How a client behaves while it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It reads what comes.
    Patient,
    /// It leaves after this many tokens; after none, while it still waits.
    Leaves {
        /// Tokens it reads.
        after: u32,
    },
    /// It reads a kibibyte per second.
    Slow,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its place in the workload.
    pub number: u64,
    /// The prompt.
    pub prompt: String,
    /// Words of the prompt.
    pub words: u32,
    /// The most tokens of the answer.
    pub answer: u32,
    /// The seed of its answer.
    pub seed: u32,
    /// The temperature of its answer.
    pub temperature: f64,
    /// How its client behaves.
    pub behaviour: Behaviour,
}

impl Workload {
    /// The request of this number.
    pub fn request(&self, number: u64) -> Request {
        let mut random = Random::new(self.seed, number);
        let (own, answer) = (self.prompt.sample(&mut random), self.answer.sample(&mut random));
        let behaviour = random.unit();
        let behaviour = match behaviour {
            _ if behaviour < self.cancel => Behaviour::Leaves { after: random.below(u64::from(answer)) as u32 },
            _ if behaviour < self.cancel + self.slow => Behaviour::Slow,
            _ => Behaviour::Patient,
        };
        let temperature = self.temperatures.get(random.below(self.temperatures.len() as u64) as usize);
        let temperature = temperature.copied().unwrap_or(0.0);
        let seed = random.next() as u32 >> 1;
        let mut prompt = words(&mut Random::new(self.seed, u64::MAX), self.shared_prefix);
        prompt.push_str(&words(&mut random, own));
        Request { number, prompt, words: self.shared_prefix.saturating_add(own), answer, seed, temperature, behaviour }
    }

    /// Who sends a request that comes by itself.
    pub fn tenant_of_request(&self, number: u64) -> usize {
        self.tenant_at(Random::new(self.seed ^ 1, number).unit())
    }

    /// Whose client this is, of so many.
    pub fn tenant_of_client(&self, client: usize, clients: usize) -> usize {
        self.tenant_at((client as f64 + 0.5) / clients.max(1) as f64)
    }

    /// The tenant at this part of all that is sent.
    fn tenant_at(&self, part: f64) -> usize {
        let greed = f64::from(self.greed.max(1));
        let whole = greed + self.tenants.max(1) as f64 - 1.0;
        let place = part * whole - greed;
        if place < 0.0 { 0 } else { (place as usize + 1).min(self.tenants.saturating_sub(1)) }
    }
}

/// Words, each followed by a space.
fn words(random: &mut Random, count: u32) -> String {
    let mut text = String::new();
    for _ in 0..count {
        text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
        text.push(' ');
    }
    text
}

impl Sizes {
    fn sample(&self, random: &mut Random) -> u32 {
        let (least, most) = (libm::log(f64::from(self.least)), libm::log(f64::from(self.most) + 1.0));
        let size = libm::exp(least + random.unit() * (most - least));
        (size as u32).clamp(self.least, self.most)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse().ok().filter(|&size: &u32| (1..=1 << 20).contains(&size));
        match (number(least), number(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Sizes { least, most }),
            _ => Err("give a size such as 128, or a range such as 16..2048".to_owned()),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}..{}", self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload {
            seed: 3,
            prompt: Sizes { least: 16, most: 2048 },
            answer: Sizes { least: 16, most: 512 },
            shared_prefix: 5,
            cancel: 0.1,
            slow: 0.1,
            temperatures: vec![0.0, 0.8],
            tenants: 4,
            greed: 10,
        }
    }

    #[test]
    fn sizes_are_ranges() {
        let check = |text: &str, expected: Option<(u32, u32)>| {
            let found = text.parse::<Sizes>().ok().map(|sizes| (sizes.least, sizes.most));
            assert_eq!(found, expected, "{text}");
        };
        check("16..2048", Some((16, 2048)));
        check("7", Some((7, 7)));
        for wrong in ["", "0", "9..2", "1..", "a..b", "1..9999999999", "-1..3"] {
            check(wrong, None);
        }
    }

    #[test]
    fn requests_are_mixed_and_repeat() {
        let workload = workload();
        let requests: Vec<Request> = (0..2000).map(|number| workload.request(number)).collect();
        assert_eq!(requests[77], workload.request(77));
        let part = |is: &dyn Fn(&Request) -> bool| requests.iter().filter(|request| is(request)).count() as f64 / 2e3;
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.04, "{found} for {expected}");
        near(part(&|request| matches!(request.behaviour, Behaviour::Leaves { .. })), 0.1);
        near(part(&|request| request.behaviour == Behaviour::Slow), 0.1);
        near(part(&|request| request.temperature == 0.8), 0.5);
        // The middle of a range whose doublings are equally likely is the root of its ends' product.
        near(part(&|request| request.words < 5 + 181), 0.5);
        assert!(requests.iter().all(|r| (21..=2053).contains(&r.words) && (16..=512).contains(&r.answer)));
        assert!(requests.iter().all(|r| r.prompt.split_whitespace().count() == r.words as usize));
        let begin = |request: &Request| request.prompt.split(' ').take(5).collect::<Vec<_>>().join(" ");
        assert_eq!(begin(&requests[0]), begin(&requests[1]));
        assert_ne!(requests[0].prompt, requests[1].prompt);
    }

    #[test]
    fn the_first_tenant_may_be_greedy() {
        let workload = workload();
        let mut clients = [0; 4];
        (0..26).for_each(|client| clients[workload.tenant_of_client(client, 26)] += 1);
        assert_eq!(clients, [20, 2, 2, 2]);
        let mut requests = [0; 4];
        (0..13_000).for_each(|number| requests[workload.tenant_of_request(number)] += 1);
        assert!((9_700..10_300).contains(&requests[0]) && (850..1150).contains(&requests[3]), "{requests:?}");
        let fair = Workload { greed: 1, tenants: 3, ..workload };
        assert_eq!([0, 1, 2].map(|client| fair.tenant_of_client(client, 3)), [0, 1, 2]);
    }
}
