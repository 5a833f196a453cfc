//! An SDK server for one game server called `lobby`: it writes down what it is asked, in order, and keeps one counter
//! and one list. Player tracking it does not know.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};

use berth_api::sdk::beta::{self, Counter, List};
use berth_api::sdk::v1::game_server::{ObjectMeta, Status as GameServerStatus};
use berth_api::sdk::v1::{Duration, Empty, GameServer, KeyValue, sdk_server};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::{TcpListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::process::LIMIT;

/// The running server. It ends when dropped.
pub(crate) struct FakeSdk {
    address: SocketAddr,
    calls: watch::Receiver<Vec<String>>,
    object: watch::Sender<GameServer>,
    _server: JoinSet<()>,
}

/// A port that is taken and that nobody listens on yet.
pub(crate) struct Reserved {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Reserved {
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Begins to serve on the port.
    pub(crate) fn listen(self) -> FakeSdk {
        FakeSdk::serve(self.socket.listen(16).expect("a bound socket can listen"))
    }
}

impl FakeSdk {
    pub(crate) async fn start() -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    pub(crate) fn reserve() -> Reserved {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        Reserved { socket, address }
    }

    fn serve(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("a listener has an address");
        let calls = watch::Sender::new(Vec::new());
        let object = watch::Sender::new(game_server("Ready"));
        let calls_seen = calls.subscribe();
        let stable = Stable { calls: calls.clone(), object: object.subscribe() };
        let counting = Counting {
            calls,
            counter: Mutex::new(Counter { name: "rooms".to_owned(), count: 1, capacity: 10 }),
            list: Mutex::new(List {
                name: "players".to_owned(),
                capacity: 4,
                values: vec!["ann".to_owned()],
            }),
        };
        let server = Server::builder()
            .add_service(sdk_server::SdkServer::new(stable))
            .add_service(beta::sdk_server::SdkServer::new(counting))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.await.expect("the fake SDK server serves") });
        Self { address, calls: calls_seen, object, _server: tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    /// Waits until the calls so far fulfil a condition, and gives them back.
    pub(crate) async fn calls_until(&self, what: &str, met: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut calls = self.calls.clone();
        match timeout(LIMIT, calls.wait_for(|calls| met(calls))).await {
            Ok(seen) => seen.expect("the fake SDK server lives").clone(),
            Err(_) => panic!("waited {LIMIT:?} for {what}; calls so far: {:?}", self.calls()),
        }
    }

    /// Shows a new game server to those who watch.
    pub(crate) fn publish(&self, game_server: GameServer) {
        self.object.send_replace(game_server);
    }
}

/// The game server `lobby` in this state.
pub(crate) fn game_server(state: &str) -> GameServer {
    GameServer {
        object_meta: Some(ObjectMeta { name: "lobby".to_owned(), ..ObjectMeta::default() }),
        spec: None,
        status: Some(GameServerStatus { state: state.to_owned(), ..GameServerStatus::default() }),
    }
}

fn note(calls: &watch::Sender<Vec<String>>, call: impl Into<String>) {
    calls.send_modify(|calls| calls.push(call.into()));
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().expect("no call panics while it holds this")
}

struct Stable {
    calls: watch::Sender<Vec<String>>,
    object: watch::Receiver<GameServer>,
}

impl Stable {
    fn done(&self, call: impl Into<String>) -> Result<Response<Empty>, Status> {
        note(&self.calls, call);
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl sdk_server::Sdk for Stable {
    type WatchGameServerStream = Pin<Box<dyn Stream<Item = Result<GameServer, Status>> + Send>>;

    async fn ready(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.done("Ready")
    }

    async fn allocate(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.done("Allocate")
    }

    async fn shutdown(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.done("Shutdown")
    }

    async fn health(&self, pings: Request<Streaming<Empty>>) -> Result<Response<Empty>, Status> {
        let mut pings = pings.into_inner();
        while pings.message().await?.is_some() {
            note(&self.calls, "Health");
        }
        Ok(Response::new(Empty {}))
    }

    async fn get_game_server(&self, _: Request<Empty>) -> Result<Response<GameServer>, Status> {
        note(&self.calls, "GetGameServer");
        Ok(Response::new(self.object.borrow().clone()))
    }

    async fn watch_game_server(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::WatchGameServerStream>, Status> {
        note(&self.calls, "WatchGameServer");
        let changes = WatchStream::new(self.object.clone()).map(Ok);
        Ok(Response::new(Box::pin(changes)))
    }

    async fn set_label(&self, pair: Request<KeyValue>) -> Result<Response<Empty>, Status> {
        let KeyValue { key, value } = pair.into_inner();
        if key.contains('!') {
            return Err(Status::invalid_argument("key is no qualified name"));
        }
        self.done(format!("SetLabel {key}={value}"))
    }

    async fn set_annotation(&self, pair: Request<KeyValue>) -> Result<Response<Empty>, Status> {
        let KeyValue { key, value } = pair.into_inner();
        self.done(format!("SetAnnotation {key}={value}"))
    }

    async fn reserve(&self, time: Request<Duration>) -> Result<Response<Empty>, Status> {
        self.done(format!("Reserve {}", time.into_inner().seconds))
    }
}

struct Counting {
    calls: watch::Sender<Vec<String>>,
    /// Guards the counter between two calls.
    counter: Mutex<Counter>,
    /// Guards the list between two calls.
    list: Mutex<List>,
}

#[tonic::async_trait]
impl beta::sdk_server::Sdk for Counting {
    async fn get_counter(
        &self,
        request: Request<beta::GetCounterRequest>,
    ) -> Result<Response<Counter>, Status> {
        let name = request.into_inner().name;
        let counter = lock(&self.counter).clone();
        if name != counter.name {
            return Err(Status::not_found("no such counter"));
        }
        note(&self.calls, format!("GetCounter {name}"));
        Ok(Response::new(counter))
    }

    async fn update_counter(
        &self,
        request: Request<beta::UpdateCounterRequest>,
    ) -> Result<Response<Counter>, Status> {
        let update = request.into_inner().counter_update_request.expect("an update");
        let mut counter = lock(&self.counter);
        let mut call = format!("UpdateCounter {}", update.name);
        if update.count_diff != 0 {
            counter.count += update.count_diff;
            call += &format!(" diff={}", update.count_diff);
        }
        if let Some(count) = update.count {
            counter.count = count;
            call += &format!(" count={count}");
        }
        if let Some(capacity) = update.capacity {
            counter.capacity = capacity;
            call += &format!(" capacity={capacity}");
        }
        note(&self.calls, call);
        Ok(Response::new(counter.clone()))
    }

    async fn get_list(&self, request: Request<beta::GetListRequest>) -> Result<Response<List>, Status> {
        note(&self.calls, format!("GetList {}", request.into_inner().name));
        Ok(Response::new(lock(&self.list).clone()))
    }

    async fn update_list(&self, request: Request<beta::UpdateListRequest>) -> Result<Response<List>, Status> {
        let request = request.into_inner();
        let update = request.list.expect("a list");
        let paths = request.update_mask.expect("a mask").paths;
        assert_eq!(paths, ["capacity"]);
        let mut list = lock(&self.list);
        list.capacity = update.capacity;
        note(&self.calls, format!("UpdateList {} capacity={}", update.name, update.capacity));
        Ok(Response::new(list.clone()))
    }

    async fn add_list_value(
        &self,
        request: Request<beta::AddListValueRequest>,
    ) -> Result<Response<List>, Status> {
        let beta::AddListValueRequest { name, value } = request.into_inner();
        note(&self.calls, format!("AddListValue {name} {value}"));
        let mut list = lock(&self.list);
        list.values.push(value);
        Ok(Response::new(list.clone()))
    }

    async fn remove_list_value(
        &self,
        request: Request<beta::RemoveListValueRequest>,
    ) -> Result<Response<List>, Status> {
        let beta::RemoveListValueRequest { name, value } = request.into_inner();
        note(&self.calls, format!("RemoveListValue {name} {value}"));
        let mut list = lock(&self.list);
        list.values.retain(|kept| *kept != value);
        Ok(Response::new(list.clone()))
    }
}
