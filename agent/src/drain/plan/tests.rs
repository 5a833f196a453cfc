//! Every step of a drain and of the way back, and what must never happen on it.

use std::time::Duration;

use berth_api::game_node::Protection;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use proptest::prelude::{Strategy, any, prop, prop_assert, proptest};

use super::{OurTaint, Plan, Pods, Seen, Step, assumed_deadline, end_of_session, plan};
use crate::drain::marks::{At, Marks, Phase};
use crate::drain::notice::{Notice, Severity, Source};
use crate::drain::{Course, node};
use crate::fleetiq::{Offers, Standing};
use crate::node::NodeFacts;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn notice(source: Source, severity: Severity) -> Notice {
    Notice { source, severity, reason: "because".into(), deadline: None }
}

fn ordered() -> Notice {
    notice(Source::Socket, Severity::Ordered)
}

fn cordoned() -> Notice {
    notice(Source::Cordon, Severity::Cordoned)
}

/// A node and all around it, at second 100.
#[derive(Clone, Debug)]
struct Scene {
    gravest: Option<Notice>,
    before: Course,
    node: NodeFacts,
    standing: Standing,
    pods: Pods,
    given_up_at: Option<Timestamp>,
    now: Timestamp,
}

impl Scene {
    fn with(gravest: Option<Notice>) -> Self {
        Self {
            gravest,
            before: Course::Open,
            node: NodeFacts::default(),
            standing: Standing::default(),
            pods: Pods { are_known: true, left: 2, ..Pods::default() },
            given_up_at: None,
            now: at(100),
        }
    }

    fn plan(&self) -> Plan {
        let kept: Vec<Notice> =
            self.gravest.iter().filter(|notice| notice.source.is_kept()).cloned().collect();
        plan(Seen {
            gravest: self.gravest.as_ref(),
            kept: &kept,
            let_go_at: at(130),
            given_up_at: self.given_up_at,
            before: &self.before,
            node: &self.node,
            standing: &self.standing,
            pods: &self.pods,
            at: At { boot_id: "b", now: self.now },
        })
    }

    /// Does a step; answers its word, or none where it is to wait.
    fn take(&mut self, step: Step) -> Option<String> {
        let word = match step {
            Step::Wait(_) => return None,
            Step::Mark(marks) => {
                self.node.marks = marks;
                "mark".to_owned()
            }
            Step::Cordon => {
                (self.node.is_cordoned, self.node.is_cordoned_by_agent) = (true, true);
                "cordon".to_owned()
            }
            Step::Uncordon => {
                (self.node.is_cordoned, self.node.is_cordoned_by_agent) = (false, false);
                "uncordon".to_owned()
            }
            Step::Taint(taint) => {
                self.node.taints.push(object(taint));
                format!("taint {taint:?}")
            }
            Step::Untaint(taint) => {
                self.node.taints.retain(|one| one.key != taint.key());
                format!("untaint {taint:?}")
            }
        };
        Some(word)
    }

    /// Does what is planned, until there is nothing to do but wait.
    fn settle(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        loop {
            let Plan { course, step, .. } = self.plan();
            self.before = course;
            let Some(word) = self.take(step) else { return done };
            done.push(word);
            assert!(done.len() < 12, "it never comes to rest: {done:?}");
        }
    }
}

fn object(taint: OurTaint) -> Taint {
    Taint { key: taint.key().into(), effect: taint.effect().into(), ..Taint::default() }
}

#[test]
fn a_drain_goes_in_its_order_and_waits_for_the_last_pod() {
    let mut scene = Scene::with(Some(ordered()));
    assert_eq!(scene.settle(), ["mark", "cordon", "taint Draining"]);
    assert_eq!(scene.before, Course::Draining { notice: ordered() });
    scene.pods.left = 0;
    assert_eq!(scene.settle(), ["mark"]);
    assert_eq!(scene.before, Course::Drained { notice: ordered() });
    assert_eq!(scene.node.marks.phase, Some(Phase::Drained));
    scene.pods.left = 1;
    scene.settle();
    assert_eq!(scene.before, Course::Drained { notice: ordered() }, "a phase only goes forward");
}

/// What a call answers is not asked: a step is done when the Node shows it, and is the next one until then.
fn assert_repeated_until_shown(word: &str) {
    let mut scene = Scene::with(Some(ordered()));
    for _ in 0..3 {
        let Plan { course, step, .. } = scene.plan();
        scene.before = course;
        if node::word(&step) == word {
            for second in [100, 101, 10_000] {
                scene.now = at(second);
                let next = scene.plan().step;
                assert_eq!(node::word(&next), word, "at {second}: {next:?}");
            }
            return;
        }
        scene.take(step);
    }
    panic!("a drain has no step {word}");
}

