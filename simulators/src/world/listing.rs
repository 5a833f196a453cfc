//! What is read: one thing, or page by page, now or as it was a moment ago.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::Rng as _;

use super::refusal::{Refusal, RefusalKind};
use super::things::{Group, Server};
use super::words::{GroupName, InstanceId, InstanceStatus, ServerId, SortOrder};
use super::{Past, World};

/// Which page is wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paging {
    pub(crate) limit: Option<usize>,
    pub(crate) token: Option<String>,
}

/// A page, and the way to the next.
#[derive(Clone, Debug)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// What `DescribeGameServerInstances` asks for.
#[derive(Clone, Debug)]
pub(crate) struct ListInstances {
    pub(crate) group: GroupName,
    pub(crate) ids: Vec<InstanceId>,
    pub(crate) paging: Paging,
}

/// What `ListGameServers` asks for.
#[derive(Clone, Debug)]
pub(crate) struct ListServers {
    pub(crate) group: GroupName,
    pub(crate) order: Option<SortOrder>,
    pub(crate) paging: Paging,
}

type Statuses = BTreeMap<InstanceId, (GroupName, InstanceStatus)>;

impl World {
    pub(crate) fn describe_server(&mut self, group: &GroupName, id: &ServerId) -> Result<Server, Refusal> {
        let age = self.staleness();
        match self.as_it_was(age) {
            Some(past) => past
                .servers
                .get(id)
                .filter(|server| server.group == *group)
                .cloned()
                .ok_or_else(|| Refusal::not_found("game server", id)),
            None => self.server(group, id).cloned(),
        }
    }

    pub(crate) fn describe_group(&self, group: &GroupName) -> Result<Group, Refusal> {
        self.group(group).cloned()
    }

    pub(crate) fn list_groups(&self, paging: &Paging) -> Result<Page<Group>, Refusal> {
        let all = self.groups.iter().map(|(name, group)| (name.to_string(), group.clone()));
        self.page("groups", paging, all.collect())
    }

    pub(crate) fn list_instances(
        &mut self,
        wanted: &ListInstances,
    ) -> Result<Page<(InstanceId, InstanceStatus)>, Refusal> {
        self.group(&wanted.group)?;
        let age = self.staleness();
        let statuses = match self.as_it_was(age) {
            Some(past) => past.instances.clone(),
            None => self.statuses(),
        };
        let of_group = |id: &InstanceId| statuses.get(id).filter(|(group, _)| *group == wanted.group);
        if self.parameters.refuse_unknown_instances
            && let Some(unknown) = wanted.ids.iter().find(|id| of_group(id).is_none())
        {
            return Err(Refusal::not_found("instance", unknown));
        }
        let matching = statuses
            .iter()
            .filter(|(id, (group, _))| {
                *group == wanted.group && (wanted.ids.is_empty() || wanted.ids.contains(id))
            })
            .map(|(id, (_, status))| (id.to_string(), (id.clone(), *status)))
            .collect();
        let ids = wanted.ids.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(",");
        self.page(&format!("instances {} {ids}", wanted.group), &wanted.paging, matching)
    }

    pub(crate) fn list_servers(&mut self, wanted: &ListServers) -> Result<Page<Server>, Refusal> {
        if !self.groups.contains_key(&wanted.group) {
            return Err(Refusal::invalid(format!("there is no group {}", wanted.group)));
        }
        let age = self.staleness();
        let servers = match self.as_it_was(age) {
            Some(past) => past.servers.values().cloned().collect::<Vec<_>>(),
            None => self.servers.values().filter(|server| self.is_visible(server)).cloned().collect(),
        };
        let key = |server: &Server| match wanted.order {
            Some(SortOrder::Ascending) => server.serial,
            Some(SortOrder::Descending) => u64::MAX - server.serial,
            None => shuffled(server.serial),
        };
        let matching = servers
            .into_iter()
            .filter(|server| server.group == wanted.group)
            .map(|server| (format!("{:016x}", key(&server)), server))
            .collect();
        let order = wanted.order.map_or("none", SortOrder::as_str);
        self.page(&format!("servers {} {order}", wanted.group), &wanted.paging, matching)
    }

    /// The page after the token's last key. Keys do not change while a thing lives, so nothing is seen twice.
    fn page<T>(
        &self,
        query: &str,
        paging: &Paging,
        matching: BTreeMap<String, T>,
    ) -> Result<Page<T>, Refusal> {
        let last = match &paging.token {
            Some(token) => Some(open_token(token, query)?),
            None => None,
        };
        let size = match paging.limit {
            Some(0) => return Err(Refusal::invalid("Limit must be at least 1")),
            Some(limit) => limit.min(self.parameters.largest_page),
            None => self.parameters.page_size,
        };
        let mut rest =
            matching.into_iter().skip_while(|(key, _)| last.as_ref().is_some_and(|last| key <= last));
        let mut items = Vec::new();
        let mut end = None;
        for (key, item) in rest.by_ref().take(size.max(1)) {
            items.push(item);
            end = Some(key);
        }
        let next = match (end, rest.next()) {
            (Some(end), Some(_)) => Some(BASE64_URL_SAFE_NO_PAD.encode(format!("{query}\n{end}"))),
            (Some(_) | None, None) | (None, Some(_)) => None,
        };
        Ok(Page { items, next })
    }

    fn statuses(&self) -> Statuses {
        self.instances.iter().map(|(id, one)| (id.clone(), (one.group.clone(), one.status))).collect()
    }

    /// How old this read is, in milliseconds, if it is old at all.
    fn staleness(&mut self) -> Option<u64> {
        let stale = self.parameters.stale_reads;
        self.chance(stale.probability).then(|| self.dice.random_range(0..=stale.max_age_ms.0))
    }

    fn as_it_was(&self, age: Option<u64>) -> Option<&Past> {
        let then = self.now.saturating_sub(std::time::Duration::from_millis(age?)).ok()?;
        self.past.iter().find(|past| past.time > then)
    }

    /// Keeps what is about to change, for reads that are to be old.
    pub(super) fn remember(&mut self) {
        let stale = self.parameters.stale_reads;
        if stale.probability <= 0.0 || self.past.back().is_some_and(|past| past.time == self.now) {
            return;
        }
        while self.past.front().is_some_and(|past| past.time + stale.max_age_ms.duration() < self.now) {
            self.past.pop_front();
        }
        let past = Past { time: self.now, instances: self.statuses(), servers: self.servers.clone() };
        self.past.push_back(past);
    }
}

fn open_token(token: &str, query: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::new(RefusalKind::InvalidRequest, "NextToken is not of this query");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    match text.split_once('\n') {
        Some((of, last)) if of == query => Ok(last.to_owned()),
        Some(_) | None => Err(wrong()),
    }
}

/// A number that says nothing about its neighbours: a list without an order has one that nobody can rely on.
fn shuffled(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
