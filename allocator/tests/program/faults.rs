//! An API server that fails at the write, or whose watches have gaps: a proxy in front of the real one sees to it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use berth_api::allocation::proto::{AllocationRequest, AllocationResponse};
use berth_api::lifecycle::State;
use berth_dev::eventually;
use berth_runtime::CancellationToken;
use berth_runtime::tasks::{Spawner, TaskGroup};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{Code, Status};

use super::cluster::{Cluster, LIMIT};

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What becomes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is not made, and this status is the answer.
    Refused(u16),
    /// It is not made, and the connection ends.
    Cut,
    /// It is made, and the connection ends without an answer.
    MadeAndCut,
    /// It is made, and no answer ever comes.
    MadeAndSilent,
}

/// The way to the API server, with faults.
#[derive(Clone)]
struct Way {
    client: Client,
    state: Arc<Mutex<Faults>>,
}

#[derive(Default)]
struct Faults {
    /// For the next writes, one each.
    next: VecDeque<Fault>,
    /// For all others.
    always: Option<Fault>,
    /// Writes that have come.
    writes: usize,
    /// What cannot be read: all whose path has this in it.
    dark: Option<&'static str>,
    /// Ends the watches that are open.
    watches: CancellationToken,
}

impl Way {
    /// Opens it; its kubeconfig.
    async fn open(cluster: &Cluster, group: &TaskGroup) -> (Self, PathBuf) {
        let client = cluster.plane.client_for("berth-allocator", &[]).await.expect("a client");
        let way = Self { client, state: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        group.spawn("way", way.clone().serve(listener, group.spawner(), group.token()));
        let path = cluster.subfolder("way").join("kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "way",
            "clusters": [{ "name": "way", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "way", "user": {} }],
            "contexts": [{ "name": "way", "context": { "cluster": "way", "user": "way" } }],
        });
        fs::write(&path, kubeconfig.to_string()).expect("a kubeconfig");
        (way, path)
    }

    fn state(&self) -> MutexGuard<'_, Faults> {
        self.state.lock().expect("no test has panicked with it")
    }

    async fn serve(
        self,
        listener: TcpListener,
        spawner: Spawner,
        stop: CancellationToken,
    ) -> Result<(), Infallible> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                accepted = listener.accept() => accepted,
            };
            let (stream, _) = accepted.expect("a connection");
            let (way, stop) = (self.clone(), stop.clone());
            drop(spawner.spawn_child("way", async move {
                let service = service_fn(move |request| way.clone().pass(request));
                let builder = auto::Builder::new(TokioExecutor::new());
                tokio::select! {
                    () = stop.cancelled() => {}
                    // A fault is one to the client alone.
                    _ = builder.serve_connection(TokioIo::new(stream), service) => {}
                }
            }));
        }
    }

    /// One request on its way. An error ends the connection.
    async fn pass(self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        let fault = {
            let mut state = self.state();
            if request.method() == Method::PATCH {
                state.writes += 1;
                let next = state.next.pop_front();
                next.or(state.always)
            } else {
                let is_dark = state.dark.is_some_and(|part| request.uri().path().contains(part));
                is_dark.then_some(Fault::Refused(500))
            }
        };
        let gone = || Err(std::io::Error::other("a fault"));
        match fault {
            None => self.forward(request).await,
            Some(Fault::Refused(code)) => Ok(refusal(code)),
            Some(Fault::Cut) => gone(),
            Some(Fault::MadeAndCut) => self.forward(request).await.and_then(|_| gone()),
            Some(Fault::MadeAndSilent) => {
                self.forward(request).await?;
                std::future::pending().await
            }
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        parts.uri = parts.uri.path_and_query().expect("a path").as_str().parse().expect("a URI");
        parts.headers.remove(http::header::HOST);
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        let (parts, body) = self.client.send(request).await.map_err(std::io::Error::other)?.into_parts();
        let frames = TryStreamExt::map_err(BodyStream::new(body), std::io::Error::other);
        let body = if is_watch {
            let end = self.state().watches.clone();
            StreamBody::new(frames.take_until(async move { end.cancelled().await })).boxed_unsync()
        } else {
            StreamBody::new(frames).boxed_unsync()
        };
        Ok(Response::from_parts(parts, body))
    }
}

