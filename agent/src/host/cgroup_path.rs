//! How kubelet names the cgroups of pods, both ways.
//!
//! With the cgroupfs driver a container lives in `kubepods[/burstable|/besteffort]/pod<UID>/<container>`; with the
//! systemd driver in `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/<runtime>-<container>.scope`,
//! where the dashes of the UID are underscores, and the names of what is above are repeated in each slice.

use std::path::{Path, PathBuf};

/// A pod that a cgroup belongs to, and which of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    /// UID of the pod, as the API server writes it.
    pub(super) pod_uid: String,
    /// Id of the container, sandboxes included; none for the cgroup of the pod as a whole.
    pub(super) container: Option<String>,
}

/// The pods named on a path such as `/proc/PID/cgroup` shows, outermost first: more than one where a cluster runs
/// inside a pod. A path may be relative to a cgroup namespace and begin with `/../..`.
pub(super) fn memberships(path: &str) -> Vec<Membership> {
    // A colon stands between slice, runtime and container where the runtime does not know of systemd though kubelet does.
    let parts: Vec<&str> = path.split(['/', ':']).filter(|part| !part.is_empty()).collect();
    let mut found = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if let Some(pod_uid) = pod_uid(part) {
            let container = parts[at + 1..].iter().find_map(|part| container_id(part));
            found.push(Membership { pod_uid, container });
        }
    }
    found
}

/// The UID in the name of a pod's cgroup.
pub(super) fn pod_uid(name: &str) -> Option<String> {
    match name.strip_suffix(".slice") {
        Some(slice) => {
            let (_, uid) = slice.rsplit_once("-pod")?;
            Some(uid.replace('_', "-")).filter(|uid| is_pod_uid(uid))
        }
        None => name.strip_prefix("pod").filter(|uid| is_pod_uid(uid)).map(str::to_owned),
    }
}

/// Whether this is the UID of a pod: a UUID, or the 32 hexadecimal digits of a static pod.
pub(super) fn is_pod_uid(uid: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
    match uid.len() {
        32 => is_hex(uid),
        36 => {
            let lengths = uid.split('-').map(str::len);
            lengths.eq([8, 4, 4, 4, 12]) && uid.split('-').all(is_hex)
        }
        _ => false,
    }
}

/// The folders, below a hierarchy, in which the cgroups of pods appear; `root` is kubelet's `cgroupRoot`.
pub(super) fn pod_parents(root: &str) -> Vec<PathBuf> {
    let cgroupfs = Path::new(root.trim_matches('/')).join("kubepods");
    let systemd = slice_path(root.split('/').filter(|part| !part.is_empty()).chain(["kubepods"]));
    let name = systemd.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let of_class = |class: &str| systemd.join(format!("{name}-{class}.slice"));
    vec![
        cgroupfs.join("besteffort"),
        cgroupfs.join("burstable"),
        cgroupfs,
        of_class("besteffort"),
        of_class("burstable"),
        systemd,
    ]
}

/// Where the cgroup of a pod is in one of the folders of [`pod_parents`].
pub(super) fn pod_folder(parent: &Path, uid: &str) -> PathBuf {
    let parent_name = parent.file_name().unwrap_or_default().to_string_lossy();
    match parent_name.strip_suffix(".slice") {
        Some(slice) => parent.join(format!("{slice}-pod{}.slice", uid.replace('-', "_"))),
        None => parent.join(format!("pod{uid}")),
    }
}

/// `a`, `b` → `a.slice/a-b.slice`, as systemd nests slices; a dash within a name becomes an underscore.
fn slice_path<'a>(names: impl Iterator<Item = &'a str>) -> PathBuf {
    let mut path = PathBuf::new();
    let mut joined = String::new();
    for name in names {
        if !joined.is_empty() {
            joined.push('-');
        }
        joined.push_str(&name.replace('-', "_"));
        path.push(format!("{joined}.slice"));
    }
    path
}

