//! What is said over the local socket of the node's end and of its standing with FleetIQ. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{FORMAT_VERSION, age, length};
use crate::drain::Course;
use crate::fleetiq::{Offers, Standing};
use crate::game_server::Line;

/// What the node is for, and why it is not open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainView {
    /// `open`, `closed`, `draining` or `drained`.
    pub course: String,
    /// Who has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// RFC 3339 time by which the node will be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// RFC 3339 time from which on servers without a session leave a node that is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_go_at: Option<String>,
}

impl DrainView {
    pub(super) fn new(course: &Course) -> Self {
        let notice = course.notice();
        let let_go_at = match course {
            Course::Closed { let_go_at, .. } => Some(let_go_at.to_string()),
            Course::Open | Course::Spare { .. } | Course::Draining { .. } | Course::Drained { .. } => None,
        };
        Self {
            course: course.word().to_owned(),
            source: notice.map(|notice| notice.source.word().to_owned()),
            reason: notice.map(|notice| notice.reason.clone()),
            deadline: notice.and_then(|notice| notice.deadline).map(|deadline| deadline.to_string()),
            let_go_at,
        }
    }

    pub(super) fn line(&self, now: Timestamp) -> String {
        if self.reason.is_none() {
            return "none".to_owned();
        }
        let reason = self.reason.as_deref().unwrap_or_default();
        let until = |text: &Option<String>, what: &str| {
            let time = text.as_deref()?.parse::<Timestamp>().ok()?;
            Some(format!(", {what} in {} at {time}", length(time.duration_since(now).as_secs())))
        };
        let leave = until(&self.let_go_at, "servers without a session leave").unwrap_or_default();
        let gone = until(&self.deadline, "gone").unwrap_or_default();
        format!("{} ({reason}){leave}{gone}", self.course)
    }
}

/// The standing with FleetIQ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetIqView {
    /// Whether, and how, FleetIQ keeps the instance.
    pub protection: String,
    /// The instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Its game server group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// RFC 3339 time of the last sign of life that FleetIQ took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_beat: Option<String>,
    /// What is wrong, or why servers are not offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl FleetIqView {
    pub(super) fn new(standing: &Standing) -> Self {
        let withheld = match &standing.offers {
            Offers::Allowed => None,
            Offers::Withheld { why } => Some(why.clone()),
        };
        Self {
            protection: format!("{:?}", standing.protection),
            instance: standing.instance.clone(),
            group: standing.group.clone(),
            last_beat: standing.last_beat.map(|time| time.to_string()),
            problem: standing.problem.clone().or(withheld),
        }
    }

    pub(super) fn line(&self, now: Timestamp) -> String {
        let whose = match (&self.instance, &self.group) {
            (Some(instance), Some(group)) => format!(", {instance} in {group}"),
            (Some(one), None) | (None, Some(one)) => format!(", {one}"),
            (None, None) => String::new(),
        };
        let beat = self.last_beat.as_deref();
        let beat = beat.map(|beat| format!(", last beat {} ago", age(Some(beat), now))).unwrap_or_default();
        let problem = self.problem.as_ref().map(|problem| format!(" ({problem})")).unwrap_or_default();
        format!("{}{whose}{beat}{problem}", self.protection)
    }
}

/// Body of `POST /v1/drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainRequest {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// RFC 3339 time by which the node will be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Say what would happen, and do nothing.
    #[serde(default)]
    pub plan: bool,
}

/// Answer to `POST /v1/drain` and `POST /v1/undrain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainAnswer {
    /// Version of this format.
    pub version: u32,
    /// What the node is for now.
    pub drain: DrainView,
    /// What that means for its servers.
    pub plan: PlanView,
}

/// A session on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its server's namespace.
    pub namespace: String,
    /// Its server's name.
    pub name: String,
    /// Its server's state.
    pub state: String,
    /// RFC 3339 time since when.
    pub since: String,
    /// Whether it is ended before the deadline if its game does not end it.
    pub at_risk: bool,
}

/// What a drain means for the servers of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    /// Servers without a session, which leave at once.
    pub leave: Vec<String>,
    /// Sessions, which are waited for.
    pub sessions: Vec<Session>,
}

