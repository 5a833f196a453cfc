//! What the real API server makes of our CRDs and policies: tables of good objects and of bad ones, each with the field
//! that its refusal must name and what it must say is allowed.

#![allow(
    clippy::unwrap_used,
    reason = "everything here is a test, but the lint knows only functions with the attribute"
)]

#[path = "resources/agents.rs"]
mod agents;
#[path = "resources/autoscalers.rs"]
mod autoscalers;
#[path = "resources/fleets.rs"]
mod fleets;
#[path = "resources/objects.rs"]
mod objects;
#[path = "resources/policies.rs"]
mod policies;
#[path = "resources/schema.rs"]
mod schema;
#[path = "resources/servers.rs"]
mod servers;
#[path = "resources/templates.rs"]
mod templates;
#[path = "resources/updates.rs"]
mod updates;
#[path = "resources/values.rs"]
mod values;

use berth_dev::{ControlPlane, ControlPlaneOptions};
use berth_stories::resources::{apply_crds, apply_definition, apply_strictly};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use objects::{api, fleet, game_server, set};

/// One API server for all tables.
async fn client() -> kube::Client {
    static CLUSTER: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async {
        let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
        apply_crds(&cluster.client()).await.unwrap();
        cluster
    };
    CLUSTER.get_or_init(start).await.client()
}

/// What went otherwise than a table says.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    async fn expect_taken(&mut self, client: &kube::Client, object: &Value) -> Option<Value> {
        match apply_strictly(&api(client, object), object).await {
            Ok(stored) => Some(serde_json::to_value(stored).unwrap()),
            Err(error) => {
                self.0
                    .push(format!("{} {} was refused: {error}", object["kind"], object["metadata"]["name"]));
                None
            }
        }
    }

    async fn expect_stored(&mut self, client: &kube::Client, object: &Value, expected: &[(&str, Value)]) {
        let Some(stored) = self.expect_taken(client, object).await else { return };
        for (path, value) in expected {
            let found = stored.pointer(path).cloned().unwrap_or(Value::Null);
            if found != *value {
                self.0.push(format!("{}: {path} is {found}, not {value}", object["metadata"]["name"]));
            }
        }
    }

    async fn expect_refused(&mut self, client: &kube::Client, object: &Value, words: &[String]) {
        match apply_strictly(&api(client, object), object).await {
            Ok(_) => self.0.push(format!("was taken: {object}")),
            Err(error) => {
                let said = error.to_string();
                let missing: Vec<_> = words.iter().filter(|word| !said.contains(*word)).collect();
                if !missing.is_empty() {
                    self.0.push(format!("does not say {missing:?}: {said}"));
                }
            }
        }
    }

    fn assert_nothing(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn slug(what: &str) -> String {
    what.to_lowercase().replace(' ', "-")
}

#[tokio::test]
async fn the_schemas_fill_in_defaults_and_name_what_is_bad() {
    let client = client().await;
    let mut wrong = Wrong::default();
    for (object, expected) in schema::good() {
        wrong.expect_stored(&client, &object, &expected).await;
    }
    for (object, words) in schema::bad() {
        wrong.expect_refused(&client, &object, &owned(&words)).await;
    }
    wrong.assert_nothing();
}

#[tokio::test]
async fn a_bad_game_server_is_refused_by_name_already_at_the_fleet() {
    let client = client().await;
    let mut wrong = Wrong::default();
    for row in templates::rows() {
        let name = slug(row.what);
        let kinds = |spec: &Value, suffix: &str| {
            let name = format!("{name}-{suffix}");
            let mut inner = game_server(&name, spec.clone());
            let template = json!({ "template": { "spec": inner["spec"].take() } });
            [
                ("spec", game_server(&name, spec.clone())),
                ("spec.template.spec", set(&name, template.clone())),
                ("spec.template.spec", fleet(&name, template)),
            ]
        };
        for (path, bad) in kinds(&row.bad, "bad") {
            let words: Vec<_> = row.says.iter().map(|word| word.replace("{spec}", path)).collect();
            wrong.expect_refused(&client, &bad, &words).await;
        }
        for (_, near) in kinds(&row.near, "near") {
            wrong.expect_taken(&client, &near).await;
        }
    }
    wrong.assert_nothing();
}

#[tokio::test]
async fn a_bad_fleet_is_refused_by_name() {
    let client = client().await;
    let mut wrong = Wrong::default();
    for (what, bad, words, near) in fleets::rows() {
        wrong.expect_refused(&client, &fleet(&slug(what), bad), &owned(&words)).await;
        wrong.expect_taken(&client, &fleet(&slug(what), near)).await;
    }
    let overflowing = fleet(&"x".repeat(64), json!({}));
    wrong.expect_refused(&client, &overflowing, &owned(&["metadata.name", "63"])).await;
    wrong.expect_taken(&client, &fleet(&"x".repeat(63), json!({}))).await;
    wrong.assert_nothing();
}

#[tokio::test]
async fn a_bad_autoscaler_is_refused_by_name() {
    let client = client().await;
    let mut wrong = Wrong::default();
    for (object, expected) in autoscalers::good() {
        wrong.expect_stored(&client, &object, &expected).await;
    }
    for (what, bad, words, near) in autoscalers::rows() {
        wrong.expect_refused(&client, &autoscalers::autoscaler(&slug(what), bad), &owned(&words)).await;
        wrong.expect_taken(&client, &autoscalers::autoscaler(&slug(what), near)).await;
    }
    wrong.assert_nothing();
}

#[tokio::test]
async fn a_bad_allocation_policy_is_refused_by_name() {
    let client = client().await;
    let mut wrong = Wrong::default();
    for (what, bad, words, near) in policies::rows() {
        wrong.expect_refused(&client, &policies::policy(&slug(what), bad), &owned(&words)).await;
        wrong.expect_taken(&client, &policies::policy(&slug(what), near)).await;
    }
    wrong.assert_nothing();
}

#[tokio::test]
async fn all_faults_of_a_game_server_are_told_at_once() {
    let client = client().await;
    let mut wrong = Wrong::default();
    for (object, words) in servers::bad() {
        wrong.expect_refused(&client, &object, &owned(&words)).await;
    }
    for object in servers::good() {
        wrong.expect_taken(&client, &object).await;
    }
    wrong.assert_nothing();
}

#[tokio::test]
async fn a_rule_never_stops_what_was_there_before_it() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    updates::old_objects_go_on(&cluster.client()).await;
}

