//! Puts the parts that answer a lifecycle hook together.

use std::convert::Infallible;

use aws_sdk_autoscaling::config::Builder;
use berth_api::events::EventReason;
use berth_runtime::CancellationToken;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use tokio::time::sleep;
use tracing::{info, warn};

use super::HookName;
use super::client::HookClient;
use super::keeper::{Inlets, Keeper, Outlets};
use super::machine::Resumed;
use crate::drain::Course;
use crate::drain::marks::{Marks, Phase};
use crate::drain::notice::Source;
use crate::events::NodeRecorder;
use crate::fleetiq::client::configuration;
use crate::fleetiq::identity::see;
use crate::fleetiq::retry::after_refusal;
use crate::fleetiq::start::read_node;
use crate::metadata::client::Base;

/// What the parts are made from.
pub struct Parts {
    /// The hook.
    pub hook: HookName,
    /// How AWS is reached, where that is not the ordinary way.
    pub aws: Option<Builder>,
    /// The region, where it was told.
    pub region: Option<String>,
    /// The API server, for the Node.
    pub kube: Client,
    /// The Node as it was last seen.
    pub node: Node,
    /// Where the instance's metadata are.
    pub base: Base,
    /// What a predecessor knew of an end that goes on.
    pub resumed: Option<Resumed>,
    /// What is heard.
    pub inlets: Inlets,
    /// Where to speak.
    pub outlets: Outlets,
}

/// What a predecessor knew, as far as the course that goes on and its marks tell.
#[must_use]
pub fn resumed(course: &Course, marks: &Marks, now: Timestamp) -> Option<Resumed> {
    let notice = course.notice().filter(|notice| notice.source == Source::Lifecycle)?;
    let since = marks.phase_since.filter(|_| marks.phase == Some(Phase::Terminating));
    Some(Resumed { since: since.unwrap_or(now), deadline: notice.deadline })
}

/// Answers the hook until asked to stop.
///
/// # Errors
/// None.
pub async fn run(parts: Parts, stop: CancellationToken) -> Result<(), Infallible> {
    let Parts { hook, aws, region, kube, node, base, resumed, inlets, outlets } = parts;
    info!(hook = %hook, "answering a lifecycle hook of Auto Scaling");
    let tell = outlets.tell.clone();
    let keeper = Keeper::new(hook.clone(), resumed, inlets, outlets);
    let reach = async move {
        let (instance, found) = find(kube, node, &base, &tell).await;
        let aws = match aws {
            Some(aws) => aws,
            None => Builder::from(&configuration(region.or(found)).await),
        };
        HookClient::new(aws, hook, instance)
    };
    Box::pin(keeper.run(reach, stop)).await
}

/// The instance and its region. Asks again until that is clear.
async fn find(kube: Client, mut node: Node, base: &Base, tell: &NodeRecorder) -> (String, Option<String>) {
    let mut told = None;
    loop {
        let seen = see(&node, None, Some(base)).await;
        match seen.instance() {
            Ok(instance) => return (instance, seen.region()),
            Err(unclear) => {
                if told.as_ref() != Some(&unclear) {
                    warn!(error = %unclear, "nothing is asked of Auto Scaling");
                    tell.record(EventReason::IdentityUnclear, &unclear.to_string());
                    told = Some(unclear);
                }
            }
        }
        sleep(after_refusal(rand::random())).await;
        read_node(&kube, &mut node).await;
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Resumed, resumed};
    use crate::drain::Course;
    use crate::drain::marks::{Marks, Phase};
    use crate::drain::notice::{Notice, Severity, Source};

    #[test]
    fn an_end_that_a_predecessor_knew_of_goes_on_since_then() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let course = |source: Source, deadline: Option<i64>| Course::Draining {
            notice: Notice {
                source,
                severity: Severity::AutoScaling,
                reason: "because".into(),
                deadline: deadline.map(at),
            },
        };
        let marks = |phase| Marks { phase: Some(phase), phase_since: Some(at(5)), ..Marks::default() };
        let held =
            |since, deadline: Option<i64>| Some(Resumed { since: at(since), deadline: deadline.map(at) });
        let table = [
            (Course::Open, marks(Phase::Terminating), None),
            (course(Source::Socket, Some(900)), marks(Phase::Terminating), None),
            (course(Source::Lifecycle, Some(900)), marks(Phase::Terminating), held(5, Some(900))),
            (course(Source::Lifecycle, None), marks(Phase::Terminating), held(5, None)),
            // What the mark is about began before the end was near.
            (course(Source::Lifecycle, None), marks(Phase::Draining), held(70, None)),
            (course(Source::Lifecycle, None), Marks::default(), held(70, None)),
        ];
        for (course, marks, expected) in table {
            assert_eq!(resumed(&course, &marks, at(70)), expected, "{course:?} {:?}", marks.phase);
        }
    }
}
