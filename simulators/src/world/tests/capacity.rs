//! Capacity and endings: who is reaped, who is kept, and whom the audit holds to account.

use super::super::things::Cause;
use super::*;

#[test]
fn a_draining_instance_stays_while_it_is_utilized_and_goes_when_it_is_let_go() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.utilized("one", &instance);
    harbour.sessions(&instance, 2);
    harbour.status(&instance, "DRAINING");
    harbour.seconds_healthy(600, &["one"]);
    assert!(harbour.is_there(&instance));
    harbour.sessions(&instance, 0);
    harbour.world.deregister(&group("pvp-eu"), &server("one")).unwrap();
    harbour.seconds(29);
    assert!(!harbour.world.instance(instance.as_str()).unwrap().stage.is_ending());
    harbour.seconds(1);
    assert!(harbour.world.instance(instance.as_str()).unwrap().stage.is_ending());
    harbour.seconds(5);
    assert!(!harbour.is_there(&instance));
    assert!(harbour.world.audit().violations.is_empty());
}

#[test]
fn health_that_was_silent_costs_the_session_and_the_audit_says_why() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.utilized("one", &instance);
    harbour.sessions(&instance, 1);
    harbour.status(&instance, "DRAINING");
    harbour.seconds(180 + 60 + 30 + 5);
    let audit = harbour.world.audit();
    assert_eq!(audit.violations.len(), 1);
    assert_eq!(audit.violations[0].cause, Cause::Reaped);
    let chain = audit.violations[0].chain.iter().map(|event| event.kind).collect::<Vec<_>>();
    let expected = [
        EventKind::Status,
        EventKind::Unhealthy,
        EventKind::Deregistered,
        EventKind::Terminating,
        EventKind::Terminated,
        EventKind::SessionsLost,
    ];
    assert_eq!(chain[chain.len() - expected.len()..], expected);
}

#[test]
fn full_protection_keeps_a_utilized_instance_from_scale_in() {
    let mut harbour = Harbour::new();
    let kept = harbour.instances[1].clone();
    harbour.utilized("one", &kept);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"desired": 0}}));
    harbour.seconds_healthy(60, &["one"]);
    for (place, expected) in [(0, false), (1, true), (2, false)] {
        assert_eq!(harbour.is_there(&harbour.instances[place].clone()), expected, "instance {place}");
    }
    harbour.world.deregister(&group("pvp-eu"), &server("one")).unwrap();
    harbour.seconds(10);
    assert!(!harbour.is_there(&kept), "once it is let go the group gets its size");
}

#[test]
fn without_protection_any_instance_may_go_but_those_without_players_first() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"protection": "NO_PROTECTION"}}));
    let busy = harbour.instances[2].clone();
    harbour.utilized("one", &busy);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"desired": 1}}));
    harbour.seconds(10);
    assert!(harbour.is_there(&busy));
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"desired": 0}}));
    harbour.seconds(10);
    assert!(!harbour.is_there(&busy));
}

#[test]
fn without_protection_the_reaper_takes_utilized_ones() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"protection": "NO_PROTECTION"}}));
    let busy = harbour.instances[0].clone();
    harbour.utilized("one", &busy);
    harbour.status(&busy, "DRAINING");
    harbour.seconds(5 + 30 + 5);
    assert!(!harbour.is_there(&busy));
}

#[test]
fn a_draining_instance_is_reaped_only_when_its_replacement_is_there() {
    let boot = Parameters { boot_ms: Milliseconds::of_seconds(100), ..Parameters::default() };
    let mut harbour = Harbour::with(boot);
    let instance = harbour.instances[0].clone();
    harbour.status(&instance, "DRAINING");
    assert_eq!(harbour.world.instances().count(), 4, "a replacement is launched at once");
    harbour.seconds(129);
    assert!(!harbour.world.instance(instance.as_str()).unwrap().stage.is_ending());
    harbour.seconds(1);
    assert!(harbour.world.instance(instance.as_str()).unwrap().stage.is_ending());
}

#[test]
fn a_group_at_its_maximum_replaces_nothing_and_reaps_nothing_and_says_so() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"maximum": 3}}));
    let instance = harbour.instances[0].clone();
    harbour.status(&instance, "DRAINING");
    harbour.seconds(3600);
    assert!(harbour.is_there(&instance));
    assert_eq!(harbour.world.instances().count(), 3);
    let activities = harbour.world.scaling_activities(Some("gamelift-gameservergroup-pvp-eu"));
    assert_eq!(activities.len(), 1);
    assert!(activities[0].message.contains("group size maximum: 3 of 3"), "{}", activities[0].message);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"maximum": 4}}));
    harbour.seconds(5 + 30 + 5);
    assert!(!harbour.is_there(&instance));
}

