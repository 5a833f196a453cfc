//! A lifecycle hook of Auto Scaling, on the real wire: AWS's own client against the simulator, whose clock the test moves.

use std::time::Duration;

use berth_agent::drain::Course;
use berth_agent::drain::notice::{Notice, Severity, Source};
use berth_agent::hook::Stage as HookStage;
use berth_agent::hook::call::{Answer, Call};
use berth_agent::hook::client::HookClient;
use berth_agent::hook::machine::{Machine, Outside};
use berth_agent::metadata::ENDS_WITHIN;
use berth_api::game_node::Protection;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::stage::{Agent, GROUP, Given, LIMIT, Stage};

/// The name of the hook that the agent answers.
const HOOK: &str = "drain";
/// Every call that the agent makes to Auto Scaling.
const CALLS: [&str; 4] = [
    "DescribeAutoScalingInstances",
    "DescribeLifecycleHooks",
    "RecordLifecycleActionHeartbeat",
    "CompleteLifecycleAction",
];
const MINUTE: Duration = Duration::from_secs(60);

fn hooked() -> Given {
    Given { hook: HOOK.parse().ok(), ..Given::default() }
}

fn course(drained: bool, severity: Severity) -> Course {
    let notice = Notice { source: Source::Lifecycle, severity, reason: "a test".into(), deadline: None };
    if drained { Course::Drained { notice } } else { Course::Draining { notice } }
}

/// Waits until the hook has come so far.
async fn until(agent: &mut Agent, stage: HookStage) {
    let found = timeout(LIMIT, agent.holding.wait_for(|holding| holding.stage == stage)).await.is_ok();
    assert!(found, "not {stage:?} in time: {:?}", *agent.holding.borrow());
}

/// Waits for the next notice with a time.
async fn deadline(agent: &mut Agent) -> Timestamp {
    loop {
        let notice = agent.signals().await;
        assert_eq!((&notice.source, notice.severity), (&Source::Lifecycle, Severity::AutoScaling));
        if let Some(deadline) = notice.deadline {
            return deadline;
        }
    }
}

