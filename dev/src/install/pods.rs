//! Berth as it ships: its manifests as they are, images of its programs, and nothing of it on the machine itself.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use rustix::process::Signal;

use super::manifests::Origin;
use super::overlay;
use super::program_images::{PROGRAMS, ProgramImage};
use super::{InstallError, offer};
use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::places;

/// Where Berth's own pods are.
const NAMESPACE: &str = "berth-system";
/// Images are on the nodes already: this is for busy machines.
const UP_LIMIT: Duration = Duration::from_secs(180);
/// What a process of a former installation may take to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What is installed, and from where.
#[derive(Debug, Clone)]
pub struct PodsOptions {
    /// The folder of the programs.
    pub programs: PathBuf,
    /// The folder of the manifests.
    pub manifests: PathBuf,
}

impl Default for PodsOptions {
    /// What was built together with us.
    fn default() -> Self {
        Self { programs: places::program_folder(), manifests: places::source_folder().join("manifests") }
    }
}

/// Installs Berth as a user does, or brings what is there up to date: builds the images, gives them to the nodes,
/// applies the manifests, and waits until every node is offered.
///
/// # Errors
/// When an image cannot be built, an object is refused, or a program does not come up in time.
pub async fn install_pods(cluster: &Cluster, options: &PodsOptions) -> Result<(), InstallError> {
    let images = build_images(options).await?;
    for image in &images {
        cluster.import(&image.image).await?;
    }
    end_processes(cluster).await?;
    let client = cluster.client();
    let (file, text) = overlay::render(cluster, &options.manifests, &images)?;
    Origin { path: &file, namespace: NAMESPACE }.apply(&client, &text).await?;
    let wanted = |program: &str| {
        let found = images.iter().find(|image| image.name.ends_with(program));
        found.map(ProgramImage::reference).unwrap_or_default().to_owned()
    };
    replace_sdks(&client, &wanted("berth-sdk")).await?;
    wait_until_rolled_out(&client).await?;
    for node in cluster.nodes() {
        let offered = eventually(UP_LIMIT, format!("{} to be offered", node.name()), async || {
            offer::check(&client, node.name()).await
        });
        offered.await.map_err(late)?;
    }
    Ok(())
}

async fn build_images(options: &PodsOptions) -> Result<Vec<ProgramImage>, InstallError> {
    let builds = PROGRAMS.map(|program| {
        let programs = options.programs.clone();
        tokio::task::spawn_blocking(move || ProgramImage::build(&programs, program))
    });
    let built = try_join_all(builds).await;
    built.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).into_iter().collect()
}

/// Ends what an installation as plain processes left running in this cluster, if there was one.
async fn end_processes(cluster: &Cluster) -> Result<(), InstallError> {
    let instance = cluster.instance();
    let on_nodes = cluster
        .nodes()
        .iter()
        .flat_map(|node| ["berth-agent", "berth-sdk"].map(|program| format!("{}-{program}", node.name())));
    for name in on_nodes.chain(["berth-brain".to_owned()]) {
        let Some(process) = instance.running(&name) else { continue };
        process.signal(Signal::TERM);
        let ended = eventually(END_LIMIT, format!("{name} to end"), async || {
            if process.is_alive() { Err("it runs") } else { Ok(()) }
        });
        ended.await.map_err(late)?;
    }
    Ok(())
}

/// An update leaves each `berth-sdk` alone, for the games' sake. Here what was built is what is to be seen.
async fn replace_sdks(client: &kube::Client, image: &str) -> Result<(), InstallError> {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("app.kubernetes.io/name=berth-sdk");
    let failed = |source| InstallError::Api { what: "replace berth-sdk", source };
    let found = pods.list(&ours).await.map_err(failed)?;
    let is_old = |pod: &&Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.into_iter().any(|container| container.image.as_deref() != Some(image))
    };
    for pod in found.iter().filter(is_old) {
        match pods.delete(&pod.name_any(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(refusal)) if refusal.code == 404 => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

async fn wait_until_rolled_out(client: &kube::Client) -> Result<(), InstallError> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let sets = Api::<DaemonSet>::namespaced(client.clone(), NAMESPACE);
    let done = eventually(UP_LIMIT, "Berth's pods to be available", async || {
        let brain = deployments.get("berth-brain").await.map_err(|error| error.to_string())?;
        deployment_is_done(&brain)?;
        for name in ["berth-sdk", "berth-agent"] {
            let set = sets.get(name).await.map_err(|error| error.to_string())?;
            set_is_done(&set)?;
        }
        Ok::<_, String>(())
    });
    done.await.map_err(late)
}

fn deployment_is_done(deployment: &Deployment) -> Result<(), String> {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let is_seen = status.observed_generation == deployment.metadata.generation;
    let updated = status.updated_replicas.unwrap_or(0);
    let all = status.replicas.unwrap_or(0);
    let available = status.available_replicas.unwrap_or(0);
    if is_seen && updated == wanted && all == wanted && available == wanted {
        return Ok(());
    }
    Err(format!("{}: {available} of {wanted} available, {updated} of this version", deployment.name_any()))
}

fn set_is_done(set: &DaemonSet) -> Result<(), String> {
    let status = set.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let is_seen = status.observed_generation == set.metadata.generation;
    let updated = status.updated_number_scheduled.unwrap_or(0);
    let available = status.number_available.unwrap_or(0);
    if is_seen && wanted > 0 && updated == wanted && available == wanted {
        return Ok(());
    }
    Err(format!("{}: {available} of {wanted} available, {updated} of this version", set.name_any()))
}

fn late(source: crate::eventually::Overdue) -> InstallError {
    let hint = "`kubectl -n berth-system get pods` and `kubectl -n berth-system logs` of the pod say why";
    InstallError::Late { hint: hint.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_daemon_set_is_done_when_every_node_has_the_newest() {
        let set = |seen: i64, updated: i32, available: i32| -> DaemonSet {
            serde_json::from_value(json!({
                "metadata": {"name": "berth-agent", "generation": 2},
                "status": {
                    "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0,
                    "numberReady": available, "observedGeneration": seen,
                    "updatedNumberScheduled": updated, "numberAvailable": available,
                },
            }))
            .unwrap()
        };
        assert_eq!(set_is_done(&set(2, 2, 2)), Ok(()));
        for (seen, updated, available) in [(1, 2, 2), (2, 1, 2), (2, 2, 1)] {
            assert!(set_is_done(&set(seen, updated, available)).is_err(), "{seen} {updated} {available}");
        }
    }
}
