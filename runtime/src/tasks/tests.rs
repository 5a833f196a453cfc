//! What a group of tasks promises, on a paused clock.

use std::io;

use super::*;

const GRACE: Duration = Duration::from_secs(5);

async fn until(token: CancellationToken) -> io::Result<()> {
    token.cancelled().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn tasks_that_end_when_asked_are_no_error() {
    let group = TaskGroup::new(CancellationToken::new());
    let token = group.token();
    group.spawn("first", until(token.clone()));
    group.spawn("second", until(token.clone()));
    token.cancel();
    group.join(GRACE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_unasked_ends_the_group_and_is_named() {
    let group = TaskGroup::new(CancellationToken::new());
    let token = group.token();
    group.spawn("patient", until(token.clone()));
    group.spawn("deserter", async { Ok::<(), io::Error>(()) });
    let error = group.join(GRACE).await.unwrap_err();
    assert_eq!(error.to_string(), "task deserter ended unasked");
    assert!(token.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_with_its_cause() {
    let group = TaskGroup::new(CancellationToken::new());
    group.spawn("lease", async { Err(io::Error::other("disk full")) });
    let error = group.join(GRACE).await.unwrap_err();
    assert_eq!(chain(&error), "task lease failed: disk full");
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_stopping_is_reported_too() {
    let group = TaskGroup::new(CancellationToken::new());
    let token = group.token();
    let stopped = token.clone();
    group.spawn("journal", async move {
        stopped.cancelled().await;
        Err(io::Error::other("disk full"))
    });
    token.cancel();
    let error = group.join(GRACE).await.unwrap_err();
    assert_eq!(chain(&error), "task journal failed: disk full");
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_group_and_is_named() {
    let group = TaskGroup::new(CancellationToken::new());
    group.spawn("brittle", async {
        if true {
            panic!("index {} of {}", 3, 2);
        }
        Ok::<(), io::Error>(())
    });
    let error = group.join(GRACE).await.unwrap_err();
    assert_eq!(error.to_string(), "task brittle panicked: index 3 of 2");
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_bounds_the_wait() {
    let group = TaskGroup::new(CancellationToken::new());
    group.spawn("deaf", std::future::pending::<Result<(), io::Error>>());
    group.token().cancel();
    let before = tokio::time::Instant::now();
    let error = group.join(GRACE).await.unwrap_err();
    assert_eq!(error.to_string(), "still running 5s after the stop: deaf");
    assert_eq!(before.elapsed(), GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_child_may_end_and_the_group_goes_on() {
    let group = TaskGroup::new(CancellationToken::new());
    let mut child = group.spawner().spawn_child("worker", async {});
    assert_eq!(child.name(), "worker");
    child.ended().await.unwrap();
    assert!(child.is_finished());
    assert!(!group.token().is_cancelled());
    group.token().cancel();
    group.join(GRACE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_child_that_panics_is_told_to_its_supervisor_only() {
    let group = TaskGroup::new(CancellationToken::new());
    let mut child = group.spawner().spawn_child("worker", async { panic!("bug") });
    let error = child.ended().await.unwrap_err();
    assert_eq!(error, ChildError::Panicked { task: "worker".to_owned(), message: "bug".to_owned() });
    assert!(!group.token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_child_can_be_aborted() {
    let group = TaskGroup::new(CancellationToken::new());
    let mut child = group.spawner().spawn_child("worker", std::future::pending());
    child.abort();
    assert_eq!(child.ended().await.unwrap_err(), ChildError::Aborted { task: "worker".to_owned() });
    group.token().cancel();
    group.join(GRACE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn children_are_waited_for_when_the_group_ends() {
    let group = TaskGroup::new(CancellationToken::new());
    let token = group.token();
    let spawner = group.spawner();
    let (done, mut is_done) = tokio::sync::oneshot::channel();
    let stop = token.clone();
    spawner.spawn_child("worker", async move {
        stop.cancelled().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _ = done.send(());
    });
    token.cancel();
    group.join(GRACE).await.unwrap();
    assert!(is_done.try_recv().is_ok());
}