/// The id in the name of a container's cgroup: 64 hexadecimal digits, perhaps with a runtime before and `.scope` after.
fn container_id(name: &str) -> Option<String> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6c4ef7f5-9c1b-4f5e-8a7a-0d6f6a2b9c01";
    const ESCAPED: &str = "6c4ef7f5_9c1b_4f5e_8a7a_0d6f6a2b9c01";
    const STATIC: &str = "3f2b0d6d7c9e4b0f8e1a2c3d4e5f6071";
    const ID: &str = "d3b07384d113edec49eaa6238ad5ff00c157afec5f0a54fba5ff1d3fba3a3c17";

    #[test]
    fn real_paths_name_their_pod_and_container() {
        let pod = Some((UID, None));
        let container = Some((UID, Some(ID)));
        type Row<'a> = (&'a str, String, Option<(&'a str, Option<&'a str>)>);
        let table: &[Row<'_>] = &[
            ("cgroupfs, guaranteed", format!("/kubepods/pod{UID}/{ID}"), container),
            ("cgroupfs, burstable", format!("/kubepods/burstable/pod{UID}/{ID}"), container),
            ("cgroupfs, best effort", format!("/kubepods/besteffort/pod{UID}/{ID}"), container),
            ("cgroupfs, root of its own", format!("/berth-a/kubepods/besteffort/pod{UID}/{ID}"), container),
            ("cgroupfs, pod alone", format!("/kubepods/burstable/pod{UID}"), pod),
            ("cgroupfs, CRI-O", format!("/kubepods/burstable/pod{UID}/crio-{ID}"), container),
            ("cgroupfs, below the container", format!("/kubepods/pod{UID}/{ID}/init.scope"), container),
            (
                "systemd, burstable",
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{ESCAPED}.slice/cri-containerd-{ID}.scope"
                ),
                container,
            ),
            (
                "systemd, guaranteed",
                format!("/kubepods.slice/kubepods-pod{ESCAPED}.slice/cri-containerd-{ID}.scope"),
                container,
            ),
            (
                "systemd, CRI-O with a cgroup below",
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{ESCAPED}.slice/crio-{ID}.scope/container"
                ),
                container,
            ),
            (
                "systemd, docker",
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{ESCAPED}.slice/docker-{ID}.scope"
                ),
                container,
            ),
            (
                "systemd, root of its own",
                format!(
                    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{ESCAPED}.slice/cri-containerd-{ID}.scope"
                ),
                container,
            ),
            (
                "kubelet with systemd, runtime without",
                format!(
                    "/system.slice/containerd.service/kubepods-burstable-pod{ESCAPED}.slice:cri-containerd:{ID}"
                ),
                container,
            ),
            ("seen from a cgroup namespace", format!("/../../pod{UID}/{ID}"), container),
            ("static pod", format!("/kubepods/burstable/pod{STATIC}/{ID}"), Some((STATIC, Some(ID)))),
            (
                "static pod, systemd",
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope"
                ),
                Some((STATIC, Some(ID))),
            ),
            ("the host's root", "/".to_owned(), None),
            ("a service", "/system.slice/containerd.service".to_owned(), None),
            ("a container without a pod", format!("/docker/{ID}"), None),
            ("podman", format!("/machine.slice/libpod-{ID}.scope"), None),
            ("a class alone", "/kubepods/besteffort".to_owned(), None),
            ("a UID cut short", "/kubepods/pod6c4ef7f5-9c1b".to_owned(), None),
            ("nothing", String::new(), None),
        ];
        for (name, path, expected) in table {
            let found = memberships(path);
            let seen = found.last().map(|one| (one.pod_uid.as_str(), one.container.as_deref()));
            assert_eq!(seen, *expected, "{name}: {path}");
        }
    }

    #[test]
    fn a_cluster_inside_a_pod_names_both_pods() {
        let inner = "00000000-1111-2222-3333-444444444444";
        let found = memberships(&format!("/kubepods/pod{UID}/{ID}/kubepods/pod{inner}/{ID}"));
        let uids: Vec<_> = found.iter().map(|one| one.pod_uid.as_str()).collect();
        assert_eq!(uids, [UID, inner]);
    }

    #[test]
    fn folders_of_pods_are_where_kubelet_makes_them() {
        let of = |root: &str| -> Vec<String> {
            pod_parents(root).iter().map(|parent| pod_folder(parent, UID).display().to_string()).collect()
        };
        assert_eq!(
            of("/"),
            [
                format!("kubepods/besteffort/pod{UID}"),
                format!("kubepods/burstable/pod{UID}"),
                format!("kubepods/pod{UID}"),
                format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{ESCAPED}.slice"),
                format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{ESCAPED}.slice"),
                format!("kubepods.slice/kubepods-pod{ESCAPED}.slice"),
            ]
        );
        let own = of("/berth-node-a");
        assert_eq!(own[0], format!("berth-node-a/kubepods/besteffort/pod{UID}"));
        assert_eq!(
            own[5],
            format!(
                "berth_node_a.slice/berth_node_a-kubepods.slice/berth_node_a-kubepods-pod{ESCAPED}.slice"
            )
        );
    }

    #[test]
    fn what_is_made_is_read_back() {
        for root in ["/", "/kubelet", "/a/b"] {
            for parent in pod_parents(root) {
                let folder = pod_folder(&parent, UID);
                let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
                assert_eq!(pod_uid(&name).as_deref(), Some(UID), "{}", folder.display());
            }
        }
    }
}
