//! The programs of Kubernetes, built from source by the Go module registry's ordinary client.
//!
//! They are built once and kept in the cache, in a folder named after everything that decides their content. They
//! are built under a lock into a folder of another name and moved into place when whole, so a build that was cut
//! off leaves nothing that could be taken for a result.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{self, CommandError};
use crate::fingerprint::Fingerprint;
use crate::lock::{Lock, LockError};
use crate::machine::{self, MachineError};
use crate::places;

const GO_MOD: &str = include_str!("../kubernetes/go.mod");
const GO_SUM: &str = include_str!("../kubernetes/go.sum");
const PAUSE: &str = include_str!("../kubernetes/pause/main.go");

/// What is built: the package, and what its program is called when that is not the package's last word.
const PACKAGES: [&str; 7] = [
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kube-proxy",
    "k8s.io/kubernetes/cmd/kubelet",
    "go.etcd.io/etcd/server/v3",
    "./pause",
];
const KUBECTL: &str = "k8s.io/kubernetes/cmd/kubectl";
/// kubectl may be one minor version away from the server by its own rules; two have always worked for what we do.
const OLDEST_KUBECTL: u32 = 32;
/// How often a build says how far it is, in packages.
const PROGRESS_STEP: usize = 200;
/// What one cold build needs: modules, the compiler's cache, the programs.
const DISK_NEEDED: u64 = 8 << 30;

/// Why the programs could not be had.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// There is no Go.
    #[error("Go is needed to build Kubernetes, and there is no `go` here: install Go {0} or newer")]
    NoGo(String),
    /// The machine cannot build them.
    #[error("this machine cannot build Kubernetes")]
    Machine(#[source] MachineError),
    /// A tool failed.
    #[error("could not build Kubernetes")]
    Build(#[source] CommandError),
    /// The cache could not be written.
    #[error("could not write the cache at {path}")]
    Cache {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nobody can build at the same time as another.
    #[error("could not lock the cache")]
    Lock(#[source] LockError),
}

/// Where the programs are.
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
    kubectl: PathBuf,
}

impl Binaries {
    /// The programs, built when the cache has none. `say` is told how far it is.
    ///
    /// # Errors
    /// When they are not there and cannot be built.
    pub fn ensure(say: &mut dyn FnMut(&str)) -> Result<Self, BinariesError> {
        let go = Go::find()?;
        let own_kubectl = modern_kubectl();
        let name = Fingerprint::new()
            .with(GO_MOD)
            .with(GO_SUM)
            .with(PAUSE)
            .with(&go.version)
            .with(if own_kubectl.is_some() { "" } else { KUBECTL });
        let cache = places::cache_folder();
        let folder = cache.join(format!("kubernetes-{name}"));
        if !folder.exists() {
            fs::create_dir_all(&cache).map_err(at(&cache))?;
            let _lock = Lock::acquire(&cache.join("kubernetes.lock")).map_err(BinariesError::Lock)?;
            if !folder.exists() {
                build(&go, &cache, &folder, own_kubectl.is_none(), say)?;
            }
        }
        let folder = folder.join("bin");
        let kubectl = own_kubectl.unwrap_or_else(|| folder.join("kubectl"));
        Ok(Self { folder, kubectl })
    }

    /// One of the programs of Kubernetes, by its usual name.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A kubectl that is modern enough: the machine's own, or one built with the rest.
    #[must_use]
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }
}

/// The version of Kubernetes that is built.
#[must_use]
pub fn kubernetes_version() -> &'static str {
    required_version(GO_MOD, "k8s.io/kubernetes")
}

/// What a `go.mod` requires of a module.
fn required_version<'a>(go_mod: &'a str, module: &str) -> &'a str {
    let mut words = go_mod.split_whitespace().skip_while(|word| *word != "require");
    words.by_ref().find(|word| *word == module);
    words.next().unwrap_or("v0.0.0")
}

struct Go {
    program: PathBuf,
    version: String,
}

impl Go {
    fn find() -> Result<Self, BinariesError> {
        let wanted = || {
            let line = GO_MOD.lines().find_map(|line| line.strip_prefix("go "));
            line.unwrap_or_default().to_owned()
        };
        let program = places::find_program("go").ok_or_else(|| BinariesError::NoGo(wanted()))?;
        let version = command::run(&program.to_string_lossy(), ["env", "GOVERSION"]);
        let version = version.map_err(BinariesError::Build)?.trim().to_owned();
        Ok(Self { program, version })
    }