#[tokio::test]
async fn a_set_never_changes_its_template() {
    updates::a_set_never_changes_its_template(&client().await).await;
}

#[tokio::test]
async fn an_emptied_policy_changes_nothing() {
    updates::an_emptied_policy_changes_nothing(&client().await).await;
}

#[tokio::test]
async fn an_open_pod_template_keeps_what_its_schema_does_not_know() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    for crd in berth_api::crds::open() {
        apply_definition(&cluster.client(), &crd.definition).await.unwrap();
    }
    let mut pod = objects::game();
    pod["spec"]["tomorrow"] = json!({ "deep": [1] });
    pod["spec"]["containers"][0]["tomorrow"] = json!("yes");
    let server = game_server("new", json!({ "template": pod }));
    let template = json!({ "template": { "spec": server["spec"] } });
    let (closed, mut wrong) = (client().await, Wrong::default());
    for (object, path) in [
        (server, "/spec/template/spec"),
        (set("new", template.clone()), "/spec/template/spec/template/spec"),
        (fleet("new", template), "/spec/template/spec/template/spec"),
    ] {
        let (top, inner) = (format!("{path}/tomorrow"), format!("{path}/containers/0/tomorrow"));
        let kept = [(top.as_str(), json!({ "deep": [1] })), (inner.as_str(), json!("yes"))];
        wrong.expect_stored(&cluster.client(), &object, &kept).await;
        wrong.expect_refused(&closed, &object, &owned(&["tomorrow", "not declared in schema"])).await;
    }
    wrong.assert_nothing();
}

#[tokio::test]
async fn an_agent_is_held_to_its_node() {
    agents::an_agent_is_held_to_its_node().await;
}

#[tokio::test]
async fn an_agent_empties_its_own_node_and_no_other() {
    agents::an_agent_empties_its_own_node_and_no_other().await;
}

#[tokio::test]
async fn only_berth_says_where_a_server_runs() {
    agents::only_berth_says_where_a_server_runs().await;
}

#[tokio::test]
async fn a_node_s_game_servers_can_be_selected_and_a_fleet_can_be_scaled() {
    let client = client().await;
    let mut here = game_server("here", json!({}));
    here["status"] = json!({ "state": "Creating", "nodeName": "node-a" });
    let servers = api(&client, &here);
    apply_strictly(&servers, &here).await.unwrap();
    apply_strictly(&servers, &game_server("elsewhere", json!({}))).await.unwrap();
    let selected =
        servers.list(&kube::api::ListParams::default().fields("status.nodeName=node-a")).await.unwrap();
    let names: Vec<_> =
        selected.items.iter().map(|one| one.metadata.name.clone().unwrap_or_default()).collect();
    assert_eq!(names, ["here"]);

    let lobby = fleet("lobby", json!({}));
    let fleets = api(&client, &lobby);
    apply_strictly(&fleets, &lobby).await.unwrap();
    let scaled = kube::api::Patch::Merge(json!({ "spec": { "replicas": 7 } }));
    let scale = fleets.patch_scale("lobby", &kube::api::PatchParams::default(), &scaled).await.unwrap();
    assert_eq!(scale.spec.unwrap_or_default().replicas, Some(7));
}
