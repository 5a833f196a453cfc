//! What the game in a simulated container does: read from the container's arguments, as a program would. Pure.
//!
//! ```text
//! --ready-after=2s      says Ready so long after its start; without it the game does not know of an SDK
//! --health=2s           how often it pings
//! --chatter=500ms       how often it sets the annotation `chatter` to the next number
//! --shutdown-after=1m   asks for its own end
//! --exit-after=1m       ends by itself
//! --exit-code=0         with this code
//! --linger=1s           goes on so long when it is asked to end
//! ```

use std::time::Duration;

/// Code of a program that was given arguments it does not know.
pub(super) const BAD_ARGUMENTS: i32 = 64;

/// What a game does, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) ready_after: Option<Duration>,
    pub(super) health: Duration,
    pub(super) chatter: Option<Duration>,
    pub(super) shutdown_after: Option<Duration>,
    pub(super) exit_after: Option<Duration>,
    pub(super) exit_code: i32,
    pub(super) linger: Duration,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            ready_after: None,
            health: Duration::from_secs(2),
            chatter: None,
            shutdown_after: None,
            exit_after: None,
            exit_code: 0,
            linger: Duration::ZERO,
        }
    }
}

impl Script {
    /// Reads arguments.
    ///
    /// # Errors
    /// The first that is not one of ours.
    pub(super) fn read(arguments: &[String]) -> Result<Self, String> {
        let mut script = Self::default();
        for argument in arguments {
            let wrong = || argument.clone();
            let (name, value) = argument.split_once('=').ok_or_else(wrong)?;
            let time = || duration(value).ok_or_else(wrong);
            match name {
                "--ready-after" => script.ready_after = Some(time()?),
                "--health" => script.health = time()?.max(Duration::from_millis(1)),
                "--chatter" => script.chatter = Some(time()?.max(Duration::from_millis(1))),
                "--shutdown-after" => script.shutdown_after = Some(time()?),
                "--exit-after" => script.exit_after = Some(time()?),
                "--exit-code" => script.exit_code = value.parse().map_err(|_| wrong())?,
                "--linger" => script.linger = time()?,
                _ => return Err(wrong()),
            }
        }
        Ok(script)
    }
}

/// What somebody wants of a running game: the value of [`ORDER`] on its pod, carried out whenever it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// End with this code.
    Exit(i32),
    /// Ask the SDK for the end.
    Shutdown,
    /// Say Ready again.
    Ready,
    /// No more pings.
    FallSilent,
    /// Kubelet throws the pod out.
    Evict,
}

/// The annotation that orders stand in.
pub(super) const ORDER: &str = "simulated.kubelet/order";

impl Order {
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "shutdown" => Some(Self::Shutdown),
            "ready" => Some(Self::Ready),
            "silence" => Some(Self::FallSilent),
            "evict" => Some(Self::Evict),
            other => other.strip_prefix("exit ")?.parse().ok().map(Self::Exit),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Script, String> {
        Script::read(&arguments.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_a_script() {
        let script = read(&["--ready-after=1500ms", "--exit-after=2m", "--exit-code=3"]).unwrap();
        assert_eq!(script.ready_after, Some(Duration::from_millis(1500)));
        assert_eq!((script.exit_after, script.exit_code), (Some(Duration::from_secs(120)), 3));
        assert_eq!(read(&[]), Ok(Script::default()));
    }

    #[test]
    fn what_is_no_argument_of_ours_is_named() {
        for wrong in ["--ready", "--ready-after=2", "--exit-code=x", "--reddy-after=2s", "sleep"] {
            assert_eq!(read(&["--health=1s", wrong]), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn orders() {
        assert_eq!(Order::read("exit 3"), Some(Order::Exit(3)));
        assert_eq!(Order::read("evict"), Some(Order::Evict));
        assert_eq!(Order::read("dance"), None);
    }
}
