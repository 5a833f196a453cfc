//! What is said over the local socket of a lifecycle hook. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{age, length};
use crate::hook::Holding;

/// How a lifecycle hook stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookView {
    /// Its name.
    pub name: String,
    /// `idle`, `asked`, `waits`, `passed` or `completed`.
    pub stage: String,
    /// The instance's Auto Scaling group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// RFC 3339 time of the last heartbeat that Auto Scaling took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_beat: Option<String>,
    /// RFC 3339 time at which it goes on without another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl HookView {
    pub(super) fn new(holding: &Holding) -> Option<Self> {
        let hook = holding.hook.as_ref()?;
        Some(Self {
            name: hook.to_string(),
            stage: holding.stage.word().to_owned(),
            group: holding.group.clone(),
            last_beat: holding.last_beat.map(|time| time.to_string()),
            expires_at: holding.expires_at.map(|time| time.to_string()),
            problem: holding.problem.clone(),
        })
    }

    pub(super) fn line(&self, now: Timestamp) -> String {
        let group = self.group.as_ref().map(|group| format!(" of {group}")).unwrap_or_default();
        let beat = self.last_beat.as_deref();
        let beat = beat.map(|beat| format!(", last beat {} ago", age(Some(beat), now))).unwrap_or_default();
        let expires = self.expires_at.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let expires = expires.map(|time| length(time.duration_since(now).as_secs()));
        let expires = expires.map(|left| format!(", {left} left without another")).unwrap_or_default();
        let problem = self.problem.as_ref().map(|problem| format!(" ({problem})")).unwrap_or_default();
        format!("{}, {}{group}{beat}{expires}{problem}", self.stage, self.name)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::HookView;
    use crate::hook::{Holding, Stage};

    #[test]
    fn a_hook_says_how_long_it_waits_and_what_is_wrong() {
        let at = |second| Some(Timestamp::from_second(second).expect("a time"));
        let named = Holding { hook: "drain".parse().ok(), ..Holding::default() };
        let table = [
            (Holding::default(), None),
            (named.clone(), Some("idle, drain")),
            (
                Holding {
                    group: Some("pvp".into()),
                    stage: Stage::Waits,
                    last_beat: at(80),
                    expires_at: at(110),
                    ..named.clone()
                },
                Some("waits, drain of pvp, last beat 20s ago, 10s left without another"),
            ),
            (
                Holding { stage: Stage::Asked, problem: Some("because".into()), ..named },
                Some("asked, drain (because)"),
            ),
        ];
        for (holding, expected) in table {
            let line = HookView::new(&holding).map(|view| view.line(at(100).expect("a time")));
            assert_eq!(line.as_deref(), expected);
        }
    }
}
