//! Game servers: claims to the millisecond, health, and who may have which id.

use std::time::Duration;

use super::*;

#[test]
fn a_server_is_registered_claimed_and_utilized() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    let registered = harbour.register("one", &instance).unwrap();
    assert_eq!(registered.utilization, Utilization::Available);
    assert_eq!((registered.registered, registered.last_health), (start(), start()));
    harbour.seconds(1);
    let claimed = harbour.claim(Some("one"), None).unwrap();
    assert!(claimed.is_claimed(harbour.world.now()));
    assert_eq!(claimed.utilization, Utilization::Available, "a claim does not utilize");
    harbour.seconds(1);
    let utilized = harbour.update("one", Some(Utilization::Utilized), true).unwrap();
    assert!(!utilized.is_claimed(harbour.world.now()), "being utilized ends the claim");
    assert_eq!(utilized.last_claim, Some(start() + Duration::from_secs(1)));
    assert_eq!(utilized.last_health, start() + Duration::from_secs(2));
    assert_eq!(harbour.describe("one").unwrap(), utilized);
}

#[test]
fn a_claim_is_gone_at_exactly_sixty_seconds() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.claim(Some("one"), None).unwrap();
    harbour.advance(Duration::from_millis(59_999));
    let now = harbour.world.now();
    assert!(harbour.describe("one").unwrap().is_claimed(now));
    assert_eq!(kind(harbour.claim(Some("one"), None)), RefusalKind::Conflict);
    harbour.advance(Duration::from_millis(1));
    let now = harbour.world.now();
    assert!(!harbour.describe("one").unwrap().is_claimed(now));
    assert!(harbour.claim(Some("one"), None).is_ok());
}

#[test]
fn a_utilized_server_is_never_claimed_nor_available_again() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.claim(Some("one"), None).unwrap();
    harbour.seconds(59);
    harbour.update("one", Some(Utilization::Utilized), true).unwrap();
    harbour.seconds(120);
    assert_eq!(kind(harbour.claim(Some("one"), None)), RefusalKind::Conflict);
    let back = harbour.update("one", Some(Utilization::Available), false);
    assert_eq!(kind(back), RefusalKind::InvalidRequest);
    assert!(harbour.update("one", Some(Utilization::Utilized), false).is_ok(), "twice is fine");
}

#[test]
fn available_on_available_is_fine() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    assert!(harbour.update("one", Some(Utilization::Available), false).is_ok());
    assert!(harbour.update("one", None, false).is_ok(), "an update of nothing changes nothing");
}

#[test]
fn a_server_id_is_taken_in_all_groups_of_the_account() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "group", "group": "pve-eu"}));
    let other = harbour.launch("pve-eu", 1).remove(0);
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    let again = harbour.world.register(Register {
        group: group("pve-eu"),
        server: server("one"),
        instance: other,
        connection: None,
        data: None,
    });
    assert_eq!(kind(again), RefusalKind::Conflict);
    let elsewhere = harbour.world.describe_server(&group("pve-eu"), &server("one"));
    assert_eq!(kind(elsewhere), RefusalKind::NotFound);
}

#[test]
fn a_group_takes_a_thousand_servers() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    for number in 0..1000 {
        harbour.register(&format!("server-{number}"), &instance).unwrap();
    }
    assert_eq!(kind(harbour.register("one-more", &instance)), RefusalKind::LimitExceeded);
    harbour.world.deregister(&group("pvp-eu"), &server("server-0")).unwrap();
    assert!(harbour.register("one-more", &instance).is_ok());
}

#[test]
fn silence_makes_unhealthy_and_then_removes() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.advance(Duration::from_millis(179_999));
    assert!(harbour.describe("one").unwrap().unhealthy_since.is_none());
    harbour.advance(Duration::from_millis(1));
    assert!(harbour.describe("one").unwrap().unhealthy_since.is_some());
    assert_eq!(kind(harbour.claim(Some("one"), None)), RefusalKind::Conflict);
    assert_eq!(kind(harbour.claim(None, None)), RefusalKind::OutOfCapacity);
    harbour.advance(Duration::from_millis(59_999));
    assert!(harbour.describe("one").is_ok());
    harbour.advance(Duration::from_millis(1));
    assert_eq!(kind(harbour.update("one", None, true)), RefusalKind::NotFound);
    assert!(harbour.register("one", &instance).is_ok(), "the id is free again");
}

