//! Seats: players come to servers in use with room first, and how many servers are in use is watched all the time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use berth_api::allocation::proto::{AllocationRequest, CounterAction, CounterSelector};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::time::{Instant, sleep_until};

use super::stand::{Service, Stand};
use crate::table::{Table, figure};

/// Seats of a server.
const SEATS: usize = 300;
/// Servers that are there.
const SERVERS: usize = 40;

pub(crate) async fn measure(table: &mut Table) -> anyhow::Result<()> {
    for (replicas, rate, players) in [(1, 5, 330), (1, 200, 2000), (3, 200, 2000), (9, 200, 2000)] {
        let stand = Stand::build().await?;
        stand.create("rooms", SERVERS, Some(i64::try_from(SEATS)?)).await?;
        let mut services = Vec::new();
        for number in 0..replicas {
            let allocator = stand.allocator(&format!("allocator-{number}")).await?;
            services.push(stand.service(&allocator).await?);
        }
        let (beyond, errors) = fill(&stand, &services, rate, players).await?;
        let title = format!("{players} players at {rate}/s, {SEATS} seats a server, {replicas} replicas");
        let what = format!("{title}: servers in use beyond those needed, at the worst moment");
        if replicas == 1 {
            table.add_limited(what, figure(beyond), "servers", 0.0);
        } else {
            table.add(what, figure(beyond), "servers");
        }
        table.add_limited(format!("{title}: errors"), figure(errors), "calls", 0.0);
    }
    Ok(())
}

/// Lets players come; how many servers were in use beyond those that they needed, and how many players got no seat.
async fn fill(
    stand: &Stand,
    services: &[Service],
    rate: u32,
    players: usize,
) -> anyhow::Result<(usize, usize)> {
    let servers = stand.servers();
    let from = servers.list(&ListParams::default()).await?.metadata.resource_version;
    let from = from.context("a list with a version")?;
    let asked = &AtomicUsize::new(0);
    let began = Instant::now();
    let period = Duration::from_secs(1) / rate;
    let ask = stream::iter(0..u32::try_from(players)?)
        .then(|number| async move {
            sleep_until(began + period * number).await;
            number
        })
        .map(|number| {
            let mut service = services[usize::try_from(number).unwrap_or(0) % services.len()].clone();
            async move {
                // A player who has asked may be seated before anybody is told.
                asked.fetch_add(1, Ordering::SeqCst);
                service.allocate(seat(stand)).await.map(drop)
            }
        })
        .buffer_unordered(players)
        .collect::<Vec<_>>();
    let mut events = servers.watch(&WatchParams::default(), &from).await?.boxed();
    let look = async {
        let (mut taken, mut beyond) = (BTreeMap::new(), 0);
        while taken.values().sum::<usize>() < players {
            let event = events.next().await.context("a watch that goes on")??;
            let WatchEvent::Modified(server) = event else { continue };
            if let Some(seats) = seats(&server) {
                taken.insert(server.name_any(), seats);
            }
            let needed = asked.load(Ordering::SeqCst).div_ceil(SEATS);
            beyond = beyond.max(taken.len().saturating_sub(needed));
        }
        anyhow::Ok(beyond.max(taken.len() - players.div_ceil(SEATS)))
    };
    let mut look = std::pin::pin!(look);
    let mut ask = std::pin::pin!(ask);
    tokio::select! {
        biased;
        beyond = look.as_mut() => Ok((beyond?, ask.await.iter().filter(|answer| answer.is_err()).count())),
        answers = ask.as_mut() => {
            let errors = answers.iter().filter(|answer| answer.is_err()).count();
            // Seats that nobody got are never seen.
            if errors > 0 { Ok((0, errors)) } else { Ok((look.await?, 0)) }
        }
    }
}

/// The seats that are taken at a server in use.
fn seats(server: &GameServer) -> Option<usize> {
    let counters = server.status.as_ref().and_then(|status| status.counters.as_ref());
    let count = counters.and_then(|counters| counters.get("seats")?.count).unwrap_or(0);
    (server.state() == Some(State::Allocated)).then(|| usize::try_from(count).unwrap_or(0))
}

/// A request for a seat: of a server in use, or else of another one.
fn seat(stand: &Stand) -> AllocationRequest {
    let room = CounterSelector { min_available: 1, ..CounterSelector::default() };
    let mut request = stand.request(None);
    if let Some(idle) = request.game_server_selectors.first_mut() {
        idle.counters = [("seats".to_owned(), room)].into();
        let in_use =
            berth_api::allocation::proto::GameServerSelector { game_server_state: 1, ..idle.clone() };
        request.game_server_selectors.insert(0, in_use);
    }
    let sit = CounterAction { action: Some("Increment".to_owned()), amount: Some(1), capacity: None };
    request.counters = [("seats".to_owned(), sit)].into();
    request
}
