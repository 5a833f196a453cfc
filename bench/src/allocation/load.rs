//! Loads: requests one by one, at a rate, or flat out. A latency counts from the moment at which a request was due.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_api::allocation::proto::AllocationRequest;
use futures::future::join_all;
use futures::stream;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, sleep_until};

use super::stand::{Allocator, Service, Stand};
use crate::table::figure;

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Of those that got a server, in milliseconds.
    pub(crate) latencies: Vec<f64>,
    /// Calls that got none.
    pub(crate) errors: usize,
    /// The servers that they got.
    pub(crate) names: BTreeSet<String>,
    took: Duration,
}

impl Load {
    /// Allocations a second.
    pub(crate) fn rate(&self) -> f64 {
        figure(self.latencies.len()) / self.took.as_secs_f64()
    }

    /// One after the other.
    pub(crate) async fn one_by_one(
        stand: &Stand,
        allocator: &Allocator,
        count: usize,
    ) -> anyhow::Result<Self> {
        Self::flat_out(stand, &[allocator], count, 1).await
    }

    /// So many a second, whatever becomes of those before.
    pub(crate) async fn at_rate(
        stand: &Stand,
        allocator: &Allocator,
        count: usize,
        rate: u32,
    ) -> anyhow::Result<Self> {
        let service = stand.service(allocator).await?;
        let began = Instant::now();
        let period = Duration::from_secs(1) / rate;
        let answers: Vec<Answer> = stream::iter(0..u32::try_from(count)?)
            .then(|number| async move {
                let due = began + period * number;
                sleep_until(due).await;
                due
            })
            .map(|due| call(service.clone(), stand.request(None), due))
            .buffer_unordered(count)
            .collect()
            .await;
        Ok(Self::sum(answers, began))
    }

    /// As many as so many clients can do, each with one call after the other.
    pub(crate) async fn flat_out(
        stand: &Stand,
        allocators: &[&Allocator],
        count: usize,
        clients: usize,
    ) -> anyhow::Result<Self> {
        Self::of(stand, allocators, count, clients, None).await
    }

    /// The same on the servers of one Fleet, `count` calls in all.
    pub(crate) async fn of(
        stand: &Stand,
        allocators: &[&Allocator],
        count: usize,
        clients: usize,
        fleet: Option<&str>,
    ) -> anyhow::Result<Self> {
        let services: Vec<Service> = stream::iter(0..clients)
            .then(|number| stand.service(allocators[number % allocators.len()]))
            .try_collect()
            .await?;
        let began = Instant::now();
        let clients = services.into_iter().enumerate().map(|(number, service)| async move {
            let mut answers = Vec::new();
            // Those with low numbers take what is left over.
            for _ in (number..count).step_by(clients) {
                answers.push(call(service.clone(), stand.request(fleet), Instant::now()).await);
            }
            answers
        });
        let answers = join_all(clients).await.into_iter().flatten().collect();
        Ok(Self::sum(answers, began))
    }

    fn sum(answers: Vec<Answer>, began: Instant) -> Self {
        let mut load = Self { took: began.elapsed(), ..Self::default() };
        for answer in answers {
            match answer {
                Ok((name, took)) => {
                    load.names.insert(name);
                    load.latencies.push(took.as_secs_f64() * 1000.0);
                }
                Err(()) => load.errors += 1,
            }
        }
        load
    }
}

/// The server and how long it took, or nothing.
type Answer = Result<(String, Duration), ()>;

async fn call(mut service: Service, request: AllocationRequest, due: Instant) -> Answer {
    let answer = service.allocate(request).await.map_err(|status| eprintln!("no server: {status}"))?;
    Ok((answer.into_inner().game_server_name, due.elapsed()))
}
