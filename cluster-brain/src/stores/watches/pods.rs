//! The feeds of pods: placeholders, and those of `berth-sdk` with their revisions.

use berth_api::names::PLACEHOLDER_LABEL;
use berth_runtime::clock::Instant;
use berth_runtime::kube_client::Undecodable;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;

use super::super::placeholder::Placeholder;
use super::super::sdk::{SdkPod, SdkRevision};
use super::super::world::World;
use super::super::{Key, Kind};
use super::{Feed, key_of};

/// Pods of `berth-sdk` and revisions of its DaemonSet carry this label.
const SDK: &str = "app.kubernetes.io/name=berth-sdk";

pub(super) struct Placeholders;

impl Feed for Placeholders {
    type Object = Pod;
    const KIND: Kind = Kind::Placeholder;
    const LABEL: Option<&'static str> = Some(PLACEHOLDER_LABEL);

    fn begin(&self, world: &mut World) {
        world.placeholders.begin_list();
    }
    fn apply(&self, world: &mut World, pod: Pod, _: bool, _: Instant) {
        if let Some(placeholder) = Placeholder::read(&pod) {
            let change = world.placeholders.seen(placeholder);
            world.note_placeholder(change);
        }
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.placeholders.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let change = world.placeholders.gone(key, uid);
        world.note_placeholder(change);
    }
    fn end(&self, world: &mut World, _: Instant) {
        for change in world.placeholders.end_list() {
            world.note_placeholder(Some(change));
        }
    }
}

pub(super) struct SdkPods;

impl Feed for SdkPods {
    type Object = Pod;
    const KIND: Kind = Kind::SdkPod;
    const LABEL: Option<&'static str> = Some(SDK);

    fn begin(&self, world: &mut World) {
        world.sdk_pods.begin_list();
    }
    fn apply(&self, world: &mut World, object: Pod, _: bool, _: Instant) {
        if let Some(object) = SdkPod::read(&object) {
            let _ = world.sdk_pods.seen(object);
        }
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.sdk_pods.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let _ = world.sdk_pods.gone(key, uid);
    }
    fn end(&self, world: &mut World, _: Instant) {
        let _ = world.sdk_pods.end_list();
    }
}

pub(super) struct SdkRevisions;

impl Feed for SdkRevisions {
    type Object = ControllerRevision;
    const KIND: Kind = Kind::SdkRevision;
    const LABEL: Option<&'static str> = Some(SDK);

    fn begin(&self, world: &mut World) {
        world.sdk_revisions.begin_list();
    }
    fn apply(&self, world: &mut World, object: ControllerRevision, _: bool, _: Instant) {
        if let Some(object) = SdkRevision::read(&object) {
            let _ = world.sdk_revisions.seen(object);
        }
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.sdk_revisions.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let _ = world.sdk_revisions.gone(key, uid);
    }
    fn end(&self, world: &mut World, _: Instant) {
        let _ = world.sdk_revisions.end_list();
    }
}
