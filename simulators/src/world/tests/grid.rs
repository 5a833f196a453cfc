//! Every open question, answered each way.

use super::super::parameters::DrainingShown;
use super::*;

#[test]
fn a1_silence_is_a_parameter() {
    for seconds in [90, 180, 600] {
        let unhealthy_after_ms = Milliseconds::of_seconds(seconds);
        let mut harbour = Harbour::with(Parameters { unhealthy_after_ms, ..Parameters::default() });
        let instance = harbour.instances[0].clone();
        harbour.register("one", &instance).unwrap();
        harbour.seconds(seconds - 1);
        assert!(harbour.describe("one").unwrap().unhealthy_since.is_none(), "{seconds}");
        harbour.seconds(1);
        assert!(harbour.describe("one").unwrap().unhealthy_since.is_some(), "{seconds}");
        harbour.seconds(60);
        assert_eq!(kind(harbour.describe("one")), RefusalKind::NotFound, "{seconds}");
    }
}

#[test]
fn a3_register_on_an_instance_that_leaves() {
    for answer in [RefusalKind::Conflict, RefusalKind::InvalidRequest] {
        let parameters = Parameters { register_on_leaving: answer, ..Parameters::default() };
        let mut harbour = Harbour::with(parameters);
        let instance = harbour.instances[0].clone();
        harbour.order(json!({"order": "lifecycle", "instance": instance}));
        assert_eq!(kind(harbour.register("one", &instance)), answer);
    }
}

#[test]
fn a4_claim_of_what_the_filter_leaves_out() {
    for answer in [RefusalKind::OutOfCapacity, RefusalKind::Conflict] {
        let mut harbour = Harbour::with(Parameters { claim_filtered_out: answer, ..Parameters::default() });
        let instance = harbour.instances[0].clone();
        harbour.register("one", &instance).unwrap();
        harbour.status(&instance, "DRAINING");
        let active_only = Some(Filter { allows_draining: false });
        assert_eq!(kind(harbour.claim(Some("one"), active_only)), answer);
        assert!(harbour.claim(Some("one"), None).is_ok());
    }
}

#[test]
fn a5_register_with_what_is_not_there() {
    for answer in [RefusalKind::InvalidRequest, RefusalKind::NotFound] {
        let mut harbour = Harbour::with(Parameters { register_foreign: answer, ..Parameters::default() });
        assert_eq!(kind(harbour.register("one", &InstanceId::of(1))), answer);
        harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"status": "ERROR"}}));
        let instance = harbour.instances[0].clone();
        assert_eq!(kind(harbour.register("one", &instance)), answer);
        let unknown = harbour.world.register(Register {
            group: group("nobody"),
            server: server("one"),
            instance,
            connection: None,
            data: None,
        });
        assert_eq!(kind(unknown), answer);
    }
}

#[test]
fn a6_draining_may_become_active() {
    for returns in [false, true] {
        let parameters = Parameters { draining_may_return: returns, ..Parameters::default() };
        let mut harbour = Harbour::with(parameters);
        let instance = harbour.instances[0].clone();
        harbour.status(&instance, "DRAINING");
        let order = json!({"order": "status", "instance": instance, "status": "ACTIVE"});
        assert_eq!(harbour.try_order(order).is_ok(), returns);
        harbour.seconds(60);
        let ended = harbour.kinds_of(&instance).contains(&EventKind::Terminating);
        let scaled_in = harbour.world.instances().count();
        assert_eq!(scaled_in, 3);
        assert!(returns || ended, "one that stays DRAINING is reaped");
    }
}

#[test]
fn a7_the_reaper_waits_or_does_not() {
    for seconds in [0, 30] {
        let reap_after_ms = Milliseconds::of_seconds(seconds);
        let mut harbour = Harbour::with(Parameters { reap_after_ms, ..Parameters::default() });
        let instance = harbour.instances[0].clone();
        harbour.status(&instance, "DRAINING");
        let is_ending = |harbour: &Harbour| {
            harbour.world.instance(instance.as_str()).is_none_or(|one| one.stage.is_ending())
        };
        harbour.advance(Duration::from_millis(5000 + seconds * 1000 - 1));
        assert!(!is_ending(&harbour), "{seconds}");
        harbour.advance(Duration::from_millis(1));
        assert!(is_ending(&harbour), "{seconds}");
    }
}

