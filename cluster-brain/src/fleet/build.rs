//! The sets of a Fleet. Pure.

use berth_api::fleet::Fleet;
use berth_api::game_server_set::{GameServerSet, GameServerSetSpec};
use berth_api::names;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::stores::Key;
use crate::writes::{difference, under_version};

/// Letters of a set's ending.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const ENDING: usize = 5;
/// Longest name of a set: it is a label of its servers.
const LONGEST_NAME: usize = 63;

/// A new set for the Fleet's template.
///
/// Its name follows from Fleet, template and `attempt`, so that asking twice makes one set. Another attempt is for a name
/// that somebody else has.
pub(super) fn new_set(fleet: &Fleet, replicas: i32, attempt: u32) -> GameServerSet {
    let name = fleet.metadata.name.clone().unwrap_or_default();
    let mut labels = fleet.spec.template.labels();
    labels.insert(names::FLEET_LABEL.to_owned(), name.clone());
    let ending = ending(&json!([fleet.metadata.uid, fleet.spec.template, attempt]).to_string());
    let room = LONGEST_NAME - 1 - ENDING;
    let base = name.get(..room).unwrap_or(&name).trim_end_matches(['-', '.']);
    let metadata = ObjectMeta {
        name: Some(format!("{base}-{ending}")),
        namespace: fleet.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(fleet.spec.template.annotations()).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![owner(fleet)]),
        ..ObjectMeta::default()
    };
    let spec = GameServerSetSpec {
        replicas,
        allocation_overflow: fleet.spec.allocation_overflow.clone(),
        scheduling: Some(fleet.spec.scheduling()),
        priorities: fleet.spec.priorities.clone(),
        template: fleet.spec.template.clone(),
    };
    GameServerSet { metadata, spec, status: None }
}

/// FNV-1a: it must be the same in every version of this program, and it keeps nobody out.
fn ending(text: &str) -> String {
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut letters = String::new();
    for _ in 0..ENDING {
        let count = LETTERS.len() as u64;
        letters.push(char::from(LETTERS[usize::try_from(hash % count).unwrap_or(0)]));
        hash /= count;
    }
    letters
}

fn owner(fleet: &Fleet) -> OwnerReference {
    OwnerReference {
        api_version: "agones.dev/v1".to_owned(),
        kind: "Fleet".to_owned(),
        name: fleet.metadata.name.clone().unwrap_or_default(),
        uid: fleet.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The write that gives a set its number; `None` where it has it.
pub(super) fn scaled(set: &GameServerSet, replicas: i32) -> Option<Value> {
    changed(set, &GameServerSetSpec { replicas, ..set.spec.clone() })
}

/// The write that gives the active set its number and what else it takes from its Fleet; `None` where it has all that.
pub(super) fn updated(set: &GameServerSet, fleet: &Fleet, replicas: i32) -> Option<Value> {
    let wanted = GameServerSetSpec {
        replicas,
        allocation_overflow: fleet.spec.allocation_overflow.clone(),
        scheduling: Some(fleet.spec.scheduling()),
        priorities: fleet.spec.priorities.clone(),
        template: set.spec.template.clone(),
    };
    changed(set, &wanted)
}

fn changed(set: &GameServerSet, wanted: &GameServerSetSpec) -> Option<Value> {
    let change = difference(&json!(set.spec), &json!(wanted))?;
    let version = set.metadata.resource_version.as_deref().unwrap_or_default();
    Some(under_version(json!({ "spec": change }), version))
}

/// For Events.
pub(super) fn reference(fleet: &Fleet) -> ObjectReference {
    ObjectReference {
        api_version: Some("agones.dev/v1".to_owned()),
        kind: Some("Fleet".to_owned()),
        namespace: fleet.metadata.namespace.clone(),
        name: fleet.metadata.name.clone(),
        uid: fleet.metadata.uid.clone(),
        resource_version: fleet.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// The key of a set.
pub(super) fn key(set: &GameServerSet) -> Key {
    Key::of(&set.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> Fleet {
        serde_json::from_value(json!({
            "metadata": {"name": "lobby", "namespace": "games", "uid": "f-1", "resourceVersion": "1"},
            "spec": {
                "replicas": 5,
                "allocationOverflow": {"labels": {"over": "yes"}},
                "priorities": [{"type": "Counter", "key": "rooms", "order": "Ascending"}],
                "template": {
                    "metadata": {"labels": {"mode": "duel"}},
                    "spec": {"template": {"spec": {"containers": [{"name": "c"}], "newField": 1}}},
                },
            },
        }))
        .expect("a Fleet")
    }

    #[test]
    fn a_set_carries_the_template_and_follows_its_fleet() {
        let set = json!(new_set(&fleet(), 3, 0));
        assert_eq!(set["metadata"]["labels"], json!({"mode": "duel", names::FLEET_LABEL: "lobby"}));
        assert_eq!(set["metadata"]["ownerReferences"][0]["kind"], "Fleet");
        assert_eq!(set["spec"]["replicas"], 3);
        assert_eq!(set["spec"]["scheduling"], "Packed");
        assert_eq!(set["spec"]["priorities"][0]["key"], "rooms");
        assert_eq!(set["spec"]["template"], json!(fleet().spec.template));
    }

    #[test]
    fn asking_twice_names_one_set() {
        let name = |fleet: &Fleet, attempt| new_set(fleet, 1, attempt).metadata.name.expect("a name");
        let mut other = fleet();
        other.spec.template.spec.container = Some("c".to_owned());
        assert_eq!(name(&fleet(), 0), name(&fleet(), 0));
        assert_ne!(name(&fleet(), 0), name(&fleet(), 1));
        assert_ne!(name(&fleet(), 0), name(&other, 0));
        assert_eq!(name(&fleet(), 0).len(), "lobby-".len() + ENDING);
        let mut long = fleet();
        long.metadata.name = Some("x".repeat(63));
        assert_eq!(name(&long, 0).len(), LONGEST_NAME);
    }

    #[test]
    fn only_what_differs_is_written() {
        let mut set = new_set(&fleet(), 3, 0);
        set.metadata.resource_version = Some("4".to_owned());
        assert_eq!(updated(&set, &fleet(), 3), None);
        let version = json!({"resourceVersion": "4"});
        assert_eq!(scaled(&set, 2), Some(json!({"metadata": version, "spec": {"replicas": 2}})));
        let mut changed = fleet();
        changed.spec.allocation_overflow = serde_json::from_value(json!({"labels": {"beyond": "1"}})).ok();
        changed.spec.priorities = None;
        let expected = json!({
            "metadata": version,
            "spec": {"allocationOverflow": {"labels": {"over": null, "beyond": "1"}}, "priorities": null},
        });
        assert_eq!(updated(&set, &changed, 3), Some(expected));
    }
}