#[test]
fn defect_4_a_node_is_tainted_when_it_shows_the_taint_and_no_sooner() {
    assert_repeated_until_shown("taint");
}

#[test]
fn defect_5_a_step_that_failed_is_the_next_one_again() {
    assert_repeated_until_shown("mark");
}

#[test]
fn defect_23_a_node_is_closed_when_it_shows_so_and_no_taint_comes_before() {
    assert_repeated_until_shown("cordon");
    // Nor is it empty while it is open, or not tainted.
    for (is_cordoned, is_tainted) in [(false, true), (true, false)] {
        let mut scene = Scene::with(Some(ordered()));
        scene.pods.left = 0;
        scene.node.is_cordoned = is_cordoned;
        scene.node.taints = is_tainted.then(|| object(OurTaint::Draining)).into_iter().collect();
        assert_eq!(scene.plan().course, Course::Draining { notice: ordered() });
    }
}

#[test]
fn an_order_taken_back_leaves_the_node_as_it_was() {
    for empty in [false, true] {
        let mut scene = Scene::with(Some(ordered()));
        let node = scene.node.clone();
        scene.pods.left = usize::from(!empty);
        scene.settle();
        scene.gravest = None;
        assert_eq!(scene.settle(), ["untaint Draining", "uncordon", "mark"]);
        assert_eq!((scene.before, scene.node), (Course::Open, node));
    }
}

#[test]
fn a_drain_taken_back_half_way_goes_back_half_way() {
    let mut scene = Scene::with(Some(ordered()));
    let Step::Mark(marks) = scene.plan().step else { panic!("it is marked first") };
    scene.node.marks = marks;
    scene.gravest = None;
    assert_eq!(scene.settle(), ["mark"]);
    assert_eq!(scene.node, NodeFacts::default());
}

#[test]
fn a_cordon_of_somebody_else_is_left_alone_whatever_comes_after_it() {
    let mut scene = Scene::with(Some(cordoned()));
    scene.node.is_cordoned = true;
    let closed = Course::Closed { notice: cordoned(), let_go_at: at(130) };
    let plan = scene.plan();
    assert_eq!((plan.course, plan.step), (closed, Step::Wait(Some(at(130)))));
    assert_eq!(plan.marks, Marks::default(), "nothing is written to the Node");
    scene.gravest = Some(ordered());
    assert_eq!(scene.settle(), ["mark", "taint Draining"]);
    scene.gravest = Some(cordoned());
    assert_eq!(scene.settle(), ["untaint Draining", "mark"]);
    assert!(scene.node.is_cordoned);
}

#[test]
fn a_node_that_the_agent_closed_is_opened_by_it_and_no_other_is() {
    let advice = notice(Source::Rebalance, Severity::Cordoned);
    let mut scene = Scene::with(Some(advice));
    assert_eq!(scene.settle(), ["cordon"]);
    scene.gravest = None;
    assert_eq!(scene.settle(), ["uncordon"]);

    let mut foreign = Scene::with(None);
    foreign.node.is_cordoned = true;
    assert_eq!(foreign.settle(), Vec::<String>::new());
}

#[test]
fn defect_21_no_taint_comes_before_every_pod_tolerates_it_or_is_on_its_way_out() {
    let mut scene = Scene::with(Some(ordered()));
    scene.pods.exposed_to_draining = Some("games/lobby".into());
    assert_eq!(scene.settle(), ["mark", "cordon"]);
    assert_eq!(scene.plan().withheld, Some((OurTaint::Draining, "games/lobby".to_owned())));

    // One that tolerates it since now is not seen by everybody yet.
    scene.pods.exposed_to_draining = None;
    scene.pods.tolerated_at = Some(at(98));
    assert_eq!(scene.plan().step, Step::Wait(Some(at(103))));
    scene.now = at(103);
    assert_eq!(scene.plan().step, Step::Taint(OurTaint::Draining));

    // When the node is gone within a minute there is no time for that.
    scene.now = at(100);
    for (deadline, expected) in [(159, Step::Taint(OurTaint::Draining)), (160, Step::Wait(Some(at(103))))] {
        let spot = Notice { deadline: Some(at(deadline)), ..notice(Source::Spot, Severity::Spot) };
        scene.gravest = Some(spot);
        if let Step::Mark(marks) = scene.plan().step {
            scene.node.marks = marks;
        }
        assert_eq!(scene.plan().step, expected, "{deadline}");
    }

    let mut unknown = Scene::with(Some(ordered()));
    unknown.pods = Pods::default();
    assert_eq!(unknown.settle(), ["mark", "cordon"], "nobody knows the pods yet");
    assert!(matches!(unknown.before, Course::Draining { .. }));
}

