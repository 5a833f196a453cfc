//! Objects that were stored before a rule was made: Berth can go on with them, and their author cannot make them worse.

use std::time::Duration;

use berth_dev::eventually;
use berth_stories::resources::{apply_definition, apply_definitions, apply_policies};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::objects::{api, fleet, game_server, set};

/// The name of a bad Fleet, set and GameServer that are stored before the policies are applied.
const OLD: &str = "old";

/// Time within which an API server takes a new schema into service, many times over.
const NEW_SCHEMA: Duration = Duration::from_secs(60);

/// Breaks a rule of a policy.
fn misplaced() -> Value {
    json!({ "template": { "spec": { "nodeName": "node-a", "containers": [{ "name": "main", "image": "game" }] } } })
}

/// Breaks that and a rule of the schema.
fn bad() -> Value {
    let mut spec = misplaced();
    spec["health"] = json!({ "failureThreshold": 0 });
    spec
}

/// The definitions as they may have been once: any threshold goes.
async fn apply_older_definitions(client: &Client) {
    let versions = "/spec/versions/0/schema/openAPIV3Schema/properties";
    for mut crd in berth_api::crds::all() {
        for spec in ["spec", "spec/properties/template/properties/spec"] {
            let path = format!("{versions}/{spec}/properties/health/properties/failureThreshold");
            if let Some(threshold) = crd.definition.pointer_mut(&path) {
                threshold.as_object_mut().unwrap().remove("minimum");
            }
        }
        apply_definition(client, &crd.definition).await.unwrap();
    }
}

async fn apply_rules(client: &Client, probe: &Value) {
    apply_definitions(client).await.unwrap();
    let name = probe["metadata"]["name"].as_str().unwrap();
    eventually(NEW_SCHEMA, "the schema holds", async || {
        let dry = PatchParams::apply("berth-stories").dry_run();
        match api(client, probe).patch(name, &dry, &Patch::Apply(probe)).await {
            Err(error) if error.to_string().contains("failureThreshold") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    apply_policies(client).await.unwrap();
}

async fn change(api: &Api<DynamicObject>, name: &str, change: Value) -> kube::Result<DynamicObject> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

/// Stores what is bad, makes the rules, and goes on.
pub(crate) async fn old_objects_go_on(client: &Client) {
    apply_older_definitions(client).await;
    let old_fleet = fleet(OLD, json!({ "template": { "spec": bad() } }));
    let old_set = set(OLD, json!({ "template": { "spec": bad() } }));
    let mut old_server = game_server(OLD, bad());
    old_server["metadata"]["finalizers"] = json!(["agones.dev/controller"]);
    let fleets = api(client, &old_fleet);
    let sets = api(client, &old_set);
    let servers = api(client, &old_server);
    for (api, object) in [(&fleets, &old_fleet), (&sets, &old_set), (&servers, &old_server)] {
        let object = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    for kind in [fleet, set] {
        apply_rules(client, &kind("probe", json!({ "template": { "spec": bad() } }))).await;
    }
    apply_rules(client, &game_server("probe", bad())).await;

    // A server: status, marks, ports that it was given, removal.
    let status = json!({ "state": "Scheduled", "nodeName": "node-a", "ports": [{ "port": 7000 }] });
    change(&servers, OLD, json!({ "status": status })).await.expect("a status is written");
    change(&servers, OLD, json!({ "metadata": { "labels": { "a": "b" } } }))
        .await
        .expect("a label is written");
    let ports = json!([{ "portPolicy": "Dynamic", "containerPort": 1, "hostPort": 7000 }]);
    change(&servers, OLD, json!({ "spec": { "ports": ports } })).await.expect("given ports are written");
    servers.delete(OLD, &DeleteParams::default()).await.expect("deletion is asked for");
    change(&servers, OLD, json!({ "metadata": { "finalizers": null } })).await.expect("the finalizer goes");

    // A Fleet and its set: status, scale, marks; and what Berth makes of them.
    for api in [&fleets, &sets] {
        let status = Patch::Merge(json!({ "status": { "replicas": 1 } }));
        api.patch_status(OLD, &PatchParams::default(), &status).await.expect("a status is written");
        let scale = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
        api.patch_scale(OLD, &PatchParams::default(), &scale).await.expect("it is scaled");
        change(api, OLD, json!({ "spec": { "replicas": 3 } })).await.expect("it is scaled by an edit");
        change(api, OLD, json!({ "metadata": { "labels": { "a": "b" } } }))
            .await
            .expect("a label is written");
    }
    let owned = |mut object: Value, kind: &str| {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "agones.dev/v1", "kind": kind, "name": OLD, "uid": "1", "controller": true,
        }]);
        serde_json::from_value::<DynamicObject>(object).unwrap()
    };
    let its_set = owned(set("of-old", json!({ "template": { "spec": misplaced() } })), "Fleet");
    sets.create(&PostParams::default(), &its_set).await.expect("the set of an old Fleet is made");
    let its_server = owned(game_server("of-old", misplaced()), "GameServerSet");
    servers.create(&PostParams::default(), &its_server).await.expect("the server of an old set is made");

    // Its author comes back to it.
    let other = json!({ "spec": { "template": { "spec": { "container": "main" } } } });
    let refusal = change(&fleets, OLD, other).await.expect_err("a changed template is looked at").to_string();
    assert!(refusal.contains("spec.template.spec.template.spec.nodeName"), "{refusal}");
    let mended =
        json!({ "spec": { "template": { "spec": { "template": { "spec": { "nodeName": null } } } } } });
    change(&fleets, OLD, mended).await.expect("a mended template is taken");
}

/// A set is one version of a template.
pub(crate) async fn a_set_never_changes_its_template(client: &Client) {
    let lobby = set("fixed", json!({}));
    let sets = api(client, &lobby);
    let object = serde_json::from_value(lobby.clone()).unwrap();
    let stored = sets.create(&PostParams::default(), &object).await.unwrap();
    sets.replace("fixed", &PostParams::default(), &stored).await.expect("the same template is no change");
    change(&sets, "fixed", json!({ "spec": { "replicas": 5, "scheduling": "Distributed" } })).await.unwrap();
    for template in [
        json!({ "spec": { "health": { "disabled": true } } }),
        json!({ "metadata": { "labels": { "version": "2" } } }),
    ] {
        let changed = change(&sets, "fixed", json!({ "spec": { "template": template } })).await;
        let refusal = changed.expect_err("a changed template is refused").to_string();
        assert!(refusal.contains("spec.template: Invalid value") && refusal.contains("new set"), "{refusal}");
    }
}

/// Nothing comes of an edit that empties a policy.
pub(crate) async fn an_emptied_policy_changes_nothing(client: &Client) {
    let mut server = game_server("edited", json!({ "ports": [{ "containerPort": 1 }] }));
    server["status"] = json!({ "state": "PortAllocation" });
    let servers = api(client, &server);
    servers.create(&PostParams::default(), &serde_json::from_value(server).unwrap()).await.unwrap();
    let edit = json!({ "spec": { "ports": [{ "containerPort": 1, "portPolicy": "" }] } });
    let refusal = change(&servers, "edited", edit).await.expect_err("no such policy").to_string();
    assert!(refusal.contains("spec.ports[0].portPolicy"), "{refusal}");
    let left = servers.get("edited").await.unwrap();
    assert_eq!(left.data["spec"]["ports"][0]["portPolicy"], "Dynamic");
}
