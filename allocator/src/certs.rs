//! `berth-allocator certs`: certificates to begin with, as files or as the objects that an installation needs.
//!
//! Three authorities, so that nobody can stand in for another: one vouches for the allocator service, one for its
//! clients, one for the aggregated API. Their keys are not kept: what is signed once can be made anew.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use berth_runtime::exit::BadConfiguration;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

mod make;

pub use make::{CertificateError, Set};

/// The Service of the aggregated API, as the manifests have it.
const API_SERVICE: &str = "berth-allocation-api";
/// Days of validity that are accepted.
const DAYS: std::ops::RangeInclusive<i64> = 1..=3650;

/// Certificates that could not be handed out.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// They could not be made.
    #[error(transparent)]
    Make(#[from] CertificateError),
    /// A file could not be written.
    #[error("could not write {path}; files that are there already are never written over")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// They could not be printed.
    #[error("could not print the objects")]
    Print(#[source] io::Error),
    /// The flags make no sense.
    #[error("no certificates can be made so")]
    Flags(#[from] BadConfiguration),
}

/// Flags of `certs`.
#[derive(Clone, Debug, clap::Args)]
pub struct CertsFlags {
    /// Folder to write the files to; without it, the objects for `kubectl apply --server-side -f -` are printed
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// A name or an address by which clients call the allocator service, beside those that it has in its cluster;
    /// several times for several
    #[arg(long = "san", value_name = "NAME")]
    pub names: Vec<String>,
    /// Namespace of the allocator
    #[arg(long, default_value = "berth-system")]
    pub namespace: String,
    /// Service of the allocator
    #[arg(long, default_value = "berth-allocator")]
    pub service: String,
    /// Namespace that gets a client's certificate, in the Secret allocator-client.default; several times for several
    #[arg(long = "client-namespace", value_name = "NAMESPACE", default_values_t = ["default".to_owned()])]
    pub client_namespaces: Vec<String>,
    /// Make the aggregated API's certificate alone, where the Secrets of service and clients are there already
    #[arg(long)]
    pub only_api: bool,
    /// Days for which the certificates hold
    #[arg(long, default_value = "365")]
    pub days: i64,
}

impl CertsFlags {
    /// The names that the allocator service's certificate is for.
    fn service_names(&self) -> Vec<String> {
        let Self { service, namespace, names, .. } = self;
        let mut all = vec![
            service.clone(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ];
        all.extend(names.iter().cloned());
        all
    }
}

/// Makes certificates, and writes or prints them.
///
/// # Errors
/// The flags make no sense, or a file could not be written.
pub fn run(flags: &CertsFlags) -> Result<(), CertsError> {
    if !DAYS.contains(&flags.days) {
        let what =
            format!("--days is {}; it must lie between {} and {}", flags.days, DAYS.start(), DAYS.end());
        return Err(BadConfiguration::new(what).into());
    }
    let api_name = format!("{API_SERVICE}.{}.svc", flags.namespace);
    let set = Set::make(&flags.service_names(), &api_name, flags.days)?;
    match &flags.folder {
        Some(folder) => write(folder, &set, flags.only_api),
        None => print(&objects(flags, &set)),
    }
}

/// The files, by their paths in the folder.
fn files(set: &Set, only_api: bool) -> Vec<(&'static str, &str)> {
    let api: [(_, &str); 3] = [
        ("api-tls/tls.crt", &set.api.certificate),
        ("api-tls/tls.key", &set.api.key),
        ("api-tls/ca.crt", &set.api_authority),
    ];
    let service: [(_, &str); 7] = [
        ("tls/tls.crt", &set.service.certificate),
        ("tls/tls.key", &set.service.key),
        ("tls-ca/tls-ca.crt", &set.service_authority),
        ("client-ca/client-ca.crt", &set.client_authority),
        ("client/tls.crt", &set.client.certificate),
        ("client/tls.key", &set.client.key),
        ("client/ca.crt", &set.service_authority),
    ];
    service.into_iter().filter(|_| !only_api).chain(api).collect()
}

fn write(folder: &Path, set: &Set, only_api: bool) -> Result<(), CertsError> {
    for (path, text) in files(set, only_api) {
        let path = folder.join(path);
        let written = || {
            if let Some(parent) = path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let mode = if path.extension().is_some_and(|ending| ending == "key") { 0o600 } else { 0o644 };
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?.write_all(text.as_bytes())
        };
        written().map_err(|source| CertsError::Write { path: path.clone(), source })?;
    }
    Ok(())
}

fn print(objects: &[Value]) -> Result<(), CertsError> {
    let mut text = String::new();
    for object in objects {
        let yaml =
            serde_yaml_ng::to_string(object).map_err(|error| CertsError::Print(io::Error::other(error)))?;
        text.push_str("---\n");
        text.push_str(&yaml);
    }
    io::stdout().write_all(text.as_bytes()).map_err(CertsError::Print)
}

/// The Secrets under the names that clients and their documentation know, and the aggregated API with its authority.
fn objects(flags: &CertsFlags, set: &Set) -> Vec<Value> {
    let namespace = &flags.namespace;
    let pair = |signed: &make::Signed| {
        BTreeMap::from([("tls.crt", signed.certificate.clone()), ("tls.key", signed.key.clone())])
    };
    let service = [
        secret(namespace, "allocator-tls", "kubernetes.io/tls", pair(&set.service)),
        secret(
            namespace,
            "allocator-tls-ca",
            "Opaque",
            BTreeMap::from([("tls-ca.crt", set.service_authority.clone())]),
        ),
        secret(
            namespace,
            "allocator-client-ca",
            "Opaque",
            BTreeMap::from([("client-ca.crt", set.client_authority.clone())]),
        ),
    ];
    let clients = flags.client_namespaces.iter().map(|namespace| {
        let mut data = pair(&set.client);
        data.insert("ca.crt", set.service_authority.clone());
        secret(namespace, "allocator-client.default", "kubernetes.io/tls", data)
    });
    let api = secret(namespace, "berth-allocation-api-tls", "kubernetes.io/tls", pair(&set.api));
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": "v1.allocation.agones.dev", "labels": { "app.kubernetes.io/part-of": "berth" } },
        "spec": {
            "group": "allocation.agones.dev",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": { "name": API_SERVICE, "namespace": namespace },
            "caBundle": ByteString(set.api_authority.clone().into_bytes()),
        },
    });
    service.into_iter().chain(clients).filter(|_| !flags.only_api).chain([api, api_service]).collect()
}

fn secret(namespace: &str, name: &str, kind: &str, data: BTreeMap<&str, String>) -> Value {
    let data: BTreeMap<&str, ByteString> =
        data.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": { "app.kubernetes.io/part-of": "berth" },
        },
        "type": kind,
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(folder: Option<PathBuf>) -> CertsFlags {
        CertsFlags {
            folder,
            names: vec!["allocator.example.com".to_owned(), "192.0.2.7".to_owned()],
            namespace: "agones-system".to_owned(),
            service: "agones-allocator".to_owned(),
            client_namespaces: vec!["games".to_owned(), "more".to_owned()],
            only_api: false,
            days: 30,
        }
    }

    #[test]
    fn files_are_written_once_and_keys_are_nobody_elses() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let flags = flags(Some(folder.path().join("new")));
        run(&flags).expect("written files");
        let key = folder.path().join("new/tls/tls.key");
        let before = fs::read(&key).expect("a key");
        assert_eq!(fs::metadata(&key).expect("a key").permissions().mode() & 0o777, 0o600);
        let refused = run(&flags).expect_err("a refusal");
        assert!(refused.to_string().contains("tls/tls.crt"), "{refused}");
        assert_eq!(fs::read(&key).expect("a key"), before);
    }

    #[test]
    fn the_objects_have_the_names_that_clients_know() {
        let flags = flags(None);
        let name = "berth-allocation-api.agones-system.svc";
        let set = Set::make(&flags.service_names(), name, 30).expect("a set");
        let named = |flags: &CertsFlags| -> Vec<String> {
            let objects = objects(flags, &set);
            let name = |object: &Value| {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or_default();
                format!("{namespace}/{}", metadata["name"].as_str().unwrap_or_default())
            };
            objects.iter().map(name).collect()
        };
        assert_eq!(
            named(&flags),
            [
                "agones-system/allocator-tls",
                "agones-system/allocator-tls-ca",
                "agones-system/allocator-client-ca",
                "games/allocator-client.default",
                "more/allocator-client.default",
                "agones-system/berth-allocation-api-tls",
                "/v1.allocation.agones.dev",
            ]
        );
        let only_api = CertsFlags { only_api: true, ..flags };
        assert_eq!(named(&only_api), ["agones-system/berth-allocation-api-tls", "/v1.allocation.agones.dev"]);
    }

    #[test]
    fn days_that_make_no_sense_are_refused() {
        for days in [0, -1, 3651] {
            let refused = run(&CertsFlags { days, ..flags(None) }).expect_err("a refusal");
            let told = berth_runtime::error::chain(&refused);
            assert!(told.contains("--days"), "{told}");
        }
    }
}