#[test]
fn a9_utilized_without_a_claim() {
    for allowed in [true, false] {
        let mut harbour = Harbour::with(Parameters { utilize_unclaimed: allowed, ..Parameters::default() });
        let instance = harbour.instances[0].clone();
        harbour.register("one", &instance).unwrap();
        let unclaimed = harbour.update("one", Some(Utilization::Utilized), true);
        assert_eq!(unclaimed.is_ok(), allowed);
        harbour.claim(Some("one"), None).err();
        assert!(harbour.update("one", Some(Utilization::Utilized), true).is_ok());
        harbour.seconds(120);
        assert!(harbour.update("one", Some(Utilization::Utilized), true).is_ok(), "and again, long after");
    }
}

#[test]
fn a11_and_a12_protection_attaches_and_shows() {
    for (claim_protects, lag) in [(true, 0), (true, 60), (false, 0), (false, 60)] {
        let protection_lag_ms = Milliseconds::of_seconds(lag);
        let parameters = Parameters { claim_protects, protection_lag_ms, ..Parameters::default() };
        let mut harbour = Harbour::with(parameters);
        let instance = harbour.instances[0].clone();
        let shown = |harbour: &Harbour| {
            harbour.world.scaling_instances(&[instance.to_string()]).unwrap()[0].is_protected
        };
        harbour.seconds(lag);
        harbour.register("one", &instance).unwrap();
        assert!(!shown(&harbour));
        harbour.claim(Some("one"), None).unwrap();
        assert_eq!(shown(&harbour), claim_protects && lag == 0, "claimed {claim_protects} {lag}");
        harbour.update("one", Some(Utilization::Utilized), true).unwrap();
        assert_eq!(shown(&harbour), lag == 0, "utilized {claim_protects} {lag}");
        harbour.seconds(lag);
        assert!(shown(&harbour), "after the lag {claim_protects} {lag}");
    }
}

#[test]
fn a13_how_a_draining_instance_is_shown() {
    for (shown_as, expected) in [
        (DrainingShown::InService, Some("InService")),
        (DrainingShown::Standby, Some("Standby")),
        (DrainingShown::Detached, Some("Detached")),
        (DrainingShown::Missing, None),
    ] {
        let mut harbour = Harbour::with(Parameters { draining_shown_as: shown_as, ..Parameters::default() });
        let instance = harbour.instances[0].clone();
        harbour.status(&instance, "DRAINING");
        let shown = harbour.world.scaling_instances(&[instance.to_string()]).unwrap();
        assert_eq!(shown.first().map(|one| one.lifecycle), expected);
    }
}

#[test]
fn a14_register_on_a_draining_instance() {
    for allowed in [true, false] {
        let parameters = Parameters { register_on_draining: allowed, ..Parameters::default() };
        let mut harbour = Harbour::with(parameters);
        let instance = harbour.instances[0].clone();
        harbour.status(&instance, "DRAINING");
        assert_eq!(harbour.register("one", &instance).is_ok(), allowed);
    }
}

#[test]
fn a15_a_registered_server_may_not_be_found_at_once() {
    for seconds in [0, 5] {
        let visible_after_ms = Milliseconds::of_seconds(seconds);
        let mut harbour = Harbour::with(Parameters { visible_after_ms, ..Parameters::default() });
        let instance = harbour.instances[0].clone();
        harbour.register("one", &instance).unwrap();
        assert_eq!(harbour.claim(Some("one"), None).is_ok(), seconds == 0);
        assert_eq!(kind(harbour.register("one", &instance)), RefusalKind::Conflict);
        harbour.seconds(seconds);
        assert!(harbour.describe("one").is_ok());
        assert!(harbour.update("one", Some(Utilization::Utilized), true).is_ok());
    }
}
