//! Auto Scaling's lifecycle hook: while it waits, an instance that Auto Scaling ends stays for as long as its sessions need.
//!
//! Only the hook that a setting names is answered, since others may have hooks of their own; where none is named, nothing is
//! called. The keeper alone knows how the hook stands; everybody else reads a [`Holding`].

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

pub mod call;
pub mod client;
pub mod keeper;
pub mod machine;
pub mod metrics;
pub mod start;

pub use metrics::HookMetrics;

/// Longest name of a hook.
const LONGEST_NAME: usize = 255;

/// The name of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookName(String);

impl HookName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HookName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What is no name of a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a lifecycle hook: letters, digits, -, _ and / are, 255 at most")]
pub struct NoHookName(String);

impl FromStr for HookName {
    type Err = NoHookName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_/".contains(letter);
        if (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(is_allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NoHookName(text.to_owned()))
        }
    }
}

/// How the hook stands, as last known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The hook, where one is named.
    pub hook: Option<HookName>,
    /// The instance's Auto Scaling group, once it is known.
    pub group: Option<String>,
    /// How far it has come.
    pub stage: Stage,
    /// When Auto Scaling last took a heartbeat.
    pub last_beat: Option<Timestamp>,
    /// When Auto Scaling goes on unless another heartbeat comes, while it waits.
    pub expires_at: Option<Timestamp>,
    /// What is wrong, as a sentence without a full stop.
    pub problem: Option<String>,
}

/// How far a hook has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Auto Scaling does not end the instance.
    #[default]
    Idle,
    /// It does, and whether it waits is not known.
    Asked,
    /// It waits.
    Waits,
    /// It does not wait for this hook: there is none, or somebody has answered it.
    Passed,
    /// It was told to go on.
    Completed,
}

impl Stage {
    /// A short fixed word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Asked => "asked",
            Self::Waits => "waits",
            Self::Passed => "passed",
            Self::Completed => "completed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::HookName;

    #[test]
    fn a_name_is_what_auto_scaling_takes_for_one() {
        let longest = "a".repeat(255);
        for name in ["drain", "games/drain_2-b", &longest] {
            assert_eq!(name.parse::<HookName>().expect("a name").as_str(), name);
        }
        for text in ["", "a hook", "häken", &"a".repeat(256)] {
            assert!(text.parse::<HookName>().is_err(), "{text}");
        }
    }
}
