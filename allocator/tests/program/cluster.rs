//! A control plane with Berth's resources and allocators in front of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation::proto::{AllocationRequest, AllocationResponse};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{ControlPlane, ControlPlaneOptions, Daemon, Launch, eventually, install};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{IntoRequest, Response, Status};

use super::certificates::{Authority, Signed};

/// How long a condition may take on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// How long a call waits for its answer on a connection that may be refused.
const UNHEARD: Duration = Duration::from_secs(30);

/// A call on a connection that may be refused. With TLS 1.3 a client takes a connection for made before it can know that,
/// and a call that it begins in between may be answered by nobody, not even by an error.
pub(crate) async fn allocate_if_let_in(
    channel: Channel,
    request: impl IntoRequest<AllocationRequest>,
) -> Result<AllocationResponse, Status> {
    let mut service = AllocationServiceClient::new(channel);
    match tokio::time::timeout(UNHEARD, service.allocate(request)).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::unavailable(format!("no answer within {UNHEARD:?}"))),
    }
}
/// The name that the allocators' certificates are for.
pub(crate) const HOST: &str = "allocator.test";

/// What an allocator may do, as it ships.
const RIGHTS: &[&str] = &["allocator/rbac.yaml"];
/// The control plane of all tests, each in a namespace of its own.
static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
/// The control plane of another cluster.
static ELSEWHERE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A namespace for one test, and what it needs to start allocators.
pub(crate) struct Cluster {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) client: Client,
    /// Where the test's game servers live.
    pub(crate) namespace: String,
    pub(crate) authority: Authority,
    clients: Authority,
    folder: PathBuf,
    /// Whom allocators are to the API server.
    user: &'static str,
}

/// An installation of the allocator: the folder of its manifests, and whom it is to the API server.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) folder: &'static str,
    pub(crate) user: &'static str,
}

/// As it ships.
pub(crate) const PLAIN: Shape = Shape { folder: "allocator", user: "berth-allocator" };
/// Under the names that existing clients use.
pub(crate) const FAMILIAR: Shape =
    Shape { folder: "agones-system", user: "system:serviceaccount:agones-system:agones-allocator" };

/// One allocator.
pub(crate) struct Allocator {
    pub(crate) daemon: Daemon,
    /// Port of gRPC and REST.
    pub(crate) port: u16,
    /// Port of the aggregated API.
    pub(crate) api_port: u16,
    admin: u16,
}

impl Allocator {
    /// The value of one of its counters.
    pub(crate) async fn counter(&self, name: &str) -> u64 {
        let text = self.metrics().await;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// What it has written.
    pub(crate) fn words(&self) -> String {
        fs::read_to_string(self.daemon.log()).expect("a log")
    }

    /// The text of its metrics.
    pub(crate) async fn metrics(&self) -> String {
        let (_, text) = fetch(&format!("http://127.0.0.1:{}/metrics", self.admin)).await.expect("metrics");
        text
    }
}

impl Cluster {
    pub(crate) async fn start(purpose: &str) -> Self {
        Self::on(PLANE.get_or_init(|| start_plane(RIGHTS)).await, PLAIN, purpose).await
    }

    /// The same on another control plane than that of all tests.
    pub(crate) async fn elsewhere(purpose: &str) -> Self {
        Self::on(ELSEWHERE.get_or_init(|| start_plane(RIGHTS)).await, PLAIN, purpose).await
    }

    /// A namespace of this control plane, opened to an allocator of this shape.
    pub(crate) async fn on(plane: &'static ControlPlane, shape: Shape, purpose: &str) -> Self {
        let client = plane.client();
        let namespace = plane.namespace(purpose).await.expect("a namespace");
        let folder = plane.instance().subfolder(&namespace).expect("a folder");
        for file in ["bindings.yaml", "other-clusters.yaml"] {
            let bindings =
                fs::read_to_string(manifests().join(shape.folder).join(file)).expect("the bindings");
            let bindings =
                bindings.replace("\nmetadata:\n", &format!("\nmetadata:\n  namespace: {namespace}\n"));
            fs::write(folder.join(file), bindings).expect("the bindings");
            install::apply(&client, &folder.join(file)).await.expect("an applied manifest");
        }
        let clients = Authority::new("clients");
        fs::create_dir_all(folder.join("client-ca")).expect("a folder");
        fs::write(folder.join("client-ca/ca.crt"), &clients.pem).expect("a certificate");
        let authority = Authority::new("servers");
        authority.server(&[HOST, "127.0.0.1"]).write(&folder.join("tls"));
        authority.server(&["allocator.berth-system.svc"]).write(&folder.join("api-tls"));
        Self { plane, client, namespace, authority, clients, folder, user: shape.user }
    }