#[test]
fn a_graver_notice_changes_the_marks_and_nothing_else() {
    let mut scene = Scene::with(Some(notice(Source::FleetIq, Severity::Draining)));
    scene.settle();
    scene.gravest = Some(Notice { deadline: Some(at(500)), ..notice(Source::Spot, Severity::Spot) });
    assert_eq!(scene.settle(), ["mark"]);
    assert_eq!(
        (scene.node.marks.phase, scene.node.marks.deadline),
        (Some(Phase::Terminating), Some(at(500)))
    );
}

#[test]
fn a_restarted_agent_that_has_drained_its_node_knows_so() {
    let mut scene = Scene::with(Some(ordered()));
    scene.pods.left = 0;
    scene.settle();
    scene.before = Course::Open;
    scene.pods = Pods::default();
    assert_eq!(scene.plan().course, Course::Drained { notice: ordered() });
}

#[test]
fn a_drain_that_takes_too_long_is_given_up_where_that_is_set() {
    let mut scene = Scene::with(Some(ordered()));
    scene.given_up_at = Some(at(200));
    scene.settle();
    assert_eq!(scene.plan().step, Step::Wait(Some(at(200))));
    scene.now = at(200);
    assert_eq!(scene.plan().course, Course::Drained { notice: ordered() });
}

#[test]
fn defect_34_taints_follow_the_standing_with_fleetiq() {
    let standing = |protection, offers| Standing { protection, offers, ..Standing::default() };
    let withheld = || Offers::Withheld { why: "not yet".into() };
    let table = [
        (standing(Protection::NotConfigured, Offers::Allowed), vec![OurTaint::Unprotected], vec![]),
        (standing(Protection::Unregistered, withheld()), vec![OurTaint::Unprotected], vec![]),
        (
            standing(Protection::Unregistered, Offers::Allowed),
            vec![OurTaint::Unprotected],
            vec!["untaint Unprotected"],
        ),
        (
            standing(Protection::Protected, Offers::Allowed),
            vec![OurTaint::Unprotected],
            vec!["mark", "taint Active", "untaint Unprotected"],
        ),
        (standing(Protection::Missing, withheld()), vec![OurTaint::Active], vec!["mark"]),
        (
            standing(Protection::Registered, withheld()),
            vec![OurTaint::Active],
            vec!["mark", "untaint Active"],
        ),
    ];
    for (standing, taints, expected) in table {
        let mut scene = Scene::with(None);
        scene.standing = standing.clone();
        scene.node.taints = taints.into_iter().map(object).collect();
        assert_eq!(scene.settle(), expected, "{standing:?}");
    }
    let mut scene = Scene::with(None);
    scene.standing = standing(Protection::Protected, Offers::Allowed);
    scene.pods.exposed_to_active = Some("games/lobby".into());
    assert_eq!(scene.settle(), ["mark"]);
    assert_eq!(scene.plan().withheld, Some((OurTaint::Active, "games/lobby".to_owned())));
}

#[test]
fn marks_of_another_instance_are_walked_back() {
    let mut scene = Scene::with(None);
    scene.node.is_cordoned = true;
    scene.node.is_cordoned_by_agent = true;
    scene.node.taints = vec![object(OurTaint::Draining)];
    scene.node.marks = Marks {
        phase: Some(Phase::Deregistered),
        phase_since: Some(at(1)),
        instance: Some("i-old".into()),
        reason: Some("because".into()),
        ..Marks::default()
    };
    scene.standing.instance = Some("i-new".into());
    assert_eq!(scene.settle(), ["untaint Draining", "uncordon", "mark"]);
    assert_eq!(scene.node.marks.instance.as_deref(), Some("i-new"));
}

#[test]
fn only_what_is_certain_to_end_has_a_deadline_that_nobody_has_said() {
    assert_eq!(assumed_deadline(Severity::Spot, at(10)), Some(at(60)));
    // Of an end by Auto Scaling whoever hears of it says when.
    for severity in
        [Severity::AutoScaling, Severity::Cordoned, Severity::Claimed, Severity::Ordered, Severity::Draining]
    {
        assert_eq!(assumed_deadline(severity, at(10)), None, "{severity:?}");
    }
}

