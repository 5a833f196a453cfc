//! What is tried again, and how.

use super::*;

#[test]
fn defect_15_a_call_that_was_throttled_or_failed_is_made_again_alone_and_later() {
    for failure in [Failure::Throttled, Failure::Server, Failure::Timeout] {
        let drained = || {
            let mut play = active();
            play.follow(course(Severity::Draining, true));
            play
        };
        let rows = [
            (unregistered(), Answer::Register(Err(failure)), Call::Register),
            (registered(), Answer::Claim(Err(failure)), Call::Claim),
            (active(), Answer::Update(Err(failure)), Call::Update),
            (drained(), Answer::Deregister(Err(failure)), Call::Deregister),
        ];
        for (mut play, answer, call) in rows {
            for attempt in 0..20 {
                play.hear(answer);
                let (next, wait) = play.due().expect("another attempt");
                assert_eq!(next, call, "{failure:?}, attempt {attempt}");
                assert!((1.0..=60.0).contains(&wait), "{failure:?} {call:?}, attempt {attempt}: {wait}");
            }
        }
    }
}