    /// A folder of the test's own.
    pub(crate) fn subfolder(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// Starts an allocator with the rights that it ships with, and waits until it serves.
    pub(crate) async fn allocator(&self, name: &str, arguments: &[&str]) -> Allocator {
        self.allocator_with(&self.folder, name, arguments).await
    }

    /// The same with the certificates of this folder.
    pub(crate) async fn allocator_with(
        &self,
        certificates: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Allocator {
        let kubeconfig = self.folder.join("allocator.kubeconfig");
        let kubeconfig = self.plane.kubeconfig_for(self.user, &[], &kubeconfig).expect("a kubeconfig");
        self.allocator_through(&kubeconfig, certificates, name, arguments).await
    }

    /// The same that finds the API server by this kubeconfig.
    pub(crate) async fn allocator_through(
        &self,
        kubeconfig: &Path,
        certificates: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Allocator {
        let allocator = self.allocator_that_starts(kubeconfig, certificates, name, arguments).await;
        let ready = format!("http://127.0.0.1:{}/readyz", allocator.admin);
        eventually(LIMIT, "the allocator to be ready", async || {
            let last_words = || allocator.daemon.last_words();
            let answer = fetch(&ready).await.map_err(|error| format!("{error}; {}", last_words()))?;
            if answer.0 == 200 { Ok(()) } else { Err(answer.1) }
        })
        .await
        .expect("an allocator");
        allocator
    }

    /// The same, which may not be ready yet.
    pub(crate) async fn allocator_that_starts(
        &self,
        kubeconfig: &Path,
        certificates: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Allocator {
        let instance = self.plane.instance();
        let name = &format!("{name}-{}", self.namespace);
        let path = |name: &str| certificates.join(name).to_string_lossy().into_owned();
        let launch = Launch::new(name, env!("CARGO_BIN_EXE_berth-allocator"))
            .arguments(["--kubeconfig".to_owned(), kubeconfig.to_string_lossy().into_owned()])
            .arguments(["--address", "127.0.0.1", "--log-level", "info,berth_allocator=debug"])
            // Free ports, which it tells: there are more allocators here than an instance has ports.
            .arguments(["--grpc-port", "0", "--http-port", "0", "--api-port", "0"])
            .arguments(["--admin-address", "127.0.0.1:0"])
            .arguments(["--tls".to_owned(), path("tls"), "--client-ca".to_owned(), path("client-ca")])
            .arguments(["--api-tls".to_owned(), path("api-tls")])
            // A machine that is busy with other tests is slow; a test that wants a limit says so by its argument.
            .variable("BERTH_ALLOCATION_LIMIT", "120s")
            .variable("REMOTE_ALLOCATION_TIMEOUT", "120s")
            .variable("TOTAL_REMOTE_ALLOCATION_TIMEOUT", "240s")
            .arguments(arguments.iter().copied());
        let daemon = Daemon::start(instance, launch).expect("an allocator");
        let [admin, port, api_port] = ports(&daemon).await;
        Allocator { daemon, port, api_port, admin }
    }

    /// Where the certificates of allocators are.
    pub(crate) fn certificates(&self) -> &Path {
        &self.folder
    }

    /// Puts an allocator behind the API server.
    pub(crate) async fn serve_api(&self, allocator: &Allocator) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "allocator", "namespace": "berth-system" },
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        });
        let authority = k8s_openapi::ByteString(self.authority.pem.clone().into_bytes());
        let api_service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": "v1.allocation.agones.dev" },
            "spec": {
                "group": "allocation.agones.dev", "version": "v1",
                "groupPriorityMinimum": 1000, "versionPriority": 15,
                "caBundle": authority,
                "service": { "name": "allocator", "namespace": "berth-system", "port": allocator.api_port },
            },
        });
        let file = self.folder.join("api-service.yaml");
        fs::write(&file, format!("{service}\n---\n{api_service}\n")).expect("a manifest");
        install::apply(&self.client, &file).await.expect("an applied manifest");
        eventually(LIMIT, "the aggregated API to be available", async || {
            let request = http::Request::get("/apis/allocation.agones.dev/v1").body(Vec::new());
            let request = request.map_err(|error| error.to_string())?;
            self.client.request_text(request).await.map(drop).map_err(|error| error.to_string())
        })
        .await
        .expect("the aggregated API");
    }

    pub(crate) fn client_certificate(&self) -> Signed {
        self.clients.client("matchmaker")
    }

    /// One that an authority below has signed, and is shown with that one's own.
    pub(crate) fn client_certificate_of_a_team(&self) -> Signed {
        let team = self.clients.below("a team");
        let signed = team.client("matchmaker");
        Signed { certificate: format!("{}{}", signed.certificate, team.pem), ..signed }
    }

    /// Replaces the authority of clients.
    pub(crate) fn renew_client_authority(&mut self) {
        let renewed = Authority::new("clients, renewed");
        let draft = self.folder.join("client-ca/draft");
        fs::write(&draft, &renewed.pem).expect("a certificate");
        fs::rename(draft, self.folder.join("client-ca/ca.crt")).expect("the new certificate");
        self.clients = renewed;
    }

    pub(crate) fn renew_server_certificate(&self) {
        self.authority.server(&[HOST]).write(&self.folder.join("tls"));
    }

    /// Whom clients of the service trust, and who they are.
    pub(crate) fn tls(&self, client: Option<&Signed>) -> ClientTlsConfig {
        let tls = ClientTlsConfig::new()
            .domain_name(HOST)
            .ca_certificate(Certificate::from_pem(&self.authority.pem));
        match client {
            Some(signed) => tls.identity(Identity::from_pem(&signed.certificate, &signed.key)),
            None => tls,
        }
    }

    /// A client of the service with a certificate.
    pub(crate) async fn service(&self, allocator: &Allocator) -> AllocationServiceClient<Channel> {
        // A handshake has a limit, which a machine that is busy with other tests may miss.
        let certificate = self.client_certificate();
        let channel = eventually(LIMIT, "a connection", async || {
            self.channel(allocator, Some(&certificate)).await.map_err(|error| format!("{error:?}"))
        });
        AllocationServiceClient::new(channel.await.expect("a connection"))
    }

    /// A connection to the service, with this certificate or none.
    pub(crate) async fn channel(
        &self,
        allocator: &Allocator,
        client: Option<&Signed>,
    ) -> Result<Channel, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", allocator.port)).expect("a URL");
        endpoint.tls_config(self.tls(client)).expect("a configuration").connect().await
    }

    pub(crate) fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a server in this state; `more` is merged over its status.
    pub(crate) async fn create(&self, name: &str, state: State, more: Value) {
        let server = server(name, state, more);
        self.servers().create(&PostParams::default(), &server).await.expect("a created GameServer");
    }

    /// Makes many Ready servers.
    pub(crate) async fn create_many(&self, count: usize) {
        let servers = self.servers();
        let made = stream::iter(0..count).map(|number| {
            let servers = servers.clone();
            async move {
                let server = server(&format!("gs-{number:04}"), State::Ready, json!({}));
                servers.create(&PostParams::default(), &server).await
            }
        });
        made.buffer_unordered(16).try_for_each(async |_| Ok(())).await.expect("created GameServers");
    }

    pub(crate) async fn all_servers(&self) -> Vec<GameServer> {
        self.servers().list(&ListParams::default()).await.expect("a list of servers").items
    }
}

