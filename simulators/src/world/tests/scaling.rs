//! The account as Auto Scaling sees it, and hooks.

use super::super::scaling::ScalingInstance;
use super::*;

fn shown(harbour: &Harbour, instance: &InstanceId) -> Option<ScalingInstance> {
    harbour.world.scaling_instances(&[instance.to_string()]).unwrap().pop()
}

#[test]
fn ids_that_nobody_knows_are_left_out_and_fifty_are_enough() {
    let harbour = Harbour::new();
    let unknown = InstanceId::of(1);
    assert!(harbour.world.scaling_instances(&[unknown.to_string()]).unwrap().is_empty());
    let ids = vec![unknown.to_string(); 51];
    assert!(harbour.world.scaling_instances(&ids).is_err());
    assert!(harbour.world.scaling_instances(&ids[..50]).is_ok());
}

#[test]
fn a_terminate_call_ignores_protection_and_the_audit_names_the_caller() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.utilized("one", &instance);
    harbour.sessions(&instance, 1);
    assert!(shown(&harbour, &instance).unwrap().is_protected);
    harbour.world.terminate_by_call(instance.as_str(), false, "autoscaler").unwrap();
    harbour.seconds(5);
    assert!(!harbour.is_there(&instance));
    let audit = harbour.world.audit();
    assert_eq!(audit.violations.len(), 1);
    assert_eq!(audit.violations[0].words, "terminated by a call of autoscaler");
    harbour.seconds(5);
    assert_eq!(harbour.world.instances().count(), 3, "the group is brought back to its size");
}

#[test]
fn a_terminate_call_may_make_the_group_smaller() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.world.terminate_by_call(instance.as_str(), true, "autoscaler").unwrap();
    harbour.seconds(60);
    assert_eq!(harbour.world.instances().count(), 2);
    assert!(harbour.world.terminate_by_call(instance.as_str(), true, "autoscaler").is_err());
}

#[test]
fn protection_by_call_keeps_an_instance_and_a_warm_one_cannot_have_it() {
    let mut harbour = Harbour::new();
    let warmed = harbour.order(json!({"order": "launch", "group": "pvp-eu", "wanted": {"warmed": true}}));
    let warmed = warmed["instances"][0].as_str().unwrap().to_owned();
    let refused = harbour.world.protect_by_call(std::slice::from_ref(&warmed), true).unwrap_err();
    assert!(refused.message.contains("Warmed:Stopped"), "{refused}");
    let kept = harbour.instances[1].clone();
    harbour.world.protect_by_call(&[kept.to_string()], true).unwrap();
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"desired": 0}}));
    harbour.seconds(10);
    let left = harbour.world.instances().map(|one| one.id.to_string()).collect::<Vec<_>>();
    assert!(left.contains(&kept.to_string()) && left.contains(&warmed) && left.len() == 2, "{left:?}");
}

#[test]
fn a_hook_holds_an_instance_until_it_is_answered() {
    let mut harbour = Harbour::new();
    let hooks = json!([{"name": "drain", "heartbeat_timeout_ms": 30_000}]);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"hooks": hooks}}));
    let instance = harbour.instances[0].clone();
    let name = group("pvp-eu").scaling_group();
    let early = harbour.world.answer_hook(&name, "drain", instance.as_str(), None);
    assert!(early.is_err(), "it does not wait yet");
    harbour.order(json!({"order": "lifecycle", "instance": instance}));
    assert_eq!(shown(&harbour, &instance).unwrap().lifecycle, "Terminating:Wait");
    for _ in 0..10 {
        harbour.seconds(20);
        harbour.world.answer_hook(&name, "drain", instance.as_str(), None).unwrap();
    }
    let wrong = harbour.world.answer_hook(&name, "other", instance.as_str(), None);
    assert!(wrong.is_err());
    let result = Some(HookResult::Continue);
    harbour.world.answer_hook(&name, "drain", instance.as_str(), result).unwrap();
    assert_eq!(shown(&harbour, &instance).unwrap().lifecycle, "Terminating");
    harbour.seconds(5);
    assert!(!harbour.is_there(&instance));
}

#[test]
fn a_hook_without_an_answer_expires() {
    let mut harbour = Harbour::new();
    let hooks = json!([{"name": "drain", "heartbeat_timeout_ms": 30_000}]);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"hooks": hooks}}));
    let instance = harbour.instances[0].clone();
    harbour.order(json!({"order": "lifecycle", "instance": instance}));
    harbour.seconds(29);
    assert_eq!(shown(&harbour, &instance).unwrap().lifecycle, "Terminating:Wait");
    harbour.seconds(1);
    assert_eq!(shown(&harbour, &instance).unwrap().lifecycle, "Terminating");
    assert!(harbour.kinds_of(&instance).contains(&EventKind::HookExpired));
}

#[test]
fn heartbeats_hold_no_instance_for_more_than_a_hundred_timeouts() {
    let mut harbour = Harbour::new();
    let hooks = json!([{"name": "drain", "heartbeat_timeout_ms": 30_000}]);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"hooks": hooks}}));
    let instance = harbour.instances[0].clone();
    let name = group("pvp-eu").scaling_group();
    harbour.order(json!({"order": "lifecycle", "instance": instance}));
    let mut beats = 0;
    while harbour.world.answer_hook(&name, "drain", instance.as_str(), None).is_ok() {
        harbour.seconds(20);
        beats += 1;
    }
    assert_eq!(beats, 3000 / 20);
}
