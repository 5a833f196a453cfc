//! Faults: which calls go wrong, and how.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rand::Rng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::world::{Milliseconds, RefusalKind};

/// What a rule looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts<'a> {
    /// `aws` or `imds`; a rule may name it instead of operations.
    pub(crate) listener: &'a str,
    /// The operation, or `Metadata` for a request of instance metadata.
    pub(crate) operation: &'a str,
    pub(crate) protocol: &'a str,
    pub(crate) group: Option<&'a str>,
    /// The game server's id and the instance's, or a path of the metadata.
    pub(crate) subjects: Vec<&'a str>,
    pub(crate) access_key: Option<&'a str>,
}

/// A rule: what it matches, and what then happens. What is not said matches everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    #[serde(default)]
    pub(crate) operations: Vec<String>,
    #[serde(default)]
    pub(crate) protocol: Option<String>,
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// A game server, an instance, or a path of the metadata.
    #[serde(default)]
    pub(crate) subject: Option<String>,
    #[serde(default)]
    pub(crate) access_key: Option<String>,
    /// From this matching call to that one; the first is 1.
    #[serde(default)]
    pub(crate) calls: Option<(u64, u64)>,
    /// Every so many matching calls.
    #[serde(default)]
    pub(crate) every: Option<u64>,
    #[serde(default)]
    pub(crate) probability: Option<f64>,
    /// Since the rule was made.
    #[serde(default)]
    pub(crate) from_ms: Milliseconds,
    #[serde(default)]
    pub(crate) until_ms: Option<Milliseconds>,
    #[serde(default)]
    pub(crate) most_hits: Option<u64>,
    pub(crate) effects: Vec<Effect>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Effect {
    /// A refusal, in the right protocol.
    Error {
        name: String,
        #[serde(default = "bad_request")]
        status: u16,
        #[serde(default)]
        message: String,
    },
    /// These bytes, as a load balancer would send them.
    Raw {
        status: u16,
        #[serde(default)]
        content_type: String,
        #[serde(default)]
        body: Body,
    },
    /// The right answer in the other protocol.
    WrongProtocol,
    Delay {
        delay: Delay,
    },
    /// No answer.
    Hang,
    /// The connection is closed.
    Reset {
        at: ResetAt,
    },
    /// The body ends after so many bytes of those that were announced.
    Truncate {
        after: usize,
    },
    /// The call is carried out, and answered with something else.
    ApplyThenFail {
        #[serde(default = "closed")]
        with: Box<Effect>,
    },
    /// The call is carried out twice.
    Duplicate,
    /// One side does not show what the other does.
    Lose {
        side: Side,
    },
    /// No permission, as after an IAM change.
    Unauthorized,
    /// Nobody is there at all.
    Blackout,
}

fn bad_request() -> u16 {
    400
}

fn closed() -> Box<Effect> {
    Box::new(Effect::Reset { at: ResetAt::Before })
}

/// The bytes of a raw answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Body {
    Text(String),
    Bytes(Vec<u8>),
}

impl Default for Body {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Body {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// How long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Delay {
    FixedMs(u64),
    UniformMs(u64, u64),
    /// Median and spread: the latencies of a busy service.
    LogNormal {
        median_ms: f64,
        sigma: f64,
    },
}

impl Delay {
    pub(crate) fn draw(self, dice: &mut StdRng) -> Milliseconds {
        Milliseconds(match self {
            Self::FixedMs(delay) => delay,
            Self::UniformMs(least, most) => dice.random_range(least..=most.max(least)),
            Self::LogNormal { median_ms, sigma } => {
                // Box and Muller's way to a normal number.
                let (first, second) = (1.0 - dice.random::<f64>(), dice.random::<f64>());
                let normal = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
                // Longer than any client waits is long enough.
                (median_ms * (sigma * normal).exp()).clamp(0.0, 3_600_000.0) as u64
            }
        })
    }
}

/// When a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResetAt {
    Before,
    DuringHeaders,
    AfterHeaders,
}

/// Which side loses a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    Describe,
    Metadata,
}

/// The refusal for want of a permission.
pub(crate) fn unauthorized() -> Effect {
    Effect::Error {
        name: RefusalKind::AccessDenied.name().to_owned(),
        status: 400,
        message: "not authorized to perform this operation".to_owned(),
    }
}

#[derive(Debug)]
struct Armed {
    rule: Rule,
    since: Timestamp,
    matched: u64,
    hits: u64,
}

/// The rules that are in force.
#[derive(Debug, Default)]
pub(crate) struct FaultBook {
    rules: BTreeMap<String, Armed>,
}

/// What struck a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Strike {
    pub(crate) rules: Vec<String>,
    pub(crate) effects: Vec<Effect>,
}

impl FaultBook {
    pub(crate) fn put(&mut self, name: String, rule: Rule, now: Timestamp) {
        self.rules.insert(name, Armed { rule, since: now, matched: 0, hits: 0 });
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.rules.remove(name).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// How often each rule has struck.
    pub(crate) fn hits(&self) -> BTreeMap<&str, u64> {
        self.rules.iter().map(|(name, armed)| (name.as_str(), armed.hits)).collect()
    }

    /// Whether nobody is to be found behind a listener.
    pub(crate) fn blacks_out(&self, listener: &str, now: Timestamp) -> bool {
        self.rules.values().any(|armed| {
            armed.rule.effects.contains(&Effect::Blackout)
                && armed.is_in_time(now)
                && armed.rule.operations.iter().any(|one| one == listener)
        })
    }

    /// What happens to a call, by all rules that match it, in the order of their names.
    pub(crate) fn strike(&mut self, facts: &Facts<'_>, now: Timestamp, dice: &mut StdRng) -> Strike {
        let mut strike = Strike::default();
        for (name, armed) in &mut self.rules {
            if armed.hit_by(facts, now, dice) {
                strike.rules.push(name.clone());
                strike.effects.extend(armed.rule.effects.iter().cloned());
            }
        }
        strike
    }
}

impl Armed {
    fn is_in_time(&self, now: Timestamp) -> bool {
        now >= self.since + self.rule.from_ms.duration()
            && self.rule.until_ms.is_none_or(|until| now < self.since + until.duration())
    }

    fn hit_by(&mut self, facts: &Facts<'_>, now: Timestamp, dice: &mut StdRng) -> bool {
        let rule = &self.rule;
        let same = |wanted: &Option<String>, given: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == given)
        };
        let matches = self.is_in_time(now)
            && (rule.operations.is_empty()
                || rule.operations.iter().any(|one| one == facts.operation || one == facts.listener))
            && same(&rule.protocol, Some(facts.protocol))
            && same(&rule.group, facts.group)
            && rule.subject.as_deref().is_none_or(|wanted| facts.subjects.contains(&wanted))
            && same(&rule.access_key, facts.access_key);
        if !matches {
            return false;
        }
        self.matched += 1;
        let hits = rule.calls.is_none_or(|(first, last)| (first..=last).contains(&self.matched))
            && rule.every.is_none_or(|every| self.matched.is_multiple_of(every.max(1)))
            && rule.most_hits.is_none_or(|most| self.hits < most)
            && rule.probability.is_none_or(|probability| dice.random_bool(probability.clamp(0.0, 1.0)));
        self.hits += u64::from(hits);
        hits
    }
}

#[cfg(test)]
mod tests;
