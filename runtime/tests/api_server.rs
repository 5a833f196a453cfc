//! The Kubernetes client against a real API server: settings, version, classes of answers, and watches that go on.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use berth_dev::{ControlPlane, ControlPlaneOptions, eventually};
use berth_runtime::kube_client::{
    Class, KubeSettings, Lenient, Skipped, VersionError, classify, client, require_version, watch_lenient,
};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ObjectMeta, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Client, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

/// A resource whose schema says less than its type, so that the server takes what we cannot decode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource)]
#[kube(group = "test.berth.dev", version = "v1", kind = "Widget", schema = "disabled")]
struct WidgetSpec {
    size: u32,
}

async fn connect(control_plane: &ControlPlane) -> Client {
    let settings =
        KubeSettings { kubeconfig: Some(control_plane.kubeconfig_path().to_owned()), kube_context: None };
    client(&settings, "berth-runtime-tests/1").await.expect("the kubeconfig makes a client")
}

async fn serve_widgets(client: &Client) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.test.berth.dev" },
        "spec": {
            "group": "test.berth.dev",
            "scope": "Cluster",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    api.create(&PostParams::default(), &definition).await.expect("the definition is accepted");
    let widgets = widgets(client);
    eventually(LIMIT, "widgets are served", async || widgets.list(&Default::default()).await.map(drop))
        .await
        .expect("widgets are served");
}

fn widgets(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("test.berth.dev", "v1", "Widget"));
    Api::all_with(client.clone(), &resource)
}

async fn create(client: &Client, name: &str, size: serde_json::Value) {
    let widget = json!({
        "apiVersion": "test.berth.dev/v1", "kind": "Widget",
        "metadata": { "name": name }, "spec": { "size": size },
    });
    let widget = serde_json::from_value(widget).expect("an object");
    let widgets = widgets(client);
    // A connection that an outage has cut may fail one call.
    eventually(LIMIT, format!("widget {name} is there"), async || {
        match widgets.create(&PostParams::default(), &widget).await {
            Err(error) if classify(&error) != Class::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    })
    .await
    .expect("the widget is accepted");
}

/// The next event; errors are passed over, as a task that watches would.
async fn next<T>(events: &mut (impl Stream<Item = Result<Event<T>, watcher::Error>> + Unpin)) -> Event<T> {
    let event = async {
        loop {
            if let Ok(event) = events.next().await.expect("a watch does not end") {
                return event;
            }
        }
    };
    timeout(LIMIT, event).await.expect("an event within a minute")
}

#[tokio::test]
async fn an_undecodable_object_and_an_outage_do_not_stop_a_watch() {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await.expect("an API server");
    let client = connect(&control_plane).await;
    serve_widgets(&client).await;
    create(&client, "a-good-one", json!(3)).await;
    create(&client, "a-strange-one", json!("large")).await;

    let skipped = Skipped::default();
    let api = Api::<Lenient<Widget>>::all(client.clone());
    let mut events = pin!(watch_lenient(api, watcher::Config::default(), skipped.clone()));
    assert!(matches!(next(&mut events).await, Event::Init));
    let mut listed = BTreeMap::new();
    loop {
        match next(&mut events).await {
            Event::InitApply(Ok(widget)) => listed.insert(widget.name_any(), Some(widget.spec.size)),
            Event::InitApply(Err(undecodable)) => listed.insert(undecodable.name, None),
            Event::InitDone => break,
            event => panic!("not part of a list: {event:?}"),
        };
    }
    let expected = [("a-good-one".to_owned(), Some(3)), ("a-strange-one".to_owned(), None)];
    assert_eq!(listed, BTreeMap::from(expected));
    assert_eq!(skipped.count(), 1);

    create(&client, "another-strange-one", json!(-1)).await;
    create(&client, "later", json!(4)).await;
    assert!(
        matches!(next(&mut events).await, Event::Apply(Err(strange)) if strange.name == "another-strange-one")
    );
    assert!(matches!(next(&mut events).await, Event::Apply(Ok(widget)) if widget.name_any() == "later"));
    assert_eq!(skipped.count(), 2);

    control_plane.api_server().restart().await.expect("the API server starts again");
    control_plane.wait_until_ready().await.expect("the API server is ready again");
    create(&client, "after-the-outage", json!(5)).await;
    loop {
        // Either the watch goes on where it was, or it lists again: both must bring the new one.
        if let Event::Apply(Ok(widget)) | Event::InitApply(Ok(widget)) = next(&mut events).await
            && widget.name_any() == "after-the-outage"
        {
            break;
        }
    }
}

#[tokio::test]
async fn answers_of_a_real_server_have_their_classes() {
    let options = ControlPlaneOptions { controllers: true, ..ControlPlaneOptions::default() };
    let control_plane = ControlPlane::start(options).await.expect("an API server");
    let client = connect(&control_plane).await;

    require_version(&client, 1, 32).await.expect("the server is new enough");
    let error = require_version(&client, 1, 9999).await.expect_err("no server is that new");
    assert!(matches!(error, VersionError::TooOld { .. }), "{error}");

    let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = Namespace { metadata: named("full"), ..Namespace::default() };
    let post = PostParams::default();
    namespaces.create(&post, &namespace).await.expect("a namespace");
    let class = |answer: Result<(), kube::Error>| classify(&answer.expect_err("a refusal"));
    assert_eq!(class(namespaces.create(&post, &namespace).await.map(drop)), Class::AlreadyExists);
    assert_eq!(class(namespaces.get("missing").await.map(drop)), Class::NotFound);
    let bad = Namespace { metadata: named("Not_A_Name"), ..Namespace::default() };
    assert_eq!(class(namespaces.create(&post, &bad).await.map(drop)), Class::Invalid);

    let mut stale = namespaces.get("full").await.expect("the namespace");
    stale.metadata.resource_version = Some("1".to_owned());
    assert_eq!(class(namespaces.replace("full", &post, &stale).await.map(drop)), Class::Conflict);

    let stranger = control_plane.client_for("stranger", &[]).await.expect("a client");
    let refused = Api::<Namespace>::all(stranger).get("full").await.map(drop);
    assert_eq!(class(refused), Class::Forbidden);

    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "none" }, "spec": { "hard": { "count/configmaps": "0" } },
    });
    let quotas = Api::<k8s_openapi::api::core::v1::ResourceQuota>::namespaced(client.clone(), "full");
    quotas.create(&post, &serde_json::from_value(quota).expect("a quota")).await.expect("the quota");
    let maps = Api::<ConfigMap>::namespaced(client, "full");
    let map = ConfigMap {
        metadata: ObjectMeta { generate_name: Some("map-".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    // Until the quota is counted, the server lets objects through or refuses them for that reason.
    eventually(LIMIT, "the quota counts", async || match maps.create(&post, &map).await {
        Ok(_) => Err("accepted".to_owned()),
        Err(error) if classify(&error) == Class::QuotaExceeded => Ok(()),
        Err(error) => Err(error.to_string()),
    })
    .await
    .expect("a full quota has its class");
}
