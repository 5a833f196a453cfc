//! The game in a container: plays its script over REST, on the loopback of its own sandbox.
//!
//! It keeps one connection, as the official clients do, and makes a new one when that breaks. What it says it says until
//! it is answered, and writes down what was answered: whoever tests a death asks for no more than that.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use super::diary::Diary;
use super::sandbox::Door;
use super::script::{Order, Script};
use super::status::Ending;

/// Between two tries of something that failed.
const AGAIN: Duration = Duration::from_millis(50);
/// What one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The code of a program that `SIGTERM` ends.
const TERMINATED: i32 = 143;

/// What a game is given.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) door: Door,
    pub(super) port: u16,
    pub(super) diary: Diary,
    pub(super) order: watch::Receiver<Option<Order>>,
    /// True once it is asked to end.
    pub(super) end: watch::Receiver<bool>,
}

/// Plays to the end.
pub(super) async fn play(script: Script, stage: Stage) -> Ending {
    let linger = script.linger;
    let mut end = stage.end.clone();
    let mut asked = async || {
        // The sender lives as long as the pod does.
        if end.wait_for(|asked| *asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let mut game = Game::new(script, stage);
    tokio::select! {
        biased;
        ending = game.run() => return ending,
        () = asked() => {}
    }
    tokio::select! {
        biased;
        ending = game.run() => ending,
        () = sleep(linger) => Ending::Exited(TERMINATED),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Ready,
    Ping,
    Chat,
    Shutdown,
    Exit,
}

/// Why a call has to be made again.
enum Trouble {
    /// On another connection.
    Broken(String),
    /// On this one.
    Refused(StatusCode),
}

struct Game {
    script: Script,
    stage: Stage,
    born: Instant,
    is_ready_said: bool,
    is_shutdown_said: bool,
    is_silent: bool,
    next_ping: Instant,
    next_chat: Instant,
    said: u64,
    connections: u64,
}

impl Game {
    fn new(script: Script, stage: Stage) -> Self {
        let now = Instant::now();
        let next_chat = now + script.chatter.unwrap_or_default();
        Self {
            born: now,
            is_ready_said: script.ready_after.is_none(),
            is_shutdown_said: false,
            is_silent: script.ready_after.is_none(),
            next_ping: now,
            next_chat,
            said: 0,
            connections: 0,
            script,
            stage,
        }
    }

    /// Goes on where it was left.
    async fn run(&mut self) -> Ending {
        loop {
            let connected = if self.script.ready_after.is_some() {
                match self.stage.door.connect(self.stage.port).await {
                    Ok(stream) => Some(stream),
                    Err(error) => {
                        if self.connections == 0 {
                            self.stage.diary.note(&json!({ "act": "refused" }));
                        }
                        debug!(%error, "no SDK");
                        self.connections = self.connections.max(1);
                        sleep(AGAIN).await;
                        continue;
                    }
                }
            } else {
                None
            };
            let turn = match connected {
                None => self.acts(None).await,
                Some(stream) => match handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await {
                    Err(error) => Err(error.to_string()),
                    Ok((sender, connection)) => {
                        self.connections += 1;
                        tokio::select! {
                            biased;
                            turn = self.acts(Some(sender)) => turn,
                            ended = connection => Err(format!("{ended:?}")),
                        }
                    }
                },
            };
            match turn {
                Ok(ending) => return ending,
                Err(trouble) => {
                    self.stage.diary.note(&json!({ "act": "broken", "why": trouble }));
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Acts when it is time to, until the connection breaks or the game ends.
    async fn acts(&mut self, mut sdk: Option<SendRequest<Full<Bytes>>>) -> Result<Ending, String> {
        loop {
            let next = self.next();
            let due = async {
                match next {
                    Some((at, act)) => {
                        sleep_until(at).await;
                        act
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.stage.order.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                    let order = self.stage.order.borrow_and_update().clone();
                    if let Some(ending) = self.obey(order) {
                        return Ok(ending);
                    }
                }
                act = due => {
                    if act == Act::Exit {
                        return Ok(Ending::Exited(self.script.exit_code));
                    }
                    let Some(sdk) = sdk.as_mut() else { continue };
                    match self.call(sdk, act).await {
                        Ok(()) => self.done(act),
                        Err(Trouble::Refused(status)) => {
                            self.stage.diary.note(&json!({ "act": "refused", "status": status.as_u16() }));
                            sleep(AGAIN).await;
                        }
                        Err(Trouble::Broken(why)) => return Err(why),
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<(Instant, Act)> {
        let after = |wait: Option<Duration>| wait.map(|wait| self.born + wait);
        let speaks = self.script.ready_after.is_some();
        let times = [
            (after(self.script.exit_after), Act::Exit),
            (after(self.script.ready_after).filter(|_| !self.is_ready_said), Act::Ready),
            (after(self.script.shutdown_after).filter(|_| speaks && !self.is_shutdown_said), Act::Shutdown),
            (Some(self.next_ping).filter(|_| !self.is_silent), Act::Ping),
            (self.script.chatter.map(|_| self.next_chat).filter(|_| speaks), Act::Chat),
        ];
        times.into_iter().filter_map(|(at, act)| Some((at?, act))).min_by_key(|(at, _)| *at)
    }

    fn done(&mut self, act: Act) {
        match act {
            Act::Ready => {
                self.is_ready_said = true;
                self.stage.diary.note(&json!({ "act": "ready" }));
            }
            Act::Ping => self.next_ping = Instant::now() + self.script.health,
            Act::Chat => {
                self.stage.diary.note(&json!({ "act": "chatter", "value": self.said }));
                self.said += 1;
                self.next_chat = Instant::now() + self.script.chatter.unwrap_or_default();
            }
            Act::Shutdown => {
                self.is_shutdown_said = true;
                self.stage.diary.note(&json!({ "act": "shutdown" }));
            }
            Act::Exit => {}
        }
    }

    fn obey(&mut self, order: Option<Order>) -> Option<Ending> {
        match order? {
            Order::Exit(code) => return Some(Ending::Exited(code)),
            Order::Evict => return Some(Ending::Evicted),
            Order::Shutdown => {
                self.script.shutdown_after = Some(Duration::ZERO);
                self.is_shutdown_said = false;
            }
            Order::Ready => self.is_ready_said = self.script.ready_after.is_none(),
            Order::FallSilent => self.is_silent = true,
        }
        None
    }

    async fn call(&self, sdk: &mut SendRequest<Full<Bytes>>, act: Act) -> Result<(), Trouble> {
        let (method, path, body) = match act {
            Act::Ready => (Method::POST, "/ready", json!({})),
            Act::Ping => (Method::POST, "/health", json!({})),
            Act::Shutdown => (Method::POST, "/shutdown", json!({})),
            Act::Chat => {
                let body = json!({ "key": "chatter", "value": self.said.to_string() });
                (Method::PUT, "/metadata/annotation", body)
            }
            Act::Exit => return Ok(()),
        };
        let called = timeout(CALL_LIMIT, ask(sdk, method, path, &body)).await;
        called.unwrap_or_else(|_| Err(Trouble::Broken(format!("{path} took too long"))))
    }
}

async fn ask(
    sdk: &mut SendRequest<Full<Bytes>>,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<(), Trouble> {
    let broken = |error: hyper::Error| Trouble::Broken(error.to_string());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| Trouble::Broken(error.to_string()))?;
    sdk.ready().await.map_err(broken)?;
    let response = sdk.send_request(request).await.map_err(broken)?;
    let status = response.status();
    response.into_body().collect().await.map_err(broken)?;
    if status.is_success() { Ok(()) } else { Err(Trouble::Refused(status)) }
}