impl PlanView {
    pub(crate) fn new(servers: &[Line], deadline: Option<Timestamp>, ends_sessions: bool) -> Self {
        let (sessions, others): (Vec<&Line>, Vec<&Line>) =
            servers.iter().partition(|line| line.state.is_protected());
        let leave = others.into_iter().map(|line| format!("{}/{}", line.namespace, line.name)).collect();
        let session = |line: &Line| Session {
            namespace: line.namespace.clone(),
            name: line.name.clone(),
            state: line.state.to_string(),
            since: line.since.clone(),
            at_risk: deadline.is_some() && ends_sessions,
        };
        Self { leave, sessions: sessions.into_iter().map(session).collect() }
    }

    /// Sessions that are ended before the deadline if their games do not end them.
    #[must_use]
    pub fn at_risk(&self) -> usize {
        self.sessions.iter().filter(|session| session.at_risk).count()
    }
}

impl DrainAnswer {
    pub(crate) fn new(course: &Course, plan: PlanView) -> Self {
        Self { version: FORMAT_VERSION, drain: DrainView::new(course), plan }
    }

    /// As text for a person.
    #[must_use]
    pub fn text(&self, now: Timestamp) -> String {
        let mut text = format!("Drain: {}\n", self.drain.line(now));
        let _ = writeln!(text, "Servers without a session that leave: {}", self.plan.leave.len());
        let _ = writeln!(text, "Sessions: {}, at risk: {}", self.plan.sessions.len(), self.plan.at_risk());
        for session in &self.plan.sessions {
            let risk = if session.at_risk { ", ended before the deadline" } else { "" };
            let since = age(Some(&session.since), now);
            let _ = writeln!(
                text,
                "  {}/{}  {} for {since}{risk}",
                session.namespace, session.name, session.state
            );
        }
        text
    }
}

/// A sentence: what was done, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The sentence.
    pub message: String,
}

impl Line {
    /// All that is known of the server, for a person.
    #[must_use]
    pub fn story(&self, now: Timestamp) -> String {
        let mut text = format!("{}/{} is {}", self.namespace, self.name, self.state);
        let deleting = if self.deleting { ", and being deleted" } else { "" };
        let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let _ = writeln!(text, "{deleting}{why}");
        for moment in &self.history {
            let _ =
                writeln!(text, "  {}  {} ago  {}", moment.since, age(Some(&moment.since), now), moment.state);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use berth_api::lifecycle::State;
    use jiff::Timestamp;

    use super::{DrainAnswer, PlanView};
    use crate::drain::Course;
    use crate::drain::notice::{Notice, Severity, Source};
    use crate::game_server::{Line, Moment};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn line(name: &str, state: State) -> Line {
        Line {
            namespace: "games".into(),
            name: name.into(),
            uid: name.into(),
            state,
            since: at(0).to_string(),
            deleting: false,
            address: String::new(),
            ports: Vec::new(),
            pod: None,
            sdk: String::new(),
            reason: Some("because".into()),
            players: None,
            amounts: Default::default(),
            history: vec![
                Moment { state: State::Ready, since: at(0).to_string() },
                Moment { state, since: at(60).to_string() },
            ],
        }
    }

    #[test]
    fn a_plan_says_who_leaves_and_whose_session_is_at_risk() {
        let servers = [line("a", State::Ready), line("b", State::Allocated), line("c", State::Reserved)];
        for (deadline, ends_sessions, at_risk) in
            [(None, true, 0), (Some(at(500)), true, 2), (Some(at(500)), false, 0)]
        {
            let plan = PlanView::new(&servers, deadline, ends_sessions);
            assert_eq!((plan.leave.as_slice(), plan.sessions.len()), (&["games/a".to_owned()][..], 2));
            assert_eq!(plan.at_risk(), at_risk, "{deadline:?} {ends_sessions}");
        }
        let notice = Notice {
            source: Source::Socket,
            severity: Severity::Ordered,
            reason: "maintenance".into(),
            deadline: Some(at(500)),
        };
        let plan = PlanView::new(&servers[..2], Some(at(500)), true);
        assert_eq!(
            DrainAnswer::new(&Course::Draining { notice }, plan).text(at(90)),
            "Drain: draining (maintenance), gone in 6m at 1970-01-01T00:08:20Z\n\
             Servers without a session that leave: 1\n\
             Sessions: 1, at risk: 1\n  \
             games/b  Allocated for 90s, ended before the deadline\n"
        );
    }

    #[test]
    fn a_story_tells_reason_and_states() {
        assert_eq!(
            line("lobby", State::Unhealthy).story(at(90)),
            "games/lobby is Unhealthy: because\n  \
             1970-01-01T00:00:00Z  90s ago  Ready\n  \
             1970-01-01T00:01:00Z  30s ago  Unhealthy\n"
        );
    }
}
