//! What has to be said of a cluster on one machine that the shipped manifests cannot know: a kustomization like any
//! user's, beside the cluster's other files.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::program_images::ProgramImage;
use super::{InstallError, at};
use crate::binaries::Binaries;
use crate::cluster::{Cluster, Node};
use crate::command;

/// Where every Linux names its boot; the nodes here have each their own file there.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Writes the kustomization and gives back what comes out of it. Blocks.
pub(super) fn render(
    cluster: &Cluster,
    manifests: &Path,
    images: &[ProgramImage],
) -> Result<(PathBuf, String), InstallError> {
    let folder = cluster.instance().subfolder("manifests")?;
    let (from, to) = (real(&folder)?, real(manifests)?);
    let overlay = kustomization(&way(&from, &to), images, &cgroup_root(cluster.node(0)));
    let file = folder.join("kustomization.yaml");
    fs::write(&file, format!("{overlay:#}\n")).map_err(at(&file))?;
    let binaries = Binaries::ensure(&mut |line| tracing::info!("{line}"))?;
    let kubectl = binaries.kubectl().to_string_lossy().into_owned();
    let words = ["kustomize".as_ref(), folder.as_os_str()];
    let text = command::run(&kubectl, words).map_err(InstallError::Command)?;
    Ok((file, text))
}

fn real(path: &Path) -> Result<PathBuf, InstallError> {
    path.canonicalize().map_err(at(path))
}

/// The control group of every node, as a pod knows its node: `$(NAME)` is replaced by kubelet.
fn cgroup_root(node: &Node) -> String {
    let group = node.cgroup();
    let cluster = group.strip_suffix(node.name()).unwrap_or(&group);
    format!("{cluster}$(BERTH_NODE_NAME)")
}

fn kustomization(manifests: &Path, images: &[ProgramImage], cgroup_root: &str) -> Value {
    let images: Vec<Value> =
        images.iter().map(|image| json!({"name": image.name, "newTag": image.tag})).collect();
    // Added at the end: a variable may name only those before it.
    let add = |list: &str, value: Value| json!({"op": "add", "path": format!("/spec/template/spec/{list}/-"), "value": value});
    let agent = json!([
        add("containers/0/env", json!({"name": "BERTH_CGROUP_ROOT", "value": cgroup_root})),
        add("containers/0/env", json!({"name": "BERTH_BOOT_ID_FILE", "value": "/boot_id"})),
        add(
            "containers/0/volumeMounts",
            json!({"name": "boot-id", "mountPath": "/boot_id", "readOnly": true})
        ),
        add("volumes", json!({"name": "boot-id", "hostPath": {"path": BOOT_ID, "type": "File"}})),
    ]);
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [manifests],
        "images": images,
        "patches": [{"target": {"kind": "DaemonSet", "name": "berth-agent"}, "patch": agent.to_string()}],
    })
}

/// The way from one folder to another, which is all that kustomize takes. Both are absolute and without links.
fn way(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_leads_up_and_down() {
        let table = [("/a/b/c", "/a/d", "../../d"), ("/a", "/a/b", "b"), ("/x/y", "/z", "../../z")];
        for (from, to, wanted) in table {
            assert_eq!(way(Path::new(from), Path::new(to)), Path::new(wanted), "{from} to {to}");
        }
    }
}
