//! The allocator installed under the names that existing clients use, as its page says; kubectl is the client.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use berth_api::lifecycle::State;
use berth_dev::{Binaries, ControlPlane};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::clients::{run, text};
use super::cluster::{Cluster, FAMILIAR, manifests, start_plane};

/// A control plane of its own: what is installed here stands beside nothing else.
static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

async fn kubectl() -> PathBuf {
    static KUBECTL: OnceCell<PathBuf> = OnceCell::const_new();
    let find = || Binaries::ensure(&mut |line| println!("{line}")).expect("kubectl").kubectl().to_owned();
    let kubectl =
        KUBECTL.get_or_init(async || tokio::task::spawn_blocking(find).await.expect("kubectl")).await;
    kubectl.clone()
}

fn documents(yaml: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(yaml)
        .map(|document| Value::deserialize(document).expect("a document"))
        .collect()
}

/// Kind, namespace and name.
fn identity(object: &Value) -> (String, String, String) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (word(&object["kind"]), word(&object["metadata"]["namespace"]), word(&object["metadata"]["name"]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_clients_find_the_names_that_they_know() {
    let plane = PLANE.get_or_init(|| start_plane(&["priority.yaml"])).await;
    let kubectl = kubectl().await;
    let kubeconfig = plane.kubeconfig_path().to_string_lossy().into_owned();
    let ask = async |arguments: &[&str]| -> Output {
        run(&kubectl, &[&["--kubeconfig", &kubeconfig], arguments].concat()).await
    };
    let done = async |arguments: &[&str]| -> String {
        let answer = ask(arguments).await;
        assert!(answer.status.success(), "kubectl {arguments:?}: {answer:?}");
        text(&answer.stdout)
    };

    // What the page says, in its order.
    let overlay = manifests().join(FAMILIAR.folder).to_string_lossy().into_owned();
    done(&["apply", "--server-side", "--kustomize", &overlay]).await;
    let cluster = Cluster::on(plane, FAMILIAR, "familiar").await;
    let names = ["--namespace", "agones-system", "--service", "agones-allocator"];
    let program = env!("CARGO_BIN_EXE_berth-allocator").as_ref();
    let clients = ["--client-namespace", cluster.namespace.as_str(), "--san", "allocator.test"];
    let made = run(program, &[&["certs"], &names[..], &clients].concat()).await;
    assert!(made.status.success(), "{made:?}");
    let file = cluster.subfolder("installation").join("certificates.yaml");
    fs::write(&file, &made.stdout).expect("a file");
    let file = file.to_string_lossy().into_owned();
    let manager = ["--field-manager", "berth-certs", "--force-conflicts"];
    done(&[&["apply", "--server-side", "--filename", &file], &manager[..]].concat()).await;
    // An upgrade leaves them as they are.
    done(&["apply", "--server-side", "--kustomize", &overlay]).await;
    let path = ["--output", "jsonpath={.spec.caBundle}"];
    let bundle = done(&[&["get", "apiservice", "v1.allocation.agones.dev"], &path[..]].concat()).await;
    assert!(bundle.len() > 100, "{bundle}");

    // What clients look for.
    let secret = async |namespace: &str, name: &str, key: &str| {
        let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
        let data = done(&["get", "secret", name, "--namespace", namespace, "--output", &path]).await;
        assert!(!data.is_empty(), "{namespace}/{name} has no {key}");
    };
    secret("agones-system", "allocator-tls", "tls.crt").await;
    secret("agones-system", "allocator-tls-ca", "tls-ca.crt").await;
    secret("agones-system", "allocator-client-ca", "client-ca.crt").await;
    secret(&cluster.namespace, "allocator-client.default", "tls.key").await;
    let port = ["--output", "jsonpath={.spec.type} {.spec.ports[0].port}"];
    let service = ["get", "service", "agones-allocator", "--namespace", "agones-system"];
    assert_eq!(done(&[&service[..], &port].concat()).await, "LoadBalancer 443");

    // Everything that the pods name is there, and under their names.
    let rendered = documents(&done(&["kustomize", &overlay]).await);
    let printed = documents(&text(&made.stdout));
    let there: BTreeSet<_> = rendered.iter().chain(&printed).map(identity).collect();
    let deployment = rendered.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let has = |kind: &str, namespace: &str, name: &Value| {
        let name = name.as_str().expect("a name").to_owned();
        assert!(there.contains(&(kind.to_owned(), namespace.to_owned(), name.clone())), "{kind} {name}");
    };
    for volume in pod["volumes"].as_array().expect("volumes") {
        has("Secret", "agones-system", &volume["secret"]["secretName"]);
    }
    has("ConfigMap", "agones-system", &pod["containers"][0]["envFrom"][0]["configMapRef"]["name"]);
    has("ServiceAccount", "agones-system", &pod["serviceAccountName"]);
    for object in rendered.iter().filter(|object| object["subjects"].is_array()) {
        for subject in object["subjects"].as_array().expect("subjects") {
            has("ServiceAccount", subject["namespace"].as_str().expect("a namespace"), &subject["name"]);
        }
    }
    for object in rendered.iter().chain(&printed).filter(|object| object["kind"] == "APIService") {
        let service = &object["spec"]["service"];
        has("Service", service["namespace"].as_str().expect("a namespace"), &service["name"]);
    }

    // The rights of that account are enough, in the namespaces that are opened to it.
    cluster.create("gs1", State::Ready, json!({})).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    cluster.serve_api(&allocator).await;
    kubectl_creates_allocations(&cluster, ask).await;
}

async fn kubectl_creates_allocations(cluster: &Cluster, ask: impl AsyncFn(&[&str]) -> Output) {
    let namespace = ["--namespace", cluster.namespace.as_str()];
    let file = cluster.subfolder("kubectl").join("allocation.yaml");
    let asked =
        "apiVersion: allocation.agones.dev/v1\nkind: GameServerAllocation\nspec:\n  scheduling: Packed\n";
    fs::write(&file, asked).expect("a file");
    let file = file.to_string_lossy().into_owned();
    let create = async |form: &str| {
        ask(&[&namespace[..], &["create", "--filename", &file, "--output", form]].concat()).await
    };

    let answer = create("json").await;
    assert!(answer.status.success(), "{answer:?}");
    let told: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let status = &told["status"];
    assert_eq!((&status["state"], &status["gameServerName"]), (&json!("Allocated"), &json!("gs1")));
    let answer = create("yaml").await;
    assert!(text(&answer.stdout).contains("state: UnAllocated"), "{answer:?}");

    let answer = ask(&["get", "--raw", "/apis/allocation.agones.dev/v1"]).await;
    assert!(text(&answer.stdout).contains("\"gameserverallocations\""), "{answer:?}");
    let answer = ask(&["api-resources", "--api-group", "allocation.agones.dev"]).await;
    assert!(text(&answer.stdout).contains(" gsa "), "{answer:?}");
    // There is nothing to be read.
    let answer = ask(&[&namespace[..], &["get", "gameserverallocations"]].concat()).await;
    assert!(!answer.status.success(), "{answer:?}");
    let answer = ask(&["explain", "fleets"]).await;
    assert!(answer.status.success(), "what other groups say of themselves goes on to be read: {answer:?}");
}
