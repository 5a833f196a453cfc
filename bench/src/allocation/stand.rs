//! Where allocation is measured: an API server alone, game servers that nobody runs, and allocators in front of it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation::proto::{AllocationRequest, GameServerSelector};
use berth_api::game_server::GameServer;
use berth_dev::{
    AuditLog, ControlPlane, ControlPlaneOptions, Daemon, Launch, eventually, install, program_folder,
    source_folder,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::place::LIMIT;
use crate::programs;

/// Whom the certificates are for.
const HOST: &str = "allocator.bench";
/// The label that tells servers of different parts apart.
const FLEET: &str = "agones.dev/fleet";
/// Objects that are made at once.
const AT_ONCE: usize = 32;

/// A client of the allocator service.
pub(crate) type Service = AllocationServiceClient<Channel>;

/// One allocator.
pub(crate) struct Allocator {
    pub(crate) daemon: Daemon,
    port: u16,
}

/// The place.
pub(crate) struct Stand {
    plane: ControlPlane,
    client: kube::Client,
    namespace: String,
    certificates: PathBuf,
}

impl Stand {
    pub(crate) async fn build() -> anyhow::Result<Self> {
        let options = ControlPlaneOptions { audit: true, ..ControlPlaneOptions::default() };
        let plane = ControlPlane::start(options).await?;
        let client = plane.client();
        let manifests = source_folder().join("manifests");
        let mut files: Vec<PathBuf> = fs::read_dir(manifests.join("crds"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.extend(["namespace.yaml", "allocator/rbac.yaml"].map(|file| manifests.join(file)));
        for file in files {
            install::apply(&client, &file).await?;
        }
        let namespace = plane.namespace("bench").await?;
        let bindings = fs::read_to_string(manifests.join("allocator/bindings.yaml"))?;
        let bindings = bindings.replace("\nmetadata:\n", &format!("\nmetadata:\n  namespace: {namespace}\n"));
        let file = plane.instance().subfolder("bench")?.join("bindings.yaml");
        fs::write(&file, bindings)?;
        install::apply(&client, &file).await?;
        let certificates = plane.instance().subfolder("bench")?.join("certificates");
        let made = Command::new(program_folder().join("berth-allocator"))
            .args(["certs", "--san", HOST, "--folder"])
            .arg(&certificates)
            .output()?;
        anyhow::ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { plane, client, namespace, certificates })
    }

    pub(crate) fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn audit(&self) -> anyhow::Result<AuditLog> {
        let path = self.plane.audit_log().context("a control plane with a log")?;
        let mut log = AuditLog::open(path)?;
        log.news()?;
        Ok(log)
    }

    /// Makes Ready servers of a Fleet, on twenty nodes, each with `seats`.
    pub(crate) async fn create(&self, fleet: &str, count: usize, seats: Option<i64>) -> anyhow::Result<()> {
        let servers = self.servers();
        let made = stream::iter(0..count).map(|number| {
            let server = server(fleet, number, seats);
            let servers = &servers;
            async move {
                servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?;
                anyhow::Ok(())
            }
        });
        made.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Starts an allocator and waits until it serves.
    pub(crate) async fn allocator(&self, name: &str) -> anyhow::Result<Allocator> {
        let instance = self.plane.instance();
        let kubeconfig = instance.subfolder("bench")?.join("allocator.kubeconfig");
        let kubeconfig = self.plane.kubeconfig_for("berth-allocator", &[], &kubeconfig)?;
        let port = instance.port(name)?;
        let path = |name: &str| self.certificates.join(name).to_string_lossy().into_owned();
        let launch = Launch::new(name, program_folder().join("berth-allocator"))
            .arguments(["--kubeconfig".to_owned(), kubeconfig.to_string_lossy().into_owned()])
            .arguments(["--address", "127.0.0.1", "--api-port", "-1"])
            .arguments(["--grpc-port", "--http-port"].map(|flag| format!("{flag}={port}")))
            .arguments(["--tls".to_owned(), path("tls"), "--client-ca".to_owned(), path("client-ca")]);
        let allocator = Allocator { daemon: Daemon::start(instance, launch)?, port };
        // It opens its port before its first lists are complete, and knows of no server until then.
        eventually(LIMIT, format!("{name} to serve"), async || {
            let mut service = self.service(&allocator).await.map_err(|error| format!("{error:#}"))?;
            let known = service.allocate(self.request(Some("none"))).await;
            let words = fs::read_to_string(allocator.daemon.log()).map_err(|error| error.to_string())?;
            match known {
                Err(status)
                    if status.code() == tonic::Code::ResourceExhausted && words.contains("started") =>
                {
                    Ok(())
                }
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        Ok(allocator)
    }

    pub(crate) async fn service(&self, allocator: &Allocator) -> anyhow::Result<Service> {
        let read = |name: &str| fs::read_to_string(self.certificates.join(name));
        let tls = ClientTlsConfig::new()
            .domain_name(HOST)
            .ca_certificate(Certificate::from_pem(read("client/ca.crt")?))
            .identity(Identity::from_pem(read("client/tls.crt")?, read("client/tls.key")?));
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", allocator.port))?;
        Ok(AllocationServiceClient::new(endpoint.tls_config(tls)?.connect().await?))
    }

    /// A request for a Ready server, of a Fleet or any.
    pub(crate) fn request(&self, fleet: Option<&str>) -> AllocationRequest {
        let labels = fleet.map(|fleet| (FLEET.to_owned(), fleet.to_owned()));
        let selector =
            GameServerSelector { match_labels: labels.into_iter().collect(), ..Default::default() };
        AllocationRequest {
            namespace: self.namespace.clone(),
            game_server_selectors: vec![selector],
            ..AllocationRequest::default()
        }
    }
}

fn server(fleet: &str, number: usize, seats: Option<i64>) -> Value {
    let mut server = json!({
        "metadata": { "name": format!("{fleet}-{number:05}"), "labels": { FLEET: fleet } },
        "spec": { "template": { "spec": { "containers": [{ "name": "game", "image": "game" }] } } },
        "status": {
            "state": "Ready", "address": "192.0.2.1", "nodeName": format!("node-{:02}", number % 20),
            "ports": [{ "name": "default", "port": 7000 }],
        },
    });
    if let Some(seats) = seats {
        server["status"]["counters"] = json!({ "seats": { "count": 0, "capacity": seats } });
    }
    server
}

/// The processor seconds that a program has used.
pub(crate) fn processor(daemon: &Daemon) -> anyhow::Result<f64> {
    Ok(programs::figures(daemon).context("a program that runs")?.0)
}

/// The MiB that a program has resident.
pub(crate) fn memory(daemon: &Daemon) -> anyhow::Result<f64> {
    Ok(programs::figures(daemon).context("a program that runs")?.1)
}