/// Until then and no later, give or take what a busy machine takes.
fn is_about(deadline: Timestamp, since: Timestamp, length: Duration) -> bool {
    let after = Duration::try_from(deadline.duration_since(since)).unwrap_or_default();
    (length..length + LIMIT).contains(&after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_with_sessions_is_held_and_an_empty_one_may_go() {
    let stage = Stage::new().await;
    stage.hook(HOOK, 10 * MINUTE);
    let mut agent = Agent::start(&stage, hooked());
    agent.stands(Protection::Protected).await;
    let began = Timestamp::now();
    stage.order(json!({"order": "lifecycle", "instance": stage.instance}));
    let deadline = deadline(&mut agent).await;
    assert!(is_about(deadline, began, 1000 * MINUTE), "{deadline}");
    until(&mut agent, HookStage::Waits).await;
    let words = agent.tells("HookWaits").await;
    assert!(words.contains(HOOK) && words.contains(&deadline.to_string()), "{words}");
    assert_eq!(agent.metric("berth_lifecycle_hook_waits "), Some(1.0));
    agent.course.send_replace(course(false, Severity::AutoScaling));
    stage.simulator.advance(9 * MINUTE);
    assert!(!stage.scaling_stage()["waiting"].is_null(), "{}", stage.scaling_stage());
    agent.course.send_replace(course(true, Severity::AutoScaling));
    until(&mut agent, HookStage::Completed).await;
    agent.tells("HookCompleted").await;
    assert!(!stage.scaling_stage()["ending"].is_null(), "{}", stage.scaling_stage());
    let [_, _, beats, completed] = stage.attempts(CALLS);
    assert_eq!((beats, completed), (1, 1), "one heartbeat lasts ten minutes");
    let held = agent.holding.borrow().clone();
    let scaling_group = format!("gamelift-gameservergroup-{GROUP}");
    assert_eq!((held.group, held.problem), (Some(scaling_group), None));
    assert_eq!(agent.metric("berth_lifecycle_hook_waits "), Some(0.0));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_hook_is_named_none_is_answered_and_the_instance_has_a_minute() {
    let stage = Stage::new().await;
    stage.hook(HOOK, 10 * MINUTE);
    let mut agent = Agent::start(&stage, Given::default());
    let began = Timestamp::now();
    stage.order(json!({"order": "lifecycle", "instance": stage.instance}));
    let deadline = deadline(&mut agent).await;
    assert!(is_about(deadline, began, ENDS_WITHIN), "{deadline}");
    agent.course.send_replace(course(true, Severity::AutoScaling));
    agent.stands(Protection::Released).await;
    assert_eq!(stage.attempts(CALLS), [0; 4]);
    assert!(!stage.scaling_stage()["waiting"].is_null(), "it waits for somebody else");
    assert_eq!(agent.holding.borrow().hook, None);
    agent.stop().await;
}

/// FleetIQ, or anybody, may have a hook of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_named_hook_is_answered() {
    let stage = Stage::new().await;
    stage.hook("another", 10 * MINUTE);
    let mut agent = Agent::start(&stage, hooked());
    let began = Timestamp::now();
    stage.order(json!({"order": "lifecycle", "instance": stage.instance}));
    let words = agent.tells("HookFails").await;
    assert!(words.contains(HOOK) && words.contains(GROUP), "{words}");
    let deadline = deadline(&mut agent).await;
    assert!(is_about(deadline, began, ENDS_WITHIN), "{deadline}");
    until(&mut agent, HookStage::Passed).await;
    agent.course.send_replace(course(true, Severity::AutoScaling));
    let reads = agent.metric("berth_metadata_reads_total ").unwrap_or_default();
    agent.counts("berth_metadata_reads_total ", reads + 3.0).await;
    assert_eq!(stage.attempts([CALLS[2], CALLS[3]]), [0, 0]);
    agent.stop().await;
}

/// Somebody has told Auto Scaling to go on: the agent notices at its next heartbeat, and gives sessions their grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_that_somebody_else_has_completed_is_over() {
    let stage = Stage::new().await;
    stage.hook(HOOK, Duration::from_secs(30));
    let mut agent = Agent::start(&stage, hooked());
    stage.order(json!({"order": "lifecycle", "instance": stage.instance}));
    until(&mut agent, HookStage::Waits).await;
    let first = deadline(&mut agent).await;
    let client = aws_sdk_autoscaling::Client::from_conf(stage.scaling().build());
    let complete = client.complete_lifecycle_action().lifecycle_hook_name(HOOK);
    let complete = complete.auto_scaling_group_name(format!("gamelift-gameservergroup-{GROUP}"));
    let complete = complete.instance_id(&stage.instance).lifecycle_action_result("CONTINUE");
    complete.send().await.expect("completed");
    until(&mut agent, HookStage::Passed).await;
    let second = deadline(&mut agent).await;
    assert!(second < first && second <= Timestamp::now() + ENDS_WITHIN, "{first} {second}");
    let words = agent.tells("HookFails").await;
    assert!(words.contains("does not wait"), "{words}");
    let refused = r#"berth_lifecycle_hook_calls_total{operation="RecordLifecycleActionHeartbeat",code="invalid_request"} "#;
    assert_eq!(agent.metric(refused), Some(1.0));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_and_a_throttle_are_told_apart_by_name_and_outlasted() {
    let denied = json!({"effect": "error", "name": "AccessDenied", "status": 403});
    let throttled = json!({"effect": "error", "name": "Throttling", "status": 400});
    for (operation, effect, code) in [
        (CALLS[2], denied.clone(), "denied"),
        (CALLS[2], throttled.clone(), "throttled"),
        (CALLS[3], denied, "denied"),
        (CALLS[3], throttled, "throttled"),
    ] {
        let stage = Stage::new().await;
        stage.hook(HOOK, Duration::from_secs(30));
        stage.fault(json!({"operations": [operation], "effects": [effect]}));
        let mut agent = Agent::start(&stage, hooked());
        stage.order(json!({"order": "lifecycle", "instance": stage.instance}));
        agent.course.send_replace(course(operation == CALLS[3], Severity::AutoScaling));
        let words = agent.tells("HookFails").await;
        assert!(words.contains(operation) && words.contains(code), "{words}");
        // It is shown a moment after it is told.
        let names = |problem: &String| problem.contains(operation) && problem.contains(code);
        let shown = agent.holding.wait_for(|holding| holding.problem.as_ref().is_some_and(names));
        assert!(timeout(LIMIT, shown).await.is_ok(), "not shown: {:?}", *agent.holding.borrow());
        let count = format!(r#"berth_lifecycle_hook_calls_total{{operation="{operation}",code="{code}"}} "#);
        agent.counts(&count, 1.0).await;
        stage.fault(Value::Null);
        agent.course.send_replace(course(true, Severity::AutoScaling));
        until(&mut agent, HookStage::Completed).await;
        agent.stop().await;
    }
}

/// The machine and Auto Scaling in virtual time.
struct Play {
    stage: Stage,
    client: HookClient,
    machine: Machine,
    now: Timestamp,
}

impl Play {
    async fn new(lasts: Duration) -> Self {
        let stage = Stage::new().await;
        stage.hook(HOOK, lasts);
        let hook = HOOK.parse().expect("a name");
        let client = HookClient::new(stage.scaling(), hook, stage.instance.clone());
        let now = stage.simulator.state()["now"].as_str().expect("a time").parse().expect("a time");
        Self { client, machine: Machine::new(None, now, 0.5), stage, now }
    }

    /// Lets everything happen that is due within a time.
    async fn run(&mut self, course: &Course, limit: Duration) {
        let outside = Outside { course, is_ending: self.stage.scaling_stage()["waiting"].is_object() };
        let end = self.now + limit;
        self.machine.follow(&outside, self.now);
        while let Some(due) = self.machine.next(&outside).filter(|due| due.at.is_none_or(|at| at <= end)) {
            self.go_to(due.at.unwrap_or(self.now));
            let answer = self.call(&due.call).await;
            self.machine.hear(answer, self.now, 0.5);
        }
        self.go_to(end);
    }

    async fn call(&self, call: &Call) -> Answer {
        self.client.call(call).await
    }

    fn go_to(&mut self, at: Timestamp) {
        if at > self.now {
            self.stage.simulator.advance(Duration::try_from(at.duration_since(self.now)).expect("forward"));
            self.now = at;
        }
    }
}

/// Elsewhere an end of which nobody was told in time was never completed: one time for everything ran out, and the work was
/// abandoned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_three_hours_is_waited_for_and_its_end_completes_the_action() {
    for lasts in [3600, 300] {
        let mut play = Play::new(Duration::from_secs(lasts)).await;
        play.run(&Course::Open, 10 * MINUTE).await;
        assert_eq!(play.stage.attempts(CALLS), [1, 1, 0, 0], "the hook is looked at, and left alone");
        play.stage.order(json!({"order": "lifecycle", "instance": play.stage.instance}));
        let since = play.now;
        play.run(&course(false, Severity::AutoScaling), 180 * MINUTE).await;
        let waiting = &play.stage.scaling_stage()["waiting"];
        assert_eq!(waiting["hook"], HOOK, "{lasts}");
        let beats = usize::try_from(180 * 60 / (lasts / 3)).expect("few") + 1;
        assert_eq!(play.stage.attempts(CALLS), [1, 2, beats, 0], "{lasts}");
        let longest = Duration::from_secs((lasts * 100).min(48 * 3600));
        assert_eq!(play.machine.deadline(play.now), Some(since + longest));
        play.run(&course(true, Severity::AutoScaling), Duration::from_secs(5)).await;
        assert_eq!(play.machine.stage(), HookStage::Completed);
        assert_eq!(play.stage.attempts(CALLS), [1, 2, beats, 1], "{lasts}");
        assert!(play.stage.scaling_stage().is_null(), "it is gone after five seconds");
    }
}

/// A hundred heartbeats, and no more: what is said of the deadline is what Auto Scaling does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_hold_an_instance_until_the_deadline_that_was_said() {
    let mut play = Play::new(Duration::from_secs(30)).await;
    play.stage.order(json!({"order": "lifecycle", "instance": play.stage.instance}));
    let since = play.now;
    let sessions = course(false, Severity::AutoScaling);
    play.run(&sessions, Duration::from_secs(2999)).await;
    assert!(play.stage.scaling_stage()["waiting"].is_object());
    assert_eq!(play.machine.deadline(play.now), Some(since + Duration::from_secs(3000)));
    play.run(&sessions, Duration::from_secs(2)).await;
    assert!(play.stage.scaling_stage()["ending"].is_object(), "{}", play.stage.scaling_stage());
}