#[test]
fn only_a_health_check_is_a_sign_of_life() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    for _ in 0..3 {
        harbour.seconds(60);
        let seen = harbour.update("one", Some(Utilization::Utilized), false).unwrap();
        assert_eq!(seen.last_health, start());
    }
    assert!(harbour.describe("one").unwrap().unhealthy_since.is_some());
}

#[test]
fn a_health_check_heals_and_the_next_silence_counts_from_there() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.seconds(200);
    assert!(harbour.update("one", None, true).unwrap().unhealthy_since.is_none());
    harbour.seconds(179);
    assert!(harbour.describe("one").unwrap().unhealthy_since.is_none(), "the old removal must not fire");
    harbour.seconds(1);
    assert!(harbour.describe("one").unwrap().unhealthy_since.is_some());
    harbour.seconds(59);
    assert!(harbour.describe("one").is_ok());
    harbour.seconds(1);
    assert_eq!(kind(harbour.describe("one")), RefusalKind::NotFound);
}

#[test]
fn the_timers_of_an_earlier_registration_do_not_touch_the_next() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.claim(Some("one"), None).unwrap();
    harbour.seconds(30);
    harbour.world.deregister(&group("pvp-eu"), &server("one")).unwrap();
    harbour.register("one", &instance).unwrap();
    harbour.claim(Some("one"), None).unwrap();
    harbour.seconds(40);
    let now = harbour.world.now();
    assert!(harbour.describe("one").unwrap().is_claimed(now));
}

#[test]
fn a_second_deregistration_finds_nothing() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    assert!(harbour.world.deregister(&group("pvp-eu"), &server("one")).is_ok());
    let again = harbour.world.deregister(&group("pvp-eu"), &server("one"));
    assert_eq!(kind(again), RefusalKind::NotFound);
}

#[test]
fn a_claim_without_an_id_takes_the_busiest_instance_and_a_draining_one_last() {
    let mut harbour = Harbour::new();
    let [first, second, third] = [0, 1, 2].map(|place| harbour.instances[place].clone());
    harbour.utilized("busy-1", &first);
    harbour.utilized("busy-2", &second);
    harbour.utilized("busy-3", &second);
    harbour.utilized("busy-4", &third);
    harbour.utilized("busy-5", &third);
    harbour.utilized("busy-6", &third);
    for (name, instance) in [("aaa", &first), ("bbb", &second), ("ccc", &third)] {
        harbour.register(name, instance).unwrap();
    }
    harbour.status(&third, "DRAINING");
    let chosen =
        |harbour: &mut Harbour, filter| harbour.claim(None, filter).map(|server| server.id.to_string());
    assert_eq!(chosen(&mut harbour, None).unwrap(), "bbb");
    assert_eq!(chosen(&mut harbour, None).unwrap(), "aaa");
    let active_only = Some(Filter { allows_draining: false });
    assert_eq!(kind(harbour.claim(None, active_only)), RefusalKind::OutOfCapacity);
    assert_eq!(chosen(&mut harbour, Some(Filter { allows_draining: true })).unwrap(), "ccc");
    assert_eq!(kind(harbour.claim(None, None)), RefusalKind::OutOfCapacity);
}

#[test]
fn a_server_on_an_interrupted_instance_is_not_claimed_and_nothing_is_registered_there() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.status(&instance, "SPOT_TERMINATING");
    assert_eq!(kind(harbour.claim(Some("one"), None)), RefusalKind::Conflict);
    assert_eq!(kind(harbour.claim(None, None)), RefusalKind::OutOfCapacity);
    assert_eq!(kind(harbour.register("two", &instance)), RefusalKind::Conflict);
}

#[test]
fn a_claim_brings_its_data() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    let claim = Claim {
        group: group("pvp-eu"),
        server: Some(server("one")),
        data: Some("map=harbour".to_owned()),
        filter: None,
    };
    harbour.world.claim(claim, "by the test").unwrap();
    assert_eq!(harbour.describe("one").unwrap().data.as_deref(), Some("map=harbour"));
}

#[test]
fn what_was_stolen_was_claimed_by_somebody_else() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.order(json!({"order": "steal-claim", "server": "one"}));
    assert_eq!(kind(harbour.claim(Some("one"), None)), RefusalKind::Conflict);
}

#[test]
fn a_stranger_claims_at_random() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    harbour.register("one", &instance).unwrap();
    harbour.order(json!({"order": "stranger", "every_ms": 5000}));
    harbour.seconds_healthy(600, &["one"]);
    let stolen = harbour.world.events_since(0).iter().filter(|event| event.detail == "by a stranger").count();
    assert!((3..=10).contains(&stolen), "one claim a minute at most, and not none: {stolen}");
}
