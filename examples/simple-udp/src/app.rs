//! The composition root: sockets, the SDK, the tasks that share them, and the first thing that ends the game.

use std::future::pending;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::{TcpListener, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::game::{Ending, Game};
use crate::sdk::Sdk;
use crate::settings::Settings;
use crate::{health, serve, watch as watching};

/// The state in which a match is on.
const ALLOCATED: &str = "Allocated";

/// Runs the game, or the one ping of an init container, until it ends or somebody ends it.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<Ending> {
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("could not listen for SIGINT")?;
    let work =
        async { if settings.init_health { ping_once(&settings).await } else { play(&settings).await } };
    tokio::select! {
        biased;
        _ = terminate.recv() => println!("SIGTERM: ending"),
        _ = interrupt.recv() => println!("SIGINT: ending"),
        ending = work => return ending,
    }
    Ok(Ending::Exit)
}

async fn ping_once(settings: &Settings) -> anyhow::Result<Ending> {
    let sdk = Sdk::connect(&settings.sdk_endpoint(), settings.connect_limit).await?;
    sdk.health(tokio_stream::once(berth_api::sdk::v1::Empty {})).await?;
    println!("health ping answered");
    Ok(Ending::Exit)
}

async fn play(settings: &Settings) -> anyhow::Result<Ending> {
    let sdk = Sdk::connect(&settings.sdk_endpoint(), settings.connect_limit).await?;
    let port = if settings.passthrough { sdk.first_port().await? } else { settings.port };
    let (health_orders, health_inbox) = mpsc::channel(1);
    let (state, state_seen) = watch::channel(String::new());
    let game = Arc::new(Game {
        sdk: sdk.clone(),
        health: health_orders,
        watching: watch::Sender::new(settings.automatic_shutdown_after_allocated.is_some()),
        ready: watch::Sender::new(false),
    });

    let mut tasks: JoinSet<anyhow::Result<Ending>> = JoinSet::new();
    let period = settings.health_period;
    let pings = health::keep(sdk.clone(), period, health_inbox);
    tasks.spawn(async move {
        pings.await;
        anyhow::bail!("the health pings ended")
    });
    let changes = watching::keep(sdk, game.watching.subscribe(), state);
    tasks.spawn(async move {
        changes.await;
        anyhow::bail!("the watch ended")
    });
    if settings.udp {
        let address = (settings.bind, port);
        let socket =
            UdpSocket::bind(address).await.with_context(|| format!("could not bind UDP {address:?}"))?;
        println!("listening udp={}", socket.local_addr()?);
        let game = Arc::clone(&game);
        tasks.spawn(async move { serve::udp(socket, game).await.context("could not receive datagrams") });
    }
    if settings.tcp {
        let address = (settings.bind, port);
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("could not bind TCP {address:?}"))?;
        println!("listening tcp={}", listener.local_addr()?);
        let game = Arc::clone(&game);
        tasks.spawn(async move { serve::tcp(listener, game).await.context("could not accept connections") });
    }

    let life = live(settings, &game, state_seen);
    tokio::select! {
        biased;
        ending = life => ending,
        Some(ended) = tasks.join_next() => ended.context("a task of the game was lost")?,
    }
}

/// The game's own course: Ready after its delay, and Shutdown after Ready or Allocated if that was asked for.
async fn live(
    settings: &Settings,
    game: &Game,
    mut state: watch::Receiver<String>,
) -> anyhow::Result<Ending> {
    let mut ready = game.ready.subscribe();
    if settings.ready {
        tokio::time::sleep(settings.ready_delay).await;
        game.call_ready().await?;
    }
    let after_ready = async {
        let Some(delay) = settings.automatic_shutdown_delay else { return pending().await };
        ready.wait_for(|ready| *ready).await?;
        tokio::time::sleep(delay).await;
        Ok::<_, watch::error::RecvError>("ready")
    };
    let after_allocated = async {
        let Some(delay) = settings.automatic_shutdown_after_allocated else { return pending().await };
        state.wait_for(|state| state == ALLOCATED).await?;
        tokio::time::sleep(delay).await;
        Ok::<_, watch::error::RecvError>("allocated")
    };
    let reason = tokio::select! {
        reason = after_ready => reason?,
        reason = after_allocated => reason?,
    };
    println!("automatic shutdown after={reason}");
    game.sdk.shutdown().await?;
    Ok(Ending::Exit)
}