    fn cache(&self) -> Result<PathBuf, BinariesError> {
        let folder = command::run(&self.program.to_string_lossy(), ["env", "GOCACHE"]);
        Ok(PathBuf::from(folder.map_err(BinariesError::Build)?.trim()))
    }
}

fn build(
    go: &Go,
    cache: &Path,
    folder: &Path,
    with_kubectl: bool,
    say: &mut dyn FnMut(&str),
) -> Result<(), BinariesError> {
    for place in [cache, &go.cache()?] {
        machine::require_disk(place, DISK_NEEDED).map_err(BinariesError::Machine)?;
    }
    let version = kubernetes_version();
    say(&format!("building Kubernetes {version} with {} (once, about 8 minutes on 2 cores)", go.version));
    // What an earlier build left when it was cut off: the lock says that nobody is at it.
    let half = cache.join("kubernetes.half");
    if half.exists() {
        fs::remove_dir_all(&half).map_err(at(&half))?;
    }
    let (source, bin) = (half.join("source"), half.join("bin"));
    for place in [&source.join("pause"), &bin] {
        fs::create_dir_all(place).map_err(at(place))?;
    }
    for (name, text) in [("go.mod", GO_MOD), ("go.sum", GO_SUM), ("pause/main.go", PAUSE)] {
        fs::write(source.join(name), text).map_err(at(&source))?;
    }
    let packages = PACKAGES.into_iter().chain(with_kubectl.then_some(KUBECTL));
    let mut command = Command::new(&go.program);
    command
        .current_dir(&source)
        .env("CGO_ENABLED", "0")
        .args(["build", "-v", "-buildvcs=false", "-ldflags", &linker_flags(version), "-o"])
        .arg(&bin)
        .args(packages);
    compile(command, say)?;
    // Go names a program after its package's folder.
    fs::rename(bin.join("server"), bin.join("etcd")).map_err(at(&bin))?;
    fs::remove_dir_all(&source).map_err(at(&source))?;
    fs::rename(&half, folder).map_err(at(folder))?;
    say("Kubernetes is built");
    Ok(())
}

/// Without a stamped version the servers call themselves v0.0.0, which clients then refuse.
fn linker_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )
}

/// Runs the compiler and counts the packages it names.
fn compile(mut command: Command, say: &mut dyn FnMut(&str)) -> Result<(), BinariesError> {
    let line = command::line_of(&command);
    let failed = |source| BinariesError::Build(CommandError::Start { line: line.clone(), source });
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (mut packages, mut downloads, mut complaint) = (0_usize, 0_usize, String::new());
    if let Some(output) = child.stderr.take() {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            if text.starts_with("go: downloading") {
                downloads += 1;
                if downloads.is_multiple_of(PROGRESS_STEP / 2) {
                    say(&format!("  {downloads} modules fetched"));
                }
            } else if text.contains(char::is_whitespace) {
                complaint.push_str(&text);
                complaint.push('\n');
            } else {
                packages += 1;
                if packages.is_multiple_of(PROGRESS_STEP) {
                    say(&format!("  {packages} packages compiled"));
                }
            }
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let complaint = command::last_lines(complaint.trim(), 20).to_owned();
    Err(BinariesError::Build(CommandError::Failed { line, status: status.to_string(), complaint }))
}

/// The machine's kubectl, when it is new enough.
fn modern_kubectl() -> Option<PathBuf> {
    let program = places::find_program("kubectl")?;
    let answer = command::run(&program.to_string_lossy(), ["version", "--client"]).ok()?;
    let minor = answer.split_once("v1.")?.1.split('.').next()?.parse::<u32>().ok()?;
    (minor >= OLDEST_KUBECTL).then_some(program)
}

fn at(path: &Path) -> impl Fn(io::Error) -> BinariesError {
    move |source| BinariesError::Cache { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_requirement_and_not_from_a_replacement() {
        let go_mod = "tool k8s.io/kubernetes/cmd/kubelet\n\nrequire (\n\tk8s.io/kubernetes v1.2.3\n)\n";
        assert_eq!(required_version(go_mod, "k8s.io/kubernetes"), "v1.2.3");
        assert!(kubernetes_version().starts_with("v1."));
    }

    #[test]
    fn the_version_is_stamped_in_all_its_parts() {
        let flags = linker_flags("v1.34.4");
        for part in ["gitVersion=v1.34.4", "gitMajor=1", "gitMinor=34"] {
            assert!(flags.contains(part), "{flags}");
        }
    }
}