#[test]
fn a_session_ends_its_grace_before_the_node_does() {
    let seconds = Duration::from_secs;
    let table = [
        ("two minutes and the usual grace", 220, 30, 100, (185, 30)),
        ("at its instant", 220, 30, 185, (185, 30)),
        ("a grace longer than the time", 120, 30, 100, (100, 15)),
        ("hardly any time", 105, 30, 100, (99, 1)),
        ("too late", 50, 30, 100, (44, 1)),
        ("no grace at all", 220, 0, 100, (214, 1)),
    ];
    for (name, deadline, grace, now, (ends_at, given)) in table {
        assert_eq!(end_of_session(at(deadline), seconds(grace), at(now)), (at(ends_at), given), "{name}");
    }
}

fn notices() -> impl Strategy<Value = Option<Notice>> {
    prop::sample::select(vec![
        None,
        Some(notice(Source::Rebalance, Severity::Advice)),
        Some(notice(Source::Rebalance, Severity::Cordoned)),
        Some(cordoned()),
        Some(notice(Source::Autoscaler("k".into()), Severity::Claimed)),
        Some(ordered()),
        Some(notice(Source::FleetIq, Severity::Draining)),
        Some(Notice { deadline: Some(at(150)), ..notice(Source::Spot, Severity::Spot) }),
    ])
}

proptest! {
    /// Whatever is said in whatever order, the Node comes to rest, no taint hits a pod, and a node that nobody wants to
    /// go is in the end as it was found.
    #[test]
    fn any_way_comes_to_rest_and_back(
        said in prop::collection::vec((notices(), any::<bool>(), 0_usize..3), 0..8),
        was_cordoned in any::<bool>(),
    ) {
        let mut scene = Scene::with(None);
        scene.node.is_cordoned = was_cordoned;
        let found = scene.node.clone();
        let idle = was_cordoned.then(cordoned);
        for (gravest, is_exposed, left) in said {
            scene.gravest = gravest.or_else(|| idle.clone());
            scene.pods.left = left;
            scene.pods.exposed_to_draining = is_exposed.then(|| "games/lobby".to_owned());
            let had_taint = scene.node.has_taint(OurTaint::Draining.key());
            scene.settle();
            let has_taint = scene.node.has_taint(OurTaint::Draining.key());
            prop_assert!(!is_exposed || !has_taint || had_taint);
        }
        scene.gravest = idle;
        scene.settle();
        prop_assert!(scene.node == found, "{:?}", scene.node);
    }
}

#[test]
fn a_node_that_nobody_needs_is_neither_cordoned_nor_tainted() {
    let mut scene = Scene::with(Some(notice(Source::Surplus, Severity::Surplus)));
    scene.standing = Standing { protection: Protection::Protected, ..Standing::default() };
    scene.settle();
    let is_empty = |scene: &Scene| match scene.plan().course {
        Course::Spare { is_empty, .. } => Some(is_empty),
        _ => None,
    };
    assert!(scene.node.has_taint(OurTaint::Active.key()), "it is in use until it is given back");
    assert_eq!(is_empty(&scene), Some(false));
    for (are_known, left, servers) in [(false, 0, 0), (true, 1, 0), (true, 0, 1)] {
        scene.pods = Pods { are_known, left, servers, ..Pods::default() };
        assert_eq!(is_empty(&scene), Some(false), "{:?}", scene.pods);
    }
    scene.pods = Pods { are_known: true, ..Pods::default() };
    assert_eq!(is_empty(&scene), Some(true));
    for (protection, phase) in [
        (Protection::Released, Phase::Registered),
        (Protection::Registered, Phase::Registered),
        (Protection::Protected, Phase::Active),
    ] {
        scene.standing = Standing { protection, ..Standing::default() };
        scene.settle();
        let is_active = protection == Protection::Protected;
        assert_eq!(scene.node.has_taint(OurTaint::Active.key()), is_active, "{protection:?}");
        assert!(!scene.node.is_cordoned && !scene.node.has_taint(OurTaint::Draining.key()));
        assert_eq!(scene.node.marks.phase, Some(phase), "{protection:?}");
    }
    // Whatever else is said comes first.
    scene.gravest = Some(cordoned());
    assert!(matches!(scene.plan().course, Course::Closed { .. }));
    scene.gravest = Some(notice(Source::FleetIq, Severity::Draining));
    assert!(matches!(scene.plan().course, Course::Draining { .. }));
}
