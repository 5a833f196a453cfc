//! Events of this program, on the ConfigMap that names the groups; where there is no cluster, in the log alone.

use berth_runtime::announce::Announcement;
use k8s_openapi::api::core::v1::ObjectReference;
use tracing::warn;

use crate::config::ConfigMapName;
use crate::limits::Finding;

/// Who speaks.
const COMPONENT: &str = "berth-pubsub";

/// What there may be to tell.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// The list of groups cannot be used.
    GroupsUnreadable(String),
    /// An entry of it is no name.
    GroupRefused(String),
    /// AWS knows no such group.
    GroupMissing(String),
    /// AWS refuses a call for want of a permission.
    NotAllowed(String),
    /// Redis refuses name or secret.
    RedisLogin(String),
    /// Redis refuses keys, so that who comes late has to wait for a message.
    KeysRefused(String),
    /// A limit bites.
    Limit(Finding),
}

impl News {
    const fn reason(&self) -> &'static str {
        match self {
            Self::GroupsUnreadable(_) => "GroupsUnreadable",
            Self::GroupRefused(_) => "GroupRefused",
            Self::GroupMissing(_) => "GroupMissing",
            Self::NotAllowed(_) => "NotAllowed",
            Self::RedisLogin(_) => "RedisLogin",
            Self::KeysRefused(_) => "KeysRefused",
            Self::Limit(finding) => finding.limit.as_str(),
        }
    }

    fn message(self) -> String {
        match self {
            Self::GroupsUnreadable(message)
            | Self::GroupRefused(message)
            | Self::GroupMissing(message)
            | Self::NotAllowed(message)
            | Self::RedisLogin(message)
            | Self::KeysRefused(message) => message,
            Self::Limit(finding) => finding.message,
        }
    }
}

/// Tells news.
#[derive(Clone, Debug)]
pub(crate) struct Announcer {
    announcer: Option<berth_runtime::announce::Announcer>,
    about: ConfigMapName,
}

impl Announcer {
    /// Tells them through this one, where there is one.
    pub(crate) fn new(announcer: Option<berth_runtime::announce::Announcer>, about: ConfigMapName) -> Self {
        Self { announcer, about }
    }

    /// Tells it, soon. To be called on change.
    pub(crate) fn say(&self, news: News) {
        let reason = news.reason();
        let message = news.message();
        warn!(reason, "{message}");
        let Some(announcer) = &self.announcer else { return };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(self.about.namespace.clone()),
            name: Some(self.about.name.clone()),
            ..ObjectReference::default()
        };
        announcer.say(Announcement { about, component: COMPONENT, is_warning: true, reason, message });
    }
}