fn refusal(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "a fault",
        "reason": match code { 403 => "Forbidden", 409 => "Conflict", 429 => "TooManyRequests", _ => "InternalError" },
        "code": code,
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

/// A cluster, an allocator behind a way with faults, and a call.
struct Stage {
    cluster: Cluster,
    way: Way,
    service: berth_api::allocation::proto::allocation_service_client::AllocationServiceClient<
        tonic::transport::Channel,
    >,
    _allocator: super::cluster::Allocator,
    group: TaskGroup,
}

impl Stage {
    async fn build(purpose: &str, servers: &[&str], arguments: &[&str]) -> Self {
        let cluster = Cluster::start(purpose).await;
        for name in servers {
            cluster.create(name, State::Ready, json!({})).await;
        }
        let group = TaskGroup::new(CancellationToken::new());
        let (way, kubeconfig) = Way::open(&cluster, &group).await;
        let certificates = cluster.certificates();
        let allocator = cluster.allocator_through(&kubeconfig, certificates, "allocator", arguments).await;
        let service = cluster.service(&allocator).await;
        Self { cluster, way, service, _allocator: allocator, group }
    }

    async fn allocate(&self) -> Result<AllocationResponse, Status> {
        let request =
            AllocationRequest { namespace: self.cluster.namespace.clone(), ..AllocationRequest::default() };
        self.service.clone().allocate(request).await.map(tonic::Response::into_inner)
    }

    async fn end(self) {
        self.group.token().cancel();
        self.group.join(LIMIT).await.expect("an end of the way");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_is_made_again_and_one_that_was_made_is_not() {
    let faults = [
        (vec![Fault::Refused(409)], 2),
        (vec![Fault::Refused(429)], 2),
        (vec![Fault::Refused(500), Fault::Refused(503)], 3),
        (vec![Fault::Cut], 2),
        (vec![Fault::MadeAndCut], 1),
        (vec![Fault::MadeAndSilent], 1),
    ];
    let names: Vec<String> = (0..faults.len()).map(|number| format!("gs{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stage = Stage::build("faults", &names, &[]).await;
    for (faults, writes) in faults {
        {
            let mut state = stage.way.state();
            state.writes = 0;
            state.next = faults.iter().copied().collect();
        }
        let answer = stage.allocate().await.unwrap_or_else(|status| panic!("{faults:?}: {status:?}"));
        let server = stage.cluster.servers().get(&answer.game_server_name).await.expect("the server");
        assert_eq!(server.state(), Some(State::Allocated), "{faults:?}");
        let stamp = answer.metadata.expect("metadata").annotations["agones.dev/last-allocated"].clone();
        assert_eq!(server.annotation("agones.dev/last-allocated"), Some(stamp.as_str()), "{faults:?}");
        assert_eq!(stage.way.state().writes, writes, "{faults:?}");
    }
    let in_use = stage.cluster.all_servers().await;
    assert!(in_use.iter().all(|server| server.state() == Some(State::Allocated)), "one server for each call");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_for_good_is_told_and_its_server_can_be_had_again() {
    let stage = Stage::build("failing", &["gs1"], &["--allocation-limit", "2s"]).await;
    for (fault, code) in [
        // Somebody else is faster each time: as good as none.
        (Fault::Refused(409), Code::ResourceExhausted),
        (Fault::Refused(500), Code::Unknown),
        (Fault::Refused(403), Code::Unknown),
        (Fault::Cut, Code::Unknown),
    ] {
        stage.way.state().always = Some(fault);
        // A write of the one before may still be under way: its server is nobody's yet.
        let told = stage.allocate().await.expect_err("a refusal");
        assert_eq!(told.code(), code, "{fault:?}: {told:?}");
    }
    stage.way.state().always = None;
    assert_eq!(stage.allocate().await.expect("a server").game_server_name, "gs1");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_a_gap_of_the_watch_is_known_after_it() {
    let stage = Stage::build("gap", &["gone"], &[]).await;
    {
        let mut state = stage.way.state();
        state.dark = Some("");
        std::mem::take(&mut state.watches).cancel();
    }
    stage.cluster.servers().delete("gone", &DeleteParams::default()).await.expect("a deletion");
    stage.cluster.create("new", State::Ready, json!({})).await;
    stage.way.state().dark = None;
    let answer = eventually(LIMIT, "the new server", async || {
        stage.allocate().await.map_err(|status| status.to_string())
    });
    assert_eq!(answer.await.expect("a server").game_server_name, "new");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_before_the_servers_are_known_waits_for_them() {
    let cluster = Cluster::start("early").await;
    cluster.create("gs1", State::Ready, json!({})).await;
    let group = TaskGroup::new(CancellationToken::new());
    let (way, kubeconfig) = Way::open(&cluster, &group).await;
    way.state().dark = Some("/gameservers");
    let allocator =
        cluster.allocator_that_starts(&kubeconfig, cluster.certificates(), "allocator", &[]).await;
    let asked = async {
        let mut service = cluster.service(&allocator).await;
        let request =
            AllocationRequest { namespace: cluster.namespace.clone(), ..AllocationRequest::default() };
        service.allocate(request).await.map(tonic::Response::into_inner)
    };
    let lit = async {
        let failures = "berth_allocator_book_watch_failures_total";
        eventually(LIMIT, "a list that failed", async || match allocator.counter(failures).await {
            0 => Err("none failed"),
            _ => Ok(()),
        })
        .await
        .expect("a list that failed");
        way.state().dark = None;
    };
    let (answer, ()) = tokio::join!(asked, lit);
    assert_eq!(answer.expect("a server").game_server_name, "gs1");
    group.token().cancel();
    group.join(LIMIT).await.expect("an end of the way");
}