#[test]
fn spot_only_reaps_without_a_replacement() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"balancing": "SPOT_ONLY"}}));
    let instance = harbour.instances[0].clone();
    harbour.status(&instance, "DRAINING");
    assert_eq!(harbour.world.instances().count(), 3);
    harbour.seconds(35);
    assert!(!harbour.is_there(&instance));
    assert_eq!(harbour.world.instances().count(), 2);
}

#[test]
fn sizes_count_weight_units() {
    let mut harbour = Harbour::new();
    let types = json!([{"type": "c6i.2xlarge", "weight": 2}, {"type": "c6i.xlarge", "weight": 1}]);
    harbour.order(json!({"order": "group", "group": "large", "change": {"types": types, "maximum": 10}}));
    assert_eq!(harbour.launch("large", 5).len(), 5);
    let sixth = harbour.try_order(json!({"order": "launch", "group": "large"})).unwrap_err();
    assert!(
        sixth.to_string().contains("10 of 10 weight units are in use and c6i.2xlarge needs 2"),
        "{sixth}"
    );
}

#[test]
fn a_type_that_is_not_viable_drains_and_another_takes_its_place() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "drain-type", "group": "pvp-eu", "type": "c6i.large"}));
    for instance in harbour.instances.clone() {
        assert_eq!(harbour.world.instance(instance.as_str()).unwrap().status, InstanceStatus::Draining);
    }
    harbour.seconds(40);
    let types = harbour.world.instances().map(|one| one.instance_type.as_str()).collect::<Vec<_>>();
    assert_eq!(types, ["m6i.large"; 3]);
}

#[test]
fn a_spot_interruption_comes_in_its_parts() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.utilized("one", &instance);
    harbour.sessions(&instance, 1);
    let interruption = json!({"in_ms": 300_000, "rebalance_before_ms": 270_000, "fleetiq_offset_ms": 5000});
    harbour.order(json!({"order": "spot", "instance": instance, "interruption": interruption}));
    let seen = |harbour: &Harbour| {
        let one = harbour.world.instance(instance.as_str()).unwrap();
        (one.notices.rebalance.is_some(), one.notices.spot.is_some(), one.status)
    };
    for (seconds, expected) in [
        (29, (false, false, InstanceStatus::Active)),
        (30, (true, false, InstanceStatus::Active)),
        (299, (true, false, InstanceStatus::Active)),
        (300, (true, true, InstanceStatus::Active)),
        (305, (true, true, InstanceStatus::SpotTerminating)),
        (419, (true, true, InstanceStatus::SpotTerminating)),
    ] {
        harbour.world.advance(start() + Duration::from_secs(seconds));
        assert_eq!(seen(&harbour), expected, "at {seconds} s");
    }
    let notice = harbour.world.instance(instance.as_str()).unwrap().notices.spot.clone().unwrap();
    assert_eq!((notice.action.as_str(), notice.time), ("terminate", start() + Duration::from_secs(420)));
    harbour.seconds(1);
    assert!(!harbour.is_there(&instance));
    assert_eq!(kind(harbour.describe("one")), RefusalKind::NotFound);
    let audit = harbour.world.audit();
    assert!(audit.violations.is_empty(), "nobody can be blamed for it");
    assert_eq!(audit.spot.len(), 1, "but it is not hidden");
}

#[test]
fn parts_of_an_interruption_may_be_lost() {
    let mut harbour = Harbour::new();
    let [quiet, deaf] = [0, 1].map(|place| harbour.instances[place].clone());
    let lost_notice = json!({"action": null, "rebalance_before_ms": null});
    harbour.order(json!({"order": "spot", "instance": quiet, "interruption": lost_notice}));
    let lost_status = json!({"fleetiq_offset_ms": null, "rebalance_before_ms": null});
    harbour.order(json!({"order": "spot", "instance": deaf, "interruption": lost_status}));
    harbour.seconds(60);
    let quiet_one = harbour.world.instance(quiet.as_str()).unwrap();
    assert_eq!((quiet_one.status, &quiet_one.notices.spot), (InstanceStatus::SpotTerminating, &None));
    let deaf_one = harbour.world.instance(deaf.as_str()).unwrap();
    assert_eq!((deaf_one.status, deaf_one.notices.spot.is_some()), (InstanceStatus::Active, true));
    harbour.seconds(60);
    assert!(!harbour.is_there(&quiet) && !harbour.is_there(&deaf));
}

