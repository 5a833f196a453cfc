//! The task that looks which limits bite, and tells each once.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::clock;
use tokio::sync::watch;
use tracing::{debug, info};

use crate::announce::{Announcer, News};
use crate::aws::{Aws, CallFailed, Operation, Outcome};
use crate::cluster::Cluster;
use crate::groups::Group;
use crate::lead::Lead;
use crate::limits::{Facts, Finding, Limit, Rules, Survey, of_cluster, of_group};
use crate::metrics::PubsubMetrics;
use crate::picture::Picture;

/// How soon to look where the groups have not been polled yet.
const SOON: Duration = Duration::from_secs(1);

/// Looks for limits.
pub(crate) struct Surveyor {
    pub(crate) aws: Aws,
    /// The cluster, where there is one.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) rules: Rules,
    pub(crate) period: Duration,
    pub(crate) lead: Lead,
    pub(crate) known: watch::Receiver<Vec<Group>>,
    pub(crate) picture: watch::Receiver<Option<Arc<Picture>>>,
    pub(crate) survey: watch::Sender<Arc<Survey>>,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: PubsubMetrics,
}

/// What was told.
#[derive(Default)]
struct Mentioned {
    limits: BTreeSet<(Limit, String)>,
    denied: BTreeSet<&'static str>,
}

impl Surveyor {
    /// Looks until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut mentioned = Mentioned::default();
        loop {
            let mut lead = self.lead.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = lead.gained() => {}
            }
            let wait = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                wait = self.look(&mut mentioned) => wait,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = lead.lost() => self.rest(&mut mentioned),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Another looks now: what we count and have told is not true any more.
    fn rest(&self, mentioned: &mut Mentioned) {
        *mentioned = Mentioned::default();
        for limit in Limit::ALL {
            self.metrics.set_limit(limit, 0);
        }
    }

    async fn look(&mut self, mentioned: &mut Mentioned) -> Duration {
        let groups = self.known.borrow_and_update().clone();
        if groups.is_empty() {
            return SOON.min(self.period);
        }
        let picture = self.picture.borrow().clone().unwrap_or_default();
        let mut scaling = match self.aws.scaling_groups(&groups).await {
            Ok(scaling) => scaling,
            Err(failed) => {
                self.note_failed(&failed, mentioned);
                BTreeMap::new()
            }
        };
        let mut survey = Survey::default();
        let mut known = Vec::new();
        for group in &groups {
            let scaling = scaling.remove(&group.scaling_group());
            let mut facts = Facts {
                instances: picture.0.get(group.name()).map_or(0, |seen| seen.instances.len() as u64),
                ..Facts::default()
            };
            facts.group = self.known_or_told(self.aws.group(group).await, mentioned);
            // What Auto Scaling does not know has no activities and no policies either.
            if scaling.is_some() {
                let activities = self.aws.activities(group).await;
                facts.activities = self.known_or_told(activities, mentioned).unwrap_or_default();
                let follows = self.aws.scales_by_utilization(group).await;
                facts.scales_by_utilization = self.known_or_told(follows, mentioned).unwrap_or_default();
            }
            if let Some(scaling) = scaling {
                survey.protected.extend(scaling.protected);
                facts.scaling = Some(scaling.facts);
            }
            if let Some(said) = &facts.group {
                survey.groups.insert(group.name().to_owned(), said.clone());
            }
            known.push((group, facts));
        }
        let mut findings = Vec::new();
        if let Some(cluster) = &mut self.cluster {
            let scaling_groups = groups.iter().map(Group::scaling_group).collect();
            let is_scaled_by_utilization = known.iter().any(|(_, facts)| facts.scales_by_utilization);
            let seen = cluster.facts(is_scaled_by_utilization).await;
            for (group, facts) in &mut known {
                facts.keeps_idle = seen.keeping_idle.contains(group.name());
            }
            findings.extend(of_cluster(&seen, &scaling_groups));
        }
        findings.extend(known.iter().flat_map(|(group, facts)| of_group(group, facts, self.rules)));
        if self.lead.is_ours() {
            self.survey.send_replace(Arc::new(survey));
            self.tell(findings, mentioned);
            self.metrics.last_survey.set(clock::now().as_second());
        }
        self.period
    }

    fn known_or_told<T>(&self, asked: Result<T, CallFailed>, mentioned: &mut Mentioned) -> Option<T> {
        asked.map_err(|failed| self.note_failed(&failed, mentioned)).ok()
    }

    /// A permission that is missing is told once for each call; that a group is missing, the poller tells.
    fn note_failed(&self, failed: &CallFailed, mentioned: &mut Mentioned) {
        debug!(error = %failed, "a limit cannot be seen");
        if failed.outcome != Outcome::Denied || !mentioned.denied.insert(failed.operation.as_str()) {
            return;
        }
        let hidden = match failed.operation {
            Operation::Instances => "the instances of a group",
            Operation::Group => "the policy and the weights of a group",
            Operation::ScalingGroups => "the maximum of a group and the protection of its instances",
            Operation::ScalingActivities => "why launches fail",
            Operation::Policies => "whether a group is scaled by utilization",
        };
        self.announcer.say(News::NotAllowed(format!("{failed}; without it nobody sees {hidden}")));
    }

    fn tell(&self, findings: Vec<Finding>, mentioned: &mut Mentioned) {
        let key = |finding: &Finding| (finding.limit, finding.subject.clone());
        let now: BTreeSet<_> = findings.iter().map(key).collect();
        for limit in Limit::ALL {
            self.metrics.set_limit(limit, now.iter().filter(|(bites, _)| *bites == limit).count());
        }
        for (limit, subject) in mentioned.limits.difference(&now) {
            info!(limit = limit.as_str(), subject, "this limit does not bite any more");
        }
        for finding in findings {
            if !mentioned.limits.contains(&key(&finding)) {
                self.announcer.say(News::Limit(finding));
            }
        }
        mentioned.limits = now;
    }
}
