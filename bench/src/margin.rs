//! How long the SDK has been listening when a game's first instruction runs, on real nodes with every core busy.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use anyhow::Context as _;
use berth_api::lifecycle::State;
use berth_dev::{Daemon, Image, Launch, NodeKind, eventually};
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use serde_json::json;

use crate::place::{LIMIT, Place};
use crate::table::{Table, figure, quantile};

const IMAGE: &str = "localhost/busybox:dev";
/// Starts at a time.
const AT_ONCE: usize = 10;
/// Steps of the kernel's clock that it is compared over: it counts in hundredths of a second.
const STEPS: u32 = 20;
/// Says when it began, by the kernel's clock, and asks for Ready once. Whoever is not answered then has come too early.
const GAME: &str = "read uptime idle </proc/uptime; echo $uptime; \
    /busybox wget -q -O - --post-data {} http://127.0.0.1:9358/ready && echo there || exit 3; exec /busybox sleep 86400";

pub(crate) async fn measure(starts: usize, table: &mut Table) -> anyhow::Result<()> {
    let place = Place::build(2, NodeKind::Real).await?;
    let image = tokio::task::spawn_blocking(|| Image::of_program(Path::new("/bin/busybox"), IMAGE)).await??;
    place.cluster.import(&image).await?;
    let busy = keep_busy(&place)?;
    let (mut began, mut late) = (BTreeMap::new(), 0);
    for round in 0..starts.div_ceil(AT_ONCE) {
        let names = (0..AT_ONCE.min(starts - round * AT_ONCE)).map(|one| format!("start-{round}-{one}"));
        for (name, uptime) in start(&place, names.collect()).await? {
            match uptime {
                Some(uptime) => _ = began.insert(name, uptime),
                None => late += 1,
            }
        }
    }
    for one in busy {
        one.kill().await?;
    }
    let listened = listened(&place)?;
    let boot = boot()?;
    let margin = |(name, uptime): (&String, &f64)| {
        let began = boot.checked_add(SignedDuration::from_secs_f64(*uptime))?;
        let listened =
            listened.get(name).with_context(|| format!("no agent says that {name} has its SDK"))?;
        anyhow::Ok(began.duration_since(*listened).as_secs_f64() * 1000.0)
    };
    let margins = began.iter().map(margin).collect::<anyhow::Result<Vec<f64>>>()?;
    let title = format!("{starts} starts on 2 real nodes, every core busy");
    for (which, share) in [("the least", 0.0), ("1 of 100", 0.01), ("median", 0.5)] {
        let what = format!("{title}: from the SDK listening to the game's first instruction ({which})");
        table.add(what, quantile(&margins, share), "ms");
    }
    table.add_limited(format!("{title}: games that were there before their SDK"), figure(late), "games", 0.0);
    Ok(())
}

/// Something for every core to do.
fn keep_busy(place: &Place) -> anyhow::Result<Vec<Daemon>> {
    let cores = thread::available_parallelism()?.get();
    let busy = (0..cores).map(|number| {
        let launch =
            Launch::new(format!("busy-{number}"), "/bin/sh").arguments(["-c", "while :; do :; done"]);
        Ok(place.cluster.spawn(launch)?)
    });
    busy.collect()
}

/// Starts servers and ends them; by name, when each game began, or nothing where its SDK was not there.
async fn start(place: &Place, names: Vec<String>) -> anyhow::Result<Vec<(String, Option<f64>)>> {
    let servers = place.servers();
    let create = |name: &String| {
        let server = json!({
            "metadata": { "name": name },
            "spec": {
                "health": { "disabled": true },
                "template": { "spec": { "terminationGracePeriodSeconds": 1, "containers": [{
                    "name": "game", "image": IMAGE, "imagePullPolicy": "Never", "args": ["sh", "-c", GAME],
                    "resources": { "requests": { "cpu": "1m", "memory": "8Mi" } },
                }] } },
            },
        });
        let servers = &servers;
        async move {
            servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?;
            anyhow::Ok(())
        }
    };
    try_join_all(names.iter().map(create)).await?;
    let mut found = Vec::new();
    for name in names {
        let state = eventually(LIMIT, format!("{name} to be Ready, or not"), async || {
            let server = servers.get(&name).await.map_err(|error| error.to_string())?;
            match server.state() {
                Some(state @ (State::Ready | State::Unhealthy | State::Error)) => Ok(state),
                _ => Err(format!("{:?}", server.status)),
            }
        })
        .await?;
        let began = if state == State::Ready { Some(began(place, &name).await?) } else { None };
        found.push((name, began));
    }
    servers.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(found)
}

/// What a game wrote first.
async fn began(place: &Place, name: &str) -> anyhow::Result<f64> {
    let text = eventually(LIMIT, format!("{name} to have said when it began"), async || {
        let text = place.pods().logs(name, &LogParams::default()).await.map_err(|error| error.to_string())?;
        if text.contains('\n') { Ok(text) } else { Err(text) }
    })
    .await?;
    let first = text.lines().next().unwrap_or_default();
    first.parse().with_context(|| format!("{name} began with {first:?}"))
}

/// By server: when its agent had listened for it, as both agents' logs say.
fn listened(place: &Place) -> anyhow::Result<BTreeMap<String, Timestamp>> {
    let mut found = BTreeMap::new();
    for position in 0..place.cluster.nodes().len() {
        let text = fs::read_to_string(place.berth.agent(position).log())?;
        found.extend(text.lines().filter(|line| line.contains("SDK listens")).filter_map(line));
    }
    Ok(found)
}

/// Name and time in a line of a log.
fn line(text: &str) -> Option<(String, Timestamp)> {
    let time = text.split_whitespace().next()?.parse().ok()?;
    let (_, rest) = text.split_once("game_server=")?;
    let name = rest.split_whitespace().next()?;
    Some((name.rsplit('/').next().unwrap_or(name).to_owned(), time))
}

/// When the kernel's clock began, by the clock of logs. A clock in hundredths lets it seem later than it was, so the
/// earliest of many looks is the nearest.
fn boot() -> anyhow::Result<Timestamp> {
    let (mut boot, mut last, mut steps): (Option<Timestamp>, f64, u32) = (None, 0.0, 0);
    while steps < STEPS {
        let text = fs::read_to_string("/proc/uptime")?;
        let now = Timestamp::now();
        let uptime: f64 = text.split_whitespace().next().unwrap_or_default().parse()?;
        let seen = now.checked_sub(SignedDuration::from_secs_f64(uptime))?;
        boot = Some(boot.map_or(seen, |before| before.min(seen)));
        steps += u32::from(uptime > last);
        last = uptime;
    }
    boot.context("it was looked at")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_an_agents_log_names_server_and_time() {
        let text = "2026-01-02T03:04:05.678901Z  INFO berth_agent: SDK listens game_server=games/lobby-1 listeners=4";
        let time = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        assert_eq!(line(text), Some(("lobby-1".to_owned(), time)));
        assert_eq!(line("last words without a server"), None);
    }
}