/// The ports of an allocator's admin endpoint, service and API, as it tells them.
async fn ports(daemon: &Daemon) -> [u16; 3] {
    let port = |words: &str, what: &str| {
        let (_, rest) = words.split_once(&format!("{what} address="))?;
        rest.split_whitespace().next()?.rsplit_once(':')?.1.parse().ok()
    };
    eventually(LIMIT, "the allocator to tell its ports", async || {
        let words = fs::read_to_string(daemon.log()).map_err(|error| error.to_string())?;
        let all = ["admin endpoint", "allocator service", "aggregated API"].map(|what| port(&words, what));
        let [Some(admin), Some(service), Some(api)] = all else { return Err(daemon.last_words()) };
        Ok([admin, service, api])
    })
    .await
    .expect("the ports of an allocator")
}

/// A control plane with Berth's resources, its namespace, and these manifests.
pub(crate) async fn start_plane(more: &[&str]) -> ControlPlane {
    // Extension servers are reached by the names of their Services here, since they are processes beside it.
    let flags = vec!["--enable-aggregator-routing=false".to_owned()];
    let options = ControlPlaneOptions { api_server_flags: flags, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.expect("a control plane");
    let crds = fs::read_dir(manifests().join("crds")).expect("the folder of the definitions");
    let crds = crds.map(|file| file.expect("a file").path());
    let more = ["namespace.yaml"].iter().chain(more).map(|file| manifests().join(file));
    for file in crds.chain(more) {
        install::apply(&plane.client(), &file).await.expect("an applied manifest");
    }
    plane
}

pub(crate) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

fn server(name: &str, state: State, more: Value) -> GameServer {
    let mut status = json!({
        "state": state,
        "address": "192.0.2.1",
        "nodeName": "node-a",
        "ports": [{ "name": "default", "port": 7000 }],
    });
    for (field, value) in more.as_object().expect("an object") {
        status[field] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "template": { "spec": { "containers": [{ "name": "game", "image": "game" }] } } },
        "status": status,
    }))
    .expect("a GameServer")
}

/// The status code and the body of a plain GET.
async fn fetch(url: &str) -> Result<(u16, String), String> {
    use http_body_util::BodyExt as _;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    let client = Client::builder(TokioExecutor::new()).build_http::<http_body_util::Empty<bytes::Bytes>>();
    let uri = url.parse().map_err(|error| format!("{error}"))?;
    let answer = client.get(uri).await.map_err(|error| error.to_string())?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}
