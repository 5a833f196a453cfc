//! Which cgroup hierarchy to look for pods in, and where in it a pod is now.

use std::path::{Path, PathBuf};

use super::HostError;
use super::cgroup_path;

/// Hierarchies of cgroup v1 in which kubelet and every runtime enter each container, best first.
const V1: [&str; 4] = ["pids", "memory", "cpu", "cpu,cpuacct"];

/// One cgroup hierarchy, and kubelet's root in it.
#[derive(Debug, Clone)]
pub(super) struct Hierarchy {
    mount: PathBuf,
    pod_parents: Vec<PathBuf>,
}

impl Hierarchy {
    /// The hierarchy to use below `mount`, usually `/sys/fs/cgroup`, for a kubelet whose `cgroupRoot` is `root`.
    ///
    /// # Errors
    /// There is none, or the root is not in it.
    pub(super) fn find(mount: &Path, root: &str) -> Result<Self, HostError> {
        let is_v2 = mount.join("cgroup.controllers").exists();
        let chosen = if is_v2 {
            Some(mount.to_owned())
        } else {
            V1.iter().map(|name| mount.join(name)).find(|folder| folder.join("cgroup.procs").exists())
        };
        let Some(chosen) = chosen else {
            return Err(HostError::CgroupMount { mount: mount.to_owned() });
        };
        let pod_parents: Vec<PathBuf> =
            cgroup_path::pod_parents(root).iter().map(|parent| chosen.join(parent)).collect();
        // Kubelet insists that its root exists; `kubepods` below it may still have to come.
        let has_root = pod_parents
            .iter()
            .filter(|parent| is_top(parent))
            .any(|top| top.parent().is_some_and(Path::exists));
        if !has_root {
            return Err(HostError::CgroupRoot { root: root.to_owned(), mount: chosen });
        }
        Ok(Self { mount: chosen, pod_parents })
    }

    /// The folder of the pod's cgroup, if it exists.
    pub(super) fn pod_folder(&self, pod_uid: &str) -> Option<PathBuf> {
        self.pod_parents
            .iter()
            .map(|parent| cgroup_path::pod_folder(parent, pod_uid))
            .find(|folder| folder.is_dir())
    }

    /// The folders that must be watched to see pods come: those that hold pods, or the nearest above that exists.
    pub(super) fn watch_points(&self) -> Vec<PathBuf> {
        let mut points: Vec<PathBuf> = self
            .pod_parents
            .iter()
            .map(|parent| {
                let nearest = parent.ancestors().take_while(|up| up.starts_with(&self.mount));
                nearest.into_iter().find(|up| up.is_dir()).unwrap_or(&self.mount).to_owned()
            })
            .collect();
        points.sort();
        points.dedup();
        points
    }
}

/// Whether this is the parent of the classes of service rather than one of them.
fn is_top(parent: &Path) -> bool {
    let name = parent.file_stem().unwrap_or_default().to_string_lossy();
    name.ends_with("kubepods")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const UID: &str = "6c4ef7f5-9c1b-4f5e-8a7a-0d6f6a2b9c01";

    fn tree(folders: &[&str], files: &[&str]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().expect("a folder");
        for folder in folders {
            fs::create_dir_all(mount.path().join(folder)).expect("a folder");
        }
        for file in files {
            fs::write(mount.path().join(file), "").expect("a file");
        }
        mount
    }

    #[test]
    fn version_two_is_the_mount_itself() {
        let mount = tree(&["kubepods.slice/kubepods-besteffort.slice"], &["cgroup.controllers"]);
        let hierarchy = Hierarchy::find(mount.path(), "/").expect("found");
        assert_eq!(hierarchy.pod_folder(UID), None);
        let pod = mount
            .path()
            .join("kubepods.slice/kubepods-besteffort.slice")
            .join(format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_")));
        fs::create_dir(&pod).expect("a folder");
        assert_eq!(hierarchy.pod_folder(UID), Some(pod));
    }

    #[test]
    fn version_one_prefers_the_hierarchy_of_processes() {
        let mount = tree(&["memory", "pids/a"], &["memory/cgroup.procs", "pids/cgroup.procs"]);
        let hierarchy = Hierarchy::find(mount.path(), "/a").expect("found");
        assert_eq!(hierarchy.watch_points(), [mount.path().join("pids"), mount.path().join("pids/a")]);
        fs::create_dir_all(mount.path().join("pids/a/kubepods/burstable")).expect("a folder");
        let watched = hierarchy.watch_points();
        assert!(watched.contains(&mount.path().join("pids/a/kubepods")), "{watched:?}");
        assert!(watched.contains(&mount.path().join("pids/a/kubepods/burstable")), "{watched:?}");
    }

    #[test]
    fn a_missing_hierarchy_or_root_is_said() {
        let empty = tree(&[], &[]);
        assert!(matches!(Hierarchy::find(empty.path(), "/"), Err(HostError::CgroupMount { .. })));
        let rootless = tree(&[], &["cgroup.controllers"]);
        assert!(matches!(Hierarchy::find(rootless.path(), "/berth"), Err(HostError::CgroupRoot { .. })));
    }
}