#[test]
fn a_random_status_comes_within_its_bounds() {
    for seed in 0..20 {
        let mut world = World::new(place(), Parameters::default(), seed, start());
        let mut perform = |order: Value| world.perform(serde_json::from_value(order).unwrap()).unwrap();
        perform(json!({"order": "group", "group": "pvp-eu"}));
        let launched = perform(json!({"order": "launch", "group": "pvp-eu"}));
        let instance = &launched["instances"][0];
        let interruption = json!({"in_ms": 60_000, "fleetiq_offset_ms": "random"});
        perform(json!({"order": "spot", "instance": instance, "interruption": interruption}));
        world.advance(start() + Duration::from_secs(100));
        let status = world.events_since(0).iter().find(|event| event.kind == EventKind::Status).unwrap();
        let after = status.time.duration_since(start() + Duration::from_secs(60)).as_millis();
        assert!((-10_000..=30_000).contains(&after), "seed {seed}: {after} ms");
    }
}

#[test]
fn a_group_walks_through_its_states() {
    let mut harbour = Harbour::new();
    let create = CreateGroup {
        name: group("new"),
        role: "arn:aws:iam::111122223333:role/fleetiq".to_owned(),
        types: vec![
            InstanceDefinition { instance_type: "c6i.large".to_owned(), weight: 1 },
            InstanceDefinition { instance_type: "m6i.large".to_owned(), weight: 1 },
        ],
        minimum: 2,
        maximum: 4,
        balancing: None,
        protection: None,
        utilization_target: None,
    };
    let created = harbour.world.create_group(create.clone()).unwrap();
    assert_eq!((created.status, created.protection), (GroupStatus::New, Protection::Off));
    assert_eq!(kind(harbour.world.create_group(create)), RefusalKind::Conflict);
    let status = |harbour: &Harbour| harbour.world.describe_group(&group("new")).map(|group| group.status);
    harbour.seconds(5);
    assert_eq!(status(&harbour).unwrap(), GroupStatus::Activating);
    harbour.seconds(5);
    assert_eq!(status(&harbour).unwrap(), GroupStatus::Active);
    assert_eq!(harbour.world.instances().filter(|one| one.group == group("new")).count(), 2);
    harbour.world.delete_group(&group("new"), DeleteOption::Safe).unwrap();
    assert_eq!(status(&harbour).unwrap(), GroupStatus::Deleting);
    harbour.seconds(20);
    assert_eq!(kind(status(&harbour)), RefusalKind::NotFound);
}

#[test]
fn a_safe_deletion_waits_for_players_and_a_forced_one_does_not() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.utilized("one", &instance);
    let deleted = harbour.world.delete_group(&group("pvp-eu"), DeleteOption::Safe).unwrap();
    assert_eq!(deleted.status, GroupStatus::DeleteScheduled);
    harbour.seconds_healthy(120, &["one"]);
    assert!(harbour.is_there(&instance));
    harbour.world.deregister(&group("pvp-eu"), &server("one")).unwrap();
    harbour.seconds(5);
    assert!(!harbour.is_there(&instance));

    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.utilized("one", &instance);
    harbour.world.delete_group(&group("pvp-eu"), DeleteOption::Force).unwrap();
    harbour.seconds(5);
    assert!(!harbour.is_there(&instance));
}

#[test]
fn a_policy_holds_the_maximum_while_everything_is_utilized_and_shrinks_what_is_available() {
    let mut harbour = Harbour::new();
    let change = json!({"minimum": 1, "maximum": 6, "utilization_target": 80.0});
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": change}));
    let mut names = Vec::new();
    for minute in 0..10 {
        let bare = harbour.world.instances().map(|one| one.id.clone()).collect::<Vec<_>>();
        for instance in bare {
            if harbour.world.servers_on(&instance).next().is_none() {
                let name = format!("server-{minute}-{instance}");
                harbour.utilized(&name, &instance);
                names.push(name);
            }
        }
        harbour.seconds_healthy(60, &names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert_eq!(harbour.world.instances().count(), 6, "always 100 percent, so always more");
    for name in &names {
        let instance = harbour.describe(name).unwrap().instance;
        harbour.world.deregister(&group("pvp-eu"), &server(name)).unwrap();
        harbour.register(name, &instance).unwrap();
    }
    harbour.seconds(120);
    assert_eq!(harbour.world.instances().count(), 1, "nobody utilized, so the minimum");
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let story = |seed| {
        let mut harbour = Harbour::new();
        harbour.world = World::new(place(), Parameters::default(), seed, start());
        harbour
            .order(json!({"order": "group", "group": "pvp-eu", "change": {"protection": "FULL_PROTECTION"}}));
        let instances = harbour.launch("pvp-eu", 5);
        for (number, instance) in instances.iter().enumerate() {
            harbour.register(&format!("server-{number}"), instance).unwrap();
        }
        harbour.order(json!({"order": "stranger", "every_ms": 3000}));
        harbour.order(json!({"order": "balancing", "every_ms": 60_000}));
        harbour.order(json!({"order": "visitors", "visitors": {"every_ms": 2000, "stay_ms": 60_000}}));
        harbour.seconds(600);
        harbour.world.events_since(0).to_vec()
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
}
