//! Readers of Redis, and a wire to it that can be cut without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_dev::eventually;
use berth_runtime::redis_connection::{Command, RedisConnection, Reply};
use berth_runtime::redis_url::{RedisFlags, RedisServer};
use berth_runtime::{CancellationToken, tasks};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::stage::{PATIENCE, Stage};

pub(crate) fn server(url: &str) -> RedisServer {
    let flags = RedisFlags { redis_url: Some(url.into()), ..RedisFlags::default() };
    flags.server().expect("a URL").expect("a server")
}

async fn connect(url: &str) -> RedisConnection {
    let server = server(url);
    eventually(PATIENCE, "a connection to Redis", async || {
        RedisConnection::open(&server).await.map_err(|error| berth_runtime::error::chain(&error))
    })
    .await
    .expect("Redis")
}

fn text(reply: Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) => bytes.map(|bytes| String::from_utf8(bytes).expect("UTF-8")),
        other => panic!("no text: {other:?}"),
    }
}

/// Somebody who asks for keys.
pub(crate) struct Asker(RedisConnection);

impl Asker {
    pub(crate) async fn of(stage: &Stage) -> Self {
        Self(connect(&stage.url()).await)
    }

    pub(crate) async fn get(&mut self, key: &str) -> Option<String> {
        let replies = self.0.call(&[Command::new("GET").with(key)], PATIENCE).await.expect("a reply");
        text(replies.into_iter().next().expect("a reply"))
    }

    /// Milliseconds until a key is gone; negative where there is none, or no end.
    pub(crate) async fn life(&mut self, key: &str) -> i64 {
        let replies = self.0.call(&[Command::new("PTTL").with(key)], PATIENCE).await.expect("a reply");
        let Some(Reply::Integer(life)) = replies.into_iter().next() else { panic!("no number") };
        life
    }

    /// Waits until a key says what `is_wanted` wants.
    pub(crate) async fn wait_for(
        &mut self,
        key: &str,
        what: &str,
        is_wanted: impl Fn(Option<&str>) -> bool,
    ) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.get(key).await;
            if is_wanted(value.as_deref()) {
                return value;
            }
            assert!(Instant::now() < deadline, "waited for {what} at {key}; last seen: {value:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Somebody who subscribes to channels.
pub(crate) struct Subscriber(RedisConnection);

impl Subscriber {
    /// A subscriber whose subscription is confirmed.
    pub(crate) async fn of(stage: &Stage, channels: &[&str]) -> Self {
        let mut connection = connect(&stage.url()).await;
        let command =
            channels.iter().fold(Command::new("SUBSCRIBE"), |command, channel| command.with(channel));
        connection.send(&[command]).await.expect("a subscription");
        for _ in channels {
            let confirmed = timeout(PATIENCE, connection.receive()).await.expect("in time").expect("a reply");
            assert!(matches!(confirmed, Reply::Array(Some(_))), "{confirmed:?}");
        }
        Self(connection)
    }

    /// The next message: its channel and its payload.
    pub(crate) async fn next(&mut self) -> (String, String) {
        self.within(PATIENCE).await.expect("a message")
    }

    /// The next message that comes within so long.
    pub(crate) async fn within(&mut self, limit: Duration) -> Option<(String, String)> {
        let reply = timeout(limit, self.0.receive()).await.ok()?.expect("a connection");
        let Reply::Array(Some(parts)) = reply else { panic!("no message: {reply:?}") };
        let mut parts = parts.into_iter().map(text);
        let mut part = || parts.next().flatten().expect("a part");
        assert_eq!(part(), "message");
        Some((part(), part()))
    }

    /// Waits for a message that contains this.
    pub(crate) async fn wait_for(&mut self, words: &str) -> (String, String) {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while let Some(message) = self.within(deadline.saturating_duration_since(Instant::now())).await {
            if message.1.contains(words) {
                return message;
            }
            last = Some(message);
        }
        panic!("waited for {words:?}; last seen: {last:?}")
    }
}

/// A wire to Redis that can be cut without either end being told.
pub(crate) struct Wire {
    pub(crate) port: u16,
    is_cut: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Wire {
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let wire = Self { port, is_cut: Arc::default(), stop: CancellationToken::new() };
        let (is_cut, stop) = (Arc::clone(&wire.is_cut), wire.stop.clone());
        let group = tasks::TaskGroup::new(stop.clone());
        let spawner = group.spawner();
        drop(group.spawner().spawn_child("wire", async move {
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((near, _)) = accepted else { return };
                let (is_cut, stop) = (Arc::clone(&is_cut), stop.clone());
                drop(spawner.spawn_child("connection", async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = carry(near, target, is_cut) => {}
                    }
                }));
            }
        }));
        wire
    }

    /// From now on nothing passes, and nobody hears of it; what passed before and what comes now stays cut.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// New connections pass.
    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::Release);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Carries bytes both ways until the wire is cut; then it holds the connection, and does nothing.
async fn carry(near: TcpStream, target: u16, is_cut: Arc<AtomicBool>) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::join!(pump(near_read, far_write, &is_cut), pump(far_read, near_write, &is_cut));
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    is_cut: &AtomicBool,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(read) = from.read(&mut buffer).await else { return };
        if is_cut.load(Ordering::Acquire) {
            // Both halves are kept, so that nothing closes.
            std::future::pending::<()>().await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
